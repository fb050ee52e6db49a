"""Hooks of PyTorch that report when a step goes from one phase to the next.

::

    first module of a step is called   forward      (a hook that takes itself away at once)
    torch.autograd.backward            backward, and what was before when it returns
    an optimizer's step                optimizer    (Lightning runs forward and backward inside it)

Nothing here imports PyTorch: if the training has not, there is nothing to hook into.
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
        self._rest = "other"

    def install(self) -> bool:
        """Begin to listen; ``False`` without PyTorch."""
        torch = sys.modules.get("torch")
        optimizer = sys.modules.get("torch.optim.optimizer")
        if torch is None or optimizer is None:
            return False
        self._handles = [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]
        self._backward = torch.autograd.backward
        torch.autograd.backward = self._around(self._backward)
        self.expect_forward()
        return True

    def expect_forward(self) -> None:
        """The next module that is called begins the forward pass."""
        if self._handles and self._forward is None:
            module = sys.modules["torch.nn.modules.module"]
            self._forward = module.register_module_forward_pre_hook(self._on_forward)

    def remove(self) -> None:
        """Leave PyTorch as it was."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self._forget_forward()
        torch = sys.modules.get("torch")
        if torch is not None and self._backward is not None:
            if getattr(torch.autograd.backward, "__wrapped__", None) is self._backward:
                torch.autograd.backward = self._backward
            self._backward = None

    def _forget_forward(self) -> None:
        if self._forward is not None:
            self._forward.remove()
            self._forward = None

    def _on_forward(self, module: Any, inputs: Any) -> None:  # noqa: ARG002 - as PyTorch calls it
        if next(module.parameters(), None) is None:
            return  # a transform of the loader, a metric: what learns nothing begins no forward
        self._forget_forward()
        self._begin("forward")

    def _around(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(backward)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._handles:  # other code has wrapped it too, and keeps ours
                return backward(*args, **kwargs)
            self._begin("backward")
            try:
                return backward(*args, **kwargs)
            finally:
                self._begin(self._rest)
                self.expect_forward()  # of the next micro-batch

        return timed

    def begin_step(self) -> None:
        """A step has ended, whatever became of its optimizer's."""
        self._rest = "other"
        self.expect_forward()

    def _before_step(self, *_: Any) -> None:
        self._rest = "optimizer"
        self._begin("optimizer")

    def _after_step(self, *_: Any) -> None:
        self._rest = "other"
        self._begin("other")
