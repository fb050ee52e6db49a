"""Loads data sets of 3 x 32 x 32 images with ten classes; nothing is downloaded."""

import pickle
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from energy_callbacks.core.extras import requires

# Number of synthetic images.
_SYNTHETIC: Final = 2048
# Types and functions that the pickled files of https://www.cs.toronto.edu/~kriz/cifar.html use, as
# module and name. The module of ``_reconstruct`` has different names in NumPy 1 and NumPy 2.
_OF_ARRAYS: Final = (
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
)


def load(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    """Return images of shape (n, 3, 32, 32), with values from 0 to 1, and their n labels.

    Args:
        name: ``digits``, ``synthetic`` or ``cifar10``.
        folder: folder that contains CIFAR-10; not used for other data sets.

    Raises:
        FileNotFoundError: if CIFAR-10 is requested and not in ``folder``.
    """
    if name == "cifar10":
        return _cifar10(folder)
    return _digits() if name == "digits" else _synthetic()


def _synthetic() -> tuple[Tensor, Tensor]:
    """Return images of noise, brighter for higher labels, and the labels; the seed is fixed."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (_SYNTHETIC,), generator=generator)
    noise = torch.rand((_SYNTHETIC, 3, 32, 32), generator=generator)
    return 0.5 * noise + labels[:, None, None, None] / 20.0, labels


def _digits() -> tuple[Tensor, Tensor]:
    """Return scikit-learn's 1,797 handwritten digits, enlarged from 8 x 8, with equal channels."""
    with requires("sklearn", extra="demo"):
        from sklearn.datasets import load_digits
    digits: Any = load_digits()
    images = torch.as_tensor(digits.images / 16.0, dtype=torch.float32)
    images = images[:, None].expand(-1, 3, -1, -1)
    return torch.nn.functional.interpolate(images, scale_factor=4.0), torch.as_tensor(digits.target)


def _cifar10(folder: Path) -> tuple[Tensor, Tensor]:
    """Return the 50,000 training images and their labels, from the published files."""
    places = (folder / "cifar-10-batches-py", folder)
    found = next((place for place in places if (place / "data_batch_1").is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"CIFAR-10 is not in {folder}: there is no cifar-10-batches-py/data_batch_1; unpack "
            "cifar-10-python.tar.gz there (torchvision.datasets.CIFAR10(folder, download=True) "
            "does this), or use the data synthetic or digits"
        )
    batches = [_unpickled(path) for path in sorted(found.glob("data_batch_*"))]
    images = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    labels = [label for batch in batches for label in batch["labels"]]
    return torch.as_tensor(images / np.float32(255.0)), torch.as_tensor(labels)


class _ArraysOnly(pickle.Unpickler):
    """An unpickler that creates only arrays and built-in values, so that no code in files runs."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a type or function that is needed for arrays.

        Raises:
            UnpicklingError: for any other name.
        """
        if (module, name) not in _OF_ARRAYS:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a file of CIFAR-10")
        return super().find_class(module, name)


def _unpickled(path: Path) -> Any:
    with path.open("rb") as file:
        return _ArraysOnly(file, encoding="latin1").load()
