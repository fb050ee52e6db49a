"""The user's metrics in a report, each value with the energy used until then."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.metrics.user_metrics import MAX_NAMES, kept
from energy_callbacks.report.build import build
from energy_callbacks.report.collect.progress import MAX_METRIC_POINTS, MAX_METRIC_POINTS_IN_ALL
from energy_callbacks.report.model.metrics import direction
from energy_callbacks.report.model.schema import from_json, to_json
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.report.journals import IDLE, TRAIN, Attempt, write


def _metric(report, name: str):
    return next(metric for metric in report.metrics if metric.name == name)


def test_a_metric_stands_beside_the_joules_used_by_then(tmp_path: Path) -> None:
    """20 s at 120 W, then 600 W: 2400 J at the start of training, 20400 J after 30 s of it."""
    told = [(20.0, {"loss": 2.0}, 0, 0.0), (50.0, {"loss": 1.0, "val_loss": 1.5}, 300, 1.0)]
    write(tmp_path, Attempt(stretches=(IDLE, TRAIN), metrics=told))
    report = build(tmp_path)
    loss = _metric(report, "loss")
    assert (loss.t_s, loss.step, loss.epoch) == ((20.0, 50.0), (0, 300), (0.0, 1.0))
    assert loss.value == (2.0, 1.0)
    assert loss.energy_j == pytest.approx((2400.0, 20_400.0))
    assert _metric(report, "val_loss").energy_j == pytest.approx((20_400.0,))
    assert from_json(to_json(report)).metrics == report.metrics


def test_a_resumed_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Each attempt begins with the 36 kJ and the 60 s of those before it."""
    first = Attempt(stretches=(TRAIN,), metrics=[(60.0, {"loss": 2.0}, 600, 1.0)])
    write(tmp_path, first)
    for number in (2, 3):
        later = {"attempt": number, "unix_s": first.unix_s + 500.0 * number}
        write(tmp_path, replace(first, metrics=[(30.0, {"loss": 1.0}, 900, 2.0)], **later))
    loss = _metric(build(tmp_path), "loss")
    assert loss.t_s == pytest.approx((60.0, 90.0, 150.0))
    assert loss.energy_j == pytest.approx((36_000.0, 54_000.0, 90_000.0))


def test_without_a_sensor_the_energy_is_not_known(tmp_path: Path) -> None:
    """None, and the metric is there all the same."""
    write(tmp_path, Attempt(devices=(), metrics=[(30.0, {"loss": 1.0}, None, None)]))
    assert _metric(build(tmp_path), "loss").energy_j == (None,)


def test_long_curves_keep_first_last_lowest_and_highest(tmp_path: Path) -> None:
    """A thousand records of ten metrics: few points in all, and none that matters is lost."""
    values = np.sin(np.arange(1000.0)) + np.where(np.arange(1000) == 617, -5.0, 0.0)
    told = [
        (0.06 * i, {f"m{n}": float(value) for n in range(10)}, i, None)
        for i, value in enumerate(values)
    ]
    write(tmp_path, Attempt(stretches=(TRAIN,), metrics=told))
    report = build(tmp_path)
    assert sum(len(metric.t_s) for metric in report.metrics) <= MAX_METRIC_POINTS_IN_ALL
    for metric in report.metrics:
        assert len(metric.t_s) <= MAX_METRIC_POINTS
        assert (metric.step[0], metric.step[-1]) == (0, 999)
        assert min(metric.value) == pytest.approx(values.min(), rel=1e-5)
        assert max(metric.value) == pytest.approx(values.max(), rel=1e-5)


def test_a_damaged_line_is_left_out(tmp_path: Path) -> None:
    """A word for a number costs that line and a warning."""
    told = [(10.0, {"loss": "low"}, 1, None), (20.0, {"loss": 1.0}, 2, None)]
    write(tmp_path, Attempt(metrics=told))  # type: ignore[arg-type]
    report = build(tmp_path)
    assert _metric(report, "loss").value == (1.0,)
    assert "damaged_lines" in {warning.code for warning in report.warnings}


def test_only_numbers_of_the_user_are_kept() -> None:
    """Neither what is not finite, nor words, nor tensors, nor our own figures, nor too many."""
    told = {
        "loss": np.float32(0.5), "steps": 3, "nan": math.nan, "ok": True, "name": "adam",
        "tensor": np.zeros(1), "energy/total_wh": 1.0, "efficiency/gpu_j_per_sample_lo": 1.0,
    }  # fmt: skip
    assert kept(told) == {"loss": 0.5, "steps": 3.0}
    assert len(kept({f"m{i}": 1.0 for i in range(100)})) == MAX_NAMES
    assert max(map(len, kept({"x" * 1_000_000: 1.0}))) < 200


def test_a_long_training_keeps_its_journal_short(tmp_path: Path) -> None:
    """Twenty thousand rows of the loss become some thousands; each validation stays."""
    clock = FakeClock()
    card = ScriptedSource(clock, power_w=lambda _: 100.0)
    meter = EnergyMeter(config=EnergyConfig(report_dir=tmp_path), sources=[card], clock=clock)
    meter.record_metrics({"loss": 9.0})  # before the start: nothing happens
    with meter:
        for step in range(20_000):
            meter.record_metrics({"loss": 1.0 / (step + 1)}, step=step)
            if step % 100 == 0:
                meter.record_metrics({"val_loss": 1.0}, step=step, epoch=step / 1000)
                clock.advance(1.0)
    [journal] = tmp_path.glob("attempts/1/*.jsonl")
    lines = [line for line in journal.read_text().splitlines() if '"kind":"metrics"' in line]
    of_validation = [line for line in lines if "val_loss" in line]
    assert len(of_validation) == 200
    assert 1000 < len(lines) - len(of_validation) <= 4000
    assert _metric(meter.report(), "val_loss").epoch[-1] == pytest.approx(19.9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("val_loss", "lower"), ("eval/perplexity", "lower"), ("ValRMSE", "lower"),
        ("val_mean_absolute_error", "lower"), ("eval_accuracy", "higher"),
        ("val/F1Score", "higher"),
        ("BinaryF1_val", "higher"), ("valid_map50", "higher"), ("val_neg_log_loss", None),
        ("val_error_recall", None), ("learning_rate", None), ("val_loss_gap", None), ("", None),
    ],
)  # fmt: skip
def test_the_direction_is_told_by_the_name_or_not_at_all(name: str, expected: str | None) -> None:
    """A name that says both, or neither, says nothing."""
    assert direction(name) == expected
