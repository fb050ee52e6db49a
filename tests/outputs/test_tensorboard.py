"""Event files, read with TensorBoard's own reader."""

import copy
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from energy_callbacks.outputs.tensorboard import TensorBoardOutput


def read(folder: Path) -> EventAccumulator:
    """The content of a folder as TensorBoard reads it."""
    return EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()


def test_a_file_of_another_writer_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's writer may open a file in the same second, with the same number."""
    monkeypatch.setattr("energy_callbacks.outputs.tensorboard._serial", iter([7]))
    users = tmp_path / f"events.out.tfevents.0000000100.{socket.gethostname()}.{os.getpid()}.7"
    users.write_bytes(b"the user's rows")
    output = TensorBoardOutput(tmp_path, opened_unix_s=100.0)
    output.write({"a": 1.0}, 1, 100.0)
    output.close()
    assert users.read_bytes() == b"the user's rows"
    assert len(list(tmp_path.iterdir())) == 2


def test_scalars_come_back_with_step_and_wall_time(tmp_path: Path) -> None:
    """TensorBoard's reader finds each tag with its steps, wall times and values."""
    output = TensorBoardOutput(tmp_path / "run")
    output.write({"power/gpu_w": 200.0, "energy/gpu_wh": 1.5}, 10, 1.7e9)
    output.write({"power/gpu_w": 250.0}, 20, 1.7e9 + 1.0)
    output.close()
    events = read(tmp_path / "run")
    assert sorted(events.Tags()["scalars"]) == ["energy/gpu_wh", "power/gpu_w"]
    found = [(e.step, e.wall_time, e.value) for e in events.Scalars("power/gpu_w")]
    assert found == [(10, 1.7e9, 200.0), (20, 1.7e9 + 1.0, 250.0)]
    assert events.Scalars("energy/gpu_wh")[0].value == 1.5


def test_what_was_written_can_be_seen_at_once(tmp_path: Path) -> None:
    """A row is in the file before ``close``, for live views and killed processes."""
    output = TensorBoardOutput(tmp_path)
    output.write({"a": 1.0}, 1, 1.7e9)
    assert read(tmp_path).Scalars("a")[0].value == 1.0
    output.close()


def test_nothing_is_opened_before_the_first_row(tmp_path: Path) -> None:
    """No folder and no file are created before the first row."""
    output = TensorBoardOutput(tmp_path / "run")
    output.write({}, 1, 1.7e9)
    output.close()
    assert not (tmp_path / "run").exists()


def test_after_close_it_goes_on_in_a_new_file(tmp_path: Path) -> None:
    """After closing twice and writing again, both files together are the run."""
    output = TensorBoardOutput(str(tmp_path))
    for step in (1, 2):
        output.write({"a": float(step)}, step, 1.7e9 + step)
        output.close()
        output.close()
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    assert [event.step for event in read(tmp_path).Scalars("a")] == [1, 2]


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda o: pickle.loads(pickle.dumps(o))])
def test_a_copy_of_an_open_output_writes_a_file_of_its_own(tmp_path: Path, twin_of: object) -> None:
    """A copy and the original write different files."""
    output = TensorBoardOutput(tmp_path)
    output.write({"a": 1.0}, 1, 1.7e9)
    twin = twin_of(output)  # type: ignore[operator]
    twin.write({"a": 2.0}, 2, 1.7e9)
    twin.close()
    output.write({"a": 3.0}, 3, 1.7e9)
    output.close()
    assert len(list(tmp_path.glob("events.out.tfevents.*"))) == 2
    assert sorted(event.step for event in read(tmp_path).Scalars("a")) == [1, 2, 3]


PROBE = """
import sys
from pathlib import Path
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
assert "tensorboard" not in sys.modules, "import"
output = TensorBoardOutput(sys.argv[1])
output.write({"a": 1.0}, 1, 1.7e9)
output.close()
{extra}
print(sorted({"torch", "tensorflow"} & set(sys.modules)))
"""


def frameworks_imported(tmp_path: Path, extra: str = "") -> str:
    """Frameworks that a process has imported after writing a row."""
    for name in ("tensorflow", "torch"):
        (tmp_path / "path" / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / "path" / name / "__init__.py").write_text("")
    program = f"import sys; sys.path.insert(0, {str(tmp_path / 'path')!r})\n"
    program += PROBE.replace("{extra}", extra)
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "run")],
        check=True, capture_output=True, text=True, timeout=600.0,
    )  # fmt: skip
    return answer.stdout.strip()


def test_writing_imports_neither_tensorflow_nor_torch(tmp_path: Path) -> None:
    """Writing a row imports neither of them, even if both are installed."""
    assert frameworks_imported(tmp_path) == "[]"
    assert read(tmp_path / "run").Scalars("a")[0].value == 1.0


def test_the_check_for_frameworks_can_fail(tmp_path: Path) -> None:
    """The check above detects a writer that imports TensorFlow."""
    assert frameworks_imported(tmp_path, extra="import tensorflow") == "['tensorflow']"
