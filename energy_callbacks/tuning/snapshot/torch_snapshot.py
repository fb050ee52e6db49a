"""Restores a PyTorch training bit for bit to its state before trials."""

import sys
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from energy_callbacks.tuning.snapshot.module_snapshot import ModuleSnapshot, TensorSnapshot
from energy_callbacks.tuning.snapshot.optimizer_snapshot import OptimizerSnapshot
from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks.tuning.snapshot.state_snapshot import StagesSnapshot, StateSnapshot


class TorchSnapshot:
    """Snapshot of everything that a training step changes, in host memory.

    - Modules: parameters and buffers (also those that are not saved) with their values, place in
      memory, gradients and ``requires_grad``; the mode of every submodule. Compiled modules and
      those wrapped for distributed training are modules too.
    - Optimizers: groups, and the state of each parameter; what has come by a first step goes.
      Parameters of an optimizer count as those of the modules do.
    - Schedulers, gradient scalers, and others with a ``state_dict``.
    - Random generators: Python's, NumPy's global one, PyTorch's on the CPU and on all devices in
      use. Generators of the user's own are not known here: wrap them into one of ``others``.

    Objects stay the same: optimizers and schedulers hold on to parameters and groups. Values are
    copied into the tensors that are there, so that restoring asks for no more device memory than
    was in use before; what was no longer held is made anew. Not kept: tensors that a module
    keeps as plain attributes, and which children a module has.

    Args:
        modules: that are trained or run.
        optimizers: that step.
        schedulers: of learning rates.
        scalers: of gradients, ``torch.amp.GradScaler``.
        others: with ``state_dict()`` and ``load_state_dict(state)``.

    Raises:
        TypeError: if one of them is of another kind.
        ValueError: if nothing was given, or a tensor has no values yet (lazy or meta).
    """

    def __init__(
        self,
        *,
        modules: Iterable[Any] = (),
        optimizers: Iterable[Any] = (),
        schedulers: Iterable[Any] = (),
        scalers: Iterable[Any] = (),
        others: Iterable[Any] = (),
    ) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            raise ValueError("TorchSnapshot found no PyTorch in this process; import torch first")
        kinds = torch.nn.Module, torch.optim.Optimizer
        modules = _checked("modules", modules, lambda one: isinstance(one, kinds[0]))
        optimizers = _checked("optimizers", optimizers, lambda one: isinstance(one, kinds[1]))

        # A state_dict holds less of those two than their own arguments do.
        def is_stateful(one: Any) -> bool:
            return _has_state(one) and not isinstance(one, kinds)

        schedulers = _checked("schedulers", schedulers, is_stateful)
        scalers = _checked("scalers", scalers, is_stateful)
        stateful = [*schedulers, *scalers, *_checked("others", others, is_stateful)]
        if not (modules or optimizers or stateful):
            raise ValueError("TorchSnapshot was given nothing to keep; name at least the modules")
        tensors = _tensors(modules, optimizers, torch)
        self._torch = torch
        parts = {id(part): part for module in modules for part in module.modules()}
        self._stateful = [StateSnapshot(one) for one in stateful]
        self._stages = [StagesSnapshot(one) for one in scalers]
        self._modules = [ModuleSnapshot(part) for part in parts.values()]
        self._optimizers = [OptimizerSnapshot(optimizer) for optimizer in optimizers]
        self._tensors = [TensorSnapshot(tensor) for tensor in tensors]
        self._random = RandomState(torch)

    def restore(self) -> None:
        """Everything as it was when this was made; may be called any number of times.

        Never inside a step: a graph that still waits for ``backward`` is lost.
        """
        for one in self._stateful:
            one.restore()
        for scaler in self._stages:
            scaler.restore()
        for module in self._modules:
            module.restore()
        with self._torch.no_grad():
            # Memory is given back before any is asked for.
            for tensor in self._tensors:
                tensor.let_go()
            for optimizer in self._optimizers:
                optimizer.let_go()
            for tensor in self._tensors:
                tensor.restore()
            # After the schedulers, which may set learning rates while they load.
            for optimizer in self._optimizers:
                optimizer.restore()
        self._random.restore()


def _checked(name: str, given: Iterable[Any], is_right: Callable[[Any], bool]) -> list[Any]:
    wanted = {
        "modules": "torch.nn.Module",
        "optimizers": "torch.optim.Optimizer",
    }.get(name, "objects with state_dict and load_state_dict that are no module nor optimizer")
    # A module may itself be iterable (Sequential), and would lose its own part.
    if is_right(given) or not isinstance(given, Iterable):
        raise TypeError(f"{name} wants several {wanted}, got {type(given).__name__}; write [it]")
    found = list(given)
    for one in found:
        if not is_right(one):
            raise TypeError(
                f"{name} wants {wanted}, got {type(one).__name__}; "
                "see TorchSnapshot for which argument takes what"
            )
    return found


def _has_state(one: Any) -> bool:
    return all(callable(getattr(one, name, None)) for name in ("state_dict", "load_state_dict"))


def _tensors(modules: list[Any], optimizers: list[Any], torch: Any) -> Iterable[Any]:
    """Each parameter and buffer once, all with values."""
    named = [
        (f"modules[{index}]: {name}", tensor)
        for index, module in enumerate(modules)
        for name, tensor in chain(module.named_parameters(), module.named_buffers())
    ]
    for index, optimizer in enumerate(optimizers):
        for group in optimizer.param_groups:
            named += [(f"optimizers[{index}]: a parameter", held) for held in group["params"]]
    for name, tensor in named:
        if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta:
            raise ValueError(
                f"{name} has no values yet, got {type(tensor).__name__} on {tensor.device}; "
                "load the model or run one batch through it before the snapshot is made"
            )
    return {id(tensor): tensor for _, tensor in named}.values()
