"""The CSV format of traces: one line for each window, one column for each field.

Lists are JSON, an empty cell is an unknown value, and ``source`` must not be empty.
"""

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args

from energy_callbacks.core import atomic_files
from energy_callbacks.inference import records
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from energy_callbacks.inference.traces.cells import Line

VERSION: Final = 1
_TENANTS: Final = ("model", "share_pct", "batch")
_SETTINGS: Final = ("sm_mhz", "mem_mhz", "power_limit_w")
_WORDS: Final = {
    "source": records.Source,
    "status": records.Status,
    "phase": records.Phase,
    "mode": records.Mode,
}
_TEXTS: Final = ("run_id", "timestamp_utc", "gpu_uuid", "gpu_name", "driver", "dataset", "note")
_RATES: Final = "tenant_throughputs_per_s"
_NUMBERS: Final = tuple(
    name
    for name in MeasuredWindow.__dataclass_fields__
    if name not in ("configuration", _RATES, *_WORDS, *_TEXTS)
)
COLUMNS: Final = (
    "schema_version", *_WORDS, *_TENANTS, *_SETTINGS, *_NUMBERS, _RATES, *_TEXTS
)  # fmt: skip
HEADER: Final = f"{','.join(COLUMNS)}\n".encode()
"""First line of a trace."""


def append(path: Path, window: MeasuredWindow) -> None:
    """Add a window to a file and write it to the disk; a missing file is created.

    Raises:
        ValueError: if the file is no trace.
        OSError: if it cannot be written.
    """
    with os.fdopen(atomic_files.open_to_append(path), "ab+") as file:
        file.seek(0)
        begin = file.read(len(HEADER))
        if begin not in (b"", HEADER):
            raise ValueError(f"{path} is no trace of version {VERSION}; name another file")
        file.write((b"" if begin else HEADER) + _lines([window]))
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, windows: Sequence[MeasuredWindow]) -> None:
    """Write windows to a file; an older file is replaced."""
    path.write_bytes(HEADER + _lines(windows))


def window(line: Line) -> MeasuredWindow:
    """Return the window of a line.

    Raises:
        ValueError: if a cell is not valid; the message has the file, the line and the column.
    """
    if (version := line.known("schema_version")) != VERSION:
        raise line.error("schema_version", f"version {version:g} is unknown; known: {VERSION}")
    values: dict[str, Any] = {
        **{name: line.word(name, get_args(kind)) for name, kind in _WORDS.items()},
        **{name: line.text(name) for name in _TEXTS},
        **{name: line.number(name) for name in _NUMBERS},
    }
    if (steps := values["steps"]) is not None:
        values["steps"] = int(steps)
    return MeasuredWindow(
        configuration=Configuration(
            tenants=tenants(line), **{name: line.number(name) for name in _SETTINGS}
        ),
        tenant_throughputs_per_s=line.numbers(_RATES),
        **values,
    )


def tenants(
    line: Line,
    names: Sequence[str] | None = None,
    *,
    of_shares: str = "share_pct",
    of_batches: str = "batch",
) -> tuple[Tenant, ...]:
    """Return the tenants in the lists of a line.

    Args:
        line: the line.
        names: models of the tenants; ``None`` if the column ``model`` is a list.
        of_shares: name of the column with the shares.
        of_batches: name of the column with the batches.
    """
    models = line.list("model") if names is None else names
    shares, batches = line.list(of_shares), line.list(of_batches)
    for column, values in ((of_shares, shares), (of_batches, batches)):
        if len(values) != len(models):
            raise line.error(column, f"{len(values)} values for {len(models)} tenants")
    for share in shares:
        if not (isinstance(share, int | float) and 0 < share <= 100):
            raise line.error(of_shares, f"{share!r} is no share above 0 and at most 100")
    for batch in batches:
        if not (isinstance(batch, int) and batch >= 1):
            raise line.error(of_batches, f"{batch!r} is no batch of at least 1")
    return tuple(
        Tenant(model=str(model), share_pct=float(share), batch=batch)
        for model, share, batch in zip(models, shares, batches, strict=True)
    )


def _lines(windows: Sequence[MeasuredWindow]) -> bytes:
    text = io.StringIO()
    csv.DictWriter(text, COLUMNS, lineterminator="\n").writerows(map(_cells, windows))
    return text.getvalue().encode()


def _cells(one: MeasuredWindow) -> dict[str, Any]:
    each = one.configuration.tenants
    lists = {
        "model": [tenant.model for tenant in each],
        "share_pct": [tenant.share_pct for tenant in each],
        "batch": [tenant.batch for tenant in each],
        _RATES: one.tenant_throughputs_per_s,
    }
    return {
        "schema_version": VERSION,
        **{name: json.dumps(values) for name, values in lists.items()},
        **{name: getattr(one.configuration, name) for name in _SETTINGS},
        **{name: getattr(one, name) for name in (*_WORDS, *_NUMBERS, *_TEXTS)},
    }
