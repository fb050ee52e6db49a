"""GpuEnergyCallback: its settings, and what of it travels in a checkpoint."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from energy_callbacks.accounting.profilers import Profiler
from energy_callbacks.callback import EnergyCallback
from energy_callbacks.core.config import EnergyConfig, check_function, check_log_every_n_steps
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning import loop, spawned_ranks
from energy_callbacks_lightning.hooks import EnergyHooks

if TYPE_CHECKING:
    from energy_callbacks.report.model.schema import EnergyReport


class GpuEnergyCallback(EnergyCallback, EnergyHooks):
    """Energy beside the loss in the user's own loggers, and a report at the end.

    >>> trainer = Trainer(callbacks=[GpuEnergyCallback()])  # doctest: +SKIP

    The tags are described in ``docs/reference/metrics.md``; the newest values are also in
    ``trainer.callback_metrics``, for ``ModelCheckpoint(monitor="efficiency/gpu_j_per_sample")``.

    Args:
        report_dir: run folder; ``None`` is ``<trainer.log_dir or default_root_dir>/energy``.
        country: ISO 3166 code or name of the place whose grid feeds the machine.
        region: state or province, for ``USA`` and ``CAN``.
        pue: power usage effectiveness of the building.
        price_per_kwh: in any currency.
        devices: ``"auto"`` for the GPUs this training uses, ``"all"``, or indices and UUIDs.
        sample_interval_s: how often figures are brought up to date, s.
        step_events: let CUDA events tell when the GPU finished each step (PyTorch only).
        log_every_n_steps: ``None`` follows the trainer's own setting.
        batch_size_fn: samples of a batch; ``None`` reads the first dimension of its tensors.
        length_fn: tokens of a batch; without it figures per token are left out.
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

    __module__ = "energy_callbacks.lightning"
    framework_name = "Lightning"

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
        log_every_n_steps: int | None = None,
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
            loop.StepCounter(
                check_function("batch_size_fn", batch_size_fn),
                check_function("length_fn", length_fn),
            ),
            check_log_every_n_steps(log_every_n_steps),
        )

    @property
    def report(self) -> "EnergyReport":
        """The energy report so far, at any time; of the ranks, where they were children."""
        config = self._meter.config
        ran_here = self._meter.run_folder is not None
        folder = None if ran_here else spawned_ranks.run_folder(self, config.run_folder)
        if folder is None:
            return super().report
        from energy_callbacks.report import build

        return build(folder)

    @property
    def state_key(self) -> str:
        """Lets two callbacks with different folders stand in one trainer."""
        return self._generate_state_key(report_dir=str(self._meter.config.report_dir))

    def state_dict(self) -> dict[str, Any]:
        """What travels in the checkpoint: the run, its energy so far and the logger's step."""
        state = self._meter.state() or self._state
        return {**state, "stepped_batches": self._steps.stepped_batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; also called in a fresh one, after a search for a batch size."""
        self._state = state_dict
        self._steps.stepped_batches = int(state_dict.get("stepped_batches", 0))
