"""Every way in which a Trainer's calls begin, end and go on, beside those of the contract."""

import contextlib
import copy
import gc
import json
import pickle
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

import torch
from transformers import Trainer, TrainerCallback, TrainerState

from energy_callbacks.huggingface import GpuEnergyCallback
from energy_callbacks.testing import FakeClock
from tests.integrations.huggingface.training import (
    BATCH_SIZE,
    BATCHES,
    POWER_W,
    STEP_S,
    STEPS,
    FailingModel,
    Remembering,
    Rows,
    Ticking,
    TinyModel,
    callback,
    trainer,
)
from tests.integrations.left import threads_left
from tests.integrations.reading import phases

FIVE_BATCHES = 5 * STEP_S
BEST = {"metric_for_best_model": "loss"}
OUT_OF_MEMORY = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class SlowToSave(Trainer):
    """A Trainer whose checkpoints take a second."""

    def save_model(self, *args: Any, **kwargs: Any) -> None:
        self.model.clock.advance(1.0)
        super().save_model(*args, **kwargs)


@pytest.mark.parametrize(
    ("settings", "evaluations", "checkpoints"),
    [
        ({"eval_strategy": "epoch"}, 2, 0),
        ({"eval_strategy": "steps", "eval_steps": 8}, 5, 0),
        ({"eval_strategy": "epoch", "eval_on_start": True}, 3, 0),
        ({"eval_strategy": "epoch", "save_strategy": "epoch"}, 2, 2),
        ({"eval_strategy": "epoch", "save_strategy": "best"} | BEST, 2, 2),
        ({"save_strategy": "steps", "save_steps": 8, "logging_steps": 4}, 0, 5),
    ],
)  # fmt: skip
def test_phases_add_up(tmp_path: Path, settings: dict, evaluations: int, checkpoints: int) -> None:
    """Training, evaluations and checkpoints have separate time and energy, which add up."""
    clock = FakeClock()
    ours = callback(clock)
    trainer(
        tmp_path, TinyModel(clock), ours, make=SlowToSave, eval_data=Rows(20), **settings
    ).train()
    found = phases(ours.report())
    assert found["train"] == pytest.approx(STEPS * STEP_S, abs=1e-6)
    assert found.get("validation", 0.0) == pytest.approx(evaluations * FIVE_BATCHES, abs=1e-6)
    assert found.get("checkpoint", 0.0) == pytest.approx(checkpoints * 1.0, abs=1e-6)
    by_phase_j = sum(phase.gpu.energy_j or 0.0 for phase in ours.report().phases)
    assert by_phase_j == pytest.approx(ours.report().energy.gpu.energy_j, rel=1e-9)


def test_several_evaluation_sets(tmp_path: Path) -> None:
    """With a dict of sets each evaluation is validation, inside training and alone.

    By itself each of them is an attempt, which begins when its first batch is done.
    """
    clock = FakeClock()
    ours = callback(clock)
    sets = {"near": Rows(20), "far": Rows(40)}
    one = trainer(tmp_path, TinyModel(clock), ours, eval_data=sets, eval_strategy="epoch")
    one.train()
    assert phases(ours.report())["validation"] == pytest.approx(2 * 15 * STEP_S, abs=1e-6)
    one.evaluate()
    assert phases(ours.report())["validation"] == pytest.approx((3 * 15 - 2) * STEP_S, abs=1e-6)
    assert phases(ours.report())["train"] == pytest.approx(STEPS * STEP_S, abs=1e-6)


def test_a_prediction_inside_training(tmp_path: Path) -> None:
    """A user callback that predicts after each epoch is the phase predict, not train."""

    class Predicting(TrainerCallback):
        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            one.predict(Rows(20))

    clock = FakeClock()
    ours = callback(clock)
    one = trainer(tmp_path, TinyModel(clock), ours, Predicting())
    one.train()
    assert phases(ours.report())["predict"] == pytest.approx(2 * FIVE_BATCHES, abs=1e-6)
    assert phases(ours.report())["train"] == pytest.approx(STEPS * STEP_S, abs=1e-6)
    assert len(ours.report().attempts) == 1


def test_a_prediction_that_raises_inside_training_ends_there(tmp_path: Path) -> None:
    """If the user callback catches its error, the next epoch is training."""

    class Forgiving(TrainerCallback):
        def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            with contextlib.suppress(RuntimeError):
                one.predict(Rows(20))

    clock = FakeClock()
    ours = callback(clock)
    model = FailingModel(clock, RuntimeError("boom"), at_pass=BATCHES + 2)
    one = trainer(tmp_path, model, ours, Forgiving())
    one.train()
    assert phases(ours.report())["predict"] == pytest.approx(FIVE_BATCHES, abs=1e-6)
    assert phases(ours.report())["train"] == pytest.approx((STEPS + 2) * STEP_S, abs=1e-6)


