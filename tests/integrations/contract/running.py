"""The contract: a meter that is running when ``fit`` begins, which the user starts and ends."""

import signal
from typing import Any

import pytest

from energy_callbacks.accounting.lifecycle import Lifecycle
from tests.integrations.contract.endings import LOOK_S, raising
from tests.integrations.contract.lab import BATCH_SIZE, POWER_W, STEP_S, Bench, Plan
from tests.integrations.contract.stages import PreemptedError, before, once, raises
from tests.integrations.reading import phases, steps
from tests.outputs.tensorboard_view import TensorBoardView, values

FIT_S = 20 * STEP_S
# Longest wait for the sensors at the end of a call; afterwards the phases of the user go on.
WAIT_S = 0.02
# The names of phases that some adapter leaves, without having entered them in each training.
OUTER = ("train", "validation", "tuning", "mine")


def assert_trained(report: Any, train_s: float, **others_s: float) -> None:
    """Assert that a report has one attempt, with these times and energies of its phases."""
    assert len(report.attempts) == 1
    found = phases(report)
    assert found.pop("train") == pytest.approx(train_s, abs=1e-6)
    assert found.pop("idle", 0.0) <= 2 * WAIT_S
    assert found == pytest.approx(others_s, abs=WAIT_S)
    for phase in report.phases:
        assert phase.gpu.energy_j == pytest.approx(POWER_W * phase.duration_s, rel=1e-6)


