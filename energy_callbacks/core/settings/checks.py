"""Checks the values of settings; ``_CHECKS`` has the check of each setting."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, get_args

Function = TypeVar("Function")
Devices = Literal["auto", "all"] | Sequence[int | str]
MachinePower = Literal["auto", "acpi", "ipmi"]

# Largest carbon intensity that is accepted, in gCO2e/kWh. Electricity from oil shale, among the
# highest, has about 1100 (Estonia, IEA 2019); small Diesel generators have up to about 1500.
MOST_G_PER_KWH: Final = 3000.0


def check_log_every_n_steps(value: int | None) -> int | None:
    """Return ``value`` if it is ``None`` or a whole number of at least 1.

    Raises:
        ValueError: for any other value.
    """
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ValueError(
            f"log_every_n_steps must be a whole number of at least 1, got {value!r}; "
            "leave it out to follow the trainer's own setting"
        )
    return value


def check_positive(name: str, value: float | None) -> float | None:
    """Return ``value`` if it is ``None`` or a finite number above 0.

    Args:
        name: name of the setting, for the message.
        value: value of the setting.

    Raises:
        TypeError: if the value is not a number.
        ValueError: if the number is not positive or not finite.
    """
    if value is None:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}; leave it out for none")
    if not 0.0 < value < math.inf:
        raise ValueError(f"{name} must be positive, got {value!r}; leave it out for none")
    return value


def check_count(name: str, value: object, least: int, advice: str) -> None:
    """Check that a value is a whole number of at least ``least``; ``advice`` ends the message.

    Raises:
        ValueError: for any other value.
    """
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ValueError(
            f"{name} must be a whole number of at least {least}, got {value!r}; {advice}"
        )


def check_function(name: str, value: Function | None) -> Function | None:
    """Return ``value`` if it is ``None`` or callable.

    Args:
        name: name of the setting, for the message.
        value: value of the setting.

    Raises:
        TypeError: for any other value.
    """
    if value is not None and not callable(value):
        raise TypeError(f"{name} must be a function of a batch, got {value!r}; leave it out")
    return value


def check_methods(what: str, value: object, methods: Sequence[str], advice: str) -> None:
    """Check that a value of the user is an object with certain methods.

    Args:
        what: noun for the message, such as ``a clock``.
        value: the value.
        methods: names of at least two methods.
        advice: what to do instead.

    Raises:
        TypeError: if a method is missing, or if the value is a class.
    """
    if isinstance(value, type) or not all(callable(getattr(value, name, None)) for name in methods):
        names = f"{', '.join(methods[:-1])} and {methods[-1]}"
        raise TypeError(f"{what} has the methods {names}, got {value!r}; {advice}")


def check_value(name: str, value: object) -> None:
    """Check the value of one setting of ``EnergyConfig``.

    Raises:
        ValueError: for an invalid value.
        TypeError: for a value of the wrong type.
    """
    _CHECKS[name](name, value)


def check_settings(**values: Any) -> None:
    """Check the values of settings; environment and files are not read.

    Raises:
        ValueError: for an invalid value.
        TypeError: for a value of the wrong type.
    """
    for name, value in values.items():
        check_value(name, value)
    check_region(values.get("region"), values.get("country"))


def check_currency(currency: str | None, price_per_kwh: float | None) -> None:
    """Check the currency of a price.

    Raises:
        ValueError: if it is not a code of three capital letters, or if there is no price.
        TypeError: if it is not a text.
    """
    _check_currency("currency", currency)
    if currency is not None and price_per_kwh is None:
        raise ValueError(f"currency={currency!r} needs a price of electricity; set price_per_kwh")


def check_region(region: str | None, country: str | None) -> None:
    """Check that there is a country if there is a region.

    Raises:
        ValueError: if there is none.
    """
    if region is not None and country is None:
        raise ValueError(f"region={region!r} needs a country; add country='USA' or country='CAN'")


def check_type(name: str, value: object, kind: Any, words: str) -> None:
    """Check the type of a setting; ``words`` describe the type.

    Raises:
        TypeError: if the value has another type.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {words}, got {value!r}; leave {name} out for the default")


