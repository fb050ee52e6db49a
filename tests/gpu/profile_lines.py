"""Attributes joules to lines of source on a real card: are the right lines first, and at what cost?

``python -m tests.gpu.profile_lines [--json FILE]``, about a minute. A training with hot lines of
three kinds: Python on the host, kernels that keep the card busy, and a sleep; also a line that
waits for the card (``item``). Bars: the three are first in their own column, 70 % of the energy is
attributed, and the waiting line gets no energy of the card. Then rounds of a launch-bound loop run
with and without the sampling thread in turn.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import torch

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.profiling.lines import LineProfiler
from energy_callbacks.profiling.lines.stack_sampler import StackSampler
from energy_callbacks.profiling.lines.tally import LineTally
from energy_callbacks.report import build

STEPS: Final = 120
ROUNDS: Final = 24
ROUND_S: Final = 0.5
LARGE: Final = 8192


def host_work(loops: int) -> int:
    """Compute in Python only."""
    total = 0
    for number in range(loops):
        total += number  # HOST
    return total


def train(meter: EnergyMeter, steps: int) -> None:
    """Train; each step has about 60 ms of Python, 90 ms of kernels and 40 ms of sleep."""
    weight = torch.randn(LARGE, LARGE, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    batch = torch.randn(LARGE, LARGE, device="cuda", dtype=torch.bfloat16)
    for _ in range(steps):
        host_work(1_500_000)
        out = batch
        for _ in range(20):
            out = (out @ weight).tanh()  # FORWARD
        loss = out.float().mean()
        loss.backward()  # BACKWARD
        loss.item()  # ITEM
        time.sleep(0.04)  # SLEEP
        weight.grad = None
        meter.step(samples=LARGE)


def lines_with(*comments: str) -> dict[str, int]:
    """Return the numbers of the lines of this file that end with a comment."""
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    ends = list(enumerate(source, start=1))
    return {c: next(n for n, line in ends if line.endswith(f"# {c}")) for c in comments}


def profiled(folder: Path) -> dict[str, Any]:
    """Return the figures of the report of the training."""
    config = EnergyConfig(report_dir=folder)
    with EnergyMeter(config=config, profilers=[LineProfiler()]) as meter:
        time.sleep(2.0)
        with meter.phase("train"):
            train(meter, STEPS)
    profile = build(folder).profile
    assert profile is not None
    assert profile.lines is not None
    found = profile.lines
    numbers = lines_with("HOST", "FORWARD", "BACKWARD", "ITEM", "SLEEP")
    names = {number: comment for comment, number in numbers.items()}

    def top(value: str, count: int = 4) -> list[dict[str, Any]]:
        ranked = sorted(found.lines, key=lambda one: getattr(one, value) or 0.0, reverse=True)
        return [
            {
                "line": one.place,
                "name": names.get(one.line),
                "source": one.source.strip(),
                value: getattr(one, value),
                "energy_j": one.energy_j,
            }
            for one in ranked[:count]
        ]

    item = [one for one in found.lines if one.line == numbers["ITEM"]]
    return {
        "sentence": found.sentence,
        "attributed": (found.attributed_j or 0.0) / (found.energy_j or 1.0),
        "scopes": [
            {"scope": one.scope, "energy_j": one.energy_j, "attributed_j": one.attributed_j}
            for one in found.scopes
        ],
        "windows": found.windows,
        "looks": found.looks,
        "cost_share": found.cost_share,
        "top_energy": top("energy_j", 6),
        "top_gpu": top("gpu_j"),
        "top_cpu": top("cpu_s"),
        "top_wait": top("wait_s"),
        "item_gpu_j": sum(one.gpu_j or 0.0 for one in item),
        "gpu_j": sum(one.gpu_j or 0.0 for one in found.lines),
    }


def overhead() -> dict[str, float]:
    """Run rounds of a launch-bound training with and without the sampling thread, in ABBA order."""
    layers = [torch.nn.Linear(64, 64) for _ in range(20)]
    model = torch.nn.Sequential(*layers).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(32, 64, device="cuda")

    def step_s() -> float:
        torch.cuda.synchronize()
        start_s, steps = time.perf_counter(), 0
        while time.perf_counter() - start_s < ROUND_S:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            steps += 1
        torch.cuda.synchronize()
        return (time.perf_counter() - start_s) / steps

    def asked_step_s() -> float:
        asker = StackSampler(LineTally(time.monotonic()).take, LineProfiler().rate_hz, 0.01)
        asker.start()
        try:
            return step_s()
        finally:
            asker.stop()

    step_s()
    ratios, plain_s = [], []
    for first, second in itertools.islice(
        itertools.cycle([(asked_step_s, step_s), (step_s, asked_step_s)]), ROUNDS
    ):
        took = {one: one() for one in (first, second)}
        ratios.append(took[asked_step_s] / took[step_s] - 1.0)
        plain_s.append(took[step_s])
    error = statistics.stdev(ratios) / len(ratios) ** 0.5
    return {
        "step_ms": 1e3 * statistics.median(plain_s),
        "change": statistics.mean(ratios),
        "change_median": statistics.median(ratios),
        "error_95": 1.96 * error,
    }


def broken(found: dict[str, Any]) -> list[str]:
    """Return the bars that are missed."""
    lines = found["lines"]
    bars = {
        "no window": lines["windows"] == 0,
        "less than 70 % attributed": lines["attributed"] < 0.7,
        "FORWARD or BACKWARD do not lead on the GPU": {one["name"] for one in lines["top_gpu"][:2]}
        != {"FORWARD", "BACKWARD"},
        "HOST is not among the first two by CPU time": "HOST"
        not in [one["name"] for one in lines["top_cpu"][:2]],
        "SLEEP or ITEM do not lead in waiting": lines["top_wait"][0]["name"]
        not in ("SLEEP", "ITEM"),
        "the line that waits got energy of the GPU": lines["item_gpu_j"] > 0.02 * lines["gpu_j"],
        "looking costs over 1 %": found["overhead"]["change_median"] > 0.01,
    }
    return [name for name, is_broken in bars.items() if is_broken]


def main() -> int:
    """Print the figures; returns 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {"lines": profiled(Path(folder))}
        listing = (Path(folder) / "profile" / "lines.txt").read_text(encoding="utf-8")
    found |= {"overhead": overhead(), "torch": torch.__version__}
    found["broken"] = broken(found)
    text = json.dumps(found, indent=2)
    print(text)
    print(listing)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    return 1 if found["broken"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
