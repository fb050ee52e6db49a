"""Defines ``GpuEnergyCallback``: its settings, and its state in a checkpoint."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack

from energy_callbacks.callback import CallbackSettings, EnergyCallback, meter_from
from energy_callbacks.core.settings.checks import check_function, check_log_every_n_steps
from energy_callbacks_lightning import spawned_ranks
from energy_callbacks_lightning.hooks import EnergyHooks
from energy_callbacks_lightning.step_counter import LightningStepCounter

if TYPE_CHECKING:
    from energy_callbacks.report.model.schema import EnergyReport


class GpuEnergyCallback(EnergyCallback, EnergyHooks):
    """Logs energy together with the loss in the user's loggers, and writes a report at the end.

    >>> trainer = Trainer(callbacks=[GpuEnergyCallback()])  # doctest: +SKIP

    The tags are described in ``docs/reference/metrics.md``. If a single process trains, the newest
    values are also in ``trainer.callback_metrics``, for
    ``ModelCheckpoint(monitor="efficiency/gpu_j_per_sample")``.

    Args:
        log_every_n_steps: number of steps between logged rows, counted as Lightning counts the
            steps of loggers (see ``step_counter.py``); with ``None``, rows are logged at steps at
            which the trainer logs the loss, but at most one per second.
        batch_size_fn: returns the number of samples in a batch; ``None`` uses the first dimension
            of the batch's tensors.
        tokens_fn: returns the number of tokens in a batch; with ``None`` there are no figures per
            token.
        **settings: see ``CallbackSettings``; the default run folder is
            ``<trainer.log_dir or default_root_dir>/energy``.

    Raises:
        ValueError: for an invalid setting, such as an unknown country.
        TypeError: for a setting of the wrong type.
    """

    __module__ = "energy_callbacks.lightning"
    framework_name = "Lightning"
    state_key: str = ""
    """Key of the state in a checkpoint."""

    def __init__(
        self,
        *,
        log_every_n_steps: int | None = None,
        batch_size_fn: Callable[[Any], int] | None = None,
        tokens_fn: Callable[[Any], int] | None = None,
        **settings: Unpack[CallbackSettings],
    ) -> None:
        meter = meter_from(settings, own=("log_every_n_steps", "batch_size_fn", "tokens_fn"))
        super().__init__(
            meter,
            LightningStepCounter(
                meter,
                check_function("batch_size_fn", batch_size_fn),
                check_function("tokens_fn", tokens_fn),
            ),
            check_log_every_n_steps(log_every_n_steps),
        )
        # A property would cost 2 us per step: Lightning reads the key at every call of a hook. The
        # key contains ``report_dir``, so that a trainer may have several of these callbacks with
        # different folders.
        key = self._generate_state_key(report_dir=str(self._meter.config.report_dir))
        self.state_key = key  # pyright: ignore[reportIncompatibleMethodOverride]

    def report(self) -> "EnergyReport":
        """Return the report so far, also if the ranks were child processes of this process."""
        config = self._meter.config
        ran_here = self._meter.run_folder is not None
        folder = None if ran_here else spawned_ranks.run_folder(self, config.run_folder)
        if folder is None:
            return super().report()
        from energy_callbacks.report import build

        return build(folder)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for a checkpoint: the run, its energy, and ``stepped_batches``."""
        state = self._meter.state() or self._state
        return {**state, "stepped_batches": self._steps.stepped_batches}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Store the state of a run. The meter will continue this run when it starts next.

        Lightning also calls this method in a new run: after its own search for a batch size or a
        learning rate, it restores the checkpoint that it saved before the search.
        """
        self._state = state_dict
        self._steps.stepped_batches = int(state_dict.get("stepped_batches", 0))


class AutomaticCallback(GpuEnergyCallback):
    """The callback that is added to every Trainer if ``ENERGY_CALLBACKS_LIGHTNING=1`` is set.

    It has the default settings, and removes itself from the Trainer if the user has added a
    ``GpuEnergyCallback``.
    """

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """At the start of a call like ``fit``, remove this callback if another one measures."""
        others = [one for one in trainer.callbacks if one is not self]
        if any(isinstance(one, GpuEnergyCallback) for one in others):
            trainer.callbacks = others  # a new list, because Lightning iterates over the old one
            return
        # The key of ``GpuEnergyCallback()``, so that each of the two classes can resume a run of
        # the other. Before, the keys differ, because Lightning does not allow two callbacks with
        # the same key.
        own, other = type(self).__qualname__, GpuEnergyCallback.__qualname__
        self.state_key = self.state_key.replace(own, other, 1)
        super().setup(trainer, pl_module, stage)
