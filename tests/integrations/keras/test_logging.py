"""Our figures stand in the user's own run and in ``logs``, and disturb nobody there."""

import csv
import math
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras.callbacks import (
    CSVLogger,
    EarlyStopping,
    ModelCheckpoint,
    ReduceLROnPlateau,
    TensorBoard,
)
from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader

from energy_callbacks.accounting.metrics.tags import expected_tags
from energy_callbacks.testing import FakeClock
from tests.integrations.keras.training import IS_3_6, callback, data, fit
from tests.integrations.reading import scalars, steps, training_files

TAG = "efficiency/total_j_per_sample"
OURS = frozenset(expected_tags(gpu=True, tokens=True, waits=True))
FREQUENCIES: tuple[Any, ...] = ("epoch", "batch", 5, 7)


def logged(folder: Path, *callbacks: Any, update_freq: Any = "epoch") -> dict:
    """Return the rows of the user's TensorBoard callback, which precedes ours."""
    clock = callbacks[0]._meter._clock if callbacks else FakeClock()
    board = TensorBoard(folder, write_graph=False, update_freq=update_freq)
    fit(clock, board, *callbacks, validation_data=data(20))
    return scalars(folder / "train")


@pytest.mark.parametrize("freq", FREQUENCIES)
def test_every_row_of_tensorboard_is_there_bit_for_bit(tmp_path: Path, freq: Any) -> None:
    """With any update_freq TensorBoard's own rows are the same as without us."""
    without = logged(tmp_path / "without", update_freq=freq)
    with_ours = logged(tmp_path / "with", callback(FakeClock(), update_freq=freq), update_freq=freq)
    # With update_freq=7 Keras itself drops its rows of an epoch that does not end at a multiple.
    assert ("batch_loss" if freq == 7 else "epoch_loss") in without
    assert {tag: with_ours[tag] for tag in without} == without
    new = set(with_ours) - set(without)
    assert {tag for tag in new if not tag.startswith("final/")} <= OURS
    assert len(training_files(tmp_path / "with" / "train")) == 1


def test_rows_an_epoch(tmp_path: Path) -> None:
    """By default our rows have TensorBoard's epochs, and the last one has the totals."""
    ours = callback(FakeClock())
    found = logged(tmp_path, ours)
    assert steps(found[TAG]) == [0, 1, 1]
    assert [value for _, value in found[TAG]] == pytest.approx([5.0] * 3, rel=1e-6)
    assert found["energy/gpu_wh"][-1][1] * 3600 == pytest.approx(
        ours.report().energy.gpu.energy_j, rel=1e-6
    )


def test_a_row_is_one_event_of_tensors(tmp_path: Path) -> None:
    """TensorFlow takes 0.2 ms for each event, and its own rows have the same kind of values."""
    logged(tmp_path, callback(FakeClock()))
    [file] = training_files(tmp_path / "train")
    events = list(LegacyEventFileLoader(str(file)).Load())
    with_energy = [e for e in events if any(v.tag == TAG for v in e.summary.value)]
    assert [e.step for e in with_energy] == [0, 1, 1]
    tags = [value.tag for value in with_energy[0].summary.value]
    assert len(tags) > 10
    assert set(tags) <= OURS
    values = [value for event in events for value in event.summary.value]
    kinds = {
        (value.metadata.plugin_data.plugin_name, value.tensor.dtype)
        for value in values
        if value.tag in {*tags, "epoch_loss"}
    }
    assert len(kinds) == 1


@pytest.mark.parametrize("board_freq", ["epoch", 5])
def test_rows_each_few_batches(tmp_path: Path, board_freq: Any) -> None:
    """update_freq=5: a row every 5 batches and at the end of epochs."""
    found = logged(tmp_path, callback(FakeClock(), update_freq=5), update_freq=board_freq)
    expected = [*range(5, 81, 5), 80]
    assert steps(found["energy/gpu_wh"]) == expected[-len(found["energy/gpu_wh"]) :]
    assert len(found["energy/gpu_wh"]) >= len(expected) - 1
    assert [v for _, v in found[TAG]] == pytest.approx([5.0] * len(found[TAG]), rel=1e-6)
    if board_freq == 5 and not IS_3_6:
        assert set(steps(found["energy/gpu_wh"])) <= set(steps(found["batch_loss"]))


@pytest.mark.skipif(IS_3_6, reason="Keras 3.6 writes all its rows of batches at step 0")
def test_rows_at_odd_batches(tmp_path: Path) -> None:
    """update_freq=7 of 40 batches: TensorBoard's counter continues over epochs, like ours."""
    found = logged(tmp_path, callback(FakeClock(), update_freq=7), update_freq=7)
    ours = set(steps(found["energy/gpu_wh"]))
    assert ours - {40, 80} <= set(steps(found["batch_loss"])) == set(range(7, 81, 7))
    assert {14, 40, 77, 80} <= ours


def test_history_and_csv_have_the_same_keys_in_every_epoch(tmp_path: Path) -> None:
    """Callbacks before and after ours see them from the first epoch on."""
    clock = FakeClock()
    table = tmp_path / "log.csv"
    history = fit(clock, CSVLogger(table), callback(clock), epochs=3).history
    assert {len(values) for values in history.values()} == {3}
    assert set(expected_tags(gpu=False, tokens=False, waits=False)) <= set(history)
    assert history[TAG] == pytest.approx([5.0] * 3, rel=1e-6)
    assert not [key for key in history if "token" in key or "data_wait" in key]
    with table.open() as lines:
        written = list(csv.DictReader(lines))
    assert [float(row[TAG]) for row in written] == pytest.approx([5.0] * 3, rel=1e-6)


