"""Converts units. Inside the package, the units are W, J, s, byte, Hz, kg and degree Celsius."""

JOULES_PER_WATT_HOUR = 3600.0
BYTES_PER_GIBIBYTE = 2**30
BYTES_PER_MEBIBYTE = 2**20


def watts_from_milliwatts(power_mw: float) -> float:
    """Convert milliwatts to watts.

    >>> watts_from_milliwatts(250_000)
    250.0
    """
    return power_mw / 1e3


def milliwatts(power_w: float) -> float:
    """Convert watts to milliwatts.

    >>> milliwatts(250.5)
    250500.0
    """
    return power_w * 1e3


def joules_from_millijoules(energy_mj: float) -> float:
    """Convert millijoules to joules.

    >>> joules_from_millijoules(1500)
    1.5
    """
    return energy_mj / 1e3


def joules_from_microjoules(energy_uj: float) -> float:
    """Convert microjoules to joules.

    >>> joules_from_microjoules(2_500_000)
    2.5
    """
    return energy_uj / 1e6


def seconds_from_milliseconds(duration_ms: float) -> float:
    """Convert milliseconds to seconds.

    >>> seconds_from_milliseconds(20)
    0.02
    """
    return duration_ms / 1e3


def seconds_from_microseconds(duration_us: float) -> float:
    """Convert microseconds to seconds.

    >>> seconds_from_microseconds(20_000)
    0.02
    """
    return duration_us / 1e6


def seconds_from_nanoseconds(duration_ns: float) -> float:
    """Convert nanoseconds to seconds.

    >>> seconds_from_nanoseconds(5e8)
    0.5
    """
    return duration_ns / 1e9


def microseconds(duration_s: float) -> float:
    """Convert seconds to microseconds.

    >>> microseconds(0.02)
    20000.0
    """
    return duration_s * 1e6


def microjoules(energy_j: float) -> float:
    """Convert joules to microjoules.

    >>> microjoules(0.5)
    500000.0
    """
    return energy_j * 1e6


def hours(duration_s: float) -> float:
    """Convert seconds to hours.

    >>> hours(5400)
    1.5
    """
    return duration_s / 3600.0


def hertz_from_megahertz(frequency_mhz: float) -> float:
    """Convert megahertz to hertz.

    >>> hertz_from_megahertz(1980)
    1980000000.0
    """
    return frequency_mhz * 1e6


def megahertz(frequency_hz: float) -> float:
    """Convert hertz to megahertz.

    >>> megahertz(1.98e9)
    1980.0
    """
    return frequency_hz / 1e6


def watt_hours(energy_j: float) -> float:
    """Convert joules to watt-hours.

    >>> watt_hours(7200)
    2.0
    """
    return energy_j / JOULES_PER_WATT_HOUR


def kilowatt_hours(energy_j: float) -> float:
    """Convert joules to kilowatt-hours.

    >>> kilowatt_hours(3_600_000)
    1.0
    """
    return energy_j / (JOULES_PER_WATT_HOUR * 1e3)


def joules_from_kilowatt_hours(energy_kwh: float) -> float:
    """Convert kilowatt-hours to joules.

    >>> joules_from_kilowatt_hours(1.0)
    3600000.0
    """
    return energy_kwh * JOULES_PER_WATT_HOUR * 1e3


def grams(mass_kg: float) -> float:
    """Convert kilograms to grams.

    >>> grams(0.25)
    250.0
    """
    return mass_kg * 1e3


def kilograms_from_grams(mass_g: float) -> float:
    """Convert grams to kilograms.

    >>> kilograms_from_grams(250)
    0.25
    """
    return mass_g / 1e3


def gibibytes(size_bytes: float) -> float:
    """Convert bytes to GiB (2**30 bytes; not GB).

    >>> gibibytes(2**31)
    2.0
    """
    return size_bytes / BYTES_PER_GIBIBYTE


def mebibytes(size_bytes: float) -> float:
    """Convert bytes to MiB.

    >>> mebibytes(2**20)
    1.0
    """
    return size_bytes / BYTES_PER_MEBIBYTE


def bytes_from_mebibytes(size_mib: float) -> float:
    """Convert MiB (2**20 bytes; not MB) to bytes.

    >>> bytes_from_mebibytes(1)
    1048576.0
    """
    return float(size_mib * BYTES_PER_MEBIBYTE)
