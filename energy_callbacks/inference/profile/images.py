"""Loads a batch of images from a folder, or makes one of noise."""

import itertools
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SUFFIXES: Final = (".jpg", ".jpeg", ".png")
# Mean and standard deviation of ImageNet's pixels, with which torchvision's models are used
# (torchvision, "Models and pre-trained weights").
_MEAN: Final = np.array((0.485, 0.456, 0.406), np.float32)
_STD: Final = np.array((0.229, 0.224, 0.225), np.float32)
# Files and folders by which data sets are recognised.
_KNOWN: Final = {"wnids.txt": "tiny-imagenet", "256_ObjectCategories": "caltech256"}
SYNTHETIC: Final = "synthetic"


def dataset_name(folder: Path | None) -> str:
    """Return the name of the data in a folder; ``None`` is synthetic data.

    Raises:
        FileNotFoundError: if the folder has no images.
    """
    if folder is None:
        return SYNTHETIC
    if next(_paths(folder), None) is None:
        raise FileNotFoundError(f"{folder}: there are no images ({', '.join(_SUFFIXES)})")
    known = (name for entry, name in _KNOWN.items() if (folder / entry).exists())
    return next(known, folder.resolve().name)


def batch(folder: Path | None, size: int, pixels: int) -> NDArray[np.float32]:
    """Return normalised images of shape (size, 3, pixels, pixels).

    Args:
        folder: folder with images at any depth, as those of Tiny ImageNet and Caltech-256; ``None``
            for noise with a fixed seed.
        size: number of images; if the folder has fewer, they are repeated.
        pixels: width and height, in pixels.
    """
    if folder is None:
        generator = np.random.default_rng(0)
        return generator.standard_normal((size, 3, pixels, pixels), dtype=np.float32)
    paths = sorted(_paths(folder))
    spread = [paths[index * len(paths) // size] for index in range(min(size, len(paths)))] or paths
    chosen = itertools.islice(itertools.cycle(spread), size)
    return np.stack([_image(path, pixels) for path in chosen])


def _paths(folder: Path) -> "itertools.chain[Path] | filter[Path]":
    return filter(lambda path: path.suffix.lower() in _SUFFIXES, folder.rglob("*"))


def _image(path: Path, pixels: int) -> NDArray[np.float32]:
    from PIL import Image

    with Image.open(path) as image:
        resized = image.convert("RGB").resize((pixels, pixels))
    values = np.asarray(resized, np.float32) / np.float32(255.0)
    return np.ascontiguousarray(((values - _MEAN) / _STD).transpose(2, 0, 1))
