"""Opens the files of a device's sensors, and reads their values."""

import errno
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.core.records import Channel, Quantity, Reading, Sensor
from energy_callbacks.sensing.sources.sysfs.counter import Counter
from energy_callbacks.sensing.sources.sysfs.family import (
    ALL_ONES,
    FileSensor,
    FoundDevice,
    whole_number,
)
from energy_callbacks.sensing.sources.sysfs.open_files import Content, OpenFiles

# Time between two readings of a sensor of power with an unknown period, s.
_POLL_S: Final = 0.1
# Errors of a file that was opened, but has no value now, such as while a GPU sleeps or is reset
# (EPERM: amdgpu_pm.c, amdgpu_pm_get_access_if_active).
_NOT_NOW: Final = (errno.EPERM, errno.EBUSY, errno.EAGAIN)


@dataclass(slots=True)
class OpenSensor:
    """A sensor whose files are open.

    Attributes:
        row: the sensor, as a row of the family's table.
        files: has the open files.
        path: file that has the value.
        factor: file whose value is multiplied with it; ``None`` if there is none.
        added: file whose value is added to it; ``None`` if there is none.
        channel: channel of its readings.
        counter: adds up the increases; ``None`` for a gauge.
    """

    row: FileSensor
    files: OpenFiles
    path: Path
    factor: Path | None
    added: Path | None
    channel: Channel
    counter: Counter | None

    @property
    def wraps(self) -> int:
        """See ``DeviceSensor``."""
        return self.counter.wraps if self.counter else 0

    def read(self) -> Reading:
        """See ``DeviceSensor``."""
        raw, content = self.raw()
        value, t_error_s = raw * self.row.unit, content.t_error_s
        if self.counter is not None:
            value = self.counter.advance(raw, content.t_s)
            t_error_s += self.row.period_s or 0.0
        return Reading(self.channel, content.t_s, value, t_error_s)

    def raw(self) -> tuple[float, Content]:
        """Return the present value in the unit of the files, and the content of the first file.

        Raises errors as ``read`` does.
        """
        content = self.files.content(self.path)
        raw = self._known(self.row.parse(content.data), self.path)
        if self.factor is not None:
            raw *= self._number(self.factor)
        if self.added is not None:
            raw += self._number(self.added)
        return raw, content

    def _number(self, path: Path) -> float:
        return self._known(whole_number(self.files.content(path).data), path)

    def _known(self, raw: float, path: Path) -> float:
        """Return a value; raise ``ReadingMissed`` if it means that there is none."""
        can_be_negative = self.row.quantity == "temperature"
        if raw in self.row.missing or raw in ALL_ONES or (raw < 0 and not can_be_negative):
            raise ReadingMissed(f"{path.name} contains {raw:g}, which is no value")
        return raw


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

    def sensors(self, rows: Sequence[FileSensor]) -> Iterator[OpenSensor]:
        """Yield the first sensor of each quantity that has a value."""
        opened: set[Quantity] = set()
        for row in rows:
            if row.quantity not in opened and (one := self._first(row)) is not None:
                opened.add(row.quantity)
                self.forbidden.pop(row.quantity, None)
                yield one

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
            with suppress(KeyError):  # the device has no such place
                placed = pattern.format_map(self._found.places)
                yield from sorted(self._found.folder.glob(placed))

    def _open(self, row: FileSensor, path: Path) -> OpenSensor:
        factor = next(self._paths(row.times), None)
        if row.times and factor is None:
            raise ReadingMissed(f"it needs a second file, {' or '.join(row.times)}")
        added = next(self._paths(row.plus), None)
        for needed in filter(None, (path, factor, added)):
            self._files.add(needed)
        channel = _channel(row, path, self._found)
        counter = None
        if row.kind == "counter":
            counter = Counter(unit=row.unit, wrap=row.wrap, stale_s=row.stale_s)
        one = OpenSensor(row, self._files, path, factor, added, channel, counter)
        try:
            one.raw()
        except OSError as error:
            if error.errno not in _NOT_NOW:
                raise
        return one


def _channel(row: FileSensor, path: Path, found: FoundDevice) -> Channel:
    sensor = Sensor(
        name=str(path),
        # With an unknown period, a gap between readings of power could not be recognised.
        period_s=row.period_s or (_POLL_S if row.quantity == "power" else None),
        window_s=row.window_s,
        lag_s=row.lag_s,
        relative_error=row.relative_error,
        is_checked=row.is_checked,
        citation=row.citation,
    )
    return Channel(device=found.device, quantity=row.quantity, kind=row.kind, sensor=sensor)
