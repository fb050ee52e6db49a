"""Every framework passes its own tests, each in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# name -> the folder of its tests, the packages they need, the backend of Keras
FRAMEWORKS: dict[str, tuple[str, tuple[str, ...], str | None]] = {
    "lightning": ("lightning", ("lightning",), None),
    "huggingface": ("huggingface", ("transformers", "accelerate", "torch"), None),
    "keras-tensorflow": ("keras", ("keras", "tensorflow"), "tensorflow"),
    # Keras' TensorBoard callback writes with TensorFlow on every backend.
    "keras-jax": ("keras", ("keras", "jax", "tensorflow"), "jax"),
    "keras-torch": ("keras", ("keras", "torch", "tensorflow"), "torch"),
}
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",  # processes side by side wait for each other's threads
}
# Each takes three to six minutes on two cores that are not busy with anything else; this ends what
# hangs.
TIMEOUT_S = 2400

Ended = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[Ended]]]:
    """Those that are asked for, as many at a time as there are cores: their time is virtual."""
    tests = [item for item in request.session.items if item.path == request.path]
    names = {name for name in FRAMEWORKS for test in tests if test.name.endswith(f"[{name}]")}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield {name: pool.submit(run, name) for name in FRAMEWORKS if name in names}


def run(name: str) -> Ended:
    """All tests of one framework, in a process of their own."""
    folder, packages, backend = FRAMEWORKS[name]
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    chosen = {} if backend is None else {"KERAS_BACKEND": backend}
    options = ["-q", "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", f"tests/integrations/{folder}", *options],
        cwd=ROOT,
        env=os.environ | QUIET | chosen,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.mark.framework
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_framework(name: str, ended: dict[str, Future[Ended]]) -> None:
    """All tests of a framework's folder pass; its output is shown where they do not."""
    answer = ended[name].result()
    if answer.returncode != 0:
        pytest.fail(f"{answer.stdout}\n{answer.stderr}", pytrace=False)
