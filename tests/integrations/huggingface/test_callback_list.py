"""Ours finds its place among the trainer's callbacks, and leaves the others as they were."""

import logging
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers import TrainerCallback, TrainerState
from transformers.integrations import CodeCarbonCallback, TensorBoardCallback

from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from energy_callbacks_huggingface.callback import ReportedEnergyCallback
from energy_callbacks_huggingface.callback_list import OtherTrainerCallbacks
from energy_callbacks_huggingface.log_filter import LogFilter, LogRow, nothing
from tests.integrations.huggingface.training import (
    BATCHES,
    STEP_S,
    STEPS,
    Remembering,
    Rows,
    TinyModel,
    boards,
    callback,
    trainer,
)
from tests.integrations.reading import scalars

TAG = "energy/gpu_wh"


class Counting(TrainerCallback):
    """Counts the calls of each event."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("on_"):
            seen = object.__getattribute__(self, "seen")
            seen[name] = seen.get(name, 0) + 1
        return object.__getattribute__(self, name)


def names(one: Any) -> list[str]:
    """Return the names of the trainer's callbacks in order."""
    return [type(other).__name__ for other in one.callback_handler.callbacks]


@pytest.mark.parametrize("late", [False, True], ids=["in the list", "added later"])
def test_each_event_reaches_everybody_once(tmp_path: Path, late: bool) -> None:
    """Moving to the front and adding filters neither skips nor repeats a callback."""
    settings = {"report_to": ["tensorboard"], "eval_strategy": "epoch", "eval_data": Rows(20)}
    expected, before, after = Counting(), Counting(), Counting()
    trainer(tmp_path / "a", TinyModel(FakeClock()), expected, **settings).train()
    clock = FakeClock()
    ours = callback(clock)
    given = [before, after] if late else [before, ours, after]
    one = trainer(tmp_path / "b", TinyModel(clock), *given, **settings)
    if late:
        one.add_callback(ours)
    one.train()
    assert before.seen == after.seen == expected.seen
    assert TAG in scalars(boards(tmp_path / "b")[0])
    assert ours.report().throughput.steps == STEPS


def test_the_list_is_as_it_was(tmp_path: Path) -> None:
    """After training there is no filter, ours is near the front, the user's list is unchanged."""
    clock = FakeClock()
    ours, other = callback(clock), Counting()
    given = [other, ours]
    one = trainer(tmp_path, TinyModel(clock), *given, report_to=["tensorboard"])
    for _ in range(2):
        one.train()
        assert names(one) == [
            "DefaultFlowCallback", "GpuEnergyCallback", "TensorBoardCallback", "Counting",
            "PrinterCallback",
        ]  # fmt: skip
    assert given == [other, ours]


