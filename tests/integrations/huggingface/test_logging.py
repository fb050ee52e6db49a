"""Our figures stand in the user's own run, at the steps of the loss, and disturb no row of it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers")

from transformers import TrainerCallback
from transformers.integrations import integration_utils

from energy_callbacks.accounting.metrics.tags import TAGS
from energy_callbacks.testing import FakeClock
from tests.integrations.huggingface.training import (
    BATCH_SIZE,
    BATCHES,
    STEPS,
    Remembering,
    Rows,
    TinyModel,
    boards,
    callback,
    trainer,
)
from tests.integrations.reading import scalars, steps

TAG = "efficiency/gpu_j_per_sample"
# Beside those of the contract: what only the Trainer has.
SETTINGS: dict[str, dict[str, Any]] = {
    "evaluation": {"eval_strategy": "epoch", "eval_data": Rows(20)},
    "evaluation and checkpoints in steps": {
        "eval_strategy": "steps",
        "eval_steps": 7,
        "save_steps": 14,
        "save_strategy": "steps",
        "load_best_model_at_end": True,
        "eval_data": Rows(20),
    },
    "evaluation first": {"eval_strategy": "epoch", "eval_on_start": True, "eval_data": Rows(20)},
    "accumulation": {"gradient_accumulation_steps": 3},
    "log every epoch": {"logging_strategy": "epoch"},
    "tokens": {"include_num_input_tokens_seen": True},
}
OF_TIME = re.compile(r"(_runtime|runtime|per_second)$")


def is_ours(tag: str) -> bool:
    """Whether a tag is one of ours."""
    return tag.removesuffix("_lo").removesuffix("_hi") in TAGS


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    """Return values that do not depend on durations."""
    return {name: value for name, value in row.items() if not OF_TIME.search(name)}


def run(root: Path, model: TinyModel, *callbacks: Any, **settings: Any) -> tuple[Any, dict]:
    """Train, and read the log history and the only event file."""
    one = trainer(root, model, *callbacks, **({"report_to": ["tensorboard"]} | settings))
    one.train()
    [board] = boards(root)
    return one.state.log_history, scalars(board)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_of_the_training_is_there_bit_for_bit(tmp_path: Path, name: str) -> None:
    """Event file and log history have the same rows as without our callback, and ours."""
    clock = FakeClock()
    history, found = run(tmp_path / "a", TinyModel(FakeClock()), **SETTINGS[name])
    history_with, found_with = run(
        tmp_path / "b", TinyModel(clock), callback(clock), **SETTINGS[name]
    )
    assert set(found) <= set(found_with)
    assert timeless({tag: found_with[tag] for tag in found}) == timeless(found)
    new = {tag for tag in set(found_with) - set(found) if not tag.startswith("final/")}
    assert {tag for tag in new if not is_ours(tag)} == set()
    theirs = [{k: v for k, v in row.items() if not is_ours(k)} for row in history_with]
    assert [timeless(row) for row in theirs] == [timeless(row) for row in history]
    assert any(is_ours(tag) for tag in found_with)


def test_the_log_history_holds_all_of_them(tmp_path: Path) -> None:
    """A row in trainer_state.json equals the row in TensorBoard."""
    clock = FakeClock()
    settings = SETTINGS["evaluation"] | {"save_strategy": "epoch"}
    history, found = run(tmp_path, TinyModel(clock), callback(clock), **settings)
    kept = [(row["step"], row[TAG]) for row in history if TAG in row]
    assert [step for step, _ in kept] == steps(found[TAG])
    assert [value for _, value in kept] == pytest.approx([v for _, v in found[TAG]], rel=1e-6)
    assert set(history[-1]) > {tag for tag in found if is_ours(tag)}
    [saved] = tmp_path.glob(f"checkpoint-{STEPS}/trainer_state.json")
    assert any(TAG in row for row in json.loads(saved.read_text())["log_history"])


def test_rows_of_an_evaluation_stay_as_they_are(tmp_path: Path) -> None:
    """Rows and metrics of an evaluation have none of our keys."""

    class Counting(Remembering):
        evaluations = 0

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            self.evaluations += 1

    clock = FakeClock()
    others = Counting()
    one = trainer(
        tmp_path,
        TinyModel(clock),
        callback(clock),
        others,
        **SETTINGS["evaluation and checkpoints in steps"],
    )
    one.train()
    rows = [row for row in others.rows + one.state.log_history if "eval_loss" in row]
    assert len(rows) == 2 * others.evaluations
    assert others.evaluations >= STEPS // 7
    assert not [tag for row in [*rows, one.evaluate()] for tag in row if is_ours(tag)]


def test_reporters_find_all_of_them_in_the_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reporter before the user callbacks, such as W&B, gets every figure."""
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "fake", Remembering)
    clock = FakeClock()
    one = trainer(tmp_path, TinyModel(clock), callback(clock), report_to=["tensorboard", "fake"])
    one.train()
    [reporter] = [other for other in one.callback_handler.callbacks if type(other) is Remembering]
    expected = [{tag: v for tag, v in row.items() if is_ours(tag)} for row in one.state.log_history]
    seen = [{tag: v for tag, v in row.items() if is_ours(tag)} for row in reporter.rows]
    assert seen == expected
    assert TAG in seen[-1]


