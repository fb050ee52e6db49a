"""Every way in which a Lightning run begins, ends and goes on."""

import copy
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from lightning.pytorch.callbacks import BatchSizeFinder, Callback, GradientAccumulationScheduler
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.tuner import Tuner

from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.left import threads_left
from tests.integrations.lightning.training import (
    BATCH_SIZE,
    POWER_W,
    STEP_S,
    FailingModule,
    TinyModule,
    callback,
    loader,
    trainer,
)


def phases(report: object) -> dict[str, float]:
    """Duration of each phase, s."""
    return {phase.name: phase.duration_s for phase in report.phases}


def test_phases_add_up(tmp_path: Path) -> None:
    """Training, validation and sanity check have separate time and energy, which add up."""
    clock = FakeClock()
    ours = callback(clock)
    trainer(tmp_path, ours).fit(TinyModule(clock), loader(), loader(5))
    found = phases(ours.report())
    assert found["train"] == pytest.approx(80 * STEP_S)
    assert found["validation"] == pytest.approx(10 * STEP_S)
    assert found["sanity_check"] == pytest.approx(2 * STEP_S)
    by_phase_j = sum(phase.gpu.energy_j or 0.0 for phase in ours.report().phases)
    assert by_phase_j == pytest.approx(ours.report().energy.gpu.energy_j, rel=1e-9)


@pytest.mark.parametrize("stage", ["validate", "test", "predict"])
def test_other_entry_points(tmp_path: Path, stage: str) -> None:
    """validate, test and predict alone give a report with their phase."""
    clock = FakeClock()
    ours = callback(clock)
    getattr(trainer(tmp_path, ours), stage)(TinyModule(clock), loader())
    name = {"validate": "validation"}.get(stage, stage)
    assert phases(ours.report())[name] == pytest.approx(40 * STEP_S)
    assert ours.report().run.status == "finished"


def test_an_exception_leaves_a_report(tmp_path: Path) -> None:
    """The training's exception propagates, and the report says that it failed."""
    clock = FakeClock()
    ours = callback(clock)
    module = FailingModule(clock, RuntimeError("boom"))
    with pytest.raises(RuntimeError, match="boom"):
        trainer(tmp_path, ours).fit(module, loader())
    assert ours.report().run.status == "failed"
    assert "boom" in ours.report().run.error
    assert ours.report().energy.gpu.energy_j == pytest.approx(30 * STEP_S * POWER_W, rel=0.01)


def test_ctrl_c_leaves_a_report(tmp_path: Path) -> None:
    """KeyboardInterrupt ends in Lightning's SystemExit and a report with status interrupted."""
    clock = FakeClock()
    ours = callback(clock)
    with pytest.raises(SystemExit):
        trainer(tmp_path, ours).fit(FailingModule(clock, KeyboardInterrupt()), loader())
    assert ours.report().run.status == "interrupted"


def test_no_thread_is_left(tmp_path: Path) -> None:
    """No thread of ours remains after a run in real time."""
    before = threading.enumerate()
    ours = GpuEnergyCallback()
    trainer(tmp_path, ours, max_epochs=1).fit(TinyModule(FakeClock()), loader(4))
    assert ours.wait_for_report() is not None
    assert threads_left(before) == []


def test_a_second_fit_is_a_second_attempt(tmp_path: Path) -> None:
    """A second fit of the trainer is a second attempt of one run; all steps count."""
    clock = FakeClock()
    ours = callback(clock)
    lightning = trainer(tmp_path, ours, max_epochs=1)
    module = TinyModule(clock)
    lightning.fit(module, loader())
    lightning.fit_loop.max_epochs = 2
    lightning.fit(module, loader())
    assert len(ours.report().attempts) == 2
    assert ours.report().throughput.steps == 80


def test_the_run_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """The checkpoint has the run id; the resumed attempt belongs to the same run."""
    clock = FakeClock()
    first, second = callback(clock), callback(clock)
    lightning = trainer(tmp_path, first, max_epochs=1)
    lightning.fit(TinyModule(clock), loader())
    checkpoint = tmp_path / "end.ckpt"
    lightning.save_checkpoint(checkpoint)
    trainer(tmp_path, second).fit(TinyModule(clock), loader(), ckpt_path=checkpoint)
    assert second.report().run.run_id == first.report().run.run_id
    assert len(second.report().attempts) == 2
    assert second.report().throughput.samples == 80 * BATCH_SIZE


