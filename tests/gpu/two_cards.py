"""Trains with two ranks on two real GPUs, and compares the reports with the cards' own counters.

``python -m tests.gpu.two_cards --out DIR [--seconds 25] [--fake]``: Lightning with ``ddp``, the
Trainer under torchrun, and a plain loop under torchrun with ``CUDA_VISIBLE_DEVICES="1,0"``. This
process reads the energy counter of each card every half second meanwhile. Prints a table, writes
``two_cards.json`` and the reports to DIR, and exits with 1 if anything disagrees. On two H200 it
takes under three minutes. ``--fake`` simulates two cards in real time, without a GPU.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pynvml

from energy_callbacks.report import EnergyReport, build, save
from tests.integrations.ports import reserved_port

# The counter ticks every 100 ms and is read every 500 ms, while power changes at a run's ends.
BAR: Final = 0.02
COVERAGE_BAR: Final = 0.97
_PERIOD_S: Final = 0.5
_LIMIT_S: Final = 240.0
_ROOT: Final = Path(__file__).parents[2]
_CHILD: Final = "TESTS_GPU_TWO_CARDS_ON_FAKE_CARDS"
_RANKS: Final = "tests.gpu.two_ranks"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A training: what runs it, its share of the requested time, and its mask."""

    name: str
    kind: str
    share: float = 1.0
    mask: str = "0,1"

    @property
    def order(self) -> list[int]:
        """NVML's numbers of the cards, by rank."""
        return [int(index) for index in self.mask.split(",")]


PARTS: Final = (
    Part(name="Lightning ddp", kind="lightning"),
    Part(name="Trainer, torchrun", kind="huggingface"),
    Part(name="plain loop, mask 1,0", kind="plain", share=0.8, mask="1,0"),
)


