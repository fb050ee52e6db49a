"""The examples run as a user would run them."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS = {
    "framework_study.py": ("keras", "sklearn"),
    "huggingface_text.py": ("transformers", "accelerate", "torch"),
    "keras_digits.py": ("keras", "sklearn"),
    "lightning_digits.py": ("lightning", "sklearn"),
    "plain_pytorch.py": ("torch", "sklearn"),
    "quantisation_study.py": ("keras", "sklearn"),
}
# Studies take minutes; here they take what shows that they run.
SHORT = {
    "framework_study.py": ("--repeats", "1", "--epochs", "1"),
    "quantisation_study.py": ("--repeats", "2", "--seconds", "1"),
}
BACKENDS = [name for name in ("torch", "jax", "tensorflow") if find_spec(name)]


def test_no_example_is_forgotten() -> None:
    """Of each example it is known what it needs."""
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == sorted(NEEDS)


@pytest.mark.framework
@pytest.mark.parametrize("name", NEEDS)
def test_example(name: str, tmp_path: Path) -> None:
    """Each example ends well and leaves an energy report below its working directory."""
    missing = [package for package in NEEDS[name] if not find_spec(package)]
    if missing or ("keras" in NEEDS[name] and not BACKENDS):
        pytest.skip(f"not installed: {missing or 'a backend of Keras'}")
    environment = os.environ | {
        "PYTHONWARNINGS": "ignore",
        "CUDA_VISIBLE_DEVICES": "",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "KERAS_BACKEND": BACKENDS[0] if BACKENDS else "",
    }
    subprocess.run(
        [sys.executable, str(EXAMPLES / name), *SHORT.get(name, ())],
        cwd=tmp_path,
        env=environment,
        check=True,
        timeout=300,
    )
    wanted = "comparison.html" if name in SHORT else "energy_report.html"
    assert list(tmp_path.rglob(wanted))
