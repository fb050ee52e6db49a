"""A search for the batch size: before ``fit``, or as a callback in its beginning."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Unpack

import torch
from lightning_utilities.core.rank_zero import rank_zero_info, rank_zero_warn

from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning import BatchSizeResult, TuningOptions
from energy_callbacks.tuning import tune_batch_size as tune_step
from energy_callbacks.tuning.options import DEFAULTS, search_settings
from energy_callbacks.tuning.random_state import RandomState
from energy_callbacks_lightning import loop
from energy_callbacks_lightning.bases import packages, version
from energy_callbacks_lightning.callback import GpuEnergyCallback
from energy_callbacks_lightning.loaders import TrainLoaders
from energy_callbacks_lightning.offstage import check, offstage
from energy_callbacks_lightning.trial_step import TrialStep

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import BatchSizeFinder as Base
else:
    Base = type("Base", tuple(package.callbacks.BatchSizeFinder for package in packages), {})

_FINDERS = tuple(package.callbacks.BatchSizeFinder for package in packages)
# Lightning's way to leave fit; each package catches its own.
_Left = type("_Left", tuple(p.utilities.exceptions._TunerExitException for p in packages), {})  # noqa: SLF001
_STEPS: Final = 8  # of the shortest trial: four of the warm-up, and four blocks of one


class BatchSizeTuner(Base):
    """Finds the batch size in the beginning of ``fit``, which then goes on with it.

    >>> trainer = Trainer(callbacks=[BatchSizeTuner(objective="energy")])  # doctest: +SKIP

    In the place of Lightning's ``BatchSizeFinder``: Lightning runs it before other callbacks, and
    it finds the attribute ``batch_size`` where that does. Loaders may also be passed to ``fit``.
    A run that is resumed goes on with the size that its checkpoint has.

    Args:
        steps_per_trial: at least so many; a trial has eight or more, by ``patience``.
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
            NothingFits: where the smallest size does not run.
            ValueError: where no other batch size can be tried.
        """
        if trainer.fast_dev_run:
            rank_zero_warn("BatchSizeTuner does nothing where fast_dev_run is on")
            return
        check(trainer)
        loaders = TrainLoaders(trainer, self._batch_arg_name)
        self.result = _search(trainer, loaders, self._length_fn, self._options)
        self.optimal_batch_size = self.result.size
        if self._options.get("global_batch_size") is not None:
            self._accumulation = self.result.accumulation
        rank_zero_info(str(self.result))
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
        """What travels in the checkpoint."""
        if self.optimal_batch_size is None:
            return {}
        return {"batch_size": self.optimal_batch_size, "accumulation": self._accumulation}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Of the run that is resumed."""
        self.optimal_batch_size = state_dict["batch_size"]
        self._accumulation = state_dict["accumulation"]


def tune_batch_size(
    trainer: Any,
    model: Any,
    *,
    train_dataloaders: Any = None,
    datamodule: Any = None,
    length_fn: Callable[[Any], int] | None = None,
    batch_arg_name: str = "batch_size",
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size before ``trainer.fit``.

    Where module or datamodule have the attribute, it is set. A loader that was passed is not
    changed: ``with_batch_size(loader, result.size)`` is one of the size. With
    ``global_batch_size``, ``trainer.accumulate_grad_batches`` is set too.

    Args:
        trainer: as for the training.
        model: to be trained.
        train_dataloaders: as for ``fit``.
        datamodule: as for ``fit``.
        length_fn: how long a sample of the dataset is: each trial begins with the longest.
        batch_arg_name: the attribute of module or datamodule, or of their ``hparams``.
        **options: see ``energy_callbacks.tuning.TuningOptions``.

    Returns:
        The curve, and the size.

    Raises:
        NothingFits: where the smallest size does not run.
        TypeError: for an option that is none.
        ValueError: for options that make no sense, or where no other batch size can be tried.
    """
    if any(isinstance(one, _FINDERS) for one in trainer.callbacks):
        raise ValueError(
            "the trainer must have no BatchSizeFinder or BatchSizeTuner of its own, which would "
            "search again; remove it, or call trainer.fit, which then searches first"
        )
    launcher = trainer.strategy.launcher
    if isinstance(launcher, tuple(p.strategies.launchers._MultiProcessingLauncher for p in packages)):  # noqa: SLF001, E501
        raise ValueError(
            f"ranks must not be children of this process, got {launcher._start_method!r}: what "  # noqa: SLF001
            "they find stays there; put BatchSizeTuner into the callbacks, or use strategy='ddp'"
        )
    tuner = BatchSizeTuner(batch_arg_name=batch_arg_name, length_fn=length_fn, **options)
    tuner._early_exit = True
    before, random = trainer.callbacks, RandomState(torch)
    trainer.callbacks = [tuner, *before]
    try:
        trainer.fit(model, train_dataloaders, datamodule=datamodule)
    finally:
        trainer.callbacks = before
        random.restore()
    if tuner.result is None:
        raise ValueError("fast_dev_run must be off for a search; make the trainer without it")
    return tuner.result


def _search(
    trainer: Any,
    loaders: TrainLoaders,
    length_fn: Callable[[Any], int] | None,
    options: TuningOptions,
) -> BatchSizeResult:
    module = trainer.lightning_module
    meter = _meter(trainer, options)
    is_ours = not meter.is_running
    if is_ours:
        meter.start(
            loop.run_folder(trainer),
            process=loop.process(trainer, version),
            used_gpus=loop.used_gpus(trainer),
            say=loop.say,
        )
    try:
        asked: TuningOptions = {**_limited(trainer, loaders, options), "meter": meter}
        with offstage(trainer):
            step = TrialStep(trainer, loaders, length_fn)
            return tune_step(
                step,
                keep=[module, *trainer.optimizers, *_stateful(trainer)],
                restore=step.end,
                worst=None if length_fn is None else step.worst,
                **asked,
            )
    finally:
        loaders.restore()
        if is_ours:
            meter.stop()


def _stateful(trainer: Any) -> list[Any]:
    scaler = getattr(trainer.precision_plugin, "scaler", None)  # of mixed precision alone
    schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
    return schedulers if scaler is None else [*schedulers, scaler]


def _meter(trainer: Any, options: TuningOptions) -> EnergyMeter:
    """The one that runs for the training, else one for the search."""
    if (given := options.get("meter")) is not None:
        return given
    energies = [one._meter for one in trainer.callbacks if isinstance(one, GpuEnergyCallback)]  # noqa: SLF001
    return next((one for one in energies if one.is_running), None) or EnergyMeter()


def _limited(trainer: Any, loaders: TrainLoaders, options: TuningOptions) -> TuningOptions:
    """Options with what the training says: the size in use, no more samples than there are."""
    samples = loaders.samples()
    if samples is not None and trainer.world_size > 1:
        here = torch.tensor(samples, device=trainer.strategy.root_device)
        samples = int(trainer.strategy.reduce(here, reduce_op="min"))
    limited: TuningOptions = {"start_size": loaders.batch_size, **options}
    if samples is not None:
        limited["max_size"] = min(options.get("max_size", DEFAULTS["max_size"]), samples)
    batch_norms = torch.nn.modules.batchnorm._BatchNorm  # noqa: SLF001
    if any(isinstance(part, batch_norms) for part in trainer.lightning_module.modules()):
        limited.setdefault("min_size", 2)
    return limited
