"""Reads the file of an offline run of W&B, as ``wandb sync`` does."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# The file has the format of LevelDB's logs, after a header of seven bytes (wandb 0.31, "store.go").
_HEADER, _BLOCK, _CHUNK = 7, 32768, struct.Struct("<IHB")


@dataclass
class WandbView:
    """What a run contains.

    Attributes:
        rows: values by name, of each row.
        summary: final values by name.
        config: configuration by name.
        metrics: definitions of metrics, by name or pattern.
        artifacts: for each artifact, the local path of each file by its name in the artifact.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    artifacts: dict[str, dict[str, Path]] = field(default_factory=dict)

    def steps(self, name: str, step: str) -> list[float]:
        """Return the value of ``step`` in all rows that contain ``name``."""
        return [row[step] for row in self.rows if name in row]


def read(folder: Path) -> WandbView:
    """Read the only run below a folder; end W&B's process first, which may still be writing it."""
    import wandb
    from wandb.proto import wandb_internal_pb2 as pb

    wandb.teardown()
    [path] = {found.resolve() for found in folder.rglob("*.wandb")}
    view = WandbView()
    for content in _records(path.read_bytes()):
        _add(view, pb.Record.FromString(content))
    return view


def _records(data: bytes) -> Iterator[bytes]:
    """Yield the records of a file; a record may consist of several chunks."""
    at, parts = _HEADER, b""
    while at + _CHUNK.size <= len(data):
        left = _BLOCK - at % _BLOCK
        if left < _CHUNK.size:
            at += left
            continue
        _, length, kind = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        parts += data[at : at + length]
        at += length
        if kind in (1, 4):  # the whole record, or its last part
            yield parts
            parts = b""


def _add(view: WandbView, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "history":
        view.rows.append(_values(record.history.item))
    elif kind == "summary":
        view.summary |= _values(record.summary.update)
        for item in record.summary.remove:
            del view.summary[_name(item)]
    elif kind in ("run", "config"):
        config = record.run.config if kind == "run" else record.config
        view.config |= _values(config.update)
    elif kind == "metric":
        view.metrics[record.metric.name or record.metric.glob_name] = record.metric
    elif kind == "artifact":
        contents = record.artifact.manifest.contents
        view.artifacts[record.artifact.name] = {one.path: Path(one.local_path) for one in contents}


def _values(items: Any) -> dict[str, Any]:
    return {_name(item): json.loads(item.value_json) for item in items}


def _name(item: Any) -> str:
    return item.key or "/".join(item.nested_key)
