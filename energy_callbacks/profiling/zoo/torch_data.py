"""The data: images of 3 x 32 x 32 and their labels of ten classes. Nothing is downloaded."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
import torch
from torch import Tensor

from energy_callbacks.core.extras import requires

_SYNTHETIC: Final = 2048
# What the files of https://www.cs.toronto.edu/~kriz/cifar.html are made of, in numpy 1 and 2.
_OF_ARRAYS: Final = frozenset(
    {
        ("_codecs", "encode"),
        ("numpy", "dtype"),
        ("numpy", "ndarray"),
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
    }
)


def load(name: str, folder: Path) -> tuple[Tensor, Tensor]:
    """Images, (n, 3, 32, 32) from 0 to 1, and labels, (n,).

    Args:
        name: ``digits``, ``synthetic`` or ``cifar10``.
        folder: where CIFAR-10 is looked for.

    Raises:
        FileNotFoundError: if CIFAR-10 is not there.
    """
    loaders: dict[str, Callable[[], tuple[Any, Any]]] = {
        "digits": _digits,
        "synthetic": _synthetic,
        "cifar10": lambda: _cifar10(folder),
    }
    images, labels = loaders[name]()
    return torch.as_tensor(images, dtype=torch.float32), torch.as_tensor(labels)


def _synthetic() -> tuple[Tensor, Tensor]:
    """Noise around a brightness that is the class; the same each time."""
    chance = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (_SYNTHETIC,), generator=chance)
    noise = torch.rand((_SYNTHETIC, 3, 32, 32), generator=chance)
    return 0.5 * noise + labels[:, None, None, None] / 20.0, labels


def _digits() -> tuple[Tensor, Tensor]:
    """The 1,797 handwritten digits of scikit-learn, four times as wide and in grey."""
    with requires("sklearn", extra="demo"):
        from sklearn.datasets import load_digits
    found: Any = load_digits()
    images = torch.as_tensor(found.images / 16.0)[:, None].expand(-1, 3, -1, -1)
    return torch.nn.functional.interpolate(images, scale_factor=4.0), torch.as_tensor(found.target)


def _cifar10(folder: Path) -> tuple[Any, Any]:
    """The 50,000 images for training, from the files in which they are published."""
    places = (folder / "cifar-10-batches-py", folder)
    found = next((place for place in places if (place / "data_batch_1").is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"CIFAR-10 is not in {folder}: there is no cifar-10-batches-py/data_batch_1; unpack "
            "cifar-10-python.tar.gz there (torchvision.datasets.CIFAR10(folder, download=True) "
            "does), or take the data synthetic or digits"
        )
    batches = [_unpickled(path) for path in sorted(found.glob("data_batch_*"))]
    images = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    return images / np.float32(255.0), [label for batch in batches for label in batch["labels"]]


class _ArraysOnly(pickle.Unpickler):
    """Runs no code that a file brings."""

    def find_class(self, module: str, name: str) -> Any:
        """The types of arrays.

        Raises:
            UnpicklingError: for anything else.
        """
        if (module, name) not in _OF_ARRAYS:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a file of CIFAR-10")
        return super().find_class(module, name)


def _unpickled(path: Path) -> Any:
    with path.open("rb") as file:
        return _read(file)


def _read(file: IO[bytes]) -> Any:
    return _ArraysOnly(file, encoding="latin1").load()
