"""Ways in which a Keras run begins, ends and goes on that other frameworks do not have."""

import copy
import gc
import pickle
import weakref
from pathlib import Path
from typing import Any

import keras
import pytest
from keras.callbacks import BackupAndRestore, CallbackList, ModelCheckpoint, TensorBoard

from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.keras.training import (
    BATCH_SIZE,
    IS_3_6,
    POWER_W,
    STEP_S,
    Tick,
    callback,
    data,
    fit,
    model,
)
from tests.integrations.reading import phases, scalars


class Doing(keras.callbacks.Callback):
    """A callback that calls a function at the end of each epoch."""

    def __init__(self, action: Any) -> None:
        super().__init__()
        self.action = action

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.action(self.model)


def by_hand(ours: Any, clock: FakeClock, trained: Any = None, **params: Any) -> None:
    """A user's training loop: two epochs of three batches."""
    listed = CallbackList([ours], model=trained, **params)
    x, y = data(3 * BATCH_SIZE)
    listed.on_train_begin()
    for epoch in range(2):
        listed.on_epoch_begin(epoch)
        for batch in range(3):
            listed.on_train_batch_begin(batch)
            if trained is not None:
                rows_of = slice(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE)
                trained.train_on_batch(x[rows_of], y[rows_of])
            clock.advance(STEP_S)
            listed.on_train_batch_end(batch, {"loss": 1.0})
        listed.on_test_begin()
        clock.advance(STEP_S)
        listed.on_test_end({})
        listed.on_epoch_end(epoch, {"loss": 1.0})
    listed.on_train_end()


def test_a_loop_of_the_users_own() -> None:
    """CallbackList called directly: steps, samples, phases and a finished report."""
    clock = FakeClock()
    ours = callback(clock, batch_size=BATCH_SIZE)
    by_hand(ours, clock, model(), epochs=2, steps=3, verbose=0)
    report = ours.report()
    assert report.run.status == "finished"
    assert (report.throughput.steps, report.throughput.samples) == (6, 24)
    assert phases(report)["train"] == pytest.approx(6 * STEP_S)
    assert phases(report)["validation"] == pytest.approx(2 * STEP_S)


def test_a_loop_of_the_users_own_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    """Only hooks are known: each batch is a step of unknown size."""
    clock = FakeClock()
    ours = callback(clock)
    by_hand(ours, clock)
    assert (ours.report().throughput.steps, ours.report().throughput.samples) == (6, None)
    assert "energy_report.html" in capsys.readouterr().out


@pytest.mark.every_backend
def test_evaluate_and_predict_of_another_callback() -> None:
    """Inside fit with our callback they are phases of the run, not separate runs."""
    clock = FakeClock()
    ours = callback(clock)
    x, y = data(20)
    alone = {"verbose": 0, "batch_size": BATCH_SIZE, "callbacks": [ours, Tick(clock)]}

    def look(trained: Any) -> None:
        trained.evaluate(x, y, **alone)
        trained.predict(x, **alone)

    history = fit(clock, ours, Doing(look), samples=158).history
    report = ours.report()
    assert len(report.attempts) == 1
    assert (report.throughput.steps, report.throughput.samples) == (80, 316)
    assert phases(report)["train"] == pytest.approx(80 * STEP_S)
    assert phases(report)["validation"] == pytest.approx(10 * STEP_S)
    assert phases(report)["predict"] == pytest.approx(10 * STEP_S)
    assert len(history["efficiency/gpu_j_per_sample"]) == 2


