"""Batches of images from folders, and of noise."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from energy_callbacks.inference.profile import images


def save(path: Path, red: int) -> None:
    """Write an image with one colour."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), (red, 0, 0)).save(path)


def test_noise_is_the_same_each_time() -> None:
    """The seed is fixed, because power depends on the values."""
    first, second = (images.batch(None, 3, 8) for _ in range(2))
    assert first.shape == (3, 3, 8, 8)
    assert first.dtype == np.float32
    assert np.array_equal(first, second)


def test_images_are_spread_over_the_folder(tmp_path: Path) -> None:
    """Fewer images than the folder has are of different classes; more are repeated."""
    for number in range(4):
        save(tmp_path / "256_ObjectCategories" / f"00{number}.x" / "a.png", 60 * number)
    assert images.dataset_name(tmp_path) == "caltech256"
    reds = images.batch(tmp_path, 2, 4)[:, 0, 0, 0]
    assert np.allclose(reds * 0.229 + 0.485, [0.0, 120 / 255], atol=1e-6)
    six = images.batch(tmp_path, 6, 4)
    assert np.array_equal(six[:2], six[4:])


def test_names_of_data_sets(tmp_path: Path) -> None:
    """Tiny ImageNet is known by its list of classes, others by their folder."""
    save(tmp_path / "pets" / "a.jpg", 1)
    assert images.dataset_name(tmp_path / "pets") == "pets"
    (tmp_path / "pets" / "wnids.txt").touch()
    assert images.dataset_name(tmp_path / "pets") == "tiny-imagenet"
    assert images.dataset_name(None) == "synthetic"
    with pytest.raises(FileNotFoundError, match="there are no images"):
        images.dataset_name(tmp_path / "empty")
