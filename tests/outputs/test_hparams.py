"""Sessions as TensorBoard's own plugin lists them."""

from pathlib import Path

import pytest
from tensorboard.plugins.hparams import api_pb2

from energy_callbacks.outputs import hparams
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from tests.outputs.tensorboard_view import TensorBoardView, parameters, values

FACTS = {"batch_size": 32, "precision": "bf16", "is_compiled": True}


def write(folder: Path, *, wh: float, batch_size: int, is_success: bool | None = True) -> None:
    """A session with one metric; ``None`` for one that has not ended."""
    output = TensorBoardOutput(folder)
    facts = FACTS | {"batch_size": batch_size}
    output.add(hparams.session_start(facts, 1.7e9), 0)
    output.write({"energy/total_wh": wh / 2}, 5, 1.7e9)
    if is_success is not None:
        output.write({"final/total_wh": wh}, 5, 1.7e9)
        output.add(hparams.experiment(facts, ["final/total_wh"], 1.7e9), 5)
        output.add(hparams.session_end(1.7e9 + 60.0, is_success=is_success), 5)
    output.close()


def test_sessions_of_several_runs_are_listed_together(tmp_path: Path) -> None:
    """Parameters with their types, metrics and times of two trainings are listed."""
    write(tmp_path / "a", wh=1.0, batch_size=32)
    write(tmp_path / "b", wh=2.0, batch_size=64, is_success=False)
    view = TensorBoardView(tmp_path)
    groups = view.sessions()
    assert view.metrics() == ["final/total_wh"]
    assert set(view.hparams()) == set(FACTS)
    assert parameters(groups["a"]) == FACTS
    assert parameters(groups["b"]) == FACTS | {"batch_size": 64}
    assert [values(groups[run]) for run in "ab"] == [
        {"final/total_wh": 1.0},
        {"final/total_wh": 2.0},
    ]
    [first], [second] = (groups[run].sessions for run in "ab")
    assert (first.status, second.status) == (api_pb2.STATUS_SUCCESS, api_pb2.STATUS_FAILURE)
    assert first.end_time_secs - first.start_time_secs == pytest.approx(60.0)


def test_a_session_that_has_not_ended_is_listed_too(tmp_path: Path) -> None:
    """Without an experiment the plugin uses the scalars of the runs as metrics."""
    write(tmp_path / "a", wh=1.0, batch_size=32, is_success=None)
    view = TensorBoardView(tmp_path)
    assert values(view.sessions()["a"]) == {"energy/total_wh": 0.5}