def test_an_evaluation_that_raises_ends_there(tmp_path: Path) -> None:
    """A failed evaluation alone does not affect the next one."""
    clock = FakeClock()
    ours = callback(clock)
    model = FailingModel(clock, RuntimeError("boom"), at_pass=3)
    one = trainer(tmp_path, model, ours, eval_data=Rows(20))
    with pytest.raises(RuntimeError, match="boom"):
        one.evaluate()
    clock.advance(60.0)
    one.evaluate()
    first, second = ours.report().attempts
    assert (first.status, second.status) == ("failed", "finished")
    assert second.duration_s == pytest.approx(4 * STEP_S, abs=1e-6)
    assert phases(ours.report())["validation"] <= (2 + 4) * STEP_S + 1e-6


def test_auto_find_batch_size_is_tuning(tmp_path: Path) -> None:
    """Sizes above 2 run out of memory: they are tuning, and only the samples that ran count."""

    class Small(TinyModel):
        failures = 0

        def forward(self, input_ids: torch.Tensor, labels: Any = None) -> dict:
            if self.training and len(input_ids) > 2:
                self.failures += 1
                self.clock.advance(0.3)
                raise OUT_OF_MEMORY
            return super().forward(input_ids, labels)

    clock = FakeClock()
    ours, model = callback(clock), Small(clock)
    one = trainer(
        tmp_path, model, ours, data=Rows(30), auto_find_batch_size=True, report_to=["tensorboard"]
    )
    one.train()
    report = ours.report()
    assert model.failures >= 1
    assert len(report.attempts) == 1
    assert phases(report)["tuning"] == pytest.approx(model.failures * 0.3, abs=1e-6)
    assert phases(report)["train"] == pytest.approx(30 * STEP_S, abs=1e-6)
    assert (report.throughput.steps, report.throughput.samples) == (30, 60)


def test_a_late_out_of_memory_is_tuning_since_the_last_step(tmp_path: Path) -> None:
    """Completed steps stay training; only the time after the last one is tuning."""

    class Late(TinyModel):
        passes = 0

        def forward(self, input_ids: torch.Tensor, labels: Any = None) -> dict:
            self.passes += 1
            if self.passes == 6:
                self.clock.advance(0.3)
                raise OUT_OF_MEMORY
            return super().forward(input_ids, labels)

    clock = FakeClock()
    ours = callback(clock)
    one = trainer(tmp_path, Late(clock), ours, data=Rows(30), auto_find_batch_size=True)
    one.train()
    steps = 5 + one.state.max_steps
    assert phases(ours.report())["tuning"] == pytest.approx(0.3, abs=1e-6)
    assert phases(ours.report())["train"] == pytest.approx(steps * STEP_S, abs=1e-6)
    assert ours.report().throughput.steps == steps


def test_restored_callback_states(tmp_path: Path) -> None:
    """restore_callback_states_from_checkpoint=True keeps the user's object and the run."""
    clock = FakeClock()
    first, second = callback(clock), callback(clock)
    settings = {"save_strategy": "epoch", "restore_callback_states_from_checkpoint": True}
    trainer(tmp_path, TinyModel(clock), first, num_train_epochs=1, **settings).train()
    one = trainer(tmp_path, TinyModel(clock), second, **settings)
    one.train(resume_from_checkpoint=True)
    assert second in one.callback_handler.callbacks
    assert second.report().run.run_id == first.report().run.run_id
    assert second.report().throughput.steps == STEPS


def test_our_state_in_a_checkpoint_is_small_and_known(tmp_path: Path) -> None:
    """trainer_state.json has run, folder and energy under a key that is not a class name."""
    clock = FakeClock()
    ours = callback(clock)
    trainer(tmp_path, TinyModel(clock), ours, data=Rows(160), save_strategy="epoch").train()
    state = TrainerState.load_from_json(str(tmp_path / "checkpoint-80" / "trainer_state.json"))
    kept = state.stateful_callbacks["energy_callbacks"]
    assert (kept["run_id"], kept["folder"]) == (ours.report().run.run_id, str(tmp_path / "energy"))
    used_j = ours.report().energy.gpu.energy_j
    assert 0.8 * used_j < kept["energy_j"]["gpu"] <= used_j
    assert len(json.dumps(kept)) < 500


