"""Writes logs in the formats of other programs, with power whose energy has a closed form."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

START = datetime(2026, 11, 21, 0, 17, 39, 818960)
MIB = 2**20
HOSTILE = ("NaN", float("nan"), float("-inf"), -5.0, 1e300, "soon", [], {}, True, "9" * 5000)
"""What may stand where a number belongs; none of it is a power, a size or a time."""


def times(count: int, step_s: float) -> list[datetime]:
    """Returns local times without a time zone."""
    return [START + timedelta(seconds=step_s * number) for number in range(count)]


def native(at: datetime, power: Any = 250.0, index: int = 0, **other: Any) -> dict[str, Any]:
    """Returns a record of ``gputop.py --stats``."""
    return {
        "timestamp": at.isoformat(),
        "gpu_index": index,
        "gpu_name": "AMD Radeon Pro W7900",
        "gpu_type": "amd",
        "utilization": 95.0,
        "memory_used": 1424.0,
        "memory_total": 49152.0,
        "memory_percent": 2.9,
        "temperatures": {"Edge": 56.0, "Junction": 73.0},
        "power": power,
        "power_limit": 300.0,
        "clocks": {"sclk": 1900, "mclk": 1124},
        **other,
    }


def simple(at: datetime, power: Any = 250.0, **other: Any) -> dict[str, Any]:
    """Returns a record of AdamWPrune's ``gpu_stats_*.json``."""
    return {
        "timestamp": at.isoformat(),
        "gpu_name": "NVIDIA H100",
        "gpu_type": "nvidia",
        "utilization": 95.0,
        "memory_used": 1424,
        "memory_total": 81559,
        "power": power,
        "temperature": 56,
        "fan_speed": 0,
        **other,
    }


def as_json(path: Path, records: Any) -> Path:
    """Writes records as ``json.dump(indent=2)`` does."""
    path.write_text(json.dumps(records, indent=2), encoding="utf-8")
    return path


def as_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> Path:
    """Writes one JSON object per line."""
    path.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
    return path


def smi(path: Path, rows: Iterable[str], names: str = "timestamp, power.draw [W]") -> Path:
    """Writes rows as ``nvidia-smi --format=csv`` prints them."""
    path.write_text("\n".join([names, *rows]) + "\n", encoding="utf-8")
    return path


def smi_time(at: datetime) -> str:
    """Formats a time as nvidia-smi does."""
    return at.strftime("%Y/%m/%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}"


def frame(at_s: int, **card: Any) -> dict[str, Any]:
    """Returns a frame of ``all-smi record``."""
    told = datetime.fromtimestamp(at_s, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    gpu = {
        "uuid": "GPU-aaaa",
        "name": "NVIDIA H200",
        "hostname": "node1",
        "utilization": 95.0,
        "temperature": 56,
        "used_memory": 3 * MIB,
        "total_memory": 100 * MIB,
        "frequency": 1980,
        "power_consumption": 400.0,
    }
    return {"schema": 1, "timestamp": told, "hostname": "node1", "gpus": [gpu | card]}


def cut(path: Path, keep: Callable[[str], int]) -> Path:
    """Cuts off the end of a file."""
    text = path.read_text(encoding="utf-8")
    path.write_text(text[: keep(text)], encoding="utf-8")
    return path
