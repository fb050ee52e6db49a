"""The contract: counts of steps and samples, and the phases to which time and energy belong."""

import itertools
import json

import numpy as np
import pytest

from energy_callbacks.accounting.device_edges import DeviceEdges
from energy_callbacks.testing import FakeClock
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
    """Steps, samples, phases and waiting for data."""

    def test_phases_sum_to_the_total(self, bench: Bench) -> None:
        """No energy is missing between phases, and none is counted in two phases."""
        report = bench.with_us(CHECKPOINTS).callback.report()
        for scope in ("gpu", "host", "total"):
            by_phase_j = [getattr(phase, scope).energy_j or 0.0 for phase in report.phases]
            assert sum(by_phase_j) == pytest.approx(
                getattr(report.energy, scope).energy_j, rel=1e-9
            )
        assert sum(phases(report).values()) == pytest.approx(report.run.duration_s, rel=1e-9)

    def test_validation_is_separate_from_training(self, bench: Bench) -> None:
        """5 batches after each of 2 epochs are 4 s of validation and not part of training."""
        report = bench.with_us(Plan(validation_samples=20)).callback.report()
        by_name = {phase.name: phase for phase in report.phases}
        assert by_name["train"].duration_s == pytest.approx(20 * STEP_S, abs=1e-6)
        assert by_name["validation"].duration_s == pytest.approx(10 * STEP_S, abs=1e-6)
        assert by_name["validation"].gpu.energy_j == pytest.approx(POWER_W * 10 * STEP_S, rel=1e-6)

    def test_accumulated_batches_are_one_step(self, bench: Bench) -> None:
        """With 5 batches per step, 20 batches are 4 steps with 80 samples."""
        ours = bench.callback()
        found = bench.fit(Plan(accumulate=5), ours).rows()
        report = ours.report()
        assert (report.throughput.steps, report.throughput.samples) == (4, 80)
        assert report.efficiency.gpu.j_per_step.value_j == pytest.approx(5 * POWER_W * STEP_S)
        assert found["efficiency/gpu_j_per_sample"][-1][1] == pytest.approx(J_PER_SAMPLE, rel=1e-6)

    def test_a_short_last_batch_counts_its_samples(self, bench: Bench) -> None:
        """38 samples per epoch are 9 batches of 4 samples and one batch of 2."""
        report = bench.with_us(Plan(samples=38)).callback.report()
        assert (report.throughput.steps, report.throughput.samples) == (20, 76)
        expected = POWER_W * STEP_S * 20 / 76
        assert report.efficiency.gpu.j_per_sample.value_j == pytest.approx(expected, rel=1e-9)

    def test_waiting_for_data_is_measured(self, bench: Bench) -> None:
        """If loading a batch takes as long as training on it, half of the training is waiting."""
        report = bench.with_us(Plan(load_s=STEP_S, waits=True)).callback.report()
        waited_s = report.throughput.data_wait_s
        # The first batch may be loaded before the training phase begins.
        assert 19 * STEP_S - 1e-6 <= waited_s <= 20 * STEP_S + 1e-6

    def test_waiting_for_data_has_an_energy(self, bench: Bench) -> None:
        """The energy is power times waiting time, within the stated range, and part of training."""
        report = bench.with_us(Plan(load_s=STEP_S, waits=True)).callback.report()
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

    def test_a_checkpoint_is_not_waiting(self, bench: Bench) -> None:
        """A 1 s checkpoint and a validation after each epoch are not counted as waiting."""
        ours = bench.callback()
        bench.fit(Plan(validation_samples=20, checkpoint_s=1.0, epochs=3, waits=True), ours)
        assert ours.report().throughput.data_wait_s == pytest.approx(0.0, abs=1e-6)

    def test_a_checkpoint_is_a_phase(self, bench: Bench) -> None:
        """Half a second after each of 3 epochs is in the phase checkpoint, not in training."""
        report = bench.with_us(CHECKPOINTS).callback.report()
        by_name = {phase.name: phase for phase in report.phases}
        assert by_name["checkpoint"].duration_s == pytest.approx(1.5, abs=1e-3)
        assert by_name["checkpoint"].gpu.energy_j == pytest.approx(POWER_W * 1.5, rel=1e-3)
        assert by_name["train"].duration_s == pytest.approx(30 * STEP_S, abs=1e-3)

    def test_the_gpu_is_asked_when_it_enters_each_phase(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A CUDA event is recorded at every edge, also where a window begins and ends.

        Each reading of the clock takes a microsecond, so that no two moments are the same.
        """
        read_s, readings = FakeClock.monotonic_s, itertools.count()
        monkeypatch.setattr(
            FakeClock, "monotonic_s", lambda clock: read_s(clock) + 1e-6 * next(readings)
        )
        marked_s: list[float] = []
        monkeypatch.setattr(DeviceEdges, "mark", lambda _, t_s: marked_s.append(t_s))
        ours = bench.callback()
        bench.fit(CHECKPOINTS, ours)
        (path,) = ours._meter.run_folder.glob("attempts/*/*.jsonl")
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        start_s = marked_s[0] - next(line["t_s"] for line in lines if line.get("kind") == "phase")
        windows = [line for line in lines if line.get("kind") == "window"]
        assert len(windows) >= 3
        edges_s = [start_s + line[end] for line in windows for end in ("start_s", "end_s")]
        edges_s += [start_s + line["t_s"] for line in lines if line.get("kind") == "phase"]
        off_s = np.abs(np.subtract.outer(edges_s[:-1], marked_s)).min(axis=1)
        assert off_s.max() < 1e-7

    def test_evaluate_alone(self, bench: Bench) -> None:
        """The report is finished and has ten batches of validation and no training."""
        ours = bench.callback()
        bench.training(Plan(), ours).evaluate()
        assert ours.report().run.status == "finished"
        assert phases(ours.report())["validation"] == pytest.approx(bench.alone_s, abs=1e-6)
        assert ours.report().throughput.steps == 0
        assert "train" not in phases(ours.report())

    def test_predict_alone(self, bench: Bench) -> None:
        """The report is finished and has ten batches of prediction and no training."""
        ours = bench.callback()
        bench.training(Plan(), ours).predict()
        assert ours.report().run.status == "finished"
        assert phases(ours.report())["predict"] == pytest.approx(bench.alone_s, abs=1e-6)
        assert ours.report().throughput.steps == 0

    def test_evaluate_after_training(self, bench: Bench) -> None:
        """It is a second attempt of the run and does not change the figures of the training."""
        ours = bench.callback()
        training = bench.fit(Plan(), ours)
        training.evaluate()
        assert len(ours.report().attempts) == 2
        assert ours.report().throughput.samples == 20 * BATCH_SIZE
        assert phases(ours.report())["train"] == pytest.approx(20 * STEP_S, abs=1e-6)
        assert phases(ours.report())["validation"] == pytest.approx(bench.alone_s, abs=1e-6)