def test_resuming_a_finished_run_does_no_harm(tmp_path: Path) -> None:
    """A fit without remaining steps ends normally."""
    clock = FakeClock()
    lightning = trainer(tmp_path, callback(clock), max_epochs=1)
    lightning.fit(TinyModule(clock), loader())
    lightning.save_checkpoint(tmp_path / "end.ckpt")
    again = callback(clock)
    trainer(tmp_path, again, max_epochs=1).fit(
        TinyModule(clock), loader(), ckpt_path=tmp_path / "end.ckpt"
    )
    assert again.report().run.status == "finished"


def test_a_checkpoint_without_us_loads(tmp_path: Path) -> None:
    """A checkpoint written without our callback resumes with it."""
    clock = FakeClock()
    lightning = trainer(tmp_path, max_epochs=1)
    lightning.fit(TinyModule(clock), loader())
    lightning.save_checkpoint(tmp_path / "bare.ckpt")
    ours = callback(clock)
    trainer(tmp_path, ours).fit(TinyModule(clock), loader(), ckpt_path=tmp_path / "bare.ckpt")
    assert ours.report().throughput.steps == 40


def test_fast_dev_run(tmp_path: Path) -> None:
    """One batch with Lightning's dummy logger."""
    clock = FakeClock()
    ours = callback(clock)
    settings = {"fast_dev_run": True, "logger": True}
    trainer(tmp_path, ours, **settings).fit(TinyModule(clock), loader())
    assert ours.report().throughput.steps == 1


def test_tuner_runs_beside_us(tmp_path: Path) -> None:
    """Lightning's learning-rate finder runs its trials; the following fit is measured."""
    clock = FakeClock()
    ours = callback(clock)
    lightning = trainer(tmp_path, ours, max_epochs=1)
    module = TinyModule(clock)
    module.lr = 0.1
    Tuner(lightning).lr_find(module, loader(), num_training=5)
    lightning.fit(module, loader())
    assert ours.report().throughput.steps == 40


class Sized(TinyModule):
    """A module whose loader has the size that a finder sets."""

    batch_size = 2

    def train_dataloader(self) -> torch.utils.data.DataLoader:
        return torch.utils.data.DataLoader(loader(10).dataset, batch_size=self.batch_size)

    val_dataloader = train_dataloader


@pytest.mark.parametrize("way", ["in the list, before", "in the list, after", "of the tuner"])
def test_a_batch_size_finder_finds_the_same_beside_us(tmp_path: Path, way: str) -> None:
    """It finds the same size as without us; the following fit is measured completely."""

    def found(root: Path, *ours: object) -> tuple[int, int]:
        module = Sized(FakeClock() if not ours else clock)
        finder = BatchSizeFinder(steps_per_trial=1, max_trials=3)
        listed = [*ours, finder] if way.endswith("after") else [finder, *ours]
        lightning = trainer(root, *(ours if "tuner" in way else listed), max_epochs=1)
        if "tuner" in way:
            Tuner(lightning).scale_batch_size(module, steps_per_trial=1, max_trials=3)
        lightning.fit(module)
        return module.batch_size, lightning.global_step

    clock = FakeClock()
    without = found(tmp_path / "without")
    ours = callback(clock)
    assert found(tmp_path / "with", ours) == without
    assert ours.report().throughput.steps == without[1]
    assert ours.report().throughput.samples == 10 * BATCH_SIZE
    by_name = {phase.name: phase for phase in ours.report().phases}
    assert by_name["tuning"].duration_s > 0.0
    assert by_name["tuning"].gpu.energy_j == pytest.approx(
        POWER_W * by_name["tuning"].duration_s, rel=1e-3
    )
    assert by_name["train"].duration_s == pytest.approx(without[1] * STEP_S, rel=1e-3)


def test_pickles_and_copies(tmp_path: Path) -> None:
    """The callback supports pickle and deepcopy, before and after a run."""
    fresh = GpuEnergyCallback(country="DEU", tags={"a": "b"})
    assert pickle.loads(pickle.dumps(fresh)).state_key == fresh.state_key
    assert type(copy.deepcopy(fresh)).__module__ == "energy_callbacks.lightning"
    trainer(tmp_path, fresh, max_epochs=1).fit(TinyModule(FakeClock()), loader(2))
    assert pickle.loads(pickle.dumps(fresh))._meter.is_running is False


