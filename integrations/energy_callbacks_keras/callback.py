"""Defines ``GpuEnergyCallback`` and its settings."""

from typing import Any, Literal, Unpack

from energy_callbacks.callback import CallbackSettings, EnergyCallback, meter_from
from energy_callbacks.core.settings.checks import check_positive
from energy_callbacks_keras.hooks import EnergyHooks
from energy_callbacks_keras.loop import KerasStepCounter


class GpuEnergyCallback(EnergyCallback, EnergyHooks):
    """Logs energy together with the loss in TensorBoard, and writes a report at the end.

    >>> model.fit(x, y, callbacks=[GpuEnergyCallback()])  # doctest: +SKIP

    The names of the figures are described in ``docs/reference/metrics.md``. If a single process
    trains, figures are also added to the ``logs`` of each epoch, for ``History``, ``CSVLogger`` and
    ``ModelCheckpoint(monitor="efficiency/total_j_per_sample", mode="min")``.

    Args:
        update_freq: when figures are written to TensorBoard: ``"epoch"``, ``"batch"``, or a number
            n for every n-th batch, as in ``keras.callbacks.TensorBoard``. With
            ``steps_per_execution``, the batches of one execution count as one batch.
        batch_size: samples per batch of this process; ``None`` reads it from Keras, which may know
            it only at the end of an epoch.
        tokens_per_sample: number of tokens in a sample; with ``None`` there are no figures per
            token.
        **settings: see ``CallbackSettings``; the default of ``report_dir`` is
            ``<log_dir>/energy`` with the ``log_dir`` of the TensorBoard callback, or
            ``./energy_runs/<time>/energy`` if there is no such callback.

    Raises:
        ValueError: for an invalid setting, such as an unknown country.
        TypeError: for a setting of the wrong type.
    """

    __module__ = "energy_callbacks.keras"
    framework_name = "Keras"

    def __init__(
        self,
        *,
        update_freq: Literal["epoch", "batch"] | int = "epoch",
        batch_size: int | None = None,
        tokens_per_sample: float | None = None,
        **settings: Unpack[CallbackSettings],
    ) -> None:
        batches_per_row = _check_update_freq(update_freq)
        check_positive("batch_size", batch_size)
        check_positive("tokens_per_sample", tokens_per_sample)
        ready = meter_from(settings, own=("update_freq", "batch_size", "tokens_per_sample"))
        super().__init__(
            ready, KerasStepCounter(ready, batch_size, tokens_per_sample), batches_per_row
        )

    def timed(self, loader: Any) -> Any:
        """Wrap a loader to measure how long training waits for batches; Keras has no hook for that.

        >>> model.fit(callback.timed(loader), callbacks=[callback])  # doctest: +SKIP

        This works on JAX and torch, where Keras fetches batches on the training thread. It does not
        work on TensorFlow, or with workers of a ``PyDataset``.

        Args:
            loader: a ``keras.utils.PyDataset`` or a generator.

        Returns:
            A loader for ``fit`` with the same batches in the same order.

        Raises:
            TypeError: for any other loader.
        """
        return self._waits.timed(loader)


def _check_update_freq(value: str | int) -> int | None:
    """Return the number of batches per row of figures; ``None`` for one row per epoch.

    Raises:
        ValueError: if ``value`` is none of ``"epoch"``, ``"batch"`` and the numbers from 1 on.
    """
    if value in ("epoch", "batch"):
        return None if value == "epoch" else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"update_freq must be 'epoch', 'batch' or a whole number of batches, got {value!r}; "
            "leave it out for one row per epoch"
        )
    return value
