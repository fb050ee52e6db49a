"""Appends rows to a CSV file, and reads it."""

import csv
import json
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant

_FIELDS = [one.name for one in fields(MeasuredWindow)]


def append(path: Path, row: MeasuredWindow) -> None:
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        if new:
            writer.writerow(_FIELDS)
        writer.writerow([json.dumps(asdict(row)[name]) for name in _FIELDS])
        file.flush()
        os.fsync(file.fileno())


def read(path: Path) -> list[MeasuredWindow]:
    with path.open(newline="", encoding="utf-8") as file:
        found = []
        for cells in csv.DictReader(file):
            v: dict[str, Any] = {k: json.loads(c) for k, c in cells.items()}
            c = v.pop("configuration")
            c["tenants"] = tuple(Tenant(**t) for t in c["tenants"])
            v["tenant_throughputs_per_s"] = tuple(v["tenant_throughputs_per_s"])
            found.append(MeasuredWindow(configuration=Configuration(**c), **v))
        return found