def test_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENERGY_CALLBACKS_DISABLED=1: the training runs, and nothing is written."""
    monkeypatch.setenv("ENERGY_CALLBACKS_DISABLED", "1")
    trainer(tmp_path, GpuEnergyCallback(), max_epochs=1).fit(TinyModule(FakeClock()), loader(2))
    assert not list(tmp_path.rglob("energy"))


def test_a_bug_of_ours_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A meter that fails causes one warning; training ends as without us."""
    clock = FakeClock()
    ours = callback(clock)

    def broken(*_: object) -> None:
        raise RuntimeError("our bug")

    monkeypatch.setattr("energy_callbacks.accounting.metrics.forecast.Forecaster.end_epoch", broken)
    lightning = trainer(tmp_path, ours)
    lightning.fit(TinyModule(clock), loader(), loader(5))
    assert lightning.global_step == 80
    assert len(ours.report().attempts) == 1
    assert sum("energy is no longer measured" in record.message for record in caplog.records) == 1


def test_waiting_for_the_first_batch_of_an_epoch_counts(tmp_path: Path) -> None:
    """A loader that needs a second to start is a second of waiting, also after validation."""
    clock = FakeClock()
    ours = callback(clock)

    class SlowToStart(torch.utils.data.IterableDataset):
        def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
            clock.advance(1.0)
            return ((row,) for row in torch.randn(40, 4))

    slow = torch.utils.data.DataLoader(SlowToStart(), batch_size=4)
    lightning = trainer(tmp_path, ours, num_sanity_val_steps=0, max_epochs=3)
    lightning.fit(TinyModule(clock), slow, loader(5))
    # Lightning begins the first epoch's iterator before training starts: that second is setup.
    assert ours.report().throughput.data_wait_s == pytest.approx(2.0, abs=1e-6)


def test_saving_a_checkpoint_is_no_waiting(tmp_path: Path) -> None:
    """A checkpoint of a second after each validation is not waiting for data."""
    clock = FakeClock()
    ours = callback(clock)

    class SlowToSave(TinyModule):
        def on_save_checkpoint(self, checkpoint: dict) -> None:
            clock.advance(1.0)

    lightning = trainer(tmp_path, ours, num_sanity_val_steps=0, max_epochs=3)
    lightning.fit(SlowToSave(clock), loader(10), loader(5))
    assert ours.report().throughput.data_wait_s == pytest.approx(0.0, abs=1e-6)


def test_copying_a_batch_to_the_device_is_no_waiting(tmp_path: Path) -> None:
    """A copy that waits for pending work of the device is not waiting for data."""
    clock = FakeClock()
    ours = callback(clock)

    class SlowToCopy(TinyModule):
        def transfer_batch_to_device(self, batch: Any, device: Any, dataloader_idx: int) -> Any:
            clock.advance(1.0)
            return super().transfer_batch_to_device(batch, device, dataloader_idx)

    lightning = trainer(tmp_path, ours, num_sanity_val_steps=0, max_epochs=3)
    lightning.fit(SlowToCopy(clock), loader(10), loader(5))
    assert ours.report().throughput.data_wait_s == pytest.approx(0.0, abs=1e-6)
    epochs = vars(lightning.fit_loop.epoch_loop)
    assert not {"_on_before_fetch", "_on_after_fetch"} & epochs.keys()
    assert "save_checkpoint" not in vars(lightning)


def test_what_comes_between_a_batch_and_the_next_fetch_is_no_waiting(tmp_path: Path) -> None:
    """Neither other callbacks nor Lightning's own work before it fetches, such as with DDP.

    With several ranks, Lightning lets them agree at every batch whether to stop. The first rank
    then waits until the GPU has done its work.
    """
    clock = FakeClock()
    ours = callback(clock)

    class Slow(Callback):
        def on_train_batch_end(self, *_: object, **__: object) -> None:
            clock.advance(1.0)

    lightning = trainer(tmp_path, ours, Slow(), num_sanity_val_steps=0, max_epochs=3)
    epochs = lightning.fit_loop.epoch_loop
    advance = epochs.advance

    def agree_and_advance(data_fetcher: Any) -> None:
        clock.advance(1.0)
        advance(data_fetcher)

    epochs.advance = agree_and_advance
    lightning.fit(TinyModule(clock), loader(10), loader(5))
    assert ours.report().throughput.data_wait_s == pytest.approx(0.0, abs=1e-6)


