"""GpuEnergyCallback: its settings, and what of it travels in a checkpoint."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from energy_callbacks.callback import CallbackSettings, EnergyCallback, meter_from
from energy_callbacks.core.config import check_function, check_log_every_n_steps
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
        log_every_n_steps: ``None`` follows the trainer's own setting.
        batch_size_fn: samples of a batch; ``None`` reads the first dimension of its tensors.
        length_fn: tokens of a batch; without it figures per token are left out.
        **settings: see ``CallbackSettings``; the run folder is by default
            ``<trainer.log_dir or default_root_dir>/energy``.

    Raises:
        ValueError: for a setting that is wrong in itself, such as an unknown country.
        TypeError: for one of the wrong type.
    """

    __module__ = "energy_callbacks.lightning"
    framework_name = "Lightning"

    def __init__(
        self,
        *,
        log_every_n_steps: int | None = None,
        batch_size_fn: Callable[[Any], int] | None = None,
        length_fn: Callable[[Any], int] | None = None,
        **settings: Unpack[CallbackSettings],
    ) -> None:
        super().__init__(
            meter_from(settings, own=("log_every_n_steps", "batch_size_fn", "length_fn")),
            loop.StepCounter(
                check_function("batch_size_fn", batch_size_fn),
                check_function("length_fn", length_fn),
            ),
            check_log_every_n_steps(log_every_n_steps),
        )

    @property
    def report(self) -> "EnergyReport":
        """The energy report so far, at any time; of the ranks, if they were children."""
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
        """The state for a checkpoint: the run, its energy so far and the logger's step."""
        state = self._meter.state() or self._state
        return {**state, "stepped_batches": self._steps.stepped_batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue a run; also called in a fresh one, after a search for a batch size."""
        self._state = state_dict
        self._steps.stepped_batches = int(state_dict.get("stepped_batches", 0))
