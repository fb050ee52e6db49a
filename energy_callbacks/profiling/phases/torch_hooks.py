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
from typing import Any


class TorchHooks:
    """Hooks into PyTorch of this process.

    Args:
        begin: called with the phase that begins.
    """

    def __init__(self, begin: Callable[[str], None]) -> None:
        self._begin = begin
        self._handles: list[Any] = []
        self._forward: Any = None
        self._backward: Any = None
        self._outer = "other"

    def install(self) -> None:
        """Install the hooks; does nothing without PyTorch."""
        torch = sys.modules.get("torch")
        optimizer = sys.modules.get("torch.optim.optimizer")
        if torch is None or optimizer is None:
            return
        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        self._backward = torch.autograd.backward
        torch.autograd.backward = self._around(self._backward)
        self._expect_forward()

    def _expect_forward(self) -> None:
        """Begin the forward phase when the next module is called."""
        if self._handles and self._forward is None:
            module = sys.modules["torch.nn.modules.module"]
            self._forward = module.register_module_forward_pre_hook(self._on_forward)

    def remove(self) -> None:
        """Restore PyTorch."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._remove_forward()
        torch = sys.modules.get("torch")
        if torch is not None and self._backward is not None:
            if getattr(torch.autograd.backward, "__wrapped__", None) is self._backward:
                torch.autograd.backward = self._backward
            self._backward = None

    def _remove_forward(self) -> None:
        if self._forward is not None:
            self._forward.remove()
            self._forward = None

    def _on_forward(self, module: Any, inputs: Any) -> None:  # noqa: ARG002 - as PyTorch calls it
        if next(module.parameters(), None) is None:
            return  # without parameters it is no model, but a transform of the loader or a metric
        self._remove_forward()
        self._begin("forward")

    def _around(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._handles:  # another wrapper may keep a reference to this one
                return backward(*args, **kwargs)
            self._begin("backward")
            try:
                return backward(*args, **kwargs)
            finally:
                self._begin(self._outer)
                self._expect_forward()  # of the next micro-batch

        return timed

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
