"""The contract: no failure of our callback changes the training."""

import copy
import math
import pickle
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.core.records import Reading
from tests.integrations.contract.lab import (
    BATCH_SIZE,
    HOST_W,
    POWER_W,
    STEP_S,
    Bench,
    BreakingSource,
    Plan,
    constant,
)
from tests.integrations.left import threads_left

# What a broken sensor returns in the place of its readings.
GARBAGE: dict[str, Callable[[list[Reading]], Any]] = {
    "nothing": lambda _: None,
    "text": lambda _: ["N/A"],
    "text as value": lambda readings: [replace(one, value="N/A") for one in readings],
    "not finite": lambda readings: [replace(one, value=math.nan) for one in readings],
    "negative": lambda readings: [replace(one, value=-one.value) for one in readings],
    "far too much": lambda readings: [replace(one, value=1e300) for one in readings],
    "no channel": lambda readings: [replace(one, channel=None) for one in readings],
}


class HarmlessContract:
    """Invalid input raises an error early; nothing else affects the training."""

    @pytest.mark.parametrize(
        ("settings", "message"),
        [({"country": "Atlantis"}, "Atlantis"), ({"pue": 0.5}, "pue"), ({"devices": []}, "no GPU")],
    )
    def test_a_wrong_setting_raises_an_error_at_once(
        self, bench: Bench, settings: dict, message: str
    ) -> None:
        """The constructor raises an error that names the setting and its value."""
        with pytest.raises(ValueError, match=message):
            bench.lab.callback(**settings)

    def test_a_callback_of_another_framework_is_named(self, bench: Bench) -> None:
        """Callbacks share one class name; the error on a missing hook names the other modules."""
        ours = bench.callback()
        with pytest.raises(AttributeError, match=r"energy_callbacks\.keras or energy_callbacks"):
            ours.on_an_event_of_another_framework  # noqa: B018 - asking is what raises
        assert not hasattr(ours, "on_an_event_of_another_framework")

    def test_an_unwritable_folder_raises_an_error_before_the_first_step(self, bench: Bench) -> None:
        """PermissionError is raised to the user before any batch has been trained."""
        (bench.folder / "taken").write_text("a file, because tests may run as root")
        seen: list[int] = []
        ours = bench.callback(report_dir=bench.folder / "taken")
        with pytest.raises(PermissionError, match="taken"):
            bench.fit(Plan(before_batch=seen.append), ours)
        assert seen == []

    def test_a_disabled_callback_writes_nothing(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With ENERGY_CALLBACKS_DISABLED=1 there are only the training's own rows and files."""
        without = bench.without_us(Plan(validation_samples=20)).rows()
        monkeypatch.setenv("ENERGY_CALLBACKS_DISABLED", "1")
        ours = bench.callback()
        training = bench.fit(Plan(validation_samples=20), ours, folder="off")
        assert training.rows() == without
        assert not list((bench.folder / "off").rglob("energy*"))
        content = b"".join(path.read_bytes() for path in training.run_folder().glob("*tfevents*"))
        assert b"energy" not in content

    def test_two_callbacks_measure_side_by_side(self, bench: Bench) -> None:
        """They write two correct reports in two folders and do not disturb the training."""
        both = [bench.callback(report_dir=bench.folder / name) for name in ("one", "two")]
        without = bench.without_us(Plan()).rows()
        found = bench.fit(Plan(), *both).rows()
        assert {tag: found[tag] for tag in without} == without
        for ours in both:
            assert ours.report().run.status == "finished"
            assert ours.report().throughput.samples == 20 * BATCH_SIZE
            assert ours.report().energy.gpu.energy_j == pytest.approx(
                POWER_W * 20 * STEP_S, rel=1e-3
            )

    def test_it_pickles_and_copies_before_a_training(self, bench: Bench) -> None:
        """A copy has the same public class and the same settings, and it measures."""
        ours = bench.lab.callback(country="DEU", tags={"a": "b"})
        for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
            assert type(twin).__module__ == f"energy_callbacks.{bench.lab.framework}"
            assert twin._meter.config == ours._meter.config
        twin = copy.deepcopy(bench.callback())
        bench.fit(Plan(epochs=1), twin)
        assert twin.report().throughput.steps == 10

    def test_default_settings_leave_no_thread(self, bench: Bench) -> None:
        """With this machine's sensors in real time, a report is made and no thread remains."""
        before = threading.enumerate()
        ours = bench.lab.callback()
        bench.fit(Plan(epochs=1), ours)
        assert ours.report().run.status == "finished"
        assert ours.report().throughput.samples == 10 * BATCH_SIZE
        assert ours.wait_for_report() is not None
        assert threads_left(before) == []

    def test_an_internal_error_does_not_end_the_training(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An error inside the meter causes one warning, and all rows of the training are logged."""

        def broken(*_: object) -> None:
            raise RuntimeError("our bug")

        without = bench.without_us(Plan(validation_samples=20)).rows()
        monkeypatch.setattr(
            "energy_callbacks.accounting.metrics.forecast.Forecaster.end_epoch", broken
        )
        ours = bench.callback()
        found = bench.fit(Plan(validation_samples=20), ours, folder="with").rows()
        assert {tag: found[tag] for tag in without} == without
        assert sum("no longer measured" in record.message for record in caplog.records) == 1

    @pytest.mark.parametrize("kind", GARBAGE)
    def test_a_sensor_may_return_garbage(self, bench: Bench, kind: str) -> None:
        """For 2 s it returns no readings or wrong ones: rows are identical, energy is right."""
        without_us = bench.without_us(Plan(validation_samples=20))
        card = BreakingSource(bench.clock, power_w=lambda t_s: POWER_W)

        def spoil(batch: int) -> None:
            card.garbage = GARBAGE[kind] if 5 <= batch < 10 else None

        meter = EnergyMeter(sources=[card], clock=bench.clock)
        ours = bench.lab.callback(meter=meter)
        training = bench.fit(Plan(validation_samples=20, before_batch=spoil), ours)
        without = without_us.rows()
        found, report = training.rows(), ours.report()
        assert {tag: found[tag] for tag in without} == without
        assert training.weights() == without_us.weights()
        assert report.run.status == "finished"
        gpu = report.energy.gpu
        expected_j = POWER_W * report.run.duration_s * gpu.coverage
        assert gpu.energy_j == pytest.approx(expected_j, rel=0.01)
        used_wh = [wh for _, wh in found["energy/gpu_wh"]]
        assert used_wh == sorted(used_wh)
        assert used_wh[-1] * 3600 == pytest.approx(gpu.energy_j, rel=1e-6)
        powers_w = [watts for _, watts in found["power/gpu_w"] if not math.isnan(watts)]
        assert powers_w == pytest.approx([POWER_W] * len(powers_w), rel=0.01)
        says = " ".join(warning.message for warning in report.warnings)
        assert gpu.coverage < 0.99 or kind == "not finite" or "scripted" in says or "gpu0" in says

    def test_a_sensor_that_fails_is_a_gap(self, bench: Bench) -> None:
        """The report has the GPU's energy until it is lost, a warning, and all host energy."""
        card = BreakingSource(
            bench.clock, power_w=lambda t_s: POWER_W, energy_j=lambda t_s: POWER_W * t_s
        )

        def lose(batch: int) -> None:
            card.is_broken = batch >= 3

        meter = EnergyMeter(
            sources=[card, constant(bench.clock, HOST_W, "host")], clock=bench.clock
        )
        ours = bench.lab.callback(meter=meter)
        bench.fit(Plan(before_batch=lose), ours)
        report = ours.report()
        assert report.run.status == "finished"
        assert report.energy.gpu.energy_j == pytest.approx(POWER_W * 3 * STEP_S, abs=POWER_W * 0.2)
        assert report.energy.gpu.coverage == pytest.approx(3 / 20, abs=0.05)
        assert report.energy.host.energy_j == pytest.approx(HOST_W * 20 * STEP_S, rel=1e-3)
        assert "fallen off the bus" in " ".join(warning.message for warning in report.warnings)
