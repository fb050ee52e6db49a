"""Tests of the models and their data."""

import pickle
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from energy_callbacks.profiling.zoo import quick, torch_models  # noqa: E402
from energy_callbacks.profiling.zoo.torch_data import load  # noqa: E402


def parameters(model: torch.nn.Module) -> int:
    """Returns the number of parameters."""
    return sum(one.numel() for one in model.parameters())


def test_the_models_are_what_they_are_called() -> None:
    """ResNet-18 and -50 have the published number of parameters and size of features."""
    assert parameters(torch_models.resnet18()) == 11_689_512
    large = torch_models.resnet50()
    assert parameters(large) == 25_557_032
    with torch.no_grad():
        assert large[:-3](torch.rand(1, 3, 224, 224)).shape == (1, 2048, 7, 7)


@pytest.mark.parametrize("name", quick.MODELS)
def test_each_model_answers_for_its_classes(name: str) -> None:
    """Every model returns the scores of ten classes for two images."""
    assert tuple(torch_models.MODELS) == quick.MODELS
    assert torch_models.MODELS[name](10)(torch.rand(2, 3, 32, 32)).shape == (2, 10)


def write_cifar10(folder: Path, **more: object) -> None:
    """Writes two batches of three images in the published layout."""
    folder.mkdir(parents=True)
    for number in (1, 2):
        pixels = np.zeros((3, 3072), np.uint8)
        pixels[1, 2048] = 200  # the first of the blue ones
        content = {"batch_label": "x", "data": pixels, "labels": [number, 8, 9], **more}
        (folder / f"data_batch_{number}").write_bytes(pickle.dumps(content, protocol=2))


@pytest.mark.parametrize("below", ["cifar-10-batches-py", "."])
def test_cifar10_on_disk(below: str, tmp_path: Path) -> None:
    """CIFAR-10 is read from torchvision's folder or the given one, as planes from 0 to 1."""
    write_cifar10(tmp_path / "data" / below)
    images, labels = load("cifar10", tmp_path / "data")
    assert images.shape == (6, 3, 32, 32)
    assert labels.tolist()[:3] == [1, 8, 9]
    assert float(images[1, 2, 0, 0]) * 255 == pytest.approx(200.0)


def test_cifar10_that_is_not_there(tmp_path: Path) -> None:
    """The error for missing data states what to do; nothing is downloaded."""
    with pytest.raises(FileNotFoundError, match=f"CIFAR-10 is not in {tmp_path}"):
        load("cifar10", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_runs_no_code(tmp_path: Path) -> None:
    """A pickle that would run code is refused."""
    write_cifar10(tmp_path / "data", evil=pytest.raises)
    with pytest.raises(pickle.UnpicklingError, match="is not allowed in a file of CIFAR-10"):
        load("cifar10", tmp_path / "data")
