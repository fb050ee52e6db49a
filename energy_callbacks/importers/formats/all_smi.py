"""Reads files of ``all-smi record``: one JSON object per line, plain, ``.gz`` or ``.zst``.

The first object is usually a header. A frame is an object with ``timestamp`` (RFC 3339, whole
seconds) and the lists ``gpus`` and ``cpus``, which have the values of each device at that time.
Memory is in bytes, frequency in MHz, power in W; unknown values are -1, 0 or null, depending on the
quantity. For the power of a GPU, it is 0 (all-smi, src/device/readers/nvidia.rs). CPUs without
known power are skipped.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files, journal_lines, recording
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Layout, Samples
from energy_callbacks.importers.values import index, moment, short_text, size_bytes

NAME: Final = "all-smi"
_LAYOUT: Final = Layout(
    power=("power_consumption",),
    utilisation=("utilization",),
    memory_used=("used_memory",),
    temperature=("temperature",),
    clock=("frequency",),
    name=("name", "cpu_model"),
    uuid=("uuid",),
    memory_total=("total_memory",),
    memory_bytes=size_bytes,
    zero_is_known=False,
)
_LISTS: Final = {"gpus": "gpu", "cpus": "cpu"}


def recognises(log: Log) -> bool:
    """Return whether the file begins with the header of a recording, or with a frame."""
    start = log.first_line
    is_frame = (
        '"schema"' in start and '"timestamp"' in start and ('"gpus"' in start or '"cpus"' in start)
    )
    return start.startswith("{") and ('"all_smi_version"' in start or is_frame)


def records(log: Log) -> Iterator[Record]:
    """Yield the journal of the log; see ``Importer.records``."""
    samples = Samples(log, _LAYOUT)
    keys: dict[tuple[str, str, str], str] = {}
    version: str | None = None
    for line in files.lines(log.path, samples.damage):
        frame = _frame(line, samples.damage)
        version = version or short_text(frame.get("all_smi_version"))
        time = moment(frame.get("timestamp"))
        if time is None and (not frame or "header" in frame or "index" in frame):
            continue
        t_s = samples.t_s(time)
        if t_s is None:
            continue
        for kind, device in _devices(frame):
            samples.add(_key(keys, kind, device), t_s, device)
    hosts = list(dict.fromkeys(host for _, host, _ in keys))
    if len(hosts) > 1:
        _add_hosts_to_names(samples, keys)
    header = journal_lines.header(
        log,
        NAME,
        version=version,
        name=log.path.name.split(".")[0],
        host=hosts[0] if len(hosts) == 1 else None,
    )
    remark = journal_lines.remark(NAME, "its times are whole seconds")
    yield from recording.recorded(log, header, samples, [remark])


def _frame(line: str, damage: files.Damage) -> Mapping[str, Any]:
    if not line.strip():
        return {}
    try:
        frame = json.loads(line)
    except (RecursionError, ValueError):
        frame = None
    if isinstance(frame, dict):
        return frame
    if line.endswith("\n"):
        damage.places += 1
    else:
        damage.is_cut_off = True
    return {}


def _devices(frame: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, kind in _LISTS.items():
        listed = frame.get(name)
        for device in listed if isinstance(listed, list) else ():
            if isinstance(device, dict) and (kind == "gpu" or device.get("power_consumption")):
                yield kind, device


def _key(keys: dict[tuple[str, str, str], str], kind: str, device: Mapping[str, Any]) -> str:
    """Return the key of a device in ``keys``; add a new key if the device has none.

    Args:
        keys: keys by kind, host and UUID (or index, if there is no UUID) of the device.
        kind: ``gpu`` or ``cpu``.
        device: fields of the device in a frame.
    """
    host = short_text(device.get("hostname")) or "unknown"
    uuid = short_text(device.get("uuid")) or str(index(device.get("index")) or 0)
    count = sum(known == kind for known, _, _ in keys)
    return keys.setdefault((kind, host, uuid), f"{kind}{count}")


def _add_hosts_to_names(samples: Samples, keys: Mapping[tuple[str, str, str], str]) -> None:
    for (_, host, _), key in keys.items():
        device = samples.devices[key].device
        samples.devices[key].device = replace(device, name=f"{device.name} on {host}")
