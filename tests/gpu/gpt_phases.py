"""Compares the phases of a GPT's steps with each phase alone, and with shuffled names.

``python -m tests.gpu.gpt_phases --out DIR [--seconds 40] [--tiny]`` trains the GPT of
``tests.gpu.step_phases`` in a plain loop, runs forward, backward and optimizer alone, and splits
the same readings again with the names of the phases in random order. It takes less than three
minutes on a GPU and needs no network. It prints for each phase the stated power and its interval,
the power of the phase alone, and whether that power is inside; a split that is refused has its
reason. The readings are written to DIR, so that the split can be repeated.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from energy_callbacks.profiling.phases.exposure import Spans
from energy_callbacks.profiling.phases.fit import Readings
from energy_callbacks.profiling.phases.split import Refusal, split
from tests.gpu.step_phases import Bench, cases, keep_raw

SHUFFLES = 20


def main() -> None:
    """Run the training and its phases, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--tiny", action="store_true")
    told = parser.parse_args()
    told.out.mkdir(parents=True, exist_ok=True)
    keep_raw(told.out)
    case = next(case for case in cases(tiny=told.tiny) if case.name == "gpt")
    bench = Bench(case, told.out / "runs", told.seconds)
    report, steps = bench.plain()
    alone = bench.alone()
    profile = report.profile.step_phases if report.profile is not None else None
    if profile is None:
        print("no profile")
        return
    print(profile.sentence)
    rows = [_row(phase, alone) for phase in profile.phases]
    print(f"{'phase':24} {'ms':>6} {'stated, W':>14} {'alone, W':>9}  result")
    for row in rows:
        print(row["line"])
    refused = _refused(told.out, steps)
    print(f"shuffled names: {refused} of {SHUFFLES} refused")
    figures = {"rows": rows, "alone": alone, "refused": refused, "shuffles": SHUFFLES}
    (told.out / "gpt_phases.json").write_text(json.dumps(figures, indent=1))


def _row(phase: Any, alone: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the figures of one phase; a merged phase is compared with the last of its names."""
    single = alone.get(phase.name.split(", ")[-1])
    single_w = None if single is None else single["power_w"]
    stated, result = "-", "refused"
    if phase.energy_j is not None:
        power_w, error_w = phase.energy_j / phase.time_s, phase.error_j / phase.time_s
        stated = f"{power_w:.0f} +- {error_w:.0f}"
        if single_w is not None:
            result = "inside" if abs(power_w - single_w) <= error_w else "OUTSIDE"
        else:
            result = "not run alone"
    shown = "-" if single_w is None else f"{single_w:.0f}"
    line = f"{phase.name:24} {1e3 * phase.time_s:6.1f} {stated:>14} {shown:>9}  {result}"
    return {"phase": phase.name, "alone_w": single_w, "result": result, "line": line}


def _refused(out: Path, steps: int) -> int | None:
    """Return how many splits with shuffled names are refused; ``None`` if nothing was split."""
    raw = sorted(out.glob("raw*.npz"))
    if not raw:
        return None
    with np.load(raw[0]) as kept:
        names = tuple(str(name) for name in kept["names"])
        spans = Spans(edges_s=kept["edges_s"], labels=kept["labels"], count=len(names))
        sensor = {key: float(kept[key]) for key in ("lag_s", "response_s")}
        known = {key: None if np.isnan(value) else value for key, value in sensor.items()}
        window_s = kept["window_s"] if len(kept["window_s"]) else None
        readings = Readings(t_s=kept["t_s"], power_w=kept["power_w"], window_s=window_s, **known)
    rng = np.random.default_rng(0)
    found = [
        split(replace(spans, labels=_shuffled(spans.labels, rng)), readings, names, steps)
        for _ in range(SHUFFLES)
    ]
    return sum(isinstance(one, Refusal) for one in found)


def _shuffled(labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    mixed = labels.copy()
    mixed[labels >= 0] = rng.permutation(labels[labels >= 0])
    return mixed


if __name__ == "__main__":
    main()
