"""The user's metrics in a report, and functions that interpret the names of metrics.

The words of a name such as ``val_loss``, ``eval/F1`` or ``ValidationAccuracy`` tell whether the
metric is computed on validation data, and whether lower or higher values are better.
"""

import re
from dataclasses import dataclass
from typing import Literal

Direction = Literal["lower", "higher"]

_VALIDATION = frozenset(("val", "valid", "validation", "eval", "evaluation", "dev", "test"))
_TRAINING = frozenset(("train", "training"))
_FILLERS = frozenset(("epoch", "step", "mean", "avg", "dataloader", "idx"))
_LOWER = frozenset(
    {
        "loss", "losses", "error", "err", "mse", "rmse", "mae", "mape", "smape", "perplexity",
        "ppl", "nll", "bce", "crossentropy", "wer", "cer", "fid", "rmsle", "msle", "bpc", "bpb",
        "hinge",
    }
)  # fmt: skip
_HIGHER = frozenset(
    {
        "acc", "accuracy", "f1", "auc", "auroc", "auprc", "precision", "recall", "bleu",
        "rouge", "map", "iou", "miou", "dice", "jaccard", "r2", "mcc", "psnr", "ssim", "top1",
        "top5", "map50",
    }
)  # fmt: skip
# A name with one of these words has no direction, because the word may reverse the direction that
# the other words tell.
_UNCLEAR = frozenset(("neg", "negative", "minus", "inverse", "gap", "diff", "false"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """Values of one of the user's metrics at n moments of the run.

    Attributes:
        name: name of the metric, as logged by the user.
        t_s: (n,), seconds since the run began, without pauses between attempts.
        step: (n,), number of the optimizer step of each value; ``None`` if not known.
        epoch: (n,), epoch of each value; ``None`` if not known.
        energy_j: (n,), known energy of GPUs and host up to each value, over all attempts; ``None``
            if no energy is known.
        value: (n,), finite values.
    """

    name: str
    t_s: tuple[float, ...]
    step: tuple[int | None, ...]
    epoch: tuple[float | None, ...]
    energy_j: tuple[float | None, ...]
    value: tuple[float, ...]

    @property
    def is_validation(self) -> bool:
        """Whether the name tells that the metric is computed on data not used for training."""
        return bool(_VALIDATION.intersection(words_of(self.name)))

    @property
    def direction(self) -> Direction | None:
        """Whether lower or higher values are better; ``None`` if the name does not tell."""
        return direction(self.name)

    @property
    def stem(self) -> str:
        """Name in lower case without the words for training, validation and aggregation."""
        left_out = _VALIDATION | _TRAINING | _FILLERS
        return " ".join(word for word in words_of(self.name) if word not in left_out)


def words_of(name: str) -> list[str]:
    """Return the words of a name in lower case.

    >>> words_of("ValidationF1/Score"), words_of("eval_loss")
    (['validation', 'f1', 'score'], ['eval', 'loss'])
    """
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W_]+", apart.lower())


def direction(name: str) -> Direction | None:
    """Return whether lower or higher values are better; ``None`` if the name does not tell.

    >>> direction("val_loss"), direction("eval_accuracy"), direction("val_lr")
    ('lower', 'higher', None)
    """
    words = set(words_of(name))
    is_lower, is_higher = bool(words & _LOWER), bool(words & _HIGHER)
    if words & _UNCLEAR or is_lower == is_higher:
        return None
    return "lower" if is_lower else "higher"
