"""Restores the state of a PyTorch training, bit for bit, after a trial of a batch size."""

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from energy_callbacks.tuning.snapshot.host_copy import keep_copy, keep_items
from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks.tuning.snapshot.tensor_snapshot import OptimizerSnapshot, TensorSnapshot

# Three attributes of a module. The first two hold tensors by name; the last one holds the names of
# the buffers that a state_dict leaves out. PyTorch has no public access to these attributes.
_REGISTRIES = ("_parameters", "_buffers", "_non_persistent_buffers_set")


class TorchSnapshot:
    """Snapshot, in host memory, of the state that a training step changes.

    - Modules: the values, storage, gradients and ``requires_grad`` of parameters and buffers
      (including non-persistent buffers), and the mode (``training``) of every submodule. Modules
      may be compiled or wrapped for distributed training.
    - Optimizers: parameter groups, and the state of each parameter. State that did not exist at the
      snapshot is removed. The parameters of an optimizer are restored like those of modules.
    - Schedulers, gradient scalers, and other objects with a ``state_dict``.
    - Random generators: the global generators of Python and NumPy, and those of PyTorch on the CPU
      and on all devices in use. The user's own generators are not included: wrap them in an object
      with ``state_dict`` and ``load_state_dict``.

    Objects keep their identity, because optimizers and schedulers refer to parameters and groups.
    Values are copied into the existing tensors, so restoring needs no more device memory than was
    in use at the snapshot. Tensors that were freed are created again. Tensors that a module has as
    plain attributes, and the list of a module's children, are not restored.

    Args:
        objects: modules, optimizers, and objects that have ``state_dict()`` and
            ``load_state_dict(state)``.

    Raises:
        TypeError: for an object of another kind, or if ``objects`` is a single object.
        ValueError: if PyTorch is not imported, or a tensor has no values yet (lazy or meta).
    """

    def __init__(self, objects: Sequence[Any]) -> None:
        torch = sys.modules.get("torch")
        if torch is None:
            raise ValueError(
                "keep takes objects of PyTorch, which is not imported, got "
                f"{type(objects).__name__}; restore what your step changes with restore="
            )
        kinds = torch.nn.Module, torch.optim.Optimizer
        # Some modules, such as Sequential, are iterable. If such a module were accepted as
        # ``objects``, only its children would be restored.
        if isinstance(objects, kinds) or not isinstance(objects, Iterable):
            raise TypeError(
                f"keep must be a list of objects, got {type(objects).__name__}; write keep=[it]"
            )
        objects = list(objects)  # an iterator can be read only once
        modules, optimizers = ([one for one in objects if isinstance(one, kind)] for kind in kinds)
        stateful = [_checked(one) for one in objects if not isinstance(one, kinds)]
        self._tensors: list[Any] = [
            TensorSnapshot(one) for one in _tensors(modules, optimizers, torch)
        ]
        self._states = [(one, keep_copy(one.state_dict())) for one in stateful]
        # ``GradScaler.state_dict`` does not contain which gradients are unscaled. Without this
        # copy, if a step failed between ``unscale_`` and ``update``, the next step would raise
        # "unscale_() has already been called".
        self._stages = [
            (one, keep_copy(one._per_optimizer_states))  # noqa: SLF001
            for one in stateful
            if hasattr(one, "_per_optimizer_states")
        ]
        parts = {id(part): part for module in modules for part in module.modules()}.values()
        self._modes = [(part, part.training) for part in parts]
        self._restore_names = keep_items(
            getattr(part, name) for part in parts for name in _REGISTRIES
        )
        self._optimizers = [OptimizerSnapshot(optimizer) for optimizer in optimizers]
        self._random = RandomState()

    def restore(self) -> None:
        """Restore the state of all objects; may be called any number of times.

        Do not call this method between a forward pass and its ``backward``, because it changes
        tensors that ``backward`` needs.
        """
        for one, state in self._states:
            one.load_state_dict(state())
        for scaler, stages in self._stages:
            scaler._per_optimizer_states = stages()  # noqa: SLF001
        self._restore_names()
        for module, is_training in self._modes:
            if module.training != is_training:
                module.training = is_training
        with sys.modules["torch"].no_grad():
            # Gradients and optimizer states that did not exist at the snapshot are freed first, so
            # that the tensors that are restored afterwards can use their memory.
            parts = [*self._tensors, *self._optimizers]
            for part in parts:
                part.let_go()
            # Optimizers are restored after the schedulers, because ``load_state_dict`` of a
            # scheduler may set learning rates.
            for part in parts:
                part.restore()
        self._random.restore()


def _checked(one: Any) -> Any:
    if all(callable(getattr(one, name, None)) for name in ("state_dict", "load_state_dict")):
        return one
    raise TypeError(
        "keep takes modules, optimizers, and objects with state_dict and load_state_dict, got "
        f"{type(one).__name__}; leave it out, and restore it with restore="
    )


def _tensors(modules: list[Any], optimizers: list[Any], torch: Any) -> Iterable[Any]:
    """Return each parameter and buffer once, after a check that all of them have values."""
    named = [
        (f"{name} of {type(module).__name__}", tensor)
        for module in modules
        for name, tensor in chain(module.named_parameters(), module.named_buffers())
    ]
    for optimizer in optimizers:
        name = f"a parameter of {type(optimizer).__name__}"
        named += [(name, held) for group in optimizer.param_groups for held in group["params"]]
    for name, tensor in named:
        if torch.nn.parameter.is_lazy(tensor) or tensor.is_meta:
            raise ValueError(
                f"{name} has no values yet, got {type(tensor).__name__} on {tensor.device}; "
                "load the model or run one batch through it before the snapshot is made"
            )
    return {id(tensor): tensor for _, tensor in named}.values()
