"""Measures GPM's activity on a real GPU under loads of known character.

``python -m tests.gpu.activity --out DIR`` (about 30 s of one GPU of Hopper or newer): one phase
each of idling, bf16 matrix products, copies in device memory, and one small kernel after another.
Prints the report's activity for each phase and writes ``activity.json``. Exits with 1 if a load
is not visible: products on the tensor cores, copies in the memory, nothing when idle.
"""

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.report import build

PHASE_S = 7.0


def main() -> int:
    """Run a phase for each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="run folder")
    out: Path = parser.parse_args().out
    matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    big, other = (torch.empty(2**30, dtype=torch.uint8, device="cuda") for _ in range(2))
    small = torch.zeros(32, device="cuda")
    loads: dict[str, Callable[[], object]] = {
        "idling": lambda: time.sleep(0.05),
        "products": lambda: matrix @ matrix,
        "copies": lambda: other.copy_(big),
        "small": lambda: small.add_(1.0),
    }
    with EnergyMeter(config=EnergyConfig(report_dir=out)) as meter:
        for name, load in loads.items():
            with meter.phase(name):
                keep_doing(load)
    report = build(out)
    busy = {phase.name: phase.activity for phase in report.phases if phase.name in loads}
    found = {name: asdict(shares) if shares else None for name, shares in busy.items()}
    found["notes"] = {"device": list(report.devices[0].notes)}  # type: ignore[dict-item]
    text = json.dumps(found, indent=2)
    (out / "activity.json").write_text(text + "\n", encoding="utf-8")
    print(text)
    idling, products, copies = (busy.get(name) for name in ("idling", "products", "copies"))
    if idling is None or products is None or copies is None:
        return 1
    shows = (
        (idling.sm_active or 0.0) < 0.05,
        (products.tensor_active or 0.0) > 0.4,
        (copies.dram_active or 0.0) > 0.5,
        (copies.tensor_active or 0.0) < 0.05,
    )
    return 0 if all(shows) else 1


def keep_doing(load: Callable[[], object]) -> None:
    """Queue a load for some seconds, never far ahead of the card."""
    end_s = time.monotonic() + PHASE_S
    while time.monotonic() < end_s:
        for _ in range(10):
            load()
        torch.cuda.synchronize()


if __name__ == "__main__":
    raise SystemExit(main())
