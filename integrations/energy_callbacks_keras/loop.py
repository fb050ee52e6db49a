"""Counts optimizer steps and samples without reading data.

An execution is one call of ``model.train_function``, with one or several batches. Before an
execution, a callback receives the index of the execution's first batch, but no data. The data
adapter of the running ``fit`` often knows the batch size. At the end of an epoch the model's loss
tracker contains the number of samples in the epoch, and ``optimizer.iterations`` the number of
all optimizer steps so far.
"""

from typing import Any

from energy_callbacks.accounting.step_marks import StepMarks
from energy_callbacks.meter import EnergyMeter
from energy_callbacks_keras.counts import Data, iterations


class KerasStepCounter:
    """Reports optimizer steps and their samples to the meter.

    ::

        begin                     fit begins
          begin_epoch
            batch_begins(0)
            batch_begins(n)         reports the steps before batch n, with samples if known
          settle                    reports the epoch's last steps; corrects samples and tokens

    Args:
        meter: receives the events.
        batch_size: samples per batch, as the user has set it; ``None`` reads the size from the data
            adapter.
        tokens_per_sample: number of tokens in a sample; ``None`` counts no tokens.

    Attributes:
        done: number of reported optimizer steps since the start of ``fit``.
        marks: reports events to the meter.
        next_batch: index of the next batch, if exactly one step must be reported when it begins;
            otherwise -1. ``on_train_batch_begin`` then reports the step and increases this index,
            and calls ``batch_begins`` at all other batches.
        samples: samples of a step; ``None`` if unknown.
        tokens: tokens of a step; ``None`` if unknown.
    """

    def __init__(
        self, meter: EnergyMeter, batch_size: int | None, tokens_per_sample: float | None
    ) -> None:
        self._meter = meter
        self._batch_size = batch_size
        self.tokens_per_sample = tokens_per_sample
        self._data = Data()
        self.marks: StepMarks = meter._step_marks()
        self._start_iterations: int | None = None
        self._accumulation = 1
        self.samples: float | None = None
        self.tokens: float | None = None
        self.next_batch = -1
        self.done = self._anchor = self._micro = 0
        self._begun = self._batches_done = 0
        self._given = 0.0
        self._is_settled = True

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the data of a running call."""
        return self.__dict__ | {"_data": Data(), "marks": None}

    def begin(self, data: Data) -> int | None:
        """Begin a call of ``fit``, and return the number of earlier optimizer steps if known."""
        self._data = data
        self.marks = self._meter._step_marks()
        self.next_batch = -1
        self._start_iterations = iterations(data.model)
        self.done = self._anchor = self._micro = 0
        return self._start_iterations

    def begin_epoch(self) -> None:
        """Reset the counts of an epoch, and read what cannot change within it."""
        self._catch_up()
        self._begun = self._batches_done = 0
        self._given = 0.0
        self._is_settled = True
        self._data.look()
        self._accumulation = self._data.accumulation
        size = self._batch_size or self._data.batch_size
        self.samples = None if size is None else size * self._accumulation
        self.tokens = self._tokens_in(self.samples)

    def batch_begins(self, index: int) -> None:
        """Count the batches before batch ``index``, without waiting for the device."""
        self._catch_up()
        self._begun, self._is_settled = index, False
        if index > self._batches_done:
            self._micro += index - self._batches_done
            self._batches_done = index
            self._mark(self._anchor + self._micro // self._accumulation)
        is_even = self._accumulation == 1 and self.done == self._anchor + self._micro
        self.next_batch = index + 1 if is_even else -1

    def _catch_up(self) -> None:
        """Count the batches that ``on_train_batch_begin`` has reported."""
        if self.next_batch > self._batches_done:
            self._begun = self.next_batch - 1
            steps = self._begun - self._batches_done
            self._batches_done += steps
            self._micro += steps
            self.done += steps
            self._given += steps * (self.samples or 0.0)
        self.next_batch = -1

    def _mark(self, steps: int) -> None:
        """Report optimizer steps to the meter, until ``done`` equals ``steps``."""
        while self.done < steps:
            self.marks.step(self.samples, self.tokens)
            self._given += self.samples or 0.0
            self.done += 1

    def _tokens_in(self, samples: float | None) -> float | None:
        if samples is None or self.tokens_per_sample is None:
            return None
        return samples * self.tokens_per_sample

    def settle(self) -> None:
        """Count the last batches of an epoch, and correct its numbers of samples and tokens.

        Call this method before Keras resets the loss tracker, which contains the number of samples.
        """
        if self._is_settled:
            return
        self._catch_up()
        batches = self._data.batches(self._begun, self._moved() - self._anchor)
        self.batch_begins(batches)
        self._is_settled, self.next_batch = True, -1
        if self._moved():
            self._mark(self._moved())
            self._anchor, self._micro = self._moved(), self._micro % self._accumulation
        counted = self._data.samples(batches, self._batch_size)
        if counted is not None:
            missing = counted - self._given
            self._meter.count(missing, self._tokens_in(missing))
            self._given = counted

    def _moved(self) -> int:
        """Return the number of optimizer steps since the start of ``fit``; 0 if unknown."""
        now = iterations(self._data.model)
        return 0 if now is None or self._start_iterations is None else now - self._start_iterations
