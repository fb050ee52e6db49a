"""``tune_batch_size``: finds the batch size of a Keras model with its ``train_function``."""

import math
from typing import Any, Unpack

import keras

from energy_callbacks import tuning
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.options import DEFAULTS, at_most, search_settings
from energy_callbacks.tuning.torch_loaders import generators
from energy_callbacks_keras import devices
from energy_callbacks_keras.tuning import torch_loaders
from energy_callbacks_keras.tuning.batches import BatchSource, source
from energy_callbacks_keras.tuning.placeholders import Placeholders, accumulating
from energy_callbacks_keras.tuning.snapshots import ModelSnapshot, RandomSnapshot
from energy_callbacks_keras.tuning.trial_step import KerasTrialStep, build_all


def tune_batch_size(
    model: keras.Model,
    x: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size of ``model.fit`` by running ``train_function`` at several sizes.

    >>> result = tune_batch_size(model, x, y)  # doctest: +SKIP
    >>> model.fit(x, y, batch_size=result.size)  # doctest: +SKIP

    Afterwards the model, the optimizer and random generators are restored bit for bit. However,
    layers and an optimizer that were not built before are now built, with the values that ``fit``
    would give them.

    Args:
        model: a compiled model.
        x: training data: arrays or tensors, or lists or dictionaries of them; a
            ``tf.data.Dataset`` of samples, or of batches, which are split and batched again; a
            ``keras.utils.PyDataset`` with an attribute ``batch_size``; a PyTorch ``DataLoader``; or
            a function that takes a batch size and returns one of these data sets in batches of that
            size.
        y: targets; only if ``x`` contains arrays.
        sample_weight: weight of each sample; only if ``x`` contains arrays.
        **options: see ``TuningOptions``. With ``global_batch_size``, trials use a separate
            optimizer with ``gradient_accumulation_steps``. Before ``fit``, compile the model with
            an optimizer that has ``gradient_accumulation_steps=result.accumulation``.

    Returns:
        The measured sizes, and the chosen batch size.

    Raises:
        NothingFits: if no size fits, or no size can be recommended.
        TypeError: for data that does not support another batch size, an unknown option, or a model
            that is no ``keras.Model``.
        ValueError: for a model that is not compiled, data of unknown size without ``max_size``,
            several processes, or invalid options.
    """
    _check(model, options)
    held = generators([x] if torch_loaders.is_kind(x) else [])
    random, placeholders = RandomSnapshot(held), Placeholders(model)
    try:
        try:
            data = source(model, x, y, sample_weight)
            options = _limited(model, data, options)
            search_settings(options, ranks=1, memory_bytes=None)  # raises errors of the options
            build_all(model, data, options.get("min_size", DEFAULTS["min_size"]))
        finally:
            random.restore()
        kept, step = ModelSnapshot(model), KerasTrialStep(model, data)

        def restore() -> None:
            step.close()
            placeholders.replace()
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
        placeholders.release()


def _check(model: Any, options: TuningOptions) -> None:
    search_settings(options, ranks=1, memory_bytes=None)
    if not isinstance(model, keras.Model):
        raise TypeError(f"model must be a keras.Model, got {model!r}; pass the model of fit")
    if not model.compiled:
        raise ValueError(
            f"model must be compiled, got {type(model).__name__} that is not compiled; call "
            "model.compile(optimizer, loss) first"
        )
    processes = devices.process(model).world_size
    if processes > 1:
        raise ValueError(
            f"tune_batch_size needs Keras in one process, got {processes} processes; run it in "
            "one process on one of the devices"
        )
    if options.get("global_batch_size") is not None:
        if model.steps_per_execution > 1:
            raise ValueError(
                "global_batch_size needs steps_per_execution=1, got "
                f"{model.steps_per_execution}; compile without steps_per_execution, or tune "
                "without global_batch_size"
            )
        accumulating(model.optimizer, 1)


def _limited(model: Any, data: BatchSource, options: TuningOptions) -> TuningOptions:
    """Return options whose ``max_size`` leaves enough data for one call of ``train_function``.

    Raises:
        ValueError: if the number of samples is unknown and there is no ``max_size``, or if there
            are too few samples.
    """
    if data.samples is None and options.get("max_size") is None:
        raise ValueError(
            "the number of samples must be known, got data of unknown length; give max_size, or "
            "dataset.apply(tf.data.experimental.assert_cardinality(samples))"
        )
    limit = math.inf if data.samples is None else data.samples // model.steps_per_execution
    if limit < 1:
        raise ValueError(
            f"x must have a sample for each step of an execution, got {data.samples} samples "
            f"and steps_per_execution={model.steps_per_execution}; pass more data"
        )
    return at_most(options, limit)
