"""Advice is given to runs with a fault, and to no others."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.report.analysis.advice import advice
from energy_callbacks.report.analysis.late_stop import late_stop
from energy_callbacks.report.build import build
from energy_callbacks.report.model import schema
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.runs import Imbalance
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html, text
from energy_callbacks.tuning import tune_batch_size
from tests.report.journals import IDLE, TRAIN, Attempt, write
from tests.tuning.simulated import Training


def report_of(folder: Path, **attempt) -> EnergyReport:
    """Of one attempt, that trains and waits for a hundredth of its time."""
    write(folder, Attempt(**({"stretches": (TRAIN,), "wait_s": 0.001} | attempt)))
    return build(folder)


def test_a_run_without_a_fault_gets_no_advice(tmp_path: Path) -> None:
    """Nothing to change: text and page name what was checked."""
    report = report_of(tmp_path)
    assert report.advice == ()
    none = "Nothing to change was found (checked: idle time, waits for data, throttling)."
    assert none in " ".join(text.render(report).split())
    assert none in html.render(report)


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


def test_waits_of_unknown_energy_are_advice_on_time(tmp_path: Path) -> None:
    """22.9 % of a minute are 13.7 s, whether or not the joules of the waits are known."""
    (one,) = report_of(tmp_path, wait_s=0.0229).advice
    assert (one.code, one.saves_j, one.saves_s) == ("data_wait", None, pytest.approx(13.74))
    assert "22.9 % of the training time (13.7 s)" in one.message
    assert one.saving == "saves up to 13.7 s"


def test_idle_time_and_late_stops_of_unknown_energy(tmp_path: Path) -> None:
    """Without a sensor: 20 of 80 s idle; 35 of 80 s after the best validation."""
    without = {"devices": (), "stretches": (IDLE, TRAIN)}
    later = [(20.0 + t_s, *rest) for t_s, *rest in validations(OVERTRAINED)]
    late, idle = report_of(tmp_path, metrics=later, **without).advice
    assert (idle.code, idle.saves_j, idle.saves_s) == ("idle", None, pytest.approx(20.0))
    assert "20.0 s (25.0 % of the time)" in idle.message
    assert (late.code, late.saves_j, late.saves_s) == ("late_stop", None, pytest.approx(35.0))
    assert "43.8 % of the time (35.0 s)" in late.message


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
    report = meter.report()
    told = [one for one in report.advice if one.code == "batch_size"]
    assert len(told) == is_told
    # Without joules, the same advice rests on the time of a sample: 6 ms against 1.16 ms.
    points = tuple(replace(one, j_per_sample=None) for one in report.batch_sizes[-1].points)
    curve = replace(report.batch_sizes[-1], points=points)
    timed = [
        one for one in advice(replace(report, batch_sizes=(curve,))) if one.code == "batch_size"
    ]
    assert [(one.code, one.saves_j) for one in timed] == [("batch_size", None)] * is_told
    for one in timed:
        assert one.saves_s == pytest.approx(400 * 0.024 * (1.0 - 1.15625 / 6.0), rel=0.1)
        assert "less time per sample" in one.message
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


def validations(
    values: Sequence[float], name: str = "val_loss"
) -> list[tuple[float, dict[str, float], int, float]]:
    """Of 60 s of training, evenly."""
    each_s = 60.0 / len(values)
    return [
        (each_s * (i + 1), {name: float(value)}, 10 * (i + 1), i + 1.0)
        for i, value in enumerate(values)
    ]


OVERTRAINED = [2.0 * math.exp(-e / 1.2) + 0.3 + 0.05 * max(e - 4, 0) for e in range(12)]


def test_going_on_after_the_best_validation(tmp_path: Path) -> None:
    """Best at the fifth of 12 epochs of 5 s: what seven of them used, at 600 W, is 21 kJ."""
    (one,) = report_of(tmp_path, metrics=validations(OVERTRAINED)).advice
    assert (one.code, one.saves_j) == ("late_stop", pytest.approx(21_000.0))
    assert "val_loss was best at epoch 5 (0.3713) and 0.6502 at the end" in one.message
    assert "58.3 % of the energy (35.0 s)" in one.message
    turned = validations([1.0 - value / 3.0 for value in OVERTRAINED], "val_accuracy")
    (one,) = report_of(tmp_path / "turned", metrics=turned).advice
    assert one.saves_j == pytest.approx(21_000.0)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("val_loss", [2.0 * math.exp(-e / 4.0) + 0.3 for e in range(12)]),  # still getting better
        ("val_loss", [1.0, 3.0]),  # two say nothing
        ("val_loss", [1.0, 0.5, 0.7, 0.9, 1.1]),  # nor do five
        ("val_loss", [*OVERTRAINED[:5], 0.372, 0.3718, 0.3722, 0.372]),  # worse by nothing
        ("val_loss", [0.3 + 2.0 * math.exp(-e) + 1e-4 * e for e in range(30)]),  # worse by < 1 %
        ("train_loss", OVERTRAINED),  # of the training data
        ("val_lr", OVERTRAINED),  # which way is better?
    ],
)
def test_not_going_on_for_nothing(tmp_path: Path, name: str, values: Sequence[float]) -> None:
    """Neither a good curve nor a short one, nor one that nobody can judge."""
    assert report_of(tmp_path, metrics=validations(values, name)).advice == ()


def test_noise_is_no_reason_to_stop() -> None:
    """A plateau with noise has its best somewhere: told in less than one of a hundred runs."""
    told = 0
    for seed in range(300):
        noise = np.random.default_rng(seed).normal(0.0, 0.05, size=10 + seed % 90)
        told += late_stop([metric("val_loss", 0.5 + noise)]) is not None
    assert told <= 3


def test_noise_does_not_hide_a_turn() -> None:
    """The same noise upon a curve that rises by twelve of its deviations at the end."""
    told = 0
    for seed in range(100):
        noise = np.random.default_rng(seed).normal(0.0, 0.05, size=30)
        turned = 0.5 + 0.8 * np.abs(np.arange(30) - 10) / 20 + noise
        found = late_stop([metric("val_loss", turned)])
        told += found is not None and 5 <= found.best <= 15
    assert told >= 95


def test_what_still_gets_better_is_a_reason_to_go_on() -> None:
    """The loss rises while the accuracy does: not told. While it stands still: told."""
    loss = metric("val_loss", np.asarray(OVERTRAINED))
    rising = metric("val_accuracy", np.linspace(0.5, 0.9, 12))
    assert late_stop([loss, rising]) is None
    still = metric("val_accuracy", np.minimum(np.linspace(0.5, 1.7, 12), 0.9))
    found = late_stop([loss, still])
    assert found is not None
    assert (found.metric.name, found.best) == ("val_loss", 4)


def metric(name: str, values: np.ndarray) -> Metric:
    """A value each 10 s at 100 W."""
    t_s = tuple(10.0 * (i + 1) for i in range(len(values)))
    return Metric(
        name=name,
        t_s=t_s,
        step=(None,) * len(t_s),
        epoch=(None,) * len(t_s),
        energy_j=tuple(100.0 * one for one in t_s),
        value=tuple(map(float, values)),
    )
