"""Runs the Python blocks of README and documentation.

The blocks of a page share one namespace. A block with an import such as ``from
energy_callbacks.keras import`` belongs to that framework, and so do the blocks after it up to the
next such import. ``python -m tests.docs.pages PAGE FRAMEWORK`` runs a framework's blocks in a
process of their own.
"""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.integrations.no_tensorflow import keep_tensorflow_out

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
_DOOR = re.compile(r"from energy_callbacks\.(lightning|keras|huggingface) import")


def pages() -> list[Path]:
    """Return README and all pages of the documentation."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, framework: str | None) -> Iterator[str]:
    """Return the blocks of a page that belong to a framework, or to none (``None``)."""
    belongs_to = None
    for block in _BLOCK.findall(page.read_text(encoding="utf-8")):
        doors = _DOOR.findall(block)
        belongs_to = doors[-1] if doors else belongs_to
        if belongs_to == framework:
            yield block


def pages_of(framework: str | None) -> list[Path]:
    """Return pages with blocks of a framework."""
    return [page for page in pages() if any(blocks(page, framework))]


def run(page: Path, framework: str | None) -> None:
    """Run a framework's blocks of a page."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    if framework is not None:
        namespace |= _AT_HAND[framework]()
    for block in blocks(page, framework):
        exec(compile(block, str(page), "exec"), namespace)


def _lightning() -> dict[str, Any]:
    """A module and its batches."""
    from energy_callbacks.testing import FakeClock
    from tests.integrations.lightning.training import TinyModule, loader

    return {"module": TinyModule(FakeClock()), "train_loader": loader()}


def _keras() -> dict[str, Any]:
    """A compiled model, inputs and labels."""
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(size=(64, 4))
    return {"model": model, "x": x, "y": x.sum(axis=1)}


def _huggingface() -> dict[str, Any]:
    """A language model and two datasets."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=1)
    rows = torch.arange(64 * 8).view(64, 8) % 32
    examples = [{"input_ids": row, "labels": row} for row in rows]
    return {
        "model": GPT2LMHeadModel(config),
        "train_dataset": examples[:48],
        "eval_dataset": examples[48:],
    }


# Variables that the blocks of a framework use without defining them.
_AT_HAND: dict[str, Callable[[], dict[str, Any]]] = {
    "lightning": _lightning,
    "keras": _keras,
    "huggingface": _huggingface,
}


if __name__ == "__main__":
    keep_tensorflow_out()
    run(Path(sys.argv[1]), sys.argv[2])
