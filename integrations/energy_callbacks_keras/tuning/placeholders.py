"""Placeholders for parts of a model that a trial would otherwise build permanently."""

from typing import Any, Final

import keras

_BUILT_BY_A_BATCH: Final = ("_compile_loss", "_compile_metrics")
_ATTRIBUTES: Final = ("train_function", "stop_training", "optimizer", *_BUILT_BY_A_BATCH)


class Placeholders:
    """The training function and what ``compile`` has made, kept while others take their place.

    Args:
        model: compiled; losses and metrics that no batch has built yet are replaced at once.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._own = {name: vars(model)[name] for name in _ATTRIBUTES if name in vars(model)}
        self.replace()

    def replace(self) -> None:
        """The model's own parts, with new placeholders for what a trial would build."""
        self.release()
        for name in _BUILT_BY_A_BATCH:
            one = self._own.get(name)
            if one is not None and not one.built:
                vars(self._model)[name] = _unbuilt_twin(one)

    def release(self) -> None:
        """The model's own parts."""
        vars(self._model).update(self._own)


def _unbuilt_twin(one: Any) -> Any:
    """The same as ``compile`` has made: losses, or metrics, that are built by the first batch.

    Nothing in Keras takes that back, and ``fit`` fetches a batch of its own for it, which moves
    random numbers on.

    Args:
        one: ``CompileLoss`` or ``CompileMetrics`` that is not built.
    """
    kind = "loss" if hasattr(one, "_user_loss") else "metrics"
    names = {
        "loss": ("_user_loss", "_user_loss_weights"),
        "metrics": ("_user_metrics", "_user_weighted_metrics"),
    }
    return type(one)(*(getattr(one, n) for n in names[kind]), output_names=one.output_names)


def accumulating(optimizer: Any, accumulation: int) -> Any:
    """A new optimizer with the same settings that steps once in this many batches.

    Keras fixes that number when an optimizer is made.

    Raises:
        TypeError: if its settings do not make one.
    """
    try:
        made = type(optimizer).from_config(optimizer.get_config())
    except Exception as error:
        raise TypeError(
            "global_batch_size needs an optimizer that can be made anew from its get_config(), "
            f"got {type(optimizer).__name__}; tune without it"
        ) from error
    stepping = getattr(made, "inner_optimizer", made)
    if not isinstance(stepping, keras.optimizers.Optimizer):
        raise TypeError(
            f"global_batch_size needs an optimizer of Keras, got {type(optimizer).__name__}; "
            "tune without it"
        )
    stepping.gradient_accumulation_steps = accumulation if accumulation > 1 else None
    return made
