"""``tune_batch_size``: the batch size of a Keras model, found by its own training function."""

import math
from typing import Any, Unpack

import keras

from energy_callbacks import tuning
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.options import DEFAULTS
from energy_callbacks_keras import devices
from energy_callbacks_keras.tuning import torch_loaders
from energy_callbacks_keras.tuning.batches import BatchSource, source
from energy_callbacks_keras.tuning.model_snapshot import ModelSnapshot
from energy_callbacks_keras.tuning.placeholders import Placeholders, accumulating
from energy_callbacks_keras.tuning.random_snapshot import RandomSnapshot
from energy_callbacks_keras.tuning.trial_step import TrialStep, build_all


def tune_batch_size(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size of ``model.fit`` by running the model's training function at some.

    >>> result = tune_batch_size(model, x, y)  # doctest: +SKIP
    >>> model.fit(x, y, batch_size=result.size)  # doctest: +SKIP

    Afterwards model, optimizer and random numbers are bit for bit as before, but for layers and
    the optimizer, which are built, with the values that ``fit`` would give them.

    Args:
        model: compiled.
        x: what ``fit`` takes: arrays or tensors, also in lists and dictionaries; a
            ``tf.data.Dataset`` of samples, or of batches, which is taken apart and batched anew; a
            ``keras.utils.PyDataset`` whose ``batch_size`` can be set; PyTorch's ``DataLoader``. Or
            a function of the batch size that makes one of these data sets, in batches.
        y: targets, with arrays.
        sample_weight: of each sample, with arrays.
        **options: see ``TuningOptions``. With ``global_batch_size`` trials have an optimizer of
            their own with ``gradient_accumulation_steps``; compile with ``result.accumulation``.

    Returns:
        The curve, and the size.

    Raises:
        NothingFits: if the smallest size does not run.
        TypeError: for data that cannot be had in another batch size, or an option that is none.
        ValueError: for a model that is not compiled, data that cannot be counted, several
            processes, and options that make no sense.
    """
    _check(model, options)
    random, stand_ins = RandomSnapshot(torch_loaders.generators(x)), Placeholders(model)
    try:
        try:
            data = source(model, x, y, sample_weight)
            options = options | {"max_size": _largest(model, data, options)}
            build_all(model, data, options.get("min_size", DEFAULTS["min_size"]))
        finally:
            random.restore()
        kept, step = ModelSnapshot(model), TrialStep(model, data)

        def restore() -> None:
            step.close()
            stand_ins.replace()
            kept.restore()
            random.restore()

        return tuning.tune_batch_size(
            step,
            keep=[model] if keras.backend.backend() == "torch" else (),
            restore=restore,
            steps_per_call=model.steps_per_execution,
            **options,
        )
    finally:
        stand_ins.release()


def _check(model: Any, options: TuningOptions) -> None:
    if not getattr(model, "compiled", False):
        raise ValueError(
            f"model must be compiled, got {type(model).__name__} that is not; call "
            "model.compile(optimizer, loss) first"
        )
    processes = devices.process(model).world_size
    if processes > 1:
        raise ValueError(
            f"tune_batch_size needs Keras in one process, got {processes} processes; tune on one "
            "of the devices alone"
        )
    if options.get("global_batch_size") is not None:
        if model.steps_per_execution > 1:
            raise ValueError(
                "global_batch_size needs steps_per_execution=1, got "
                f"{model.steps_per_execution}; compile without it, or tune without a global batch"
            )
        accumulating(model.optimizer, 1)


def _largest(model: Any, data: BatchSource, options: TuningOptions) -> int:
    """No size of which the data has no whole batch."""
    most: int | None = options.get("max_size")
    if data.samples is None and most is None:
        raise ValueError(
            "the number of samples must be known, got data that does not tell it; give max_size, "
            "or dataset.apply(tf.data.experimental.assert_cardinality(samples))"
        )
    limit = math.inf if data.samples is None else data.samples // model.steps_per_execution
    if limit < 1:
        raise ValueError(
            f"x must have a sample for each step of an execution, got {data.samples} samples and "
            f"steps_per_execution={model.steps_per_execution}; hand more data"
        )
    return int(min(DEFAULTS["max_size"] if most is None else most, limit))