class Counters:
    """Reads the energy counters of all cards on its own thread while the block runs."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        self.uuids = [str(pynvml.nvmlDeviceGetUUID(handle)) for handle in self._handles]
        self._readings: list[list[tuple[float, float]]] = [[] for _ in self._handles]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _read(self) -> None:
        while True:
            is_last = self._is_over.is_set()
            for handle, readings in zip(self._handles, self._readings, strict=True):
                before_s = time.time()
                value_j = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3
                readings.append(((before_s + time.time()) / 2.0, value_j))
            if is_last:
                return
            self._is_over.wait(_PERIOD_S)

    def rise_j(self, uuid: str, start_unix_s: float, end_unix_s: float) -> float:
        """Return the rise of a card's counter between two moments, interpolated."""
        t_s, value_j = np.array(self._readings[self.uuids.index(uuid)]).T
        low_j, high_j = np.interp([start_unix_s, end_unix_s], t_s, value_j)
        return float(high_j - low_j)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """The energy of a card, or of all cards, in the report and by the counter."""

    name: str
    report_j: float | None
    error_j: float
    coverage: float
    counter_j: float

    @property
    def ratio(self) -> float:
        """Report over counter."""
        return float("nan") if self.report_j is None else self.report_j / self.counter_j

    @property
    def agrees(self) -> bool:
        """Whether both agree within the report's error and the bar, with nearly all seen."""
        off_j = float("inf") if self.report_j is None else abs(self.report_j - self.counter_j)
        return off_j <= min(self.error_j, BAR * self.counter_j) and self.coverage >= COVERAGE_BAR


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The results of a part: each claim and whether it holds, and the energies."""

    name: str
    wall_s: float
    claims: dict[str, bool] = field(default_factory=dict)
    energies: list[Compared] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    imbalances: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        """Whether all claims hold."""
        return all(self.claims.values()) and all(one.agrees for one in self.energies)


def command(part: Part, folder: Path, seconds: float, *, is_fake: bool) -> list[str]:
    """Return the command as a user starts it."""
    launcher = ["-m", _RANKS]
    if part.kind != "lightning":
        launcher = [
            *("-m", "torch.distributed.run", "--nproc-per-node=2", "--nnodes=1"),
            *("--master-addr=127.0.0.1", f"--master-port={reserved_port()}", "-m", _RANKS),
        ]
    options = ["--seconds", str(part.share * seconds), *(["--fake"] if is_fake else [])]
    return [sys.executable, *launcher, part.kind, str(folder), *options]


def _variables(mask: str) -> dict[str, str]:
    """Return our variables for the ranks, with CUDA's order of cards as NVML's."""
    paths = [str(_ROOT), str(_ROOT / "integrations"), os.environ.get("PYTHONPATH", "")]
    ours = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    cards = {"CUDA_VISIBLE_DEVICES": mask, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return os.environ | ours | cards


def run(part: Part, folder: Path, seconds: float, *, is_fake: bool) -> Outcome:
    """Train, and compare."""
    folder.mkdir(parents=True)
    start_s = time.monotonic()
    with Counters() as counters:
        ended = subprocess.run(
            command(part, folder, seconds, is_fake=is_fake),
            cwd=_ROOT,
            env=_variables(part.mask),
            timeout=_LIMIT_S,
            check=False,
        )
    outcome = Outcome(name=part.name, wall_s=time.monotonic() - start_s)
    outcome.claims["the training ended well"] = ended.returncode == 0
    if ended.returncode == 0:
        report = build(folder)
        cards = [json.loads((folder / f"card-{rank}.json").read_text())["uuid"] for rank in (0, 1)]
        judge(outcome, report, part, cards, counters)
    return outcome


def judge(
    outcome: Outcome, report: EnergyReport, part: Part, cards: list[str], counters: Counters
) -> None:
    """Check all claims about the report.

    Args:
        outcome: receives the results.
        report: built from the journals.
        part: the training that ran.
        cards: UUID of each rank's card, from PyTorch.
        counters: read during the training.
    """
    gpus = {device.key: device for device in report.devices if device.kind == "gpu"}
    sum_j = sum(device.energy.energy_j or 0.0 for device in gpus.values())
    total_j = report.energy.gpu.energy_j or 0.0
    named = [[gpus[key].uuid for key in rank.gpus] for rank in report.ranks]
    outcome.claims |= {
        "both ranks have finished": {one.status for one in report.attempts} == {"finished"},
        "the cards of the ranks, each once": sorted(device.uuid or "" for device in gpus.values())
        == sorted(set(cards)),
        "the total is their sum": abs(total_j - sum_j) <= 1e-9 * sum_j,
        "each rank has its own card by UUID": named == [[uuid] for uuid in cards],
        "the cards that the mask names": cards == [counters.uuids[index] for index in part.order],
        "ranks made as many steps": len({rank.steps for rank in report.ranks}) == 1
        and report.ranks[0].steps > 0,
        "each rank has watts": all(rank.gpu_power_w for rank in report.ranks),
        "the uneven cards are told": "gpu_power" in {one.quantity for one in report.imbalances},
    }
    outcome.ranks = [asdict(rank) for rank in report.ranks]
    outcome.imbalances = [one.message for one in report.imbalances]
    outcome.energies = compared(report, counters)


def compared(report: EnergyReport, counters: Counters) -> list[Compared]:
    """Compare each card and all cards, over the time of the rank that counts it."""
    found: list[Compared] = []
    keys = [rank.gpus[0] for rank in report.ranks]
    for device in report.devices:
        if device.kind != "gpu" or device.uuid is None:
            continue
        own = report.attempts[keys.index(device.key)]
        span = own if own.energy.energy_j else report.attempts[0]
        end_s = span.started_unix_s + span.duration_s
        counter_j = counters.rise_j(device.uuid, span.started_unix_s, end_s)
        found.append(_compared(device.key, device.energy, counter_j))
    whole_j = sum(one.counter_j for one in found)
    return [*found, _compared("together", report.energy.gpu, whole_j)]


def _compared(name: str, figure: Any, counter_j: float) -> Compared:
    return Compared(
        name=name,
        report_j=figure.energy_j,
        error_j=figure.error_j,
        coverage=figure.coverage,
        counter_j=counter_j,
    )


def table(outcome: Outcome) -> str:
    """Return the results of a part as a table."""
    lines = [f"\n{outcome.name}, {outcome.wall_s:.0f} s"]
    lines += [
        f"  {one.name:<10}{one.report_j or 0.0:>10.1f} +- {one.error_j:>7.1f} J, counter "
        f"{one.counter_j:>10.1f} J, ratio {one.ratio:.4f}, seen {one.coverage:.1%}"
        f"{'' if one.agrees else '   DISAGREES'}"
        for one in outcome.energies
    ]
    lines += [
        f"  rank {rank['rank']}: {rank['gpus']}, {rank['steps']} steps, "
        f"{rank['gpu_power_w'] or 0.0:.1f} W while training"
        for rank in outcome.ranks
    ]
    lines += [f"  {message}" for message in outcome.imbalances]
    lines += [f"  {'yes' if holds else 'NO '} {claim}" for claim, holds in outcome.claims.items()]
    return "\n".join(lines)


def in_fake_child(arguments: list[str]) -> int:
    """Run this again in a process that sees two cards simulated in real time."""
    from tests.fake_nvml import Scenario, Square, env, h200

    first = h200(Square(low_w=100.0, high_w=400.0, period_s=1.03))
    second = h200(Square(low_w=90.0, high_w=300.0, period_s=0.71))
    with tempfile.TemporaryDirectory() as folder:
        path = Scenario(cards=(first, second)).write(Path(folder) / "scenario.txt")
        command = [sys.executable, "-m", "tests.gpu.two_cards", *arguments]
        return subprocess.run(command, env=env(path) | {_CHILD: "1"}, check=False).returncode


def main() -> int:
    """Run all parts; returns 1 if anything disagrees."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=25.0)
    parser.add_argument("--fake", action="store_true", help="no GPU: play two cards in real time")
    arguments = parser.parse_args()
    if arguments.fake and _CHILD not in os.environ:
        return in_fake_child(sys.argv[1:])
    out: Path = arguments.out
    out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        for part in PARTS:
            place = Path(folder) / part.kind
            try:
                outcome = run(part, place, arguments.seconds, is_fake=arguments.fake)
            except Exception as error:  # noqa: BLE001 - the other parts are still useful
                claims = {f"no failure: {error!r}": False}
                outcome = Outcome(name=part.name, wall_s=0.0, claims=claims)
            outcomes.append(outcome)
            print(table(outcome), flush=True)
            keep(place, out / part.kind, with_journals=not outcome.is_good)
            found = [asdict(one) | {"is_good": one.is_good} for one in outcomes]
            (out / "two_cards.json").write_text(json.dumps(found, indent=2))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def keep(place: Path, stem: Path, *, with_journals: bool) -> None:
    """Copy the report, and the journals if something must be investigated."""
    journals = list(place.glob("attempts/*/*.jsonl"))
    if journals:
        save(build(place), stem, formats=("json",))
    for path in journals if with_journals else ():
        shutil.copy(path, stem.with_name(f"{stem.name}-{path.name}"))


if __name__ == "__main__":
    sys.exit(main())
