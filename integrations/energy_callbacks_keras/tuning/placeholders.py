"""Replaces unbuilt losses and metrics for trials; creates optimizers that accumulate gradients."""

from typing import Any, Final

import keras

_BUILT_BY_A_BATCH: Final = ("_compile_loss", "_compile_metrics")
_ATTRIBUTES: Final = ("train_function", "stop_training", "optimizer", *_BUILT_BY_A_BATCH)


class Placeholders:
    """Replaces losses and metrics that are not built yet, and restores a model's own parts.

    Args:
        model: a compiled model; the parts are replaced when this object is created.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._own = {name: vars(model)[name] for name in _ATTRIBUTES if name in vars(model)}
        self.replace()

    def replace(self) -> None:
        """Restore the model's own parts, then replace unbuilt losses and metrics."""
        self.release()
        for name in _BUILT_BY_A_BATCH:
            one = self._own.get(name)
            if one is not None and not one.built:
                vars(self._model)[name] = _unbuilt_twin(one)

    def release(self) -> None:
        """Restore all attributes of the model that a trial may replace."""
        vars(self._model).update(self._own)


def _unbuilt_twin(one: Any) -> Any:
    """Return a new ``CompileLoss`` or ``CompileMetrics`` with the arguments of an unbuilt one.

    The first batch builds such an object, and Keras cannot undo that. With JAX and PyTorch, ``fit``
    fetches an additional batch if the object is not built. This fetch changes the state of the
    random generators that shuffle the data. Trials build the new object, so the user's object stays
    unbuilt. Therefore ``fit`` makes the same fetch after the search as it makes without a search,
    and shuffles the data in the same way.
    """
    names = ("_user_metrics", "_user_weighted_metrics")
    if hasattr(one, "_user_loss"):
        names = ("_user_loss", "_user_loss_weights")
    return type(one)(*(getattr(one, name) for name in names), output_names=one.output_names)


def accumulating(optimizer: Any, accumulation: int) -> Any:
    """Return a new optimizer with the same settings, which updates weights less often.

    It updates the weights once per ``accumulation`` batches.

    A new optimizer is needed, because ``accumulation`` cannot be changed in a built optimizer.

    Raises:
        TypeError: if the optimizer cannot be created from its settings, or is not one of Keras.
    """
    try:
        made = type(optimizer).from_config(optimizer.get_config())
    except Exception as error:
        raise TypeError(
            "global_batch_size needs an optimizer that can be created again from its "
            f"get_config(), got {type(optimizer).__name__}; tune without global_batch_size"
        ) from error
    stepping = getattr(made, "inner_optimizer", made)
    if not isinstance(stepping, keras.optimizers.Optimizer):
        raise TypeError(
            f"global_batch_size needs an optimizer of Keras, got {type(optimizer).__name__}; "
            "tune without global_batch_size"
        )
    stepping.gradient_accumulation_steps = accumulation if accumulation > 1 else None
    return made