def test_curtains_of_a_broken_call_are_replaced(tmp_path: Path) -> None:
    """After an exception the next training logs each figure once, under its own name."""

    class Failing(TrainerCallback):
        def on_log(self, args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step == 50:
                one.remove_callback(self)
                raise RuntimeError("boom")

    clock = FakeClock()
    ours = callback(clock, log_every_n_steps=1)
    one = trainer(
        tmp_path, TinyModel(clock), ours, Failing(), data=Rows(160), report_to=["tensorboard"]
    )
    with pytest.raises(RuntimeError, match="boom"):
        one.train()
    assert names(one).count("LogFilter") == 4
    one.train()
    assert "LogFilter" not in names(one)
    found = scalars(boards(tmp_path)[-1])
    # Half a second after the start of either call nothing has been seen yet.
    rows = len(found["train/loss"]) - 2 + 1
    assert len(found[TAG]) == rows, "each row of the loss but those, and the last"
    assert not [tag for tag in found if tag.startswith("train/") and tag.count("/") > 1]


def test_report_to_energy(tmp_path: Path) -> None:
    """report_to=["energy", "tensorboard"] needs no instance."""
    one = trainer(
        tmp_path, TinyModel(FakeClock()), report_to=["energy", "tensorboard"], num_train_epochs=1
    )
    one.train()
    [ours] = [o for o in one.callback_handler.callbacks if isinstance(o, GpuEnergyCallback)]
    assert ours.report().throughput.steps == BATCHES
    assert ours.wait_for_report() == tmp_path / "energy" / "energy_report.html"


def test_report_to_energy_stands_back_for_an_instance(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With both, the user's callback measures, with one warning, whatever its folder."""
    clock = FakeClock()
    ours = callback(clock, report_dir=tmp_path / "mine")
    one = trainer(tmp_path, TinyModel(clock), ours, report_to=["energy"], eval_data=Rows(20))
    one.train()
    one.evaluate()
    assert names(one)[:2] == ["DefaultFlowCallback", "GpuEnergyCallback"]
    [other] = [o for o in one.callback_handler.callbacks if type(o) is ReportedEnergyCallback]
    assert other._meter.run_folder is None
    assert ours.report().throughput.steps == STEPS
    assert not (tmp_path / "energy").exists()
    assert (
        sum("measure the same training twice" in record.message for record in caplog.records) == 1
    )


def test_the_second_of_two_in_one_folder_stands_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of two callbacks with one run folder the first measures, with one warning."""
    clock = FakeClock()
    first, second = callback(clock), callback(clock)
    trainer(tmp_path, TinyModel(clock), first, second).train()
    assert first.report().throughput.steps == STEPS
    assert len(first.report().attempts) == 1
    assert second._meter.run_folder is None
    assert (
        sum("measure the same training twice" in record.message for record in caplog.records) == 1
    )


def test_of_two_in_two_folders_the_first_writes_the_rows(tmp_path: Path) -> None:
    """Each has its report; rows in event file and logs are those of the first."""
    clock = FakeClock()
    first = callback(clock, log_every_n_steps=1, report_dir=tmp_path / "one")
    second = callback(clock, power_w=50.0, report_dir=tmp_path / "two")
    one = trainer(
        tmp_path / "out", TinyModel(clock), first, second, report_to=["tensorboard"],
        eval_data=Rows(20), eval_strategy="steps", eval_steps=10,
    )  # fmt: skip
    one.train()
    [board] = boards(tmp_path)
    assert [value for _, value in scalars(board)["power/gpu_w"]] == pytest.approx(
        [200.0] * (STEPS // 5)
    )
    assert one.state.log_history[-1]["power/gpu_w"] == pytest.approx(200.0)
    assert second.report().energy.gpu.energy_j == pytest.approx(
        50.0 * (STEPS + STEPS // 10 * 5) * STEP_S, rel=1e-6
    )
    for ours in (first, second):
        assert ours.report().throughput.data_wait_s == pytest.approx(0.0, abs=1e-6)


def test_a_second_tracker_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """CodeCarbonCallback of report_to="all" causes one warning and stays in the list."""
    codecarbon = CodeCarbonCallback.__new__(CodeCarbonCallback)
    codecarbon.tracker = None
    for event in ("on_init_end", "on_train_begin", "on_train_end"):
        setattr(codecarbon, event, lambda *_, **__: None)
    clock = FakeClock()
    one = trainer(tmp_path, TinyModel(clock), callback(clock), codecarbon)
    one.train()
    one.train()
    assert sum("CodeCarbonCallback" in record.message for record in caplog.records) == 1
    assert codecarbon in one.callback_handler.callbacks


def test_a_writer_that_fails_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk causes one warning of ours; other reporters continue."""

    class Full:
        def add_scalar(self, tag: str, value: float, step: int) -> None:
            if "/" in tag and not tag.startswith("train/"):
                raise OSError("no space left on device")

        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: None

    clock = FakeClock()
    others = Remembering()
    board = TensorBoardCallback(tb_writer=Full())
    one = trainer(tmp_path, TinyModel(clock), callback(clock), board, others)
    one.train()
    assert sum("cannot be written to TensorBoard" in r.message for r in caplog.records) == 1
    assert TAG in others.rows[-1]


def test_our_own_file_that_fails_does_not_end_the_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same for the event file in the run folder."""

    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("energy_callbacks.outputs.tensorboard.TensorBoardOutput.write", full)
    clock = FakeClock()
    ours = callback(clock)
    with caplog.at_level(logging.WARNING):
        trainer(tmp_path, TinyModel(clock), ours).train()
    assert (
        sum("cannot be written to our event file" in record.message for record in caplog.records)
        == 1
    )
    assert ours.report().throughput.steps == STEPS


def test_curtains_hang_only_from_the_first_place(tmp_path: Path) -> None:
    """After TensorBoard they would move ours in the list, and repeat its hook."""
    ours, board = callback(FakeClock()), TensorBoardCallback(tb_writer=None)
    state = TrainerState(log_history=[{}])
    behind, before = [board, ours], [ours, board]
    for given in (behind, before):
        others = OtherTrainerCallbacks(ours, given, tmp_path)
        others.write({"loss": 1.0}, {TAG: 2.0}, {TAG: 2.0}, state)
        others.call_last()
    assert behind[:2] == [board, ours]
    assert [type(one).__name__ for one in behind[2:]] == ["LastCallback"]
    assert [type(one).__name__ for one in before] == [
        "GpuEnergyCallback", "LogFilter", "TensorBoardCallback", "LogFilter", "LastCallback",
    ]  # fmt: skip


def test_a_curtain_lets_other_rows_pass() -> None:
    """Rows without our figures do not change."""
    row = LogRow()
    mine = {"loss": 1.0}
    row.put(mine, {TAG: 2.0})
    theirs = {TAG: 3.0}
    LogFilter(row, nothing).on_log(None, None, None, logs=theirs)
    assert theirs == {TAG: 3.0}
    LogFilter(row, nothing).on_log(None, None, None, logs=mine)
    assert mine == {"loss": 1.0}


class Watching(TrainerCallback):
    """A callback that records the callbacks of the list at an event."""

    def __init__(self, event: str) -> None:
        self.trainer: Any = None
        self.seen: set[str] = set()
        setattr(self, event, lambda *_, **__: self.seen.update(names(self.trainer)))


@pytest.mark.parametrize(
    ("event", "added"),
    [
        ("on_step_begin", set()),
        ("on_optimizer_step", set()),
        ("on_step_end", {"LastCallback"}),
        ("on_log", {"LastCallback", "LogFilter"}),
    ],
)
def test_what_we_add_to_the_list_is_there_only_where_it_is_needed(
    tmp_path: Path, event: str, added: set[str]
) -> None:
    """The Trainer calls four hooks of every callback at each step, even if they are empty."""
    clock = FakeClock()
    watching = Watching(event)
    one = trainer(tmp_path, TinyModel(clock), callback(clock), watching, report_to=["tensorboard"])
    watching.trainer = one
    one.train()
    assert watching.seen & {"LastCallback", "LogFilter"} == added


def test_the_loader_is_not_read_at_each_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch size and the length of the loader are read at most three times per epoch."""

    def lengths(*callbacks: Any) -> int:
        found = []
        original = torch.utils.data.BatchSampler.__len__
        monkeypatch.setattr(
            torch.utils.data.BatchSampler, "__len__", lambda one: found.append(1) or original(one)
        )
        clock = callbacks[0]._meter._clock if callbacks else FakeClock()
        trainer(tmp_path, TinyModel(clock), *callbacks).train()
        monkeypatch.undo()
        return len(found)

    assert lengths(callback(FakeClock())) - lengths() <= 2 * 3


def test_a_callback_may_ask_for_a_checkpoint(tmp_path: Path) -> None:
    """The checkpoint of a step that another callback chose has our state at that step."""

    class Saving(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            control.should_save = state.global_step == 37

    clock = FakeClock()
    one = trainer(tmp_path, TinyModel(clock), callback(clock), Saving())
    one.train()
    path = tmp_path / "checkpoint-37" / "trainer_state.json"
    kept = TrainerState.load_from_json(str(path)).stateful_callbacks["energy_callbacks"]
    assert kept["energy_j"]["gpu"] == pytest.approx(200.0 * 37 * STEP_S, abs=200.0)
