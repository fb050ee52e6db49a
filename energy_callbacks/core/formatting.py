"""Formats numbers as text with a suitable unit and a limited number of digits."""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence

from energy_callbacks.core.units import BYTES_PER_GIBIBYTE, BYTES_PER_MEBIBYTE, JOULES_PER_WATT_HOUR

UNKNOWN = "not known"
# A unit: its value in the base unit (J, kg or byte), and its symbol. Tuples of units start with the
# largest unit.
_Unit = tuple[float, str]
ENERGY_UNITS: tuple[_Unit, ...] = (
    (1e3 * JOULES_PER_WATT_HOUR, "kWh"),
    (JOULES_PER_WATT_HOUR, "Wh"),
    (1e-3 * JOULES_PER_WATT_HOUR, "mWh"),
)
JOULE_UNITS: tuple[_Unit, ...] = ((1e3, "kJ"), (1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"))
MASS_UNITS: tuple[_Unit, ...] = ((1.0, "kg"), (1e-3, "g"), (1e-6, "mg"))
_SIZE_UNITS = ((BYTES_PER_GIBIBYTE, "GiB"), (BYTES_PER_MEBIBYTE, "MiB"), (1024, "KiB"))


def energy(energy_j: float | None) -> str:
    """Format an energy in kWh, Wh or mWh.

    >>> energy(44_280.0)
    '12.3 Wh'
    >>> energy(None)
    'not known'
    """
    return scaled(energy_j, ENERGY_UNITS)


def with_error(value: float, error: float) -> tuple[str, str]:
    """Format a value and its error with the same number of decimals.

    An error below 10 has two significant digits (at most six decimals); a larger error has no
    decimals. If the error is not positive, the value has three significant digits.

    >>> with_error(12.345, 0.456)
    ('12.35', '0.46')
    >>> with_error(12345.6, 456.0)
    ('12346', '456')
    """
    if error <= 0.0:
        return significant(value), "0"
    decimals = min(max(1 - math.floor(math.log10(error)), 0), 6)
    return f"{value:.{decimals}f}", f"{error:.{decimals}f}"


def significant(value: float, digits: int = 3) -> str:
    """Format a number with ``digits`` significant digits.

    All digits before the decimal point are kept. There are at most nine decimals and no exponent.

    >>> significant(0.041234), significant(12.345), significant(123456.0)
    ('0.0412', '12.3', '123456')
    """
    if value == 0.0:
        return "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(decimals, 0), 9)}f}"


def joules(energy_j: float) -> str:
    """Format the energy of a unit of work, such as a step, in kJ, J, mJ or µJ.

    >>> joules(0.041234), joules(1500.0)
    ('41.2 mJ', '1.50 kJ')
    """
    return scaled(energy_j, JOULE_UNITS)


def mass(mass_kg: float) -> str:
    """Format a mass, such as that of CO2 equivalents, in kg, g or mg.

    >>> mass(0.0045)
    '4.50 g'
    """
    return scaled(mass_kg, MASS_UNITS)


def size(size_bytes: float | None) -> str:
    """Format a size in GiB, MiB or KiB.

    >>> size(2**31)
    '2.00 GiB'
    """
    return scaled(size_bytes, _SIZE_UNITS)


def power(power_w: float | None) -> str:
    """Format a power in watts."""
    return UNKNOWN if power_w is None else f"{significant(power_w)} W"


def celsius(temperature_c: float) -> str:
    """Format a temperature in degrees Celsius."""
    return f"{temperature_c:.0f} °C"


def rate(per_s: float | None, unit: str) -> str:
    """Format a rate per second, such as samples per second."""
    return UNKNOWN if per_s is None else f"{grouped(per_s)} {unit}/s"


def grouped(value: float) -> str:
    """Format a number with spaces between thousands; numbers of at least 100 have no decimals.

    >>> grouped(1234567.0), grouped(12.34)
    ('1 234 567', '12.3')
    """
    if abs(value) < 100.0 and value != int(value):
        return significant(value)
    return f"{value:,.0f}".replace(",", " ")


def percent(share: float | None) -> str:
    """Format a fraction from 0 to 1 in per cent; only exactly 0 and 1 become 0 % and 100 %.

    >>> percent(0.0412), percent(0.9996), percent(1.0)
    ('4.1 %', '99.96 %', '100 %')
    >>> percent(0.0001)
    '< 0.1 %'
    """
    if share is None:
        return UNKNOWN
    if share in (0.0, 1.0):
        return f"{100.0 * share:.0f} %"
    if share < 0.0005:
        return "< 0.1 %"
    if share > 0.999:
        return f"{min(100.0 * share, 99.99):.2f} %"
    return f"{100.0 * share:.1f} %"


def duration(duration_s: float | None) -> str:
    """Format a duration in seconds, minutes, hours or days.

    >>> duration(8.25), duration(75.0), duration(3723.0), duration(100_000.0)
    ('8.2 s', '1 min 15 s', '1 h 02 min', '1 d 03 h')
    """
    if duration_s is None:
        return UNKNOWN
    if duration_s < 59.95:
        return f"{duration_s:.1f} s" if duration_s >= 1.0 else f"{significant(duration_s, 2)} s"
    minutes, seconds = divmod(round(duration_s), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes:02d} min"
    return f"{hours // 24} d {hours % 24:02d} h"


def listed(numbers: Sequence[int]) -> str:
    """Format whole numbers, given in ascending order, with ranges for consecutive numbers.

    >>> listed([1, 2, 3, 5])
    '1-3, 5'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def one_line(text: str) -> str:
    """Replace line ends, control characters and text direction marks by spaces.

    Such characters can be in names from users and drivers, and terminals interpret them.
    """
    return re.sub(r"\s", " ", "".join(" " if _is_control(c) else c for c in text))


def clipped(text: str, length: int) -> str:
    """Return a text on one line, cut to at most ``length`` characters."""
    line = one_line(text)
    return line if len(line) <= length else f"{line[: length - 1]}…"


def or_dash(value: float | None, say: Callable[[float], str]) -> str:
    """Return ``say(value)``; ``-`` if the value is not known."""
    return "-" if value is None else say(value)


def _is_control(character: str) -> bool:
    """Return whether a character is in Unicode category C and is no zero-width (non-)joiner.

    The category contains control and format characters. Some languages need the joiners.
    """
    return unicodedata.category(character)[0] == "C" and character not in "\u200c\u200d"


def scaled(value: float | None, units: Sequence[_Unit], digits: int = 3) -> str:
    """Format a value in the unit that ``in_unit`` selects; return ``UNKNOWN`` for ``None``."""
    if value is None:
        return UNKNOWN
    factor, unit = in_unit(value, units)
    return f"{significant(value / factor, digits)} {unit}"


def in_unit(value: float, units: Sequence[_Unit]) -> _Unit:
    """Return the largest suitable unit for a value, as its factor and name.

    A unit is suitable if the value is at least 0.1 in this unit, such as 0.1 Wh. The first unit is
    suitable only if the value is at least 1 in this unit. If no unit is suitable, the last unit is
    returned, or the second unit for the value 0.

    Args:
        value: value in the unit whose factor is 1.
        units: factor and name of at least two units, largest first.
    """
    for factor, unit in units[:-1]:
        if abs(value) >= (factor if factor == units[0][0] else 0.1 * factor):
            return factor, unit
    return units[1] if value == 0.0 else units[-1]


def short_time(time_s: float) -> str:
    """Format a time below 1 ms in us, a time below 1 s in ms, others as ``duration`` does.

    >>> short_time(0.0000421), short_time(0.0123)
    ('42.1 us', '12.3 ms')
    """
    if time_s < 1e-3:
        return f"{significant(time_s * 1e6)} us"
    return f"{significant(time_s * 1e3)} ms" if time_s < 1.0 else duration(time_s)
