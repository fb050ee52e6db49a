"""GpuEnergyCallback: its settings, its report, and the lines it gives to a model card."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from energy_callbacks.accounting.profilers import Profiler
from energy_callbacks.callback import EnergyCallback
from energy_callbacks.core.config import EnergyConfig, check_function
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_huggingface.hooks import EnergyHooks


class GpuEnergyCallback(EnergyCallback, EnergyHooks):
    """Energy beside the loss in the user's own run, and a report at the end.

    >>> trainer = Trainer(..., callbacks=[GpuEnergyCallback()])  # doctest: +SKIP

    Figures come with the rows of the loss, each ``args.logging_steps`` steps. The tags are
    described in ``docs/reference/metrics.md``.

    Args:
        report_dir: run folder; ``None`` is ``<args.output_dir>/energy``.
        country: ISO 3166 code or name of the place whose grid feeds the machine.
        region: state or province, for ``USA`` and ``CAN``.
        pue: power usage effectiveness of the building.
        price_per_kwh: in any currency.
        devices: ``"auto"`` for the GPUs this training uses, ``"all"``, or indices and UUIDs.
        sample_interval_s: how often figures are brought up to date, s.
        step_events: let CUDA events tell when the GPU finished each step (PyTorch only).
        batch_size_fn: samples in the inputs of a forward pass; ``None`` takes them from the
            loader.
        length_fn: tokens in them; ``None`` takes them from ``include_num_input_tokens_seen``,
            else figures per token are left out.
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

    __module__ = "energy_callbacks.huggingface"
    framework_name = "Hugging Face"

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
        batch_size_fn: Callable[[Any], int] | None = None,
        length_fn: Callable[[Any], int] | None = None,
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
        super().__init__(
            EnergyMeter.from_settings(config, meter, profile),
            check_function("batch_size_fn", batch_size_fn),
            check_function("length_fn", length_fn),
        )

    def co2_eq_emissions(self, *, training_type: str | None = None) -> dict[str, str | float]:
        """The field ``co2_eq_emissions`` of a model card; see ``report/model_card.py``.

        Args:
            training_type: such as ``"pre-training"`` or ``"fine-tuning"``.

        Raises:
            ValueError: where the place is not known.
        """
        from energy_callbacks.report.render.model_card import co2_eq_emissions

        return co2_eq_emissions(self.report, training_type=training_type)


class ReportedEnergyCallback(GpuEnergyCallback):
    """The one that ``report_to=["energy"]`` makes; it stands back for one that the user made."""

    __module__ = "energy_callbacks_huggingface.callback"
    is_from_report_to = True
