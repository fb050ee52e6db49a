"""Reads files of iGniter: its ``config`` of measurements, and times of batches of ``trtexec``.

A ``config`` has one JSON object in each line. ``{"resnet50": {"gpulatency": ...}}`` are times of a
batch in ms for the batches 1, 16 and 32 (rows) and the shares 10, 50 and 100 % (columns), as its
program reads them; ``power`` (W) and ``frequency`` (MHz) have the same shape. Other entries are
not used, except for the idle power.

The file ``durtime_MODEL_bBATCH_tSHARE`` is a JSON list with an object for each batch, where
``computeMs`` is its time on the GPU. Such files have no power.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant

_BATCHES: Final = (1, 16, 32)
_SHARES: Final = (10.0, 50.0, 100.0)
_NAME: Final = re.compile(r"durtime_(?P<model>.+)_b(?P<batch>\d+)_t(?P<share>\d+)")


def is_igniter(path: Path, first: str) -> bool:
    """Return whether a file is one of iGniter.

    Args:
        path: its path.
        first: its first line.
    """
    return _NAME.fullmatch(path.stem) is not None or first.startswith("{")


def read(path: Path) -> list[MeasuredWindow]:
    """Return the windows of a file.

    Raises:
        ValueError: if the file is not valid; the message has the file and the line.
    """
    text = path.read_text(encoding="utf-8")
    if (name := _NAME.fullmatch(path.stem)) is not None:
        try:
            times_ms = [float(one["computeMs"]) for one in json.loads(text)]
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path} is not a list of times of batches: {error}") from error
        share, batch = float(name["share"]), int(name["batch"])
        return [_window(name["model"], share, batch, median(times_ms), steps=len(times_ms))]
    tables: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            for model, entry in json.loads(line or "{}").items():
                tables.setdefault(model, {}).update(entry)
        except (ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{path}, line {number}: not an iGniter entry: {error}") from error
    try:
        return [one for model, table in tables.items() for one in _windows(model, table)]
    except (IndexError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: not three batches by three shares: {error!r}") from error


def _windows(model: str, table: dict[str, Any]) -> Iterator[MeasuredWindow]:
    if "idlepower" in table:
        yield MeasuredWindow(
            configuration=Configuration(tenants=()),
            source="imported",
            phase="idle",
            power_mean_w=float(table["idlepower"]),
            note="iGniter",
        )
    if "gpulatency" in table:
        for row, batch in enumerate(_BATCHES):
            for column, share in enumerate(_SHARES):
                yield _window(
                    model,
                    share,
                    batch,
                    table["gpulatency"][row][column],
                    power_mean_w=table["power"][row][column],
                    sm_mhz_measured=table["frequency"][row][column],
                )


def _window(
    model: str, share_pct: float, batch: int, time_ms: float, **figures: Any
) -> MeasuredWindow:
    tenant = Tenant(model=model, share_pct=share_pct, batch=batch)
    return MeasuredWindow(
        configuration=Configuration(tenants=(tenant,)),
        source="imported",
        throughput_per_s=1e3 * batch / time_ms,
        latency_p50_ms=time_ms,
        note="iGniter",
        **figures,
    )