def test_mlflow_gets_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The MLflow callback of transformers writes our figures into its run."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setattr(integration_utils, "is_mlflow_available", lambda: True)
    clock = FakeClock()
    one = trainer(tmp_path / "out", TinyModel(clock), callback(clock), report_to=["mlflow"])
    one.train()
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    [found] = client.search_runs([client.get_experiment_by_name("Default").experiment_id])
    assert found.data.metrics[TAG] == pytest.approx(5.0)


@pytest.mark.parametrize("disable_tqdm", [True, False], ids=["printer", "progress bar"])
def test_a_line_of_the_console_stays_readable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], disable_tqdm: bool
) -> None:
    """Each line has only a few of our figures, with four digits."""
    clock = FakeClock()
    ours = callback(clock, country="DEU")
    one = trainer(tmp_path, TinyModel(clock), ours, disable_tqdm=disable_tqdm)
    one.train()
    lines = [line for line in capsys.readouterr().out.splitlines() if "loss" in line]
    shown = set(re.findall(r"'(\w+/\w+)'", lines[-1]))
    assert shown == {
        "power/gpu_w", "energy/total_wh", TAG, "efficiency/total_j_per_sample",
        "emissions/total_g", "throughput/samples_per_s",
    }  # fmt: skip
    assert re.search(r"'throughput/samples_per_s': '?40(\.0)?'?[,}]", lines[-1])
    assert len(lines) == STEPS // 5 + 1


def test_train_returns_them(tmp_path: Path) -> None:
    """The metrics of train() and save_metrics include the final figures."""
    clock = FakeClock()
    one = trainer(tmp_path, TinyModel(clock), callback(clock))
    metrics = one.train().metrics
    one.save_metrics("train", metrics)
    saved = json.loads((tmp_path / "train_results.json").read_text())
    assert saved[TAG] == metrics[TAG] == pytest.approx(5.0)


def test_without_tensorboard_the_loss_comes_along(tmp_path: Path) -> None:
    """report_to=[]: the event file in the run folder has the rows of Hugging Face, and ours."""
    settings = SETTINGS["evaluation"]
    clock = FakeClock()
    _, theirs = run(tmp_path / "a", TinyModel(FakeClock()), **settings)
    _, ours = run(tmp_path / "b", TinyModel(clock), callback(clock), **settings, report_to=[])
    assert boards(tmp_path / "b") == [tmp_path / "b" / "energy"]
    assert timeless({tag: ours[tag] for tag in theirs}) == timeless(theirs)
    assert set(steps(ours[TAG])) <= set(steps(ours["train/loss"]))
    assert {"train/loss", "eval/loss", TAG} <= set(ours)
    assert not [tag for tag in ours if tag.startswith("train/") and is_ours(tag[6:])]


