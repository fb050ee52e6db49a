"""What a planner needs: something that predicts configurations, and something that measures."""

from collections.abc import Sequence
from typing import Protocol

from energy_callbacks.inference.records import (
    Configuration,
    MeasuredWindow,
    Mode,
    Phase,
    Prediction,
)


class PredictionModel(Protocol):
    """Predicts configurations that were not measured."""

    def predict(self, configuration: Configuration) -> Prediction:
        """Return the prediction for one configuration.

        Raises:
            ValueError: if a model of it was not measured.
        """
        ...

    def predict_many(self, configurations: Sequence[Configuration]) -> Sequence[Prediction]:
        """Return the predictions for several configurations, which may be faster."""
        ...


class Bench(Protocol):
    """Measures configurations: of a real GPU, of a CPU, or of a simulated GPU."""

    def measure(
        self,
        configuration: Configuration,
        *,
        window_s: float,
        warmup_s: float,
        phase: Phase = "anchor",
        mode: Mode = "infer",
    ) -> MeasuredWindow:
        """Measure a configuration; failures are rows with a status, not exceptions.

        Args:
            configuration: what to measure.
            window_s: length of the measured window, s.
            warmup_s: time before it, s.
            phase: kind of measurement, for the row.
            mode: inference or training.
        """
        ...
