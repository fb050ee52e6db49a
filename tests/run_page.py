"""``python -m tests.run_page PAGE``: the Python blocks of a page, run in one namespace.

A block that opens a door finds what a reader of it has at hand: a model and its data.
"""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
DOOR = re.compile(r"from energy_callbacks\.(lightning|keras|huggingface) import")


def lightning() -> dict[str, Any]:
    """A module and its batches."""
    from energy_callbacks.testing import FakeClock
    from tests.integrations.lightning.training import TinyModule, loader

    return {"module": TinyModule(FakeClock()), "train_loader": loader()}


def keras() -> dict[str, Any]:
    """A compiled model, inputs and labels."""
    import keras
    import numpy as np

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=["mae"])
    x = np.random.default_rng(0).normal(size=(64, 4))
    return {"model": model, "x": x, "y": x.sum(axis=1)}


def huggingface() -> dict[str, Any]:
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


AT_HAND: dict[str, Callable[[], dict[str, Any]]] = {
    "lightning": lightning,
    "keras": keras,
    "huggingface": huggingface,
}


def run(page: Path) -> None:
    """Run the blocks."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    known: set[str] = set()
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        for door in DOOR.findall(block):
            if door not in known:
                namespace |= AT_HAND[door]()
            known.add(door)
        exec(compile(block, str(page), "exec"), namespace)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
