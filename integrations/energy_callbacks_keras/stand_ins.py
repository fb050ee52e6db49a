"""What is used in place of parts of a model that a trial would build for good."""

from typing import Any

import keras


def unbuilt_twin(one: Any) -> Any:
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
    """A new optimizer with the same settings that steps once in so many batches.

    Keras fixes that number when an optimizer is made.

    Raises:
        TypeError: where its settings do not make one.
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
