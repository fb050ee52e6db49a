"""The frameworks' own profilers in real trainings, each in a process of its own."""

import gzip
import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.test_frameworks import QUIET, ROOT
from tests.profiling.kernels.trace_format import check

pytestmark = pytest.mark.framework


def run(module: str, *arguments: str) -> dict[str, Any]:
    """What a script prints last."""
    path = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))
    done = subprocess.run(
        [sys.executable, "-m", f"tests.profiling.kernels.{module}", *arguments],
        cwd=ROOT,
        env=os.environ | QUIET | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def torch(case: str, folder: Path) -> dict[str, Any]:
    """A case of the script."""
    if not find_spec("torch"):
        pytest.skip("PyTorch is not installed")
    return run("torch_script", case, str(folder))


def test_a_training_of_pytorch(tmp_path: Path) -> None:
    """Windows, classes and parts of a small network; valid traces with tracks in them."""
    found = torch("plain", tmp_path)
    assert found["windows"] == 3
    assert found["measured_steps"] == 3 * found["windows"]
    assert found["steps"] == 300
    assert {"convolution", "matrix product", "idle"} <= set(found["classes"])
    assert sum(found["classes"].values()) == pytest.approx(1.0)
    assert sum(found["parts"].values()) == pytest.approx(1.0)
    assert min(found["parts"].values()) > 0.0
    assert found["kernels"]["aten::addmm"] == pytest.approx(2.0)  # two linear layers
    assert found["kernels"]["aten::convolution_backward"] == pytest.approx(1.0)
    if found["j_per_step"] is not None:
        assert sum(found["joules"].values()) == pytest.approx(found["j_per_step"])
    assert not found["is_profiling"]
    assert not list((tmp_path / "profile").glob("kernels-*.json"))
    for trace in found["traces"]:
        with gzip.open(tmp_path / trace, "rt") as file:
            check(json.load(file))


def test_a_slow_loader_is_found(tmp_path: Path) -> None:
    """16 times 1 ms of waiting in each step: at least that, and most of the step."""
    found = torch("slow_loader", tmp_path)
    assert found["bound"] == "input"
    assert "input_bound" in found["advice"]
    assert found["idle_s"]["input"] >= 0.016
    assert found["idle_s"]["input"] > 0.5 * found["device_s"]


def test_caps_hold(tmp_path: Path) -> None:
    """Of events and of bytes: one window was tried, and nothing is left of it."""
    for case, word in (("caps", "max_events=100"), ("small_files", "max_trace_bytes=20,000")):
        found = torch(case, tmp_path / case)
        assert word in found["notes"][0]
        assert found["windows"] == 0
        assert list((tmp_path / case / "profile").iterdir()) == []
        assert not found["is_profiling"]


@pytest.mark.parametrize("case", ["fails", "ends_elsewhere"])
def test_a_training_that_breaks_in_a_window_stops_the_profiler(case: str, tmp_path: Path) -> None:
    """Nothing of PyTorch's goes on recording, on whatever thread it is ended; nothing is kept."""
    found = torch(case, tmp_path)
    assert not found["is_profiling"]
    assert found["windows"] == 0


def test_another_profiler_of_pytorch_goes_on(tmp_path: Path) -> None:
    """Ours gives way, even to one that waits for its turn; theirs sees each step to the end."""
    found = torch("beside_another", tmp_path)
    assert found["is_running"]
    assert found["theirs"] == 2 * found["steps"]
    assert found["scheduled"] == 2 * 3
    assert all("gives way" in notes[0] for notes in found["notes"])
    assert found["throughput"] == found["steps"]


def test_a_profiler_that_is_begun_in_a_window_gets_its_steps(tmp_path: Path) -> None:
    """Ours ends before; to end it afterwards would end the process."""
    found = torch("meets_another", tmp_path)
    assert found["theirs"] == [2 * 5] * 5
    assert not found["is_profiling"]


def test_memory_of_the_process_does_not_grow(tmp_path: Path) -> None:
    """After the last of four windows, in 3500 more steps: less than 20 MB."""
    found = torch("memory", tmp_path)
    assert found["windows"] == 4
    early, late = found["rss"]
    assert late - early < 20e6


@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_keras_on_its_other_backends(framework: str, tmp_path: Path) -> None:
    """Traces lie where TensorBoard's plugin looks; without a GPU there is no table: it is said."""
    if not find_spec("keras") or not find_spec(framework):
        pytest.skip(f"Keras or {framework} is not installed")
    found = run("xplane_script", framework, str(tmp_path))
    assert found["framework"] == framework
    assert found["windows"] == 2
    assert found["steps"] == 160
    assert found["classes"] == 0
    assert "the table is not" in found["notes"][0]
    written = sorted(tmp_path.glob("profile/*/plugins/profile/*/*.xplane.pb"))
    assert [str(path.relative_to(tmp_path)) for path in written] == sorted(found["traces"])
    assert all(path.stat().st_size > 1000 for path in written)
