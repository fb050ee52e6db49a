"""The models and their data, in a process with PyTorch."""

import os
import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Some lines in a process of their own."""
    if not find_spec("torch"):
        pytest.skip("torch is not installed")
    paths = os.pathsep.join((str(ROOT), str(ROOT / "integrations")))
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


MODELS = """
import torch
from energy_callbacks.profiling.zoo import plan, torch_models as models
count = lambda model: sum(one.numel() for one in model.parameters())
print(count(models.resnet18()), count(models.resnet50()))
assert tuple(models.MODELS) == plan.MODELS
for build in models.MODELS.values():
    assert build(10)(torch.rand(2, 3, 32, 32)).shape == (2, 10)
stage = models.resnet50()[:-3](torch.rand(1, 3, 224, 224))
print(tuple(stage.shape))
"""


@pytest.mark.framework
def test_the_models_are_what_they_are_called():
    """Parameters of ResNet-18 and -50 as published, features of 7 x 7 of an image of 224 x 224."""
    done = run(MODELS)
    assert done.stdout.split("\n")[:2] == ["11689512 25557032", "(1, 2048, 7, 7)"], done.stderr


DATA = """
import sys
from pathlib import Path
from energy_callbacks.profiling.zoo.torch_data import load
images, labels = load("cifar10", Path(sys.argv[1]))
print(tuple(images.shape), labels.tolist()[:3], round(float(images[1, 2, 0, 0]) * 255))
"""


def write_cifar10(folder: Path, **more: object) -> None:
    """Two batches of three images, in the layout that is published."""
    folder.mkdir(parents=True)
    for number in (1, 2):
        pixels = np.zeros((3, 3072), np.uint8)
        pixels[1, 2048] = 200  # the first of the blue ones
        content = {"batch_label": "x", "data": pixels, "labels": [number, 8, 9], **more}
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(content, protocol=2))


@pytest.mark.framework
@pytest.mark.parametrize("below", ["cifar-10-batches-py", "."])
def test_cifar10_on_disk(below: str, tmp_path: Path) -> None:
    """In torchvision's folder or in the one given: red, green and blue planes, 0 to 1."""
    write_cifar10(tmp_path / "data" / below)
    done = run(DATA, str(tmp_path / "data"))
    assert done.stdout == "(6, 3, 32, 32) [1, 8, 9] 200\n", done.stderr


@pytest.mark.framework
def test_cifar10_that_is_not_there(tmp_path: Path) -> None:
    """What is missing, where, and what to do; nothing is downloaded."""
    done = run(DATA, str(tmp_path))
    assert f"FileNotFoundError: CIFAR-10 is not in {tmp_path}" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.framework
def test_a_file_runs_no_code(tmp_path: Path) -> None:
    """A pickle that would call something is refused."""
    write_cifar10(tmp_path / "data", evil=pytest.raises)
    done = run(DATA, str(tmp_path / "data"))
    assert "has no place in a file of CIFAR-10" in done.stderr