def test_tokens_have_their_keys(tmp_path: Path) -> None:
    """tokens_per_sample=10 at 5 J per sample is 0.5 J per token."""
    clock = FakeClock()
    ours = callback(clock, tokens_per_sample=10)
    history = fit(clock, ours).history
    assert history["efficiency/gpu_j_per_token"][-1] == pytest.approx(0.5, rel=1e-6)
    assert ours.report().throughput.tokens == 3200


def test_loss_is_what_it_was(tmp_path: Path) -> None:
    """The history of the model's metrics is bitwise the same as without us."""
    clock = FakeClock()
    plain = fit(FakeClock(), validation_data=data(20)).history
    history = fit(clock, callback(clock), validation_data=data(20)).history
    assert {key: history[key] for key in plain} == plain
    assert set(history) - set(plain) <= OURS


@pytest.mark.parametrize("verbose", [1, 2])
def test_the_progress_bar_stays_as_it_was(
    tmp_path: Path, verbose: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The screen shows none of our figures beside the loss, and one line at the end."""
    clock = FakeClock()
    fit(clock, callback(clock), verbose=verbose)
    shown = capsys.readouterr().out
    assert "loss" in shown
    assert not [tag for tag in OURS if tag in shown]
    assert shown.splitlines()[-1].endswith("energy_report.html")
    assert shown.count("energy_report.html") == 1


def test_silent_training_stays_silent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """verbose=0 prints nothing."""
    clock = FakeClock()
    fit(clock, callback(clock))
    assert capsys.readouterr().out == ""


def monitors(folder: Path) -> list[Any]:
    """Return all kinds of Keras callbacks that keep the best value of a figure."""
    return [
        EarlyStopping(TAG, mode="min", patience=100),
        ReduceLROnPlateau(TAG, mode="min", patience=100),
        ModelCheckpoint(folder / "best.weights.h5", TAG, mode="min", save_best_only=True,
                        save_weights_only=True),
    ]  # fmt: skip


def test_callbacks_monitor_joules_per_sample(tmp_path: Path) -> None:
    """EarlyStopping, ReduceLROnPlateau and ModelCheckpoint find the figure in logs."""
    clock = FakeClock()
    watching = monitors(tmp_path)
    fit(clock, *watching, callback(clock))
    assert [float(one.best) for one in watching] == pytest.approx([5.0] * 3, rel=1e-6)
    assert (tmp_path / "best.weights.h5").is_file()


@pytest.mark.filterwarnings("ignore:.*not available", "ignore:.*only with")
def test_what_is_not_known_yet_is_no_best_value(tmp_path: Path) -> None:
    """First epochs are too short for a figure: NaN in the history, hidden from monitors."""
    clock = FakeClock()
    watching = monitors(tmp_path)
    history = fit(clock, *watching, callback(clock), samples=4, epochs=20).history
    assert math.isnan(history[TAG][0])
    assert history[TAG][-1] == pytest.approx(5.0, rel=1e-6)
    assert [float(one.best) for one in watching] == pytest.approx([5.0] * 3, rel=1e-6)


def test_without_tensorboard_a_file_of_ours_has_the_loss_too(tmp_path: Path) -> None:
    """In ./energy_runs/<stamp>/energy: Keras' rows, and ours."""
    clock = FakeClock()
    ours = callback(clock)
    history = fit(clock, ours, validation_data=data(20)).history
    [folder] = (tmp_path / "energy_runs").glob("*/energy")
    assert folder == ours._meter.run_folder
    found = scalars(folder)
    for key in ("loss", "val_loss"):
        assert steps(found[f"epoch_{key}"]) == [0, 1]
        values = [value for _, value in found[f"epoch_{key}"]]
        assert values == pytest.approx(history[key], rel=1e-6)
    assert steps(found["energy/gpu_wh"]) == [0, 1, 1]
    assert not [tag for tag in found if tag.startswith("epoch_") and "/" in tag]


def test_tensorboard_that_cannot_write_disturbs_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; training, history and report are complete."""
    clock = FakeClock()
    ours = callback(clock)

    class Broken(TensorBoard):
        @property
        def _train_writer(self) -> Any:
            raise OSError("disk full")

        def _skip(self, *_: Any) -> None:
            """Disable the user's callback, so that only ours meets the error."""

        on_train_begin = on_train_end = on_epoch_end = _skip

    history = fit(clock, Broken(tmp_path, write_graph=False), ours, epochs=3).history
    assert len(history[TAG]) == 3
    assert ours.report().run.status == "finished"
    assert caplog.text.count("cannot be written to TensorBoard") == 1


def test_what_is_no_number_is_no_row_of_ours() -> None:
    """A metric may be an array, such as a confusion matrix."""
    clock = FakeClock()
    ours = callback(clock)
    listed = keras.callbacks.CallbackList([ours])
    listed.on_train_begin()
    listed.on_epoch_begin(0)
    clock.advance(2.0)
    listed.on_epoch_end(0, {"loss": 1.0, "confusion": np.zeros((2, 2))})
    listed.on_train_end()
    found = scalars(ours._meter.run_folder)
    assert found["epoch_loss"] == [(0, 1.0)]
    assert "epoch_confusion" not in found
    assert "energy/gpu_wh" in found
