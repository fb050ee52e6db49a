"""Counts the samples and tokens of each micro-batch from the inputs of the model.

The Trainer does not pass inputs to callbacks. If the user has set functions that count samples or
tokens, a hook on the model's forward pass calls these functions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks_huggingface import loop

Counter = Callable[[Any], float]


class InputCounter:
    """Calls the user's functions with the model's inputs, once per training micro-batch.

    If the model runs several forward passes in a micro-batch, only the first one is counted. With
    DataParallel, each replica of the model gets a part of the micro-batch; the functions are called
    for each part, and the counts are added.

    ::

        expect          when a micro-batch begins
          see             called by the hook before each forward pass: counts the inputs, unless
                          those of this micro-batch are already counted
        take            when an optimizer step or an epoch ends: returns the counts of the step

    Args:
        batch_size_fn: returns the number of samples in the inputs; with ``None``, samples are not
            counted.
        tokens_fn: returns the number of tokens in the inputs; with ``None``, tokens are not
            counted.

    Attributes:
        is_used: whether the user has set a function.
    """

    def __init__(self, batch_size_fn: Counter | None, tokens_fn: Counter | None) -> None:
        given = {"batch_size_fn": batch_size_fn, "tokens_fn": tokens_fn}
        self._functions = {name: fn for name, fn in given.items() if fn is not None}
        self._given = frozenset(self._functions)
        self.is_used = bool(self._given)
        self._counts: list[dict[str, float]] = []
        self._expected = 0
        self._handle: RemovableHandle | None = None
        self._replicas = 1

    def attach(self, model: Any, replicas: int) -> None:
        """Add the hook to a model, if the user has set a function.

        Args:
            model: the model.
            replicas: number of copies of the model among which DataParallel splits each batch.
        """
        self.detach()
        if self._functions and isinstance(model, torch.nn.Module):
            self._replicas = max(replicas, 1)
            hook: Any = _InputHook(self)
            self._handle = model.register_forward_pre_hook(hook, with_kwargs=True)

    def detach(self) -> None:
        """Remove the hook."""
        if self._handle is not None:
            self._handle.remove()
        self._handle = None

    def expect(self, *, is_first: bool) -> None:
        """Begin a micro-batch.

        Args:
            is_first: whether it is the first micro-batch of an optimizer step; if so, the counts
                are reset.
        """
        if is_first:
            self._counts, self._expected = [], 0
        self._expected += self._replicas

    def see(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Count the inputs of a forward pass, once per micro-batch and replica of the model.

        Forward passes in evaluation mode or without gradients, such as those of generation, are
        not counted.
        """
        is_training = module.training and torch.is_grad_enabled()
        if is_training and len(self._counts) < self._expected:
            inputs = args[0] if len(args) == 1 and not kwargs else kwargs or args
            self._counts.append(self._count(inputs))

    def _count(self, inputs: Any) -> dict[str, float]:
        found = {}
        for name, function in list(self._functions.items()):
            try:
                count = function(inputs)
                # Reading a tensor waits for the device; the journal's thread does that. Tensors of
                # replicas are on several devices, and cannot be added.
                is_read = self._replicas > 1 or not isinstance(count, torch.Tensor)
                found[name] = float(count) if is_read else count
            except Exception as error:  # noqa: BLE001 - counting must not end a training
                pass_on_signals()
                self._functions.pop(name)
                loop.warn(
                    f"{name} could not count the inputs of the model ({error!r}); figures that "
                    "need this count are left out; the function receives the inputs of "
                    "model.forward as a dict, by name"
                )
        return found

    def take(
        self, samples: float | None, tokens: float | None, micro_batches: int
    ) -> tuple[float | None, float | None]:
        """Return the numbers of samples and tokens of an optimizer step.

        Args:
            samples: number of samples if there is no ``batch_size_fn``.
            tokens: number of tokens if there is no ``tokens_fn``.
            micro_batches: number of micro-batches of the step.
        """
        return (
            self._sum("batch_size_fn", micro_batches)
            if "batch_size_fn" in self._given
            else samples,
            self._sum("tokens_fn", micro_batches) if "tokens_fn" in self._given else tokens,
        )

    def _sum(self, name: str, micro_batches: int) -> float | None:
        """Return the sum of a function's counts; ``None`` if some micro-batches have no count."""
        counts = [found[name] for found in self._counts if name in found]
        # A micro-batch may have fewer counts than there are replicas: DataParallel does not use all
        # replicas for a small batch.
        return sum(counts) if counts and len(counts) >= micro_batches else None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_handle": None}


class _InputHook:
    """Hook that counts the inputs of the model; a deep-copied or unpickled hook does nothing."""

    def __init__(self, counter: InputCounter | None) -> None:
        self._counter = counter

    @torch.compiler.disable  # type: ignore[untyped-decorator,unused-ignore]
    def __call__(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        if self._counter is not None:
            self._counter.see(module, args, kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {"_counter": None}
