"""The contract: what is counted, and to which phase it belongs."""

import pytest

from tests.integrations.contract.lab import (
    BATCH_SIZE,
    HOST_W,
    J_PER_SAMPLE,
    POWER_W,
    STEP_S,
    Bench,
    Plan,
)
from tests.integrations.reading import phases

CHECKPOINTS = Plan(epochs=3, validation_samples=20, checkpoint_s=0.5)


class CountsContract:
    """Steps, samples, phases, waits."""

    def test_phases_sum_to_the_total(self, bench: Bench) -> None:
        """No joule is lost between phases, none is in two."""
        report = bench.with_us(CHECKPOINTS).callback.report
        for scope in ("gpu", "host", "total"):
            by_phase_j = [getattr(phase, scope).energy_j or 0.0 for phase in report.phases]
            assert sum(by_phase_j) == pytest.approx(
                getattr(report.energy, scope).energy_j, rel=1e-9
            )
        assert sum(phases(report).values()) == pytest.approx(report.run.duration_s, rel=1e-9)

    def test_validation_is_apart_from_training(self, bench: Bench) -> None:
        """5 batches after each of 2 epochs: 4 s of validation, none of it in training."""
        report = bench.with_us(Plan(validation_samples=20)).callback.report
        by_name = {phase.name: phase for phase in report.phases}
        assert by_name["train"].duration_s == pytest.approx(20 * STEP_S, abs=1e-6)
        assert by_name["validation"].duration_s == pytest.approx(10 * STEP_S, abs=1e-6)
        assert by_name["validation"].gpu.energy_j == pytest.approx(POWER_W * 10 * STEP_S, rel=1e-6)

    def test_accumulated_batches_are_one_step(self, bench: Bench) -> None:
        """5 batches to a step: 4 steps with all 80 samples."""
        ours = bench.callback()
        found = bench.fit(Plan(accumulate=5), ours).rows()
        report = ours.report
        assert (report.throughput.steps, report.throughput.samples) == (4, 80)
        assert report.efficiency.gpu.j_per_step.value_j == pytest.approx(5 * POWER_W * STEP_S)
        assert found["efficiency/gpu_j_per_sample"][-1][1] == pytest.approx(J_PER_SAMPLE, rel=1e-6)

    def test_a_short_last_batch_counts_its_samples(self, bench: Bench) -> None:
        """38 samples an epoch are 9 batches of 4 and one of 2."""
        report = bench.with_us(Plan(samples=38)).callback.report
        assert (report.throughput.steps, report.throughput.samples) == (20, 76)
        expected = POWER_W * STEP_S * 20 / 76
        assert report.efficiency.gpu.j_per_sample.value_j == pytest.approx(expected, rel=1e-9)

    def test_waiting_for_data_is_seen(self, bench: Bench) -> None:
        """A loader that takes as long as a batch: half of the training is waiting."""
        report = bench.with_us(Plan(load_s=STEP_S, waits=True)).callback.report
        waited_s = report.throughput.data_wait_s
        # The first batch may be fetched before training begins.
        assert 19 * STEP_S - 1e-6 <= waited_s <= 20 * STEP_S + 1e-6

    def test_waiting_for_data_has_its_joules(self, bench: Bench) -> None:
        """Watts times the seconds of waiting, inside the stated interval; part of training."""
        report = bench.with_us(Plan(load_s=STEP_S, waits=True)).callback.report
        done = report.throughput
        for found, power_w in (
            (done.data_wait.gpu, POWER_W),
            (done.data_wait.host, HOST_W),
            (done.data_wait.total, POWER_W + HOST_W),
        ):
            truth_j = power_w * done.data_wait_s
            assert found.value_j == pytest.approx(truth_j, rel=1e-6)
            assert found.low_j - 1e-6 <= truth_j <= found.high_j + 1e-6
        by_name = {phase.name: phase for phase in report.phases}
        assert by_name["train"].gpu.energy_j > done.data_wait.gpu.value_j

    def test_a_checkpoint_is_no_waiting(self, bench: Bench) -> None:
        """A checkpoint and a validation of a second after each epoch are no waiting for data."""
        ours = bench.callback()
        bench.fit(Plan(validation_samples=20, checkpoint_s=1.0, epochs=3, waits=True), ours)
        assert ours.report.throughput.data_wait_s == pytest.approx(0.0, abs=1e-6)

    def test_a_checkpoint_is_a_phase(self, bench: Bench) -> None:
        """Half a second after each of 3 epochs is the phase checkpoint, not training."""
        report = bench.with_us(CHECKPOINTS).callback.report
        by_name = {phase.name: phase for phase in report.phases}
        assert by_name["checkpoint"].duration_s == pytest.approx(1.5, abs=1e-3)
        assert by_name["checkpoint"].gpu.energy_j == pytest.approx(POWER_W * 1.5, rel=1e-3)
        assert by_name["train"].duration_s == pytest.approx(30 * STEP_S, abs=1e-3)

    def test_evaluate_by_itself(self, bench: Bench) -> None:
        """Ten batches of validation, a finished report, no training."""
        ours = bench.callback()
        bench.training(Plan(), ours).evaluate()
        assert ours.report.run.status == "finished"
        assert phases(ours.report)["validation"] == pytest.approx(bench.alone_s, abs=1e-6)
        assert ours.report.throughput.steps == 0
        assert "train" not in phases(ours.report)

    def test_predict_by_itself(self, bench: Bench) -> None:
        """Ten batches of prediction, a finished report, no training."""
        ours = bench.callback()
        bench.training(Plan(), ours).predict()
        assert ours.report.run.status == "finished"
        assert phases(ours.report)["predict"] == pytest.approx(bench.alone_s, abs=1e-6)
        assert ours.report.throughput.steps == 0

    def test_evaluate_after_training(self, bench: Bench) -> None:
        """A second attempt of the run, which takes nothing from its training."""
        ours = bench.callback()
        training = bench.fit(Plan(), ours)
        training.evaluate()
        assert len(ours.report.attempts) == 2
        assert ours.report.throughput.samples == 20 * BATCH_SIZE
        assert phases(ours.report)["train"] == pytest.approx(20 * STEP_S, abs=1e-6)
        assert phases(ours.report)["validation"] == pytest.approx(bench.alone_s, abs=1e-6)
