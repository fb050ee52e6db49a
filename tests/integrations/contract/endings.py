"""The contract: how a training ends and how it is resumed."""

from collections.abc import Callable
from typing import Any

import pytest

from energy_callbacks.core.errors import JournalError
from energy_callbacks.sensing.schedule import BEAT_S
from tests.integrations.contract.lab import BATCH_SIZE, HOST_W, POWER_W, STEP_S, Bench, Plan
from tests.integrations.reading import phases

# If a call ends without calling a hook, training may end one interval of the meter (0.8 s) too
# early in the report, and up to two intervals after the end are measured as idle.
LOOK_S = BEAT_S


def raising(error: BaseException, at_batch: int) -> Callable[[int], None]:
    """Return a function ``before_batch`` that raises an error before the given batch."""

    def before_batch(batch: int) -> None:
        if batch == at_batch:
            raise error

    return before_batch


def assert_measured_until(report: Any, batches: int) -> None:
    """Assert that training has the energy of these batches, even if the report is made later."""
    ended_s = batches * STEP_S
    [train] = [phase for phase in report.phases if phase.name == "train"]
    assert ended_s - LOOK_S - 1e-6 <= train.duration_s <= ended_s + 1e-6
    assert train.gpu.energy_j == pytest.approx(POWER_W * train.duration_s, rel=1e-6)
    assert report.energy.gpu.energy_j <= POWER_W * (ended_s + 2 * LOOK_S) + 1e-3


