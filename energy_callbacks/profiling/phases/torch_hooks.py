"""Hooks of PyTorch that report when the phase of a step changes.

::

    first module of a step is called   forward      (the hook then removes itself)
    torch.autograd.backward            backward; when it returns, the phase before it
    an optimizer's step                optimizer    (Lightning runs forward and backward inside it)

Nothing here imports PyTorch: if the training has not imported it, there is nothing to hook into.
"""

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


class TorchHooks:
    """Hooks into PyTorch of this process.

    Args:
        begin: called with the phase that begins.
    """

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._undo = ExitStack()
        self._is_installed = False
        self._forward: Any = None
        self._outer = "other"

    def install(self) -> None:
        """Install the hooks; does nothing without PyTorch."""
        torch = sys.modules.get("torch")
        optimizer = sys.modules.get("torch.optim.optimizer")
        if torch is None or optimizer is None:
            return
        self._is_installed = True
        before = optimizer.register_optimizer_step_pre_hook(self._before_step)
        self._undo.callback(before.remove)
        after = optimizer.register_optimizer_step_post_hook(self._after_step)
        self._undo.callback(after.remove)
        self._undo.callback(self._wrap_backward(torch.autograd))
        self._expect_forward()

    def _expect_forward(self) -> None:
        """Begin the forward phase when the next module is called."""
        if self._is_installed and self._forward is None:
            module = sys.modules["torch.nn.modules.module"]
            self._forward = module.register_module_forward_pre_hook(self._on_forward)

    def remove(self) -> None:
        """Restore PyTorch."""
        self._is_installed = False
        self._undo.close()
        self._remove_forward()

    def _remove_forward(self) -> None:
        if self._forward is not None:
            self._forward.remove()
            self._forward = None

    def _on_forward(self, module: Any, inputs: Any) -> None:  # noqa: ARG002 - as PyTorch calls it
        if next(module.parameters(), None) is None:
            return  # without parameters it is no model, but a transform of the loader or a metric
        self._remove_forward()
        self._begin("forward")

    def _wrap_backward(self, autograd: Any) -> Callable[[], None]:
        """Time ``torch.autograd.backward``; returns a function that restores it."""
        backward = autograd.backward

        @functools.wraps(backward)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._is_installed:  # another wrapper may keep a reference to this one
                return backward(*args, **kwargs)
            self._begin("backward")
            try:
                return backward(*args, **kwargs)
            finally:
                self._begin(self._outer)
                self._expect_forward()  # of the next micro-batch

        def restore() -> None:
            if autograd.backward is timed:
                autograd.backward = backward

        autograd.backward = timed
        return restore

    def begin_step(self) -> None:
        """Start a new step, even if the optimizer of the previous one has not returned."""
        self._outer = "other"
        self._expect_forward()

    def _before_step(self, *_: Any) -> None:
        self._outer = "optimizer"
        self._begin("optimizer")

    def _after_step(self, *_: Any) -> None:
        self._outer = "other"
        self._begin("other")