def _check_number(name: str, value: float, *, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}; pass a plain int or float")
    if not low <= value <= high or math.isinf(value):
        raise ValueError(
            f"{name} must lie between {low:g} and {high:g}, got {value!r}; "
            f"leave {name} out for the default"
        )


def _check_price(name: str, value: float | None) -> None:
    if value is not None:
        _check_number(name, value, low=0.0, high=math.inf)


def _check_devices(name: str, devices: Devices) -> None:
    if isinstance(devices, str) and devices in ("auto", "all"):
        return
    if isinstance(devices, str | bytes) or not isinstance(devices, Sequence):
        is_index = isinstance(devices, int) and not isinstance(devices, bool)
        raise ValueError(
            f"{name} must be 'auto', 'all' or a list of indices, UUIDs and PCI addresses, got "
            f"{devices!r}; write {name}=[{devices if is_index else 0!r}] for one card"
        )
    if not devices:
        raise ValueError(f"{name}=[] contains no GPU; leave it out to measure the GPUs in use")
    for device in devices:
        _check_device(device)


def _check_device(device: int | str) -> None:
    if isinstance(device, bool) or not isinstance(device, int | str):
        raise TypeError(
            f"a device is the index, the UUID or the PCI address of a GPU, got {device!r}; "
            "'energy-callbacks doctor' lists indices"
        )
    if isinstance(device, int) and device < 0:
        raise ValueError(
            f"a device index must not be negative, got {device}; "
            "'energy-callbacks doctor' lists them"
        )


def _check_machine_power(name: str, value: str) -> None:
    if value not in get_args(MachinePower):
        raise ValueError(
            f"{name} must be 'auto', 'acpi' or 'ipmi', got {value!r}; leave it out for "
            "sensors that every run reads"
        )


def _check_carbon_intensity(name: str, value: float | str | Path | None) -> None:
    if value is None or isinstance(value, str | os.PathLike):
        return
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(
            f"{name} must be a number in gCO2e/kWh or the path of a CSV file, got {value!r}; "
            f"leave {name} out for the annual average of the location"
        )
    _check_number(name, value, low=0.0, high=MOST_G_PER_KWH)
    if 0.0 < value < 1.0:
        raise ValueError(
            f"{name} is in gCO2e per kWh, got {value!r}; if this is in kg, pass {value * 1e3:g}"
        )


def _check_currency(name: str, value: str | None) -> None:
    check_type(name, value, str | None, "a code of three letters, such as 'EUR'")
    if value is not None and not re.fullmatch("[A-Z]{3}", value):
        raise ValueError(
            f"{name} must be a code of three capital letters (ISO 4217), got {value!r}; "
            "write 'EUR' or 'USD', for example"
        )


def _check_power_limit(name: str, value: object) -> None:
    if value is None or isinstance(value, Mapping):
        return
    if isinstance(value, type) or not callable(getattr(value, "begin", None)):
        raise TypeError(
            f"{name} must be PowerLimitOptimizer(...) of energy_callbacks.powercap, "
            f"got {value!r}; leave {name} out for no search"
        )


_WORD: Final = partial(check_type, kind=str | None, words="a word")
_BOOLEAN: Final = partial(check_type, kind=bool, words="True or False")
# The check of each setting, which receives its name and value.
_CHECKS: Final[Mapping[str, Callable[[str, Any], object]]] = {
    "report_dir": partial(check_type, kind=str | os.PathLike | None, words="a path"),
    "country": _WORD,
    "region": _WORD,
    "carbon_intensity": _check_carbon_intensity,
    "pue": partial(_check_number, low=1.0, high=10.0),
    "price_per_kwh": _check_price,
    "currency": _check_currency,
    "devices": _check_devices,
    "machine_power": _check_machine_power,
    "sample_interval_s": partial(_check_number, low=0.05, high=1.0),
    "raw_readings": _BOOLEAN,
    "step_events": _BOOLEAN,
    "phase_events": _BOOLEAN,
    "max_energy_wh": check_positive,
    "max_emissions_g": check_positive,
    "power_limit": _check_power_limit,
    "record_command": _BOOLEAN,
    "run_name": _WORD,
    "tags": partial(check_type, kind=Mapping, words="a dict of labels, such as {'team': 'vision'}"),
    "tag_prefix": partial(check_type, kind=str, words="a string, such as 'train/'"),
}
