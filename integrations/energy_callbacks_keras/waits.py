"""Measures how long training waits for data, if the user wraps the loader with ``timed``.

::

    training thread     batch_done | the loader makes a batch | data_ready

Only batches that are fetched on the thread of a measured training are reported. On TensorFlow, and
with workers of a ``PyDataset``, Keras fetches batches ahead on other threads. The time for which
the training waits for Keras' queue of batches then remains unknown.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import keras

from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.meter import EnergyMeter

Batch = TypeVar("Batch")


class Waits:
    """Reports to the meter when the training thread starts to wait, and when a batch is ready.

    Args:
        meter: receives the events.

    Attributes:
        is_used: whether the user has wrapped a loader.
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self._meter = meter
        self._thread: int | None = None
        self._call: ActiveCall | None = None
        self.is_used = False

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles, without the objects of a running call."""
        return self.__dict__ | {"_thread": None, "_call": None}

    def begin(self, call: ActiveCall | None) -> None:
        """Start reporting the batches that the current thread fetches.

        Args:
            call: the call of ``fit``; ``None`` in a user's own loop.
        """
        self._thread, self._call = threading.get_ident(), call

    def end(self) -> None:
        """Stop reporting: batches that are fetched from now on are not for training."""
        self._thread = self._call = None

    def timed(self, loader: Any) -> Any:
        """Wrap a loader; see ``GpuEnergyCallback.timed``."""
        timed: Any
        if isinstance(loader, keras.utils.PyDataset):
            timed = TimedDataset(loader, self)
        elif isinstance(loader, Iterator):
            timed = self._batches(loader)
        else:
            raise TypeError(
                "timed() takes a keras.utils.PyDataset or a generator, got "
                f"{type(loader).__name__}; pass other data directly to fit, without its waiting "
                "times"
            )
        self.is_used = True
        return timed

    def _batches(self, loader: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            try:
                batch = self.fetched(lambda: next(loader))
            except StopIteration:
                return
            yield batch

    def fetched(self, fetch: Callable[[], Batch]) -> Batch:
        """Return ``fetch()``. On the training thread, report when it begins and ends."""
        if self._thread != threading.get_ident() or (self._call and not self._call.is_under_way()):
            return fetch()
        self._meter.batch_done()
        batch = fetch()
        self._meter.data_ready()
        return batch


class TimedDataset(keras.utils.PyDataset):
    """Wraps the user's data set; batches, their order, and workers are the same.

    Args:
        data: the user's data set.
        waits: receives the events; ``None`` reports nothing, as in a worker process.
    """

    def __init__(self, data: keras.utils.PyDataset, waits: Waits | None) -> None:
        super().__init__(
            workers=data.workers,
            use_multiprocessing=data.use_multiprocessing,
            max_queue_size=data.max_queue_size,
        )
        self._data = data
        self._waits = waits

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the running meter, which worker processes cannot use."""
        return self.__dict__ | {"_waits": None}

    def __getitem__(self, index: int) -> Any:
        """Return the batch with this index."""
        if self._waits is None:
            return self._data[index]
        return self._waits.fetched(lambda: self._data[index])

    @property
    def num_batches(self) -> int | None:
        """Number of batches per epoch; ``None`` for a stream."""
        count: int | None = self._data.num_batches
        return count

    def on_epoch_begin(self) -> None:
        """Forward the hook to the user's data set."""
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """Forward the hook to the user's data set."""
        self._data.on_epoch_end()
