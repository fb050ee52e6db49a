"""Tests of PyTorch's profiler in real trainings, which run one after the other in one process.

For TensorFlow and JAX see ``tests/integrations/keras/test_kernels.py``.
"""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.processes import Forking, Script, wait
from tests.lanes import QUIET
from tests.profiling.kernels.trace_format import check

if not find_spec("torch"):
    pytest.skip("PyTorch is not installed", allow_module_level=True)

Found = dict[str, Any]
CASES = (
    "plain",
    "slow_loader",
    "caps",
    "small_files",
    "fails",
    "ends_elsewhere",
    "beside_another",
    "meets_another",
)


def run(forking: Forking, folder: Path, *cases: str) -> dict[str, Found]:
    """Return the last output of the script."""
    script = Script(
        module="tests.profiling.kernels.torch_script",
        folder=folder,
        arguments=(str(folder), *cases),
        environment=QUIET,
    )
    assert wait(forking.start(script)) == 0, script.output
    found: dict[str, Found] = json.loads(script.output.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The parent folder of all cases."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module")
def trainings(forking: Forking, folder: Path) -> dict[str, Found]:
    """The results of each case."""
    return run(forking, folder, *CASES)


def test_a_training_of_pytorch(trainings: dict[str, Found], folder: Path) -> None:
    """A small network has windows, classes and parts, and valid traces with sensor tracks."""
    found = trainings["plain"]
    assert found["windows"] == 3
    assert found["measured_steps"] == 3 * found["windows"]
    assert found["steps"] == 130
    assert {"convolution", "matrix product", "idle"} <= set(found["classes"])
    assert sum(found["classes"].values()) == pytest.approx(1.0)
    assert sum(found["parts"].values()) == pytest.approx(1.0)
    assert min(found["parts"].values()) > 0.0
    assert found["kernels"]["aten::addmm"] == pytest.approx(2.0)  # two linear layers
    assert found["kernels"]["aten::convolution_backward"] == pytest.approx(1.0)
    if found["j_per_step"] is not None:
        assert sum(found["joules"].values()) == pytest.approx(found["j_per_step"])
    assert not found["is_profiling"]
    assert not list((folder / "plain" / "profile").glob("kernels-*.json"))
    assert len(found["traces"]) == 3
    for trace in found["traces"]:
        with gzip.open(folder / "plain" / trace, "rt") as file:
            check(json.load(file))


def test_a_slow_loader_is_found(trainings: dict[str, Found]) -> None:
    """16 waits of 8 ms per step are found, and they are most of the step."""
    found = trainings["slow_loader"]
    assert found["bound"] == "input"
    assert "input_bound" in found["advice"]
    assert found["idle_s"]["input"] >= 0.128
    assert found["idle_s"]["input"] > 0.5 * found["device_s"]


@pytest.mark.parametrize(
    ("case", "word"), [("caps", "max_events=100"), ("small_files", "max_trace_bytes=20,000")]
)
def test_caps_hold(case: str, word: str, trainings: dict[str, Found], folder: Path) -> None:
    """Limits of events and bytes: one window is recorded, and its trace is removed."""
    found = trainings[case]
    assert word in found["notes"][0]
    assert found["windows"] == 0
    assert list((folder / case / "profile").iterdir()) == []
    assert not found["is_profiling"]


@pytest.mark.parametrize("case", ["fails", "ends_elsewhere"])
def test_a_training_that_breaks_in_a_window_stops_the_profiler(
    case: str, trainings: dict[str, Found]
) -> None:
    """PyTorch's profiler stops, on whichever thread the training ends; no window is kept."""
    found = trainings[case]
    assert not found["is_profiling"]
    assert found["windows"] == 0


def test_another_profiler_of_pytorch_goes_on(trainings: dict[str, Found]) -> None:
    """The user's profiler, running or scheduled, records all of its steps; ours does not start."""
    found = trainings["beside_another"]
    assert found["is_running"]
    assert found["theirs"] == 2 * found["steps"]
    assert found["scheduled"] == 2 * 3
    assert all("does not record" in notes[0] for notes in found["notes"])
    assert found["throughput"] == found["steps"]


def test_a_profiler_that_is_begun_in_a_window_gets_its_steps(trainings: dict[str, Found]) -> None:
    """Our window ends before the user's profiler starts; ending it later would end the process."""
    found = trainings["meets_another"]
    assert found["theirs"] == [2 * 5] * 5
    assert not found["is_profiling"]


@pytest.mark.slow(
    reason="4,000 real steps; test_profiler.py bounds what 100,000 steps keep in virtual time"
)
def test_memory_of_the_process_does_not_grow(forking: Forking, tmp_path: Path) -> None:
    """In 3500 steps after the last of four windows, memory grows by less than 20 MB."""
    found = run(forking, tmp_path, "memory")["memory"]
    assert found["windows"] == 4
    early, late = found["rss"]
    assert late - early < 20e6
