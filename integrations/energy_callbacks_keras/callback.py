"""GpuEnergyCallback: its settings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from energy_callbacks.accounting.profilers import Profiler
from energy_callbacks.callback import EnergyCallback
from energy_callbacks.core.config import EnergyConfig, check_positive
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_keras.hooks import EnergyHooks
from energy_callbacks_keras.loop import StepCounter


class GpuEnergyCallback(EnergyCallback, EnergyHooks):
    """Energy beside the loss in the user's own TensorBoard run, and a report at the end.

    >>> model.fit(x, y, callbacks=[GpuEnergyCallback()])  # doctest: +SKIP

    The tags are described in ``docs/reference/metrics.md``; they are also in ``logs`` at the end
    of each epoch, for ``History``, ``CSVLogger`` and
    ``ModelCheckpoint(monitor="efficiency/total_j_per_sample", mode="min")``.

    Args:
        report_dir: run folder; ``None`` is ``<TensorBoard log_dir>/energy``, or
            ``./energy_runs/<stamp>/energy`` where there is no TensorBoard callback.
        country: ISO 3166 code or name of the place whose grid feeds the machine.
        region: state or province, for ``USA`` and ``CAN``.
        pue: power usage effectiveness of the building.
        price_per_kwh: in any currency.
        devices: ``"auto"`` for the GPUs this training uses, ``"all"``, or indices and UUIDs.
        sample_interval_s: how often figures are brought up to date, s.
        step_events: let CUDA events tell when the GPU finished each step (PyTorch only).
        update_freq: rows in TensorBoard at the end of each ``"epoch"``, or each so many batches,
            as in ``keras.callbacks.TensorBoard``.
        batch_size: samples of a batch, where Keras does not know it before the end of an epoch.
        tokens_per_sample: for figures per token, which are left out without it.
        max_energy_wh: stop training gracefully where GPUs and host have used so much, Wh.
        max_emissions_g: likewise, gCO2e.
        run_name: for people.
        tags: labels for the report.
        profile: profilers that look closer, such as ``KernelProfiler()``.
        meter: a ready meter instead of the settings above.

    Raises:
        ValueError: for a setting that is wrong in itself, such as an unknown country.
        TypeError: for one of the wrong type.
    """

    __module__ = "energy_callbacks.keras"
    framework_name = "Keras"

    def __init__(
        self,
        *,
        report_dir: str | Path | None = None,
        country: str | None = None,
        region: str | None = None,
        pue: float = 1.0,
        price_per_kwh: float | None = None,
        devices: Literal["auto", "all"] | Sequence[int | str] = "auto",
        sample_interval_s: float = 0.8,
        step_events: bool = False,
        update_freq: Literal["epoch", "batch"] | int = "epoch",
        batch_size: int | None = None,
        tokens_per_sample: float | None = None,
        max_energy_wh: float | None = None,
        max_emissions_g: float | None = None,
        run_name: str | None = None,
        tags: Mapping[str, str] | None = None,
        profile: Sequence[Profiler] = (),
        meter: EnergyMeter | None = None,
    ) -> None:
        config = EnergyConfig(
            report_dir=report_dir,
            country=country,
            region=region,
            pue=pue,
            price_per_kwh=price_per_kwh,
            devices=devices,
            sample_interval_s=sample_interval_s,
            step_events=step_events,
            max_energy_wh=max_energy_wh,
            max_emissions_g=max_emissions_g,
            run_name=run_name,
            tags=tags or {},
        )
        batches_to_a_row = _check_update_freq(update_freq)
        check_positive("batch_size", batch_size)
        check_positive("tokens_per_sample", tokens_per_sample)
        ready = EnergyMeter.from_settings(config, meter, profile)
        super().__init__(ready, StepCounter(ready, batch_size, tokens_per_sample), batches_to_a_row)

    def timed(self, loader: Any) -> Any:
        """Let waiting for a loader be seen, which Keras tells no callback of.

        >>> model.fit(callback.timed(loader), callbacks=[callback])  # doctest: +SKIP

        It is known on JAX and torch, where Keras fetches on the training thread: not on
        TensorFlow, nor with workers of a ``PyDataset``.

        Args:
            loader: of training: a ``keras.utils.PyDataset`` or a generator.

        Returns:
            The same batches in the same order, for ``fit``.

        Raises:
            TypeError: for anything else.
        """
        return self._waits.timed(loader)


def _check_update_freq(value: str | int) -> int | None:
    """Batches to a row; ``None`` for a row an epoch."""
    if value in ("epoch", "batch"):
        return None if value == "epoch" else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(
            f"update_freq must be 'epoch', 'batch' or a whole number of batches, got {value!r}; "
            "leave it out for a row an epoch"
        )
    return value
