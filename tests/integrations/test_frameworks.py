"""Every framework passes its own tests, each in a process of its own."""

import importlib.util
import os
import subprocess
import sys
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
}
# A process of tests takes about a minute on two cores.
TIMEOUT_S = 900


@pytest.mark.framework
@pytest.mark.parametrize("name", FRAMEWORKS)
def test_framework(name: str) -> None:
    """All tests of a framework's folder pass; its output is shown where they do not."""
    folder, packages, backend = FRAMEWORKS[name]
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    chosen = {} if backend is None else {"KERAS_BACKEND": backend}
    options = ["-q", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", f"tests/integrations/{folder}", *options],
        cwd=ROOT,
        env=os.environ | QUIET | chosen,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if ended.returncode != 0:
        pytest.fail(f"{ended.stdout}\n{ended.stderr}", pytrace=False)
