"""Counts the samples and tokens of steps."""

from typing import Any

from energy_callbacks_huggingface.batches import InputCounter
from energy_callbacks_huggingface.loop import Batches


class WorkCounter:
    """Counts the samples and tokens of steps; reads the loader once per epoch.

    Args:
        inputs: counts samples and tokens in the inputs of the model, if the user wants that.

    Attributes:
        plain_size: number of samples in every batch of this epoch, if that is all there is to
            count; ``None`` if ``take`` must be called, as at the first step of an epoch.
    """

    def __init__(self, inputs: InputCounter) -> None:
        self._inputs = inputs
        self._batches: Batches | None = None
        self._tokens_seen = 0
        self._counts_tokens = False
        self.plain_size: int | None = None

    def begin_training(self, args: Any, state: Any) -> None:
        """Reset the counts when training starts or restarts."""
        self.begin_epoch()
        self._tokens_seen = state.num_input_tokens_seen
        # Older versions of transformers have a boolean.
        self._counts_tokens = args.include_num_input_tokens_seen not in (False, "no")

    def begin_epoch(self) -> None:
        """Start an epoch. Its batches are read at the next call of ``take``."""
        self._batches = self.plain_size = None

    def take(
        self, args: Any, state: Any, loader: Any, done: int, *, since_step: int = 0
    ) -> tuple[float | None, float | None]:
        """Return the numbers of samples and tokens in the newest micro-batches.

        The numbers are those of this rank. However, if the Trainer counts the tokens, their number
        is the mean over all ranks. A number is ``None`` if unknown.

        Args:
            args: ``TrainingArguments`` of the trainer.
            state: ``TrainerState`` of the trainer.
            loader: the training loader.
            done: number of micro-batches since the last call of this method.
            since_step: number of micro-batches since the last optimizer step.
        """
        if self._batches is None:
            self._batches = Batches.of(args, state, loader)
            is_plain = not (self._batches.count or self._counts_tokens or self._inputs.is_used)
            self.plain_size = self._batches.size if is_plain else None
        samples: float | None = self._batches.samples(done, state.epoch, since_step)
        tokens = None
        if self._counts_tokens:
            before, self._tokens_seen = self._tokens_seen, state.num_input_tokens_seen
            # The Trainer's count is the sum over all ranks.
            tokens = (self._tokens_seen - before) / float(args.world_size)
        if self._inputs.is_used:
            return self._inputs.take(samples, tokens, done)
        return samples, tokens
