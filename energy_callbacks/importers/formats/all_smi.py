"""NDJSON of ``all-smi record``, plain, ``.gz`` or ``.zst``: a header, then a frame a look.

A frame has ``timestamp`` (RFC 3339, whole seconds) and lists ``gpus`` and ``cpus``; memory is in
bytes, frequency in MHz, power in W, and what is not known is -1, 0 or null, by quantity. Only CPUs
with a power are read.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.importers import files, journal_lines, recording
from energy_callbacks.importers.journal_lines import About
from energy_callbacks.importers.log_clock import LogClock
from energy_callbacks.importers.protocol import Log
from energy_callbacks.importers.samples import Samples
from energy_callbacks.importers.values import (
    celsius,
    clock_from_megahertz,
    index,
    moment,
    share,
    size_bytes,
    whole,
    words,
)

NAME: Final = "all-smi"
_LISTS: Final = {"gpus": "gpu", "cpus": "cpu"}


def recognises(log: Log) -> bool:
    """A header of a recording, or a frame."""
    start = log.first_line
    is_frame = (
        '"schema"' in start and '"timestamp"' in start and ('"gpus"' in start or '"cpus"' in start)
    )
    return start.startswith("{") and ('"all_smi_version"' in start or is_frame)


def records(log: Log) -> Iterator[Record]:
    """See ``Importer``."""
    samples, clock, damage = Samples(log.path), LogClock(), files.Damage()
    keys: dict[tuple[str, str, str], str] = {}
    version: str | None = None
    for line in files.lines(log.path, damage):
        frame = _frame(line, damage)
        version = version or words(frame.get("all_smi_version"))
        found = moment(frame.get("timestamp"))
        if found is None:
            damage.places += bool(frame) and not ("header" in frame or "index" in frame)
            continue
        t_s = clock.t_s(found)
        for kind, device in _devices(frame):
            _add(samples, keys, kind, t_s, device)
    hosts = dict.fromkeys(host for _, host, _ in keys)
    _name_hosts(samples, keys, len(hosts))
    about = About(
        program=NAME,
        version=version,
        name=log.path.name.split(".")[0],
        host=next(iter(hosts)) if len(hosts) == 1 else None,
        unix_s=0.0,
    )
    lines = recording.recorded(log, about, samples, clock, damage)
    yield next(lines)
    yield journal_lines.remark(NAME, "its times are whole seconds")
    yield from lines


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


def _add(
    samples: Samples,
    keys: dict[tuple[str, str, str], str],
    kind: str,
    t_s: float,
    device: Mapping[str, Any],
) -> None:
    host = words(device.get("hostname")) or "unknown"
    uuid = words(device.get("uuid")) or str(index(device.get("index")) or 0)
    count = sum(known == kind for known, _, _ in keys)
    key = keys.setdefault((kind, host, uuid), f"{kind}{count}")
    added = samples.add(
        key,
        t_s,
        device.get("power_consumption"),
        utilisation=share(device.get("utilization")),
        memory_used_bytes=size_bytes(device.get("used_memory")),
        temperature_c=celsius(device.get("temperature")),
        clock_hz=clock_from_megahertz(device.get("frequency")),
    )
    if added.index is None:
        added.kind, added.index = kind, int(key[3:])
        added.name = words(device.get("name") or device.get("cpu_model")) or kind.upper()
        added.uuid = words(device.get("uuid"))
        added.memory_bytes = whole(size_bytes(device.get("total_memory")))


def _name_hosts(samples: Samples, keys: Mapping[tuple[str, str, str], str], hosts: int) -> None:
    """In a recording of several hosts, names of devices include the host."""
    for (_, host, _), key in keys.items():
        if hosts > 1:
            samples.devices[key].name += f" on {host}"
