"""Hooks of PyTorch that report when the phase of a training step changes.

::

    event                              phase that begins
    a module is called                 forward
    torch.autograd.backward begins     backward
    torch.autograd.backward returns    optimizer (inside an optimizer's step) or other
    an optimizer's step begins         optimizer
    an optimizer's step returns        other

A training step is the work between two calls of the meter's ``step``. Lightning runs forward and
backward inside the optimizer's step.

The hook for calls of modules ignores modules without parameters, and removes itself once it has
begun the phase ``forward``. This hook is installed again when a training step begins, when the
training continues after a validation, and when ``torch.autograd.backward`` returns.

This file does not import PyTorch: if the training has not imported PyTorch, no hooks are installed.
"""

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


class TorchHooks:
    """Installs the hooks in this process, and removes them.

    Args:
        begin: called with the name of the phase that begins.
    """

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._undo = ExitStack()
        self._is_installed = False
        self._forward: Any = None
        self._outer = "other"

    def install(self) -> None:
        """Install the hooks; do nothing if PyTorch is not imported."""
        torch = sys.modules.get("torch")
        optimizer = sys.modules.get("torch.optim.optimizer")
        if torch is None or optimizer is None:
            return
        self._is_installed = True
        begin = functools.partial(self._begin_outer, "optimizer")
        self._undo.callback(optimizer.register_optimizer_step_pre_hook(begin).remove)
        end = functools.partial(self._begin_outer, "other")
        self._undo.callback(optimizer.register_optimizer_step_post_hook(end).remove)
        self._undo.callback(self._wrap_backward(torch.autograd))
        self._expect_forward()

    def _expect_forward(self) -> None:
        """Install the hook that begins phase ``forward`` at the next call of a module."""
        if self._is_installed and self._forward is None:
            module = sys.modules["torch.nn.modules.module"]
            self._forward = module.register_module_forward_pre_hook(self._on_forward)

    def remove(self) -> None:
        """Remove all hooks."""
        self._is_installed = False
        self._undo.close()
        self._remove_forward()

    def _remove_forward(self) -> None:
        if self._forward is not None:
            self._forward.remove()
            self._forward = None

    def _on_forward(self, module: Any, inputs: Any) -> None:  # noqa: ARG002 - PyTorch passes both
        if next(module.parameters(), None) is None:
            return  # not the model, but for example a metric, or a transform of a data loader
        self._remove_forward()
        self._begin("forward")

    def _wrap_backward(self, autograd: Any) -> Callable[[], None]:
        """Wrap ``torch.autograd.backward`` to report phases; return a function to unwrap it."""
        backward = autograd.backward

        @functools.wraps(backward)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._is_installed:  # after removal, another wrapper may still call ``timed``
                return backward(*args, **kwargs)
            self._begin("backward")
            try:
                return backward(*args, **kwargs)
            finally:
                self._begin(self._outer)
                self._expect_forward()  # for the forward pass of the next micro-batch

        def restore() -> None:
            if autograd.backward is timed:
                autograd.backward = backward

        autograd.backward = timed
        return restore

    def begin_step(self) -> None:
        """Install the forward hook again, and assume that no optimizer's step is running."""
        self._outer = "other"
        self._expect_forward()

    def _begin_outer(self, phase: str, *_: Any) -> None:
        self._outer = phase
        self._begin(phase)
