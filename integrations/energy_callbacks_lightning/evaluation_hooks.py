"""The hooks of validation, test and prediction, inside a training or by themselves."""

from typing import TYPE_CHECKING, Any

from energy_callbacks.meter import EnergyMeter
from energy_callbacks_lightning.bases import bases
from energy_callbacks_lightning.metrics import LoggedMetrics

if TYPE_CHECKING:
    from lightning.pytorch import Callback as Base
else:
    Base = type("Base", bases, {})


class EvaluationHooks(Base):
    """Phases ``validation``, ``test`` and ``predict`` of a meter."""

    _meter: EnergyMeter
    _metrics: LoggedMetrics

    def _start(self, trainer: Any) -> None:
        """Begin an attempt; does nothing while one is running."""
        raise NotImplementedError

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        """Validation inside training or by itself; part of the sanity check if it is one."""
        if trainer.state.fn != "fit":
            self._start(trainer)
        if not trainer.sanity_checking:
            self._meter.enter("validation")
            self._metrics.begin_validation(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Back to what was before."""
        self._meter.leave("validation")
        if trainer.is_global_zero and not trainer.sanity_checking:
            self._meter.record_metrics(
                self._metrics.of_validation(trainer),
                step=trainer.global_step,
                epoch=trainer.current_epoch,
            )

    def on_test_start(self, trainer: Any, pl_module: Any) -> None:
        """``trainer.test``."""
        self._start(trainer)
        self._meter.enter("test")

    def on_test_end(self, trainer: Any, pl_module: Any) -> None:
        """See ``on_test_start``."""
        self._meter.leave("test")

    def on_predict_start(self, trainer: Any, pl_module: Any) -> None:
        """``trainer.predict``."""
        self._start(trainer)
        self._meter.enter("predict")

    def on_predict_end(self, trainer: Any, pl_module: Any) -> None:
        """See ``on_predict_start``."""
        self._meter.leave("predict")
