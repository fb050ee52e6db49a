"""Defines ``BatchSizeTuner``, which searches for the batch size at the beginning of ``fit``."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

from energy_callbacks.core.settings.checks import check_type
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning.options import search_settings
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.bases import packages
from energy_callbacks_lightning.tuning.loaders import TrainLoaders
from energy_callbacks_lightning.tuning.search import check, search

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import BatchSizeFinder as Base
else:
    Base = type("Base", tuple(package.callbacks.BatchSizeFinder for package in packages), {})

# Raised to end ``fit``. Each Lightning package catches only its own exception class, so this class
# inherits from the classes of all installed packages.
_Left = type("_Left", tuple(p.utilities.exceptions._TunerExitException for p in packages), {})  # noqa: SLF001
# Number of steps of the shortest trial: four for warm-up, and four measured blocks of one step.
_STEPS: Final = 8


class BatchSizeTuner(Base):
    """Finds the batch size at the beginning of ``fit``; the training then uses this size.

    >>> trainer = Trainer(callbacks=[BatchSizeTuner(objective="energy")])  # doctest: +SKIP

    This class replaces Lightning's ``BatchSizeFinder``. Like ``BatchSizeFinder``, it is called
    before other callbacks and finds the attribute with the batch size in the same places. Loaders
    may also be passed to ``fit``. A resumed run continues with the batch size in its checkpoint.

    Args:
        steps_per_trial: as in ``BatchSizeFinder``, from 1 to 8, or ``None``. It has no effect:
            every trial has at least 8 steps, and ``patience`` determines their number.
        init_val: first size, same as ``start_size``; ``None`` starts with the current size.
        batch_arg_name: name of the attribute with the batch size, in the module, the datamodule or
            their ``hparams``.
        max_val: largest size, same as ``max_size``; ``None`` uses the default of ``max_size``.
        length_fn: returns the length of a sample; each trial begins with the longest samples.
            ``None`` if all samples have the same length.
        **options: see ``energy_callbacks.tuning.TuningOptions``. With ``global_batch_size``,
            ``trainer.accumulate_grad_batches`` is set too.

    Attributes:
        result: the measured sizes and the choice; ``None`` until a search has ended.
        optimal_batch_size: the batch size from the search or a checkpoint; ``None`` before that.

    Raises:
        TypeError: for an unknown option, or a ``length_fn`` that is no function.
        ValueError: for invalid options.
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
        check_type("length_fn", length_fn, Callable | None, "a function of a sample")
        if steps_per_trial is not None and not 1 <= steps_per_trial <= _STEPS:
            raise ValueError(
                f"steps_per_trial must be from 1 to {_STEPS}, the number that every trial has, "
                f"got {steps_per_trial!r}; for longer trials give patience=Patience(least_s=...)"
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
        """Do nothing. ``BatchSizeFinder`` rejects several ranks and passed loaders here."""

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Search for the batch size, or use the size in the checkpoint, before the first step.

        The model is already on its device, and its optimizers exist.
        """
        was_counted = trainer.fit_loop._combined_loader is not None  # noqa: SLF001
        if trainer.ckpt_path and self.optimal_batch_size is not None:
            self._apply(trainer, TrainLoaders(trainer, self._batch_arg_name))
        else:
            self.scale_batch_size(trainer, pl_module)
        if was_counted:
            # ``configure_optimizers`` has already used the number of batches, for example for a
            # schedule. The new batch size changes this number, so the optimizers are created again.
            trainer.strategy.setup_optimizers(trainer)

    def scale_batch_size(self, trainer: Any, pl_module: Any) -> None:
        """Search for the batch size and apply it.

        A subclass may call this method, for example at the beginning of an epoch.

        Raises:
            NothingFits: if no size fits, or no size can be recommended.
            ValueError: if the batch size cannot be changed.
        """
        if trainer.fast_dev_run:
            loop.warn("BatchSizeTuner does nothing if fast_dev_run is on")
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
        """Do nothing. ``BatchSizeFinder`` would search for the batch size of validation here."""

    on_test_start = on_predict_start = on_validation_start

    def state_dict(self) -> dict[str, Any]:
        """Return batch size and accumulation for a checkpoint; empty before the search."""
        if self.optimal_batch_size is None:
            return {}
        return {"batch_size": self.optimal_batch_size, "accumulation": self._accumulation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore batch size and accumulation of the resumed run."""
        self.optimal_batch_size = state_dict["batch_size"]
        self._accumulation = state_dict["accumulation"]
