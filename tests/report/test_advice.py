"""What to change: told to a run that has the fault, and to no other."""

from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.records import Energy
from energy_callbacks.report import html, schema, text
from energy_callbacks.report.advice import advice
from energy_callbacks.report.build import build
from energy_callbacks.report.parts import Imbalance
from energy_callbacks.report.schema import EnergyReport
from energy_callbacks.tuning import tune_batch_size
from tests.report.journals import IDLE, TRAIN, Attempt, write
from tests.tuning.simulated import Training


def report_of(folder: Path, **attempt) -> EnergyReport:
    """Of one attempt, that trains and waits for a hundredth of its time."""
    write(folder, Attempt(**({"stretches": (TRAIN,), "wait_s": 0.001} | attempt)))
    return build(folder)


def test_a_run_without_a_fault_gets_no_advice(tmp_path: Path) -> None:
    """Nothing to change, nothing shown."""
    report = report_of(tmp_path)
    assert report.advice == ()
    assert "What to change" not in text.render(report)
    assert "What to change" not in html.render(report)


@pytest.mark.parametrize(("wait_s", "codes"), [(0.03, ["data_wait"]), (0.004, [])])
def test_waiting_for_data(tmp_path: Path, wait_s: float, codes: list[str]) -> None:
    """30 % of the time at 600 W, 60 s: what is waited away could be saved."""
    energy = {
        key: Energy(energy_j=600.0 * wait_s * power_w, systematic_j=1.0, coverage=1.0)
        for key, power_w in (("gpu0", 500.0), ("cpu0", 100.0))
    }
    report = report_of(tmp_path, wait_s=wait_s, wait_energy=energy, wait_known_s=600 * wait_s)
    assert [one.code for one in report.advice] == codes
    for one in report.advice:
        assert one.saves_j == pytest.approx(600.0 * 600.0 * wait_s, rel=0.01)
        assert "30.0 %" in one.message


def test_idle_time(tmp_path: Path) -> None:
    """20 s at 120 W beside 60 s of training: 6 % of the energy."""
    (one,) = report_of(tmp_path, stretches=(IDLE, TRAIN)).advice
    assert (one.code, one.saves_j) == ("idle", pytest.approx(2400.0))
    short = replace(IDLE, duration_s=5.0)
    assert report_of(tmp_path / "short", stretches=(short, TRAIN)).advice == ()


@pytest.mark.parametrize(("size", "is_told"), [(4, True), (256, False)])
def test_a_batch_below_the_measured_knee(tmp_path: Path, size: int, is_told: bool) -> None:
    """20 ms + 1 ms a sample at 400 W: at 4 a sample takes 2.4 J, at the knee of 128 0.46 J."""
    training = Training(tmp_path, slow_steps=0, most=128)
    with training.meter as meter:
        result = tune_batch_size(training.step, powers_of_two=True, max_size=256, meter=meter)
        assert result.size == 128
        training.most = 256
        with meter.phase("train"):
            for _ in range(400):
                training.step(size)
                meter.step(samples=size)
    told = [one for one in meter.report().advice if one.code == "batch_size"]
    assert len(told) == is_told
    for one in told:
        used_j = 400 * 0.024 * 400.0
        assert one.saves_j == pytest.approx(used_j * (1.0 - 0.4625 / 2.4), rel=0.1)
        assert "batch size of 128" in one.fix


def test_throttling_and_stragglers(tmp_path: Path) -> None:
    """Nobody can say what they cost; they are told after what can be counted."""
    report = report_of(tmp_path, stretches=(IDLE, TRAIN))
    hot = replace(report.devices[0], throttled_s=20.0)
    late = Imbalance(
        attempt=1, host="node1", rank=3, quantity="data_wait", value=9.0, median=1.0, error=0.5,
        message="rank 3 waited 9 s for data",
    )  # fmt: skip
    found = advice(replace(report, devices=(hot, *report.devices[1:]), imbalances=(late,)))
    assert [one.code for one in found] == ["idle", "throttling", "straggler"]
    assert "25.0 %" in found[1].message
    assert (found[2].message, found[2].saves_j) == (late.message, None)
    cool = replace(report.devices[0], throttled_s=1.0)
    assert [one.code for one in advice(replace(report, devices=(cool,)))] == ["idle"]


def test_it_is_shown_and_read_again(tmp_path: Path) -> None:
    """In text and page, and in what is read from them."""
    report = report_of(tmp_path, stretches=(IDLE, TRAIN))
    assert "saves up to 0.667 Wh" in text.render(report)
    assert "saves up to 0.667 Wh" in html.render(report)
    assert schema.from_json(schema.to_json(report)).advice == report.advice
