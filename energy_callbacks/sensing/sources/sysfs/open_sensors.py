"""Opens the files of a device's sensors, and reads their values."""

import errno
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.core.records import Channel, Quantity, Reading, Sensor
from energy_callbacks.sensing.sources.sysfs.counter import MOST_POWER_W, Counter, CounterReset
from energy_callbacks.sensing.sources.sysfs.family import FileSensor, FoundDevice, whole_number
from energy_callbacks.sensing.sources.sysfs.open_files import OpenFiles

# Largest increase per second of counters other than energy: seconds for which the clocks were
# throttled, counted for up to ten reasons at once.
_MOST_PER_S: Final = 10.0
POLL_S: Final = 0.1
"""Time between two readings of a sensor of power with an unknown period, s."""
# "No value" of many drivers: all bits set.
_ALL_ONES: Final = (2**32 - 1, 2**64 - 1)
# Errors of a file that was opened, but has no value now, such as while a GPU sleeps or is reset
# (EPERM: amdgpu_pm.c, amdgpu_pm_get_access_if_active).
_NOT_NOW: Final = (errno.EPERM, errno.EBUSY, errno.EAGAIN)


@dataclass(slots=True)
class OpenSensor:
    """A sensor whose files are open.

    Attributes:
        row: the sensor, as a row of the family's table.
        path: file that has the value.
        factor: file whose value is multiplied with it; ``None`` if there is none.
        added: file whose value is added to it; ``None`` if there is none.
        channel: channel of its readings.
        due_s: monotonic time of the next reading.
        counter: adds up the increases; ``None`` for a gauge, and before the first value.
    """

    row: FileSensor
    path: Path
    factor: Path | None
    added: Path | None
    channel: Channel
    due_s: float = -math.inf
    counter: Counter | None = field(default=None, init=False)

    def read(self, files: OpenFiles) -> Reading:
        """Return the present value; counters count from the first call.

        Raises:
            ReadingMissed: if there is no value.
            OSError: if a file cannot be read.
        """
        raw, content = self.raw(files), files.content(self.path)
        if self.row.kind != "counter":
            return Reading(self.channel, content.t_s, raw * self.row.unit, content.t_error_s)
        t_error_s = content.t_error_s + (self.row.period_s or 0.0)
        return Reading(self.channel, content.t_s, self._counted(raw, content.t_s), t_error_s)

    def raw(self, files: OpenFiles) -> float:
        """Return the present value as the files state it; raises errors as ``read`` does."""
        raw = self._known(self.row.parse, self.path, files)
        if self.factor is not None:
            raw *= self._known(whole_number, self.factor, files)
        if self.added is not None:
            raw += self._known(whole_number, self.added, files)
        return raw

    def _known(self, parse: Callable[[bytes], float], path: Path, files: OpenFiles) -> float:
        raw = parse(files.content(path).data)
        can_be_negative = self.row.quantity == "temperature"
        if raw in self.row.missing or raw in _ALL_ONES or (raw < 0 and not can_be_negative):
            which = "it" if path == self.path else path.name
            raise ReadingMissed(f"{which} contains {raw:g}, which is no value")
        return raw

    def _counted(self, raw: float, t_s: float) -> float:
        """Return the increase since the first value, or 0 if the counter starts or was reset."""
        if self.counter is not None:
            with suppress(CounterReset):
                return self.counter.advance(raw, t_s)
        self.counter = Counter(
            raw,
            t_s,
            unit=self.row.unit,
            wrap=_wrap(self.row, self.path),
            most_per_s=MOST_POWER_W if self.row.quantity == "energy" else _MOST_PER_S,
            stale_s=self.row.stale_s,
        )
        return 0.0


class Opening:
    """Opens the sensors of a device.

    Attributes:
        forbidden: path of each file that this user must not read, by quantity.
        empty: why other files have no value.

    Args:
        found: the device.
        files: receives the open files.
    """

    def __init__(self, found: FoundDevice, files: OpenFiles) -> None:
        self.forbidden: dict[Quantity, Path] = {}
        self.empty: list[str] = []
        self._found = found
        self._files = files

    def sensors(self, rows: Sequence[FileSensor]) -> dict[Quantity, OpenSensor]:
        """Return the first sensor of each quantity that has a value."""
        opened: dict[Quantity, OpenSensor] = {}
        for row in rows:
            if row.quantity not in self._found.excluded and row.quantity not in opened:
                one = self._first(row)
                if one is not None:
                    opened[row.quantity] = one
        for quantity in opened:
            self.forbidden.pop(quantity, None)
        return opened

    def _first(self, row: FileSensor) -> OpenSensor | None:
        """Return the sensor of the first file that has a value; ``None`` if none has."""
        for path in self._paths(row.files):
            try:
                return self._open(row, path)
            except PermissionError as error:
                self.forbidden.setdefault(row.quantity, Path(error.filename or path))
            except (OSError, ReadingMissed) as error:
                self.empty.append(f"{path}: {error}")
        return None

    def _paths(self, patterns: Sequence[str]) -> Iterator[Path]:
        for pattern in patterns:
            yield from sorted(self._found.folder.glob(pattern))

    def _open(self, row: FileSensor, path: Path) -> OpenSensor:
        factor = next(self._paths(row.times), None)
        if row.times and factor is None:
            raise ReadingMissed(f"it needs a second file, {' or '.join(row.times)}")
        added = next(self._paths(row.plus), None)
        for needed in filter(None, (path, factor, added)):
            self._files.add(needed)
        one = OpenSensor(row, path, factor, added, _channel(row, path, self._found))
        try:
            one.raw(self._files)
        except OSError as error:
            if error.errno not in _NOT_NOW:
                raise
        return one


def _channel(row: FileSensor, path: Path, found: FoundDevice) -> Channel:
    sensor = Sensor(
        name=str(path),
        # With an unknown period, a gap between readings of power could not be recognised.
        period_s=row.period_s or (POLL_S if row.quantity == "power" else None),
        window_s=row.window_s,
        lag_s=row.lag_s,
        relative_error=row.relative_error,
        is_checked=row.is_checked,
        citation=row.citation,
    )
    return Channel(device=found.device, quantity=row.quantity, kind=row.kind, sensor=sensor)


def _wrap(row: FileSensor, path: Path) -> float | None:
    """Return the largest value of a counter; ``None`` if it does not wrap or if it is not known."""
    if row.wrap_file is None:
        return row.wrap
    with suppress(OSError, ReadingMissed, StopIteration):
        return whole_number(next(path.parent.glob(row.wrap_file)).read_bytes())
    return None