def test_a_train_loss_of_the_users_own_is_no_end(tmp_path: Path) -> None:
    """Only the Trainer's last row ends measuring, not a user's row with the same name."""
    from transformers import Trainer

    class Chatty(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            self.log({"train_loss": loss.item()})
            return loss

    clock = FakeClock()
    ours = callback(clock)
    trainer(tmp_path, TinyModel(clock), ours, make=Chatty).train()
    assert ours.report().throughput.steps == STEPS


def test_real_time_without_any_setting(tmp_path: Path) -> None:
    """GpuEnergyCallback() without settings, on the sensors of this machine."""
    from energy_callbacks.huggingface import GpuEnergyCallback

    ours = GpuEnergyCallback()
    trainer(tmp_path, TinyModel(FakeClock()), ours, num_train_epochs=1).train()
    assert ours.report().run.status == "finished"
    assert ours.report().run.framework == "huggingface"
    assert ours.report().throughput.samples == BATCHES * BATCH_SIZE
    assert ours.wait_for_report() == tmp_path / "energy" / "energy_report.html"
    assert "scripted GPU" not in {device.name for device in ours.report().devices}


def test_the_metrics_are_means_of_the_whole_training(tmp_path: Path) -> None:
    """A slow first half affects the result of train(), but not the curve's last row."""
    clock = FakeClock()
    ours = callback(clock)

    class SlowAtFirst(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            clock.advance(0.3 if state.global_step <= 40 else 0.0)

    one = trainer(
        tmp_path,
        TinyModel(clock),
        ours,
        SlowAtFirst(),
        data=Rows(160),
        report_to=["tensorboard"],
    )
    metrics = one.train().metrics
    [board] = boards(tmp_path)
    assert scalars(board)[TAG][-1][1] == pytest.approx(5.0, rel=1e-3)
    assert metrics[TAG] > 6.0
    assert metrics[TAG] == pytest.approx(
        ours.report().efficiency.gpu.j_per_sample.value_j, rel=1e-6
    )


def steps_with_figures(root: Path, *, data: Any = None, ours: Any = None, **settings: Any) -> list:
    """Return the steps of the rows of the loss that have our figures, without the last row."""
    clock = FakeClock()
    one = callback(clock, **(ours or {}))
    history, found = run(root, TinyModel(clock), one, data=data, **settings)
    rows = [row for row in history if "loss" in row and "energy/gpu_wh" in row]
    assert steps(found["energy/gpu_wh"])[: len(rows)] == [row["step"] for row in rows]
    assert "energy/gpu_wh" in history[-1]
    return [row["step"] for row in rows]


def test_figures_are_logged_at_most_once_per_second(tmp_path: Path) -> None:
    """By default, the loss is logged at each step of 0.1 s, and our figures at every tenth one."""
    found = steps_with_figures(tmp_path, logging_steps=1)
    assert found == list(range(found[0], STEPS + 1, 10))
    assert found[0] <= 20


def test_log_every_n_steps_is_obeyed(tmp_path: Path) -> None:
    """With a number, exactly the logged steps that it divides have our figures."""
    found = steps_with_figures(tmp_path, logging_steps=1, ours={"log_every_n_steps": 3})
    assert found == [step for step in range(found[0], STEPS + 1) if step % 3 == 0]
    assert found[0] <= 21


def test_every_epoch_has_figures(tmp_path: Path) -> None:
    """Epochs of half a second, and a loss per epoch."""
    epochs = 8
    found = steps_with_figures(
        tmp_path, data=Rows(5 * BATCH_SIZE), num_train_epochs=epochs, logging_strategy="epoch"
    )
    assert found == list(range(found[0], 5 * epochs + 1, 5))
    assert found[0] <= 15


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "10"])
def test_log_every_n_steps_is_a_whole_number(value: Any) -> None:
    """Another value is refused at once."""
    with pytest.raises(ValueError, match="log_every_n_steps"):
        callback(FakeClock(), log_every_n_steps=value)