class EndingsContract:
    """Exceptions, Ctrl-C, second calls and resuming."""

    def test_an_exception_leaves_a_report(self, bench: Bench) -> None:
        """The exception is raised to the user; the report has what was measured until then."""
        ours = bench.callback()
        training = bench.training(Plan(before_batch=raising(RuntimeError("boom"), 8)), ours)
        with pytest.raises(RuntimeError, match="boom"):
            training.fit()
        bench.clock.advance(60.0)
        assert ours.report().run.status in ("failed", "interrupted")
        assert_measured_until(ours.report(), 8)
        assert (ours._meter.run_folder / "energy_report.json").is_file()

    def test_ctrl_c_leaves_a_report(self, bench: Bench) -> None:
        """After a KeyboardInterrupt the report has what was measured until then."""
        ours = bench.callback()
        training = bench.training(Plan(before_batch=raising(KeyboardInterrupt(), 8)), ours)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            training.fit()
        bench.clock.advance(60.0)
        assert ours.report().run.status in ("failed", "interrupted")
        assert_measured_until(ours.report(), 8)

    def test_a_fit_after_an_exception_is_a_second_attempt(self, bench: Bench) -> None:
        """With one callback, the first attempt ends at the exception; the second is complete."""
        broken = [True]

        def once(batch: int) -> None:
            if broken and batch == 8:
                broken.clear()
                raise RuntimeError("boom")

        ours = bench.callback()
        training = bench.training(Plan(before_batch=once), ours)
        with pytest.raises(RuntimeError, match="boom"):
            training.fit()
        bench.clock.advance(60.0)
        training.fit()
        first, second = ours.report().attempts
        assert first.status in ("failed", "interrupted")
        assert first.duration_s <= 8 * STEP_S + 2 * LOOK_S + 1e-6
        assert second.status == "finished"
        assert second.steps == 20
        assert second.samples == 20 * BATCH_SIZE

    def test_evaluate_after_an_exception(self, bench: Bench) -> None:
        """The evaluation is a separate attempt, not a validation of the failed training."""
        ours = bench.callback()
        training = bench.training(Plan(before_batch=raising(RuntimeError("boom"), 8)), ours)
        with pytest.raises(RuntimeError, match="boom"):
            training.fit()
        bench.clock.advance(60.0)
        training.evaluate()
        assert [attempt.steps for attempt in ours.report().attempts] == [8, 0]
        assert ours.report().run.status == "finished"
        assert phases(ours.report())["train"] <= 8 * STEP_S + 1e-6
        assert phases(ours.report())["validation"] == pytest.approx(bench.alone_s, abs=1e-6)

    def test_a_second_fit_is_a_second_attempt(self, bench: Bench) -> None:
        """Two fits with the same callback are one run of two attempts, each with its steps."""
        ours = bench.callback()
        training = bench.fit(Plan(), ours)
        bench.clock.advance(60.0)
        training.fit()
        assert [attempt.steps for attempt in ours.report().attempts] == [20, 20]
        assert {attempt.status for attempt in ours.report().attempts} == {"finished"}
        assert phases(ours.report())["train"] == pytest.approx(40 * STEP_S, abs=1e-6)

    def test_a_resumed_training_counts_each_step_once(self, bench: Bench) -> None:
        """A training that fails in epoch 2 and resumes after epoch 1 reports 5 repeated steps."""
        first, second = bench.callback(), bench.callback()
        broken = Plan(epochs=3, checkpoint_s=0.0, before_batch=raising(RuntimeError("boom"), 15))
        with pytest.raises(RuntimeError, match="boom"):
            bench.training(broken, first).fit()
        bench.clock.advance(60.0)
        assert first.report().throughput.steps == 15
        bench.training(Plan(epochs=3, checkpoint_s=0.0), second).resume()
        report = second.report()
        assert len(report.attempts) == 2
        assert report.run.run_id == first.report().run.run_id
        assert (report.throughput.steps, report.throughput.replayed_steps) == (30, 5)
        assert report.throughput.samples == 35 * BATCH_SIZE

    def test_totals_continue_after_a_resume(self, bench: Bench) -> None:
        """The energy curve continues where the failed attempt ended, up to the report's total."""
        first, second = bench.callback(), bench.callback()
        broken = Plan(epochs=3, checkpoint_s=0.0, before_batch=raising(RuntimeError("boom"), 15))
        with pytest.raises(RuntimeError, match="boom"):
            bench.training(broken, first).fit()
        bench.clock.advance(60.0)
        used_wh = first.report().energy.gpu.energy_j / 3600
        training = bench.training(Plan(epochs=3, checkpoint_s=0.0), second)
        training.resume()
        found = [wh for _, wh in training.rows()["energy/gpu_wh"]]
        assert found == sorted(found)
        assert found[-1] * 3600 == pytest.approx(second.report().energy.gpu.energy_j, rel=1e-6)
        assert found[-1] == pytest.approx(used_wh + POWER_W * 20 * STEP_S / 3600, rel=1e-3)

    def test_a_budget_ends_the_training(self, bench: Bench) -> None:
        """A budget for 25 of 50 batches at 230 W ends the training normally, with a warning."""
        ours = bench.callback(max_energy_wh=25 * STEP_S * (POWER_W + HOST_W) / 3600)
        bench.fit(Plan(epochs=5), ours)
        report = ours.report()
        assert 25 <= report.throughput.steps <= 27
        assert report.run.status == "finished"
        assert "budget_used_up" in [warning.code for warning in report.warnings]

    def test_a_checkpoint_without_the_callback_resumes_with_it(self, bench: Bench) -> None:
        """The callback can be added when a training is resumed."""
        seen: list[int] = []
        bench.fit(Plan(epochs=1, checkpoint_s=0.0))
        ours = bench.callback()
        bench.training(Plan(checkpoint_s=0.0, before_batch=seen.append), ours).resume()
        assert len(seen) == 10
        assert ours.report().attempts[-1].samples == 10 * BATCH_SIZE

    def test_a_checkpoint_with_the_callback_resumes_without_it(self, bench: Bench) -> None:
        """The callback can be removed when a training is resumed."""
        seen: list[int] = []
        bench.fit(Plan(epochs=1, checkpoint_s=0.0), bench.callback())
        bench.training(Plan(checkpoint_s=0.0, before_batch=seen.append)).resume()
        assert len(seen) == 10

    def test_the_report_can_be_read_at_any_time(self, bench: Bench) -> None:
        """During the training its status is running, and it has what was measured so far."""
        reports = []
        ours = bench.callback()
        with pytest.raises(JournalError, match="train first"):
            ours.report()

        def look(batch: int) -> None:
            if batch == 12:
                reports.append(ours.report())

        bench.fit(Plan(before_batch=look), ours)
        [middle] = reports
        assert middle.run.status == "running"
        done_s = 12 * STEP_S
        assert done_s - 1.0 <= middle.energy.gpu.energy_j / POWER_W <= done_s + 1e-6
        assert ours.report().run.status == "finished"
        assert ours.report().energy.gpu.energy_j == pytest.approx(POWER_W * 20 * STEP_S, rel=1e-3)
