"""``BatchSizeTuner``: searches in the beginning of ``fit``, which goes on with what it finds."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.options import search_settings
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.bases import packages
from energy_callbacks_lightning.tuning.isolated_trainer import check
from energy_callbacks_lightning.tuning.loaders import TrainLoaders
from energy_callbacks_lightning.tuning.search import search

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import BatchSizeFinder as Base
else:
    Base = type("Base", tuple(package.callbacks.BatchSizeFinder for package in packages), {})

# Lightning's way to leave fit; each package catches its own.
_Left = type("_Left", tuple(p.utilities.exceptions._TunerExitException for p in packages), {})  # noqa: SLF001
_STEPS: Final = 8  # of the shortest trial: four of the warm-up, and four blocks of one


class BatchSizeTuner(Base):
    """Finds the batch size in the beginning of ``fit``, which then goes on with it.

    >>> trainer = Trainer(callbacks=[BatchSizeTuner(objective="energy")])  # doctest: +SKIP

    In the place of Lightning's ``BatchSizeFinder``: Lightning runs it before other callbacks, and
    it finds the attribute ``batch_size`` if that does. Loaders may also be passed to ``fit``.
    A run that is resumed goes on with the size that its checkpoint has.

    Args:
        steps_per_trial: at least this many; a trial has eight or more, by ``patience``.
        init_val: where to begin, ``start_size``; by default with the size in use.
        batch_arg_name: the attribute of module or datamodule, or of their ``hparams``.
        max_val: none larger, ``max_size``.
        length_fn: how long a sample of the dataset is: each trial begins with the longest.
        **options: see ``energy_callbacks.tuning.TuningOptions``. With ``global_batch_size``,
            ``trainer.accumulate_grad_batches`` is set too.

    Attributes:
        result: the curve, after the search.
        optimal_batch_size: the size, after the search or from a checkpoint.

    Raises:
        TypeError: for an option that is none.
        ValueError: for options that make no sense.
    """

    __module__ = "energy_callbacks.lightning"

    def __init__(
        self,
        *,
        steps_per_trial: int | None = None,
        init_val: int | None = None,
        batch_arg_name: str = "batch_size",
        max_val: int | None = None,
        length_fn: Callable[[Any], int] | None = None,
        **options: Unpack[TuningOptions],
    ) -> None:
        super().__init__(batch_arg_name=batch_arg_name)
        if steps_per_trial is not None and not 1 <= steps_per_trial <= _STEPS:
            raise ValueError(
                f"steps_per_trial must be from 1 to {_STEPS}, which every trial has, got "
                f"{steps_per_trial!r}; for longer ones give patience=Patience(least_s=...)"
            )
        if init_val is not None:
            options.setdefault("start_size", init_val)
        if max_val is not None:
            options.setdefault("max_size", max_val)
        search_settings({**options, "global_batch_size": None}, ranks=1, memory_bytes=None)
        self._length_fn = length_fn
        self._options = options
        self._accumulation: int | None = None
        self.result: BatchSizeResult | None = None
        self.optimal_batch_size: int | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str | None = None) -> None:
        """Nothing is refused yet: with ranks and with loaders that were passed, too, it works."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """The model is on its device, the optimizers are there, nothing has run yet."""
        was_counted = trainer.fit_loop._combined_loader is not None  # noqa: SLF001
        if trainer.ckpt_path and self.optimal_batch_size is not None:
            self._apply(trainer, TrainLoaders(trainer, self._batch_arg_name))
        else:
            self.scale_batch_size(trainer, pl_module)
        if was_counted:
            # configure_optimizers has asked for the number of batches, which is another one now
            trainer.strategy.setup_optimizers(trainer)

    def scale_batch_size(self, trainer: Any, pl_module: Any) -> None:
        """Search now; also from a subclass, such as at the beginning of an epoch.

        Raises:
            NothingFits: if the smallest size does not run.
            ValueError: if no other batch size can be tried.
        """
        if trainer.fast_dev_run:
            loop.warn("BatchSizeTuner does nothing where fast_dev_run is on")
            return
        check(trainer)
        loaders = TrainLoaders(trainer, self._batch_arg_name)
        self.result = search(trainer, loaders, self._length_fn, self._options)
        self.optimal_batch_size = self.result.size
        if self._options.get("global_batch_size") is not None:
            self._accumulation = self.result.accumulation
        loop.say(str(self.result))
        self._apply(trainer, loaders)
        if self._early_exit:
            raise _Left

    def _apply(self, trainer: Any, loaders: TrainLoaders) -> None:
        assert self.optimal_batch_size is not None
        loaders.keep(self.optimal_batch_size)
        if self._accumulation is not None:
            trainer.accumulate_grad_batches = self._accumulation
        if trainer.fit_loop._combined_loader is not None:  # noqa: SLF001
            trainer.fit_loop._combined_loader = None  # noqa: SLF001
            trainer.fit_loop.setup_data()

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Only training is tuned."""

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """See ``on_validation_start``."""

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """See ``on_validation_start``."""

    def state_dict(self) -> dict[str, Any]:
        """The state for a checkpoint."""
        if self.optimal_batch_size is None:
            return {}
        return {"batch_size": self.optimal_batch_size, "accumulation": self._accumulation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of the run that is resumed."""
        self.optimal_batch_size = state_dict["batch_size"]
        self._accumulation = state_dict["accumulation"]
