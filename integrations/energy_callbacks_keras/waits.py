"""Measures waiting for data, if the user wraps the loader.

::

    training thread     batch_done | the loader makes a batch | data_ready

Only what is fetched on the training thread, in a training of ours, is reported. Elsewhere Keras
fetches ahead (all of TensorFlow; a ``PyDataset`` with workers), and how long its own queue lets the
training wait is not seen here: nothing is reported then, and waiting stays unknown.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import keras

from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.meter import EnergyMeter

Batch = TypeVar("Batch")


class Waits:
    """Reports to the meter when the training thread begins to wait, and when it has its batch.

    Args:
        meter: gets the events.

    Attributes:
        is_asked: whether the user has a loader timed.
    """

    def __init__(self, meter: EnergyMeter) -> None:
        self._meter = meter
        self._thread: int | None = None
        self._call: ActiveCall | None = None
        self.is_asked = False

    def __getstate__(self) -> dict[str, Any]:
        """A copy is in no call."""
        return self.__dict__ | {"_thread": None, "_call": None}

    def begin(self, call: ActiveCall | None) -> None:
        """From now on this thread trains, in a call of ``fit`` or a loop of the user's."""
        self._thread, self._call = threading.get_ident(), call

    def end(self) -> None:
        """Data that is fetched from now on is not for training."""
        self._thread = self._call = None

    def timed(self, loader: Any) -> Any:
        """See ``GpuEnergyCallback.timed``."""
        timed: Any
        if isinstance(loader, keras.utils.PyDataset):
            timed = TimedDataset(loader, self)
        elif isinstance(loader, Iterator):
            timed = self._batches(loader)
        else:
            raise TypeError(
                "timed() takes a keras.utils.PyDataset or a generator, got "
                f"{type(loader).__name__}; pass anything else to fit as it is, waiting for it is "
                "not known"
            )
        self.is_asked = True
        return timed

    def _batches(self, loader: Iterator[Batch]) -> Iterator[Batch]:
        while True:
            try:
                batch = self.fetched(lambda: next(loader))
            except StopIteration:
                return
            yield batch

    def fetched(self, fetch: Callable[[], Batch]) -> Batch:
        """A batch, and the time that it took."""
        if self._thread != threading.get_ident() or (self._call and not self._call.is_under_way()):
            return fetch()
        self._meter.mark("batch_done")
        batch = fetch()
        self._meter.mark("data_ready")
        return batch


class TimedDataset(keras.utils.PyDataset):
    """A data set of the user's, with the same batches in the same order.

    Args:
        data: of the user; Keras gets its batches on as many workers as it asks for.
        waits: get the events; in another process none does.
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
        """For workers: a running meter cannot be pickled, and means nothing there."""
        return self.__dict__ | {"_waits": None}

    def __getitem__(self, index: int) -> Any:
        """One batch."""
        if self._waits is None:
            return self._data[index]
        return self._waits.fetched(lambda: self._data[index])

    @property
    def num_batches(self) -> int | None:
        """Of an epoch; ``None`` if there is no end."""
        count: int | None = self._data.num_batches
        return count

    def on_epoch_begin(self) -> None:
        """Before each epoch, if Keras says so."""
        self._data.on_epoch_begin()

    def on_epoch_end(self) -> None:
        """After each epoch."""
        self._data.on_epoch_end()