def test_a_loader_that_the_step_reads_itself_is_waited_for(tmp_path: Path) -> None:
    """``training_step(dataloader_iter)`` fetches its batches within the step."""
    clock = FakeClock()
    ours = callback(clock)

    class Fetching(TinyModule):
        def training_step(self, dataloader_iter: Iterator[Any]) -> Any:
            (rows,), _, _ = next(dataloader_iter)
            return self.layer(rows).sum()

    class SlowRows(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> tuple[torch.Tensor]:
            clock.advance(0.25)
            return (torch.ones(4),)

    slow = torch.utils.data.DataLoader(SlowRows(), batch_size=4)
    lightning = trainer(tmp_path, ours, num_sanity_val_steps=0, max_epochs=1)
    lightning.fit(Fetching(clock), slow)
    assert ours.report().throughput.data_wait_s == pytest.approx(10.0, abs=1e-6)


def test_a_bug_in_a_hook_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of ours in any hook after the start ends measuring with one warning."""

    def broken(*_: object) -> None:
        raise RuntimeError("our bug")

    clock = FakeClock()
    monkeypatch.setattr(
        "energy_callbacks_lightning.step_counter.LightningStepCounter.begin", broken
    )
    lightning = trainer(tmp_path, callback(clock))
    lightning.fit(TinyModule(clock), loader(), loader(5))
    assert lightning.global_step == 80
    assert sum("energy is no longer measured" in record.message for record in caplog.records) == 1


def test_no_forecast_if_epochs_accumulate_differently(tmp_path: Path) -> None:
    """At the start, Lightning estimates 200 steps for this run of 80: it ignores the scheduler."""
    clock = FakeClock()
    ours, later = callback(clock), GradientAccumulationScheduler({0: 4, 2: 2})
    made = trainer(tmp_path, ours, later, max_epochs=5)
    made.fit(TinyModule(clock), loader())
    assert made.global_step == 80
    assert ours.report().forecast is None


@pytest.mark.parametrize(
    ("batches", "settings", "planned"),
    [
        (10, {}, 20),
        (8, {}, 16),
        (15, {}, 30),
        (15, {"accumulate_grad_batches": 2}, 16),
        (15, {"max_steps": 40}, 20),
        (15, {"max_epochs": -1, "max_steps": 60}, 40),
    ],
)
def test_a_resumed_run_plans_the_steps_that_it_makes(
    tmp_path: Path, batches: int, settings: dict[str, int], planned: int
) -> None:
    """The checkpoint is that of two epochs of 10 steps; later epochs may have more or fewer."""
    clock, file = FakeClock(), tmp_path / "two_epochs.ckpt"
    first = trainer(tmp_path)
    first.fit(TinyModule(clock), loader(10))
    first.save_checkpoint(file)
    ours, plans, spy = callback(clock), set(), Callback()
    spy.on_train_batch_start = lambda *_: plans.add(planned_steps(ours))  # type: ignore[method-assign]
    resumed = trainer(tmp_path, ours, spy, **{"max_epochs": 4, **settings})
    resumed.fit(TinyModule(clock), loader(batches), ckpt_path=file)
    assert ours.report().throughput.steps == planned
    assert plans == {planned}


def planned_steps(ours: GpuEnergyCallback) -> int | None:
    """Planned steps of the running attempt."""
    attempt = ours._meter._lifecycle.attempt
    assert attempt is not None
    return attempt.forecaster.planned_steps


@pytest.mark.parametrize("root", ["here", "memory://root"])
def test_the_run_folder_is_local(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str
) -> None:
    """If the logs are not in a local folder, no folder named ``memory:`` is created."""
    monkeypatch.chdir(tmp_path)
    clock = FakeClock()
    ours = callback(clock)
    made = trainer(root, ours, logger=CSVLogger("memory://logs"), enable_checkpointing=False)  # type: ignore[arg-type]
    made.fit(TinyModule(clock), loader(2))
    place = tmp_path / "here" if root == "here" else tmp_path
    assert ours._meter.run_folder == place / "energy"
    assert not (tmp_path / "memory:").exists()
