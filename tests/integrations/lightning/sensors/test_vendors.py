"""A real training of Lightning beside an AMD or Intel GPU has the report of one beside an H200.

Nothing is handed to the callback: the GPU is found in the files of a tree.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

from energy_callbacks import EnergyConfig, EnergyMeter
from tests.integrations.contract.lab import BATCH_SIZE, Bench, Plan
from tests.integrations.lightning.lab import LightningLab
from tests.vendors.machines import Machine, machine
from tests.vendors.quantities import REFERENCE, assert_offers, names_in

BATCH_S = 1.5


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A finished training.

    Attributes:
        machine: the machine.
        callback: our callback.
        start_s: time at which the first batch began.
        end_s: time at which the last batch had ended.
        tags: names of the metrics in the user's TensorBoard run.
    """

    machine: Machine
    callback: Any
    start_s: float
    end_s: float
    tags: frozenset[str]


def trained(name: str, folder: Path) -> Trained:
    """Train two epochs with validation on a machine."""
    with machine(name, folder / "machine") as one:
        times_s: list[float] = []

        def before_batch(_: int) -> None:
            times_s.append(one.clock.monotonic_s())
            one.clock.advance(BATCH_S)

        config = EnergyConfig(country="DEU", devices="all", report_dir=folder / "energy")
        ours = LightningLab.callback(meter=EnergyMeter(config=config, clock=one.clock))
        plan = Plan(samples=12 * BATCH_SIZE, validation_samples=20, before_batch=before_batch)
        training = Bench(LightningLab(), folder, one.clock).fit(plan, ours)
        end_s = times_s[-1] + BATCH_S + plan.step_s
        tags = frozenset(training.rows())
        ours.report()
    return Trained(machine=one, callback=ours, start_s=times_s[0], end_s=end_s, tags=tags)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """Return the training beside an H200."""
    return trained(REFERENCE, tmp_path_factory.mktemp("reference"))


@pytest.mark.parametrize("name", ["AMD card", "AMD accelerator", "Intel i915", "Intel xe"])
def test_the_report_is_that_of_an_h200(name: str, tmp_path: Path, reference: Trained) -> None:
    """It has the same values and metrics, except those that are listed, and the right energy."""
    found = trained(name, tmp_path)
    report, expected = found.callback.report(), reference.callback.report()
    assert_offers(
        name,
        names_in(report.to_dict()) | found.tags,
        names_in(expected.to_dict()) | reference.tags,
    )
    assert [phase.name for phase in report.phases] == [phase.name for phase in expected.phases]
    assert report.throughput.steps == expected.throughput.steps == 24
    [gpu] = [one for one in report.devices if one.kind == "gpu"]
    assert (gpu.key, gpu.scope, gpu.origin) == ("gpu0", "gpu", "measured")
    truth_j = found.machine.truths_j["gpu"](found.start_s, found.end_s)
    energy = found.callback._meter.energy(found.start_s, found.end_s, "gpu")
    assert energy.coverage == pytest.approx(1.0)
    assert math.isclose(energy.energy_j, truth_j, rel_tol=0.02)
    assert abs(energy.energy_j - truth_j) <= energy.error_j