def test_a_trial_that_was_pruned_ends(tmp_path: Path) -> None:
    """A pruned trial calls on_train_end without a last row, and is finished."""

    class Pruned(Trainer):
        def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
            if self.state.global_step == 30:
                self.callback_handler.on_train_end(self.args, self.state, self.control)
                raise RuntimeError("pruned")

    clock = FakeClock()
    ours = callback(clock)
    with pytest.raises(RuntimeError, match="pruned"):
        trainer(tmp_path, TinyModel(clock), ours, make=Pruned).train()
    assert ours.report().run.status == "finished"
    assert ours.report().throughput.steps == 30


def test_added_in_the_middle_it_measures_the_next_training(tmp_path: Path) -> None:
    """A callback that was added during a training ignores it and its evaluations."""

    class Adding(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 10 and ours not in one.callback_handler.callbacks:
                one.add_callback(ours)

    clock = FakeClock()
    ours = callback(clock)
    one = trainer(tmp_path, TinyModel(clock), Adding(), eval_data=Rows(20), eval_strategy="epoch")
    one.train()
    assert ours._meter.run_folder is None
    one.train()
    assert ours.report().throughput.steps == STEPS


def test_nothing_is_kept_alive(tmp_path: Path) -> None:
    """After a failed training reading the report releases all objects of the call."""
    clock = FakeClock()
    ours = callback(clock)
    model = FailingModel(clock, RuntimeError("boom"))
    gone = weakref.ref(model)
    with pytest.raises(RuntimeError, match="boom"):
        trainer(tmp_path, model, ours).train()
    assert ours.report().run.status == "failed"
    del model
    gc.collect()
    assert gone() is None


def test_no_thread_is_left(tmp_path: Path) -> None:
    """No thread of ours remains after a run in real time."""
    before = threading.enumerate()
    ours = GpuEnergyCallback()
    trainer(tmp_path, TinyModel(FakeClock()), ours, num_train_epochs=1).train()
    assert ours.wait_for_report() is not None
    assert threads_left(before) == []


def test_it_can_be_pickled_and_copied(tmp_path: Path) -> None:
    """Before, after and during a training; copies measure independently."""

    class Copying(Remembering):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            copies.append(copy.deepcopy(ours))

    copies: list[GpuEnergyCallback] = []
    clock = FakeClock()
    ours = pickle.loads(pickle.dumps(GpuEnergyCallback(country="DEU", tokens_fn=len)))
    assert type(ours).__module__ == "energy_callbacks.huggingface"
    trainer(tmp_path, TinyModel(clock), ours, Copying(), data=Rows(20)).train()
    assert pickle.loads(pickle.dumps(ours))._meter.is_running is False
    assert {one._session for one in copies} == {None}


def test_a_bug_of_ours_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing hook causes one warning, and the list is restored."""

    def broken(*_: object) -> None:
        raise RuntimeError("our bug")

    clock = FakeClock()
    ours = callback(clock)
    others = Remembering()
    monkeypatch.setattr("energy_callbacks_huggingface.loop.is_training_row", broken)
    one = trainer(
        tmp_path, TinyModel(clock), ours, others, eval_data=Rows(20), eval_strategy="epoch"
    )
    one.train()
    assert len([row for row in others.rows if "loss" in row]) == STEPS // 5
    assert len(ours.report().attempts) == 1
    assert sum("energy is no longer measured" in record.message for record in caplog.records) == 1
    assert not [o for o in one.callback_handler.callbacks if type(o).__name__ == "LogFilter"]


def test_the_summary_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line at the end has the energy and the path of the report."""
    clock = FakeClock()
    trainer(tmp_path, TinyModel(clock), callback(clock), disable_tqdm=False).train()
    lines = [line for line in capsys.readouterr().out.splitlines() if "energy_report.html" in line]
    assert len(lines) == 1
    assert "Wh" in lines[0]


def test_a_slow_callback_between_steps_is_training(tmp_path: Path) -> None:
    """Time in user callbacks inside a step is training."""
    clock = FakeClock()
    ours = callback(clock)
    trainer(tmp_path, TinyModel(clock), ours, Ticking(clock, "on_pre_optimizer_step", 0.1)).train()
    report = ours.report()
    assert phases(report)["train"] == pytest.approx(2 * STEPS * STEP_S, abs=1e-6)
    per_sample_j = 2 * STEP_S * POWER_W / BATCH_SIZE
    assert report.efficiency.gpu.j_per_sample.value_j == pytest.approx(per_sample_j, rel=1e-9)
