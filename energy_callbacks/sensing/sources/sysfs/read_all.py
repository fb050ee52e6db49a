"""Reads several sensors whose values are in files, each of which may fail alone."""

import errno
from collections.abc import Callable, Iterable
from typing import Final

from energy_callbacks.core.errors import ReadingMissed, SourceLost
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.sources.sysfs.counter import CounterUnchanged

# Errors of files whose device is gone; Linux returns ENODEV for files of sysfs.
_GONE: Final = (errno.ENODEV, errno.ENXIO)


def read_all(source: str, sensors: Iterable[tuple[str, Callable[[], Reading]]]) -> list[Reading]:
    """Return the readings of all sensors that have one.

    Args:
        source: name of the source, for messages.
        sensors: name of each sensor, and the function that reads it. A counter without a change has
            no reading.

    Raises:
        ReadingMissed: if there is no reading because sensors fail.
        SourceLost: if the device of a sensor is gone.
    """
    readings: list[Reading] = []
    missed: list[str] = []
    for name, read in sensors:
        try:
            readings.append(read())
        except CounterUnchanged:
            pass
        except (OSError, ReadingMissed) as error:
            if isinstance(error, OSError) and error.errno in _GONE:
                raise SourceLost(f"{source} is gone: {name}: {error}") from error
            missed.append(f"{name}: {error}")
    if missed and not readings:
        raise ReadingMissed("; ".join(missed))
    return readings