class RunningContract:
    """A meter that is running when a call of the framework begins: the user ends it."""

    def test_what_follows_a_fit_is_measured(self, bench: Bench) -> None:
        """Phases before and after the training are in one attempt with it; its end is reported."""
        ours = bench.callback()
        meter = ours._meter
        with meter:
            with meter.phase("prepare"):
                bench.clock.advance(2.0)
            bench.fit(Plan(), ours)
            assert meter.is_running
            with meter.phase("export"):
                bench.clock.advance(3.0)
            assert not (meter.run_folder / "energy_report.json").exists()
        report = ours.report()
        assert_trained(report, FIT_S, prepare=2.0, export=3.0)
        assert report.run.status == "finished"
        assert (report.throughput.steps, report.throughput.samples) == (20, 20 * BATCH_SIZE)
        assert (meter.run_folder / "energy_report.json").is_file()

    @pytest.mark.parametrize("name", OUTER)
    def test_phases_of_the_user_go_on_after_a_fit(self, bench: Bench, name: str) -> None:
        """A phase around ``fit`` is not left by it, even if the framework has one of this name."""
        ours = bench.callback()
        plan = Plan(validation_samples=4)
        with ours._meter as meter, meter.phase(name):
            bench.fit(plan, ours)
            bench.clock.advance(3.0)
        expected = {"train": FIT_S, "validation": plan.epochs * STEP_S}
        found = phases(ours.report())
        assert found == pytest.approx(expected | {name: expected.get(name, 0.0) + 3.0}, abs=WAIT_S)

    def test_two_fits_are_one_attempt(self, bench: Bench) -> None:
        """It has the steps of both, and no step counts as repeated."""
        ours = bench.callback()
        with ours._meter as meter:
            training = bench.fit(Plan(), ours)
            with meter.phase("export"):
                bench.clock.advance(3.0)
            training.fit()
        report = ours.report()
        assert_trained(report, 2 * FIT_S, export=3.0)
        assert (report.throughput.steps, report.throughput.replayed_steps) == (40, 0)
        assert list(report.progress.step) == sorted(report.progress.step)
        assert report.progress.step[-1] == 40

    def test_a_resumed_fit_is_in_the_same_attempt(self, bench: Bench) -> None:
        """After an exception at step 15, the 20 steps after the checkpoint of step 10 follow."""
        ours = bench.callback()
        broken = Plan(epochs=3, checkpoint_s=0.0, before_batch=raising(RuntimeError("boom"), 15))
        with ours._meter:
            with pytest.raises(RuntimeError, match="boom"):
                bench.training(broken, ours).fit()
            bench.clock.advance(60.0)
            bench.training(Plan(epochs=3, checkpoint_s=0.0), ours).resume()
        report = ours.report()
        assert len(report.attempts) == 1
        assert report.throughput.steps == 35
        assert list(report.progress.step) == sorted(report.progress.step)
        assert report.progress.step[-1] == 35
        assert report.forecast is None or report.forecast.planned_steps == 30

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    def test_an_exception_ends_the_block_and_the_attempt(
        self, bench: Bench, error: type[BaseException]
    ) -> None:
        """The attempt ends with the exception of ``fit``, at the moment at which it is raised."""
        ours = bench.callback()
        training = bench.training(Plan(before_batch=raising(error("boom"), 8)), ours)
        with pytest.raises((RuntimeError, KeyboardInterrupt, SystemExit)) as caught, ours._meter:
            training.fit()
        bench.clock.advance(60.0)
        report = ours.report()
        is_error = isinstance(caught.value, Exception)
        assert report.run.status == ("failed" if is_error else "interrupted")
        [last] = (ours._meter.run_folder / "attempts").rglob("*.jsonl")
        assert type(caught.value).__name__ in last.read_text().splitlines()[-1]
        assert_trained(report, 8 * STEP_S)
        assert (ours._meter.run_folder / "energy_report.json").is_file()

    def test_an_attempt_goes_on_after_an_exception_that_is_caught(self, bench: Bench) -> None:
        """The phases of the training end; phases of the user after it are exact."""
        ours = bench.callback()
        training = bench.training(Plan(before_batch=raising(RuntimeError("boom"), 8)), ours)
        with ours._meter as meter, meter.phase("mine"):
            with pytest.raises(RuntimeError, match="boom"):
                training.fit()
            with meter.phase("export"):
                bench.clock.advance(3.0)
            assert meter.is_running
            bench.clock.advance(5.0)
        report = ours.report()
        assert report.run.status == "finished"
        found = phases(report)
        assert found["export"] == pytest.approx(3.0, abs=1e-6)
        assert 8 * STEP_S - LOOK_S - 1e-6 <= found["train"] <= 8 * STEP_S + 1e-6
        assert found["train"] + found["mine"] == pytest.approx(8 * STEP_S + 5.0, abs=1e-6)

    def test_an_attempt_goes_on_after_a_signal_at_the_end_of_a_fit(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An exception of a handler of SIGTERM ends the training and its phases, not the meter."""
        ours = bench.callback()
        before(monkeypatch, Lifecycle, "end_call", once(signal.SIGTERM))
        signal.signal(signal.SIGTERM, raises)
        with ours._meter as meter:
            with pytest.raises(PreemptedError):
                bench.fit(Plan(), ours)
            with meter.phase("export"):
                bench.clock.advance(3.0)
            bench.training(Plan(), ours, folder="other").evaluate()
        found = phases(ours.report())
        assert len(ours.report().attempts) == 1
        assert found["export"] == pytest.approx(3.0, abs=1e-6)
        assert found["validation"] == pytest.approx(bench.alone_s, abs=1e-6)
        assert FIT_S - LOOK_S - 1e-6 <= found["train"] <= FIT_S + 1e-6

    def test_time_after_a_caught_exception_is_no_training(self, bench: Bench) -> None:
        """The meter finds that ``fit`` has ended, also if none of its methods is called."""
        ours = bench.callback()
        training = bench.training(Plan(before_batch=raising(RuntimeError("boom"), 8)), ours)
        with ours._meter as meter:
            with pytest.raises(RuntimeError, match="boom"):
                training.fit()
            bench.clock.advance(60.0)
            assert meter._lifecycle.running.recorder.phases.name == "idle"
        found = phases(ours.report())
        assert 8 * STEP_S - LOOK_S - 1e-6 <= found["train"] <= 8 * STEP_S + 1e-6
        assert found["train"] + found["idle"] == pytest.approx(8 * STEP_S + 60.0, abs=1e-6)

    def test_evaluations_and_predictions_are_in_the_same_attempt(self, bench: Bench) -> None:
        """Before and after a training, each is a phase of the attempt that the user ends."""
        ours = bench.callback()
        with ours._meter as meter:
            bench.training(Plan(), ours).evaluate()
            training = bench.fit(Plan(), ours)
            training.evaluate()
            training.predict()
            assert meter.is_running
        report = ours.report()
        assert len(report.attempts) == 1
        found = phases(report)
        assert found["train"] == pytest.approx(FIT_S, abs=1e-6)
        assert found["validation"] == pytest.approx(2 * bench.alone_s, abs=1e-6)
        assert found["predict"] == pytest.approx(bench.alone_s, abs=1e-6)
        assert report.forecast is None or report.forecast.planned_steps == 20

    def test_the_last_row_of_a_fit_has_the_energy_so_far(self, bench: Bench) -> None:
        """Rows are at the same steps as if ``fit`` starts the meter; the last one is up to now."""
        trained = bench.with_us(Plan()).training
        alone = trained.rows()
        ours = bench.callback()
        with ours._meter as meter:
            with meter.phase("prepare"):
                bench.clock.advance(2.0)
            training = bench.fit(Plan(), ours)
            found = training.rows()
            bench.clock.advance(60.0)
        assert set(training.metrics()) >= set(trained.metrics())
        for tag in bench.lab.loss_tags:
            assert found[tag] == alone[tag]
        rows = found["energy/gpu_wh"]
        assert steps(rows)[-1] == steps(alone["energy/gpu_wh"])[-1]
        assert rows[-1][1] * 3600 == pytest.approx(POWER_W * (2.0 + FIT_S), rel=1e-6)
        assert found["efficiency/gpu_j_per_sample"][-1][1] == pytest.approx(20.0, rel=1e-6)

    def test_a_report_between_fit_and_the_end_is_that_of_a_running_meter(
        self, bench: Bench
    ) -> None:
        """It has the training, and does not wait for the files, which are made at the end."""
        ours = bench.callback()
        with ours._meter:
            bench.fit(Plan(), ours)
            bench.clock.advance(3.0)
            report = ours.report()
            assert ours.wait_for_report() is None
        assert report.run.status == "running"
        assert report.throughput.steps == 20
        assert phases(report)["train"] == pytest.approx(FIT_S, abs=1e-6)
        assert ours.report().run.status == "finished"
        assert ours.wait_for_report() == ours._meter.run_folder / "energy_report.html"

    def test_each_fit_has_its_pages_after_the_end(self, bench: Bench) -> None:
        """The TensorBoard run of each training gets the report of the whole attempt, once."""
        ours = bench.callback()
        with ours._meter:
            runs = [bench.fit(Plan(), ours, folder=name).run_folder() for name in ("one", "two")]
            assert all(len([*run.glob("*tfevents*")]) == 1 for run in runs)
        total_j = ours.report().energy.total.energy_j
        for run in runs:
            board = TensorBoardView(run.parent)
            assert len(board.texts(run.name, "energy_report")) == 1
            last = values(board.sessions()[run.name])
            assert last["final/total_wh"] * 3600 == pytest.approx(total_j)

    def test_the_user_may_end_the_meter_within_a_fit(self, bench: Bench) -> None:
        """The training continues without it."""
        ours = bench.callback()

        def stop(batch: int) -> None:
            if batch == 8:
                ours._meter.stop()

        with ours._meter:
            training = bench.fit(Plan(before_batch=stop), ours)
        assert training.steps() == 20
        assert ours.report().run.status == "finished"
        assert_trained(ours.report(), 8 * STEP_S)