@pytest.mark.parametrize("name", ["evaluate", "predict"])
def test_our_line_comes_after_the_progress_bar(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bars of evaluate and predict are complete before our line."""
    clock = FakeClock()
    ours = callback(clock)
    given = data(20) if name == "evaluate" else data(20)[:1]
    rest = [ours, Tick(clock)]
    getattr(model(), name)(*given, verbose=1, batch_size=BATCH_SIZE, callbacks=rest)
    lines = capsys.readouterr().out.splitlines()
    assert "energy_report.html" in lines[-1]
    assert "step" not in lines[-1]
    assert "5/5" in lines[-2]


def test_evaluate_after_a_fit_that_raised() -> None:
    """The state of the failed call is ignored: evaluate is a separate attempt."""
    clock = FakeClock()
    ours = callback(clock)
    trained = model()

    def fail(_: Any) -> None:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fit(clock, ours, Doing(fail), model=trained)
    clock.advance(60.0)
    settings = {"verbose": 0, "batch_size": BATCH_SIZE, "callbacks": [ours, Tick(clock)]}
    trained.evaluate(*data(20), **settings)
    first, second = ours.report().attempts
    assert first.status != "finished"
    assert second.status == "finished"
    assert second.duration_s == pytest.approx(5 * STEP_S)


@pytest.mark.every_backend
@pytest.mark.parametrize("name", ["evaluate", "predict"])
def test_fit_after_an_evaluation_that_raised(name: str) -> None:
    """The failed evaluate is ended, and the fit is complete."""
    clock = FakeClock()
    ours = callback(clock)
    trained = model()

    class Fail(keras.callbacks.Callback):
        def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
            raise RuntimeError("boom")

        on_predict_batch_begin = on_test_batch_begin

    given = data(20) if name == "evaluate" else data(20)[:1]
    with pytest.raises(RuntimeError, match="boom"):
        getattr(trained, name)(*given, verbose=0, callbacks=[ours, Fail()])
    clock.advance(60.0)
    fit(clock, ours, model=trained)
    first, second = ours.report().attempts
    assert first.duration_s <= 1.0
    assert (second.status, second.steps) == ("finished", 80)
    assert phases(ours.report())["train"] == pytest.approx(80 * STEP_S)


def test_a_later_initial_epoch_goes_on_with_the_run(tmp_path: Path) -> None:
    """initial_epoch=2 in a new process continues the run in TensorBoard's folder."""
    clock = FakeClock()
    trained, board = model(), tmp_path / "tb"
    first, second = callback(clock), callback(clock)
    fit(clock, first, TensorBoard(board), model=trained)
    fit(clock, second, TensorBoard(board), model=trained, epochs=3, initial_epoch=2)
    assert second.report().run.run_id == first.report().run.run_id
    assert second.report().throughput.steps == 120
    assert second.report().throughput.replayed_steps == 0
    epochs = [step for step, _ in scalars(board / "train")["energy/gpu_wh"]]
    assert epochs == [0, 1, 1, 2, 2]


def test_a_new_training_in_an_old_folder_is_a_new_run(tmp_path: Path) -> None:
    """Without initial_epoch no run continues."""
    clock = FakeClock()
    first, second = callback(clock), callback(clock)
    fit(clock, first, TensorBoard(tmp_path))
    fit(clock, second, TensorBoard(tmp_path))
    assert second.report().throughput.steps == 80
    assert len(second.report().attempts) == 1


def test_an_optimizer_that_forgot_its_steps_replays_nothing(tmp_path: Path) -> None:
    """Only weights were loaded: previous steps do not count as repeated."""
    clock = FakeClock()
    first, second = callback(clock), callback(clock)
    fit(clock, first, TensorBoard(tmp_path))
    fit(clock, second, TensorBoard(tmp_path), epochs=3, initial_epoch=2)
    assert second.report().throughput.steps == 120
    assert second.report().throughput.replayed_steps == 0


def test_backup_and_restore_in_the_middle_of_an_epoch(tmp_path: Path) -> None:
    """Checkpoints of every few batches resume at the start of the epoch; counts do too."""
    clock = FakeClock()
    first, second = callback(clock), callback(clock)

    def fail(_: Any) -> None:
        raise RuntimeError("boom")

    def backup() -> BackupAndRestore:
        return BackupAndRestore(tmp_path / "backup")

    with pytest.raises(RuntimeError, match="boom"):
        fit(clock, first, TensorBoard(tmp_path / "tb"), backup(), Doing(fail), epochs=3)
    clock.advance(60.0)
    fit(clock, second, TensorBoard(tmp_path / "tb"), backup(), epochs=3)
    assert second.report().run.run_id == first.report().run.run_id
    assert len(second.report().attempts) == 2
    assert second.report().throughput.steps == 120
    assert second.report().throughput.samples == 480


def test_a_backup_in_the_first_epoch_resumes_the_run(tmp_path: Path) -> None:
    """The backup is written after ten batches, before the first epoch has ended."""
    clock = FakeClock()
    first, second = callback(clock), callback(clock)

    class Fail(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 15:
                raise RuntimeError("boom")

    def backup() -> BackupAndRestore:
        return BackupAndRestore(tmp_path / "backup", save_freq=10)

    with pytest.raises(RuntimeError, match="boom"):
        fit(clock, first, TensorBoard(tmp_path / "tb"), backup(), Fail(), epochs=2)
    fit(clock, second, TensorBoard(tmp_path / "tb"), backup(), epochs=2)
    assert second.report().run.run_id == first.report().run.run_id
    assert len(second.report().attempts) == 2


@pytest.mark.parametrize("saver", [BackupAndRestore, ModelCheckpoint])
def test_checkpoints_within_an_epoch_are_measured(tmp_path: Path, saver: Any) -> None:
    """A checkpoint after every ten batches: all steps count, and saving is a phase."""
    clock = FakeClock()
    ours = callback(clock)

    class Slow(saver):  # type: ignore[misc]
        def _save_model(self, *args: Any, **kwargs: Any) -> None:
            clock.advance(2.0)
            super()._save_model(*args, **kwargs)

    fit(clock, ours, Slow(tmp_path / "model.keras", save_freq=10), epochs=2)
    report = ours.report()
    assert report.throughput.steps == 80
    assert {p.name: p.duration_s for p in report.phases}["checkpoint"] == pytest.approx(16.0)


def test_a_bucket_is_no_place_for_a_journal(tmp_path: Path) -> None:
    """A TensorBoard folder that is not a local path is used by TensorBoard only."""
    clock = FakeClock()
    ours = callback(clock)

    class Bucket(TensorBoard):
        def set_model(self, trained: Any) -> None:
            self.log_dir = str(tmp_path / "tb")
            super().set_model(trained)
            self.log_dir = "gs://bucket/logs"

    fit(clock, Bucket(write_graph=False), ours)
    assert ours._meter.run_folder.is_relative_to(tmp_path / "energy_runs")


def test_a_chosen_folder_is_the_only_one(tmp_path: Path) -> None:
    """With ``report_dir``, the default folder is not created."""
    clock = FakeClock()
    ours = callback(clock, tmp_path / "chosen")
    fit(clock, ours)
    assert ours._meter.run_folder == tmp_path / "chosen"
    assert not (tmp_path / "energy_runs").exists()


def test_a_list_of_the_users_own_stays_as_it_was() -> None:
    """fit(callbacks=CallbackList(...)), twice: no filter remains, and no row is repeated."""
    clock = FakeClock()
    ours, history = callback(clock), keras.callbacks.History()
    trained = model()
    given = [history, ours, Tick(clock)]
    listed = CallbackList(given, model=trained, epochs=2, steps=40, verbose=0, add_progbar=True)
    before = set(listed.callbacks)
    for _ in range(2):
        trained.fit(*data(), batch_size=BATCH_SIZE, epochs=2, callbacks=listed, verbose=0)
    assert set(listed.callbacks) == before
    assert len(listed.callbacks) == len(before)
    assert given[:2] == [history, ours]
    assert [attempt.steps for attempt in ours.report().attempts] == [80, 80]
    assert len(history.history["efficiency/gpu_j_per_sample"]) == 4


def test_a_bare_callback() -> None:
    """callbacks=callback instead of a list."""
    clock = FakeClock()
    ours = callback(clock)
    model().fit(*data(), batch_size=BATCH_SIZE, epochs=1, verbose=0, callbacks=ours)
    assert ours.report().throughput.steps == 40


@pytest.mark.skipif(IS_3_6, reason="Keras 3.6 itself raises on torch")
def test_no_epoch_at_all() -> None:
    """A fit without epochs leaves no files."""
    clock = FakeClock()
    ours = callback(clock)
    fit(clock, ours, epochs=0)
    assert ours._meter.run_folder is None


def test_pickles_and_copies_after_a_run_and_after_an_exception() -> None:
    """Copies contain no frame, model or list of a call."""
    clock = FakeClock()
    ours = GpuEnergyCallback(country="DEU")

    def fail(_: Any) -> None:
        raise RuntimeError("boom")

    fit(clock, ours, epochs=1)
    with pytest.raises(RuntimeError, match="boom"):
        fit(clock, ours, Doing(fail), epochs=1)
    for twin in (pickle.loads(pickle.dumps(ours)), copy.deepcopy(ours)):
        assert twin._meter.config.country == "DEU"
        assert twin._steps._meter is twin._meter
        fit(clock, twin, epochs=1)
        assert twin.report().throughput.steps == 40


def test_nothing_of_the_training_is_kept() -> None:
    """Data and other callbacks of a fit are freed as soon as it has ended."""
    clock = FakeClock()
    ours, other = callback(clock), Doing(lambda _: None)
    trained = model()
    fit(clock, ours, other, model=trained)
    gone = weakref.ref(other)
    del other
    trained.history = None
    gc.collect()
    assert gone() is None


def test_energy_until_the_exception() -> None:
    """A fit that raises in its second epoch has the energy up to then."""
    clock = FakeClock()
    ours = callback(clock)
    epochs = iter([False, True])

    def fail(_: Any) -> None:
        if next(epochs):
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fit(clock, ours, Doing(fail), epochs=3)
    clock.advance(60.0)
    assert ours.report().throughput.steps == 80
    [train] = [phase for phase in ours.report().phases if phase.name == "train"]
    assert 7.5 <= train.duration_s <= 8.0 + 1e-6
    assert train.gpu.energy_j == pytest.approx(train.duration_s * POWER_W, rel=1e-6)


def test_a_bug_in_the_adapter_does_not_end_the_training(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Measuring ends with one warning, in any hook."""
    clock = FakeClock()

    def broken(*_: Any) -> None:
        raise RuntimeError("our bug")

    monkeypatch.setattr("energy_callbacks_keras.loop.KerasStepCounter.settle", broken)
    history = fit(clock, callback(clock), epochs=3, validation_data=data(20)).history
    assert {len(values) for values in history.values()} == {3}
    assert sum("energy is no longer measured" in record.message for record in caplog.records) == 1
