"""What a quick profile trains with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

MODELS: Final = ("simple_cnn", "resnet18", "resnet50", "transformer")
DATA: Final = ("digits", "synthetic", "cifar10")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """Settings of one training.

    Attributes:
        data_dir: where CIFAR-10 is looked for.
        max_steps: at most this many; ``None`` is all of the epochs.
        device: such as ``cuda:0``; ``None`` is a GPU if there is one, else the CPU.

    Raises:
        ValueError: for numbers below one, or data that are not known.
    """

    dataset: str
    epochs: int
    batch_size: int
    data_dir: Path
    max_steps: int | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if self.dataset not in DATA:
            raise ValueError(f"there are no data {self.dataset!r}; take one of {', '.join(DATA)}")
        for name in ("epochs", "batch_size", "max_steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")


def chosen(model_name: str) -> Sequence[str]:
    """The models that a name stands for.

    Raises:
        ValueError: for none.
    """
    if model_name != "all" and model_name not in MODELS:
        known = ", ".join((*MODELS, "all"))
        raise ValueError(f"there is no model {model_name!r}; take one of {known}")
    return MODELS if model_name == "all" else (model_name,)
