"""The settings that all adapters share, checked at construction."""

import difflib
import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar, get_args

from energy_callbacks.core.settings import layers, texts
from energy_callbacks.core.settings.layers import Setting

Function = TypeVar("Function")
Devices = Literal["auto", "all"] | Sequence[int | str]
MachinePower = Literal["auto", "acpi", "ipmi"]

# Environment variables: they disable all measurements, leave out command lines, and set the run
# folder.
DISABLED_VARIABLE = "ENERGY_CALLBACKS_DISABLED"
NO_COMMAND_VARIABLE = "ENERGY_CALLBACKS_NO_COMMAND"
RUN_DIR_VARIABLE = "ENERGY_CALLBACKS_RUN_DIR"

# Largest carbon intensity that is accepted, in gCO2e/kWh. Electricity from oil shale, among the
# highest, has about 1100 (Estonia, IEA 2019); small Diesel generators have up to about 1500.
MOST_G_PER_KWH: Final = 3000.0
_UNSET: Final = object()
_SETTING: Final = "setting"


def _setting(default: Any, parse: Callable[[str], Any] = str, *, is_path: bool = False) -> Any:
    """Return a field whose value is found by ``layers.resolve`` if it is not an argument."""
    metadata = {_SETTING: Setting(default, parse, is_path)}
    return field(default=None if default is None else _UNSET, metadata=metadata)


# Other names of settings, in versions before the first release or in other frameworks. The message
# about an unknown name proposes the first one of these that exists.
_OTHER_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "length_fn": ("tokens_fn", "tokens_per_sample"),
    "profile": ("profilers",),
    "tokens_fn": ("tokens_per_sample",),
    "tokens_per_sample": ("tokens_fn",),
    "batch_size_fn": ("batch_size",),
    "batch_size": ("batch_size_fn",),
    "log_every_n_steps": ("update_freq",),
    "update_freq": ("log_every_n_steps",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyConfig:
    """Settings of the measurement, of its outputs, and of location and price of the electricity.

    A setting that is not an argument is taken from the environment variable
    ``ENERGY_CALLBACKS_NAME``, then from ``energy_callbacks.toml`` or the table
    ``[tool.energy_callbacks]`` of ``pyproject.toml`` in the working directory or a folder above it.
    ``None`` counts as no argument. If a source sets ``country``, ``region`` or
    ``carbon_intensity``, the others are not taken from later sources.

    Args:
        report_dir: run folder; ``None`` lets the adapter choose one next to the training's logs.
            The environment variable ``ENERGY_CALLBACKS_RUN_DIR`` takes precedence.
        country: ISO 3166 code or English name of the country whose grid supplies the machine;
            ``None`` uses CodeCarbon's configuration. Without a location, emissions are a range.
        region: state or province, if ``country`` is the USA or Canada; ``None`` uses the carbon
            intensity of the whole country.
        carbon_intensity: carbon intensity of the electricity in gCO2e/kWh, or path of a CSV file
            with times and intensities, for example hourly; ``None`` uses the annual average of the
            location. Times that the file does not cover have the annual average, with a warning.
        pue: power usage effectiveness of the building, 1 to 10; multiplies emissions and cost.
        price_per_kwh: price of electricity; ``None`` leaves out the cost.
        currency: ISO 4217 code of the currency of the price, such as ``EUR``; ``None`` shows the
            cost without a currency.
        devices: ``"auto"`` (the GPUs that this run uses), ``"all"``, or a list of indices,
            UUIDs and PCI addresses.
        machine_power: sensor of the whole machine, whose energy is then the total: ``"auto"`` (one
            that the system offers, if there is one), ``"acpi"`` (the ACPI power meter of a server)
            or ``"ipmi"`` (the power reading of the server's board management controller, by the
            program ``ipmitool``).
        sample_interval_s: interval in s at which figures are computed and written to the journal,
            0.05 to 1. With an interval other than the default (0.8 s), figures are also computed
            and written every 0.8 s, because many sensors are read every 0.8 s.
        raw_readings: whether to write every reading to disk, next to the journal: about 120 MB per
            day and GPU.
        step_events: whether the end of a step is measured with CUDA events, when the GPU has
            finished the step. If ``False``, a step ends when Python has queued the work of the
            step. Events need PyTorch and an NVIDIA GPU, and cost about 10 us per step.
        max_energy_wh: energy of GPUs and host over all attempts of the run, in Wh, at which the
            training is asked to stop; ``None`` for no limit.
        max_emissions_g: emissions in gCO2e at which the training is asked to stop; ``None`` for no
            limit. Without a location, the upper end of the range is compared with the limit.
        power_limit: ``PowerLimitOptimizer(...)`` of ``energy_callbacks.powercap``, which finds the
            best power limit of the GPUs during the training, or a mapping with its arguments;
            ``None`` for no search. Nothing is changed without ``allow_changes=True``.
        record_command: whether the command line of the process, without secrets, is written to the
            journal. The environment variable ``ENERGY_CALLBACKS_NO_COMMAND=1`` takes precedence.
        run_name: display name of the run.
        tags: labels that appear in the report: value by name.
        tag_prefix: text before the names of all figures that are logged with the loss, such as
            ``"train/"``. It is not added to the figures in the report.

    Attributes:
        origins: where each setting comes from: ``argument``, ``default``, an environment variable,
            or a file.

    Raises:
        ValueError: for an invalid value, or if ``devices`` is not ``"auto"``, ``"all"`` or a
            sequence; if the environment or the file has an unknown setting, or if the file cannot
            be read.
        TypeError: for any other argument of the wrong type.
    """

    report_dir: str | Path | None = _setting(None, is_path=True)
    country: str | None = _setting(None)
    region: str | None = _setting(None)
    carbon_intensity: float | str | Path | None = _setting(None, texts.number, is_path=True)
    pue: float = _setting(1.0, texts.number)
    price_per_kwh: float | None = _setting(None, texts.number)
    currency: str | None = _setting(None)
    devices: Devices = _setting("auto", texts.devices)
    machine_power: MachinePower = _setting("auto")
    sample_interval_s: float = _setting(0.8, texts.number)
    raw_readings: bool = _setting(False, texts.boolean)
    step_events: bool = _setting(False, texts.boolean)
    max_energy_wh: float | None = _setting(None, texts.number)
    max_emissions_g: float | None = _setting(None, texts.number)
    power_limit: Any = _setting(None, texts.options)
    record_command: bool = _setting(True, texts.boolean)
    run_name: str | None = _setting(None)
    tags: Mapping[str, str] = _setting({}, texts.tags)
    tag_prefix: str = _setting("")
    origins: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = ((one, getattr(self, one.name)) for one in fields(self) if one.init)
        given = {one.name: value for one, value in values if value is not one.default}
        found = layers.resolve(_settings(), given, only_arguments=is_disabled())
        for name, (value, origin) in found.items():
            object.__setattr__(self, name, value)
            _check(name, value, origin)
        object.__setattr__(self, "origins", {name: one.origin for name, one in found.items()})
        _check_region(self.region, self.country)

    def blame(self, error: ValueError, *names: str) -> ValueError:
        """Return ``error`` with a message that says where the first of these settings comes from.

        Args:
            error: an error about the values of the settings.
            names: names of settings. Arguments and defaults are not named.
        """
        own = (layers.ARGUMENT, layers.DEFAULT)
        origins = [self.origins[name] for name in names if self.origins[name] not in own]
        return ValueError(f"{origins[0]}: {error}") if origins else error

    @property
    def has_budget(self) -> bool:
        """Whether a limit of energy or emissions is set."""
        return self.max_energy_wh is not None or self.max_emissions_g is not None

    @property
    def writes_command(self) -> bool:
        """Whether the command line is written: ``record_command``, unless the variable forbids."""
        return self.record_command and not is_on(NO_COMMAND_VARIABLE)

    @property
    def run_folder(self) -> Path | None:
        """The run folder in ``ENERGY_CALLBACKS_RUN_DIR``, otherwise ``report_dir``."""
        chosen = os.environ.get(RUN_DIR_VARIABLE) or self.report_dir
        return Path(chosen) if chosen else None


class ConfigSettings(TypedDict, total=False):
    """The fields of ``EnergyConfig`` as keyword arguments; ``None`` is as if not passed."""

    report_dir: str | Path | None
    country: str | None
    region: str | None
    carbon_intensity: float | str | Path | None
    pue: float
    price_per_kwh: float | None
    currency: str | None
    devices: Devices
    machine_power: MachinePower
    sample_interval_s: float
    raw_readings: bool
    step_events: bool
    max_energy_wh: float | None
    max_emissions_g: float | None
    power_limit: Any
    record_command: bool
    run_name: str | None
    tags: Mapping[str, str] | None
    tag_prefix: str


def check_names(owner: str, names: Collection[str], known: Collection[str]) -> None:
    """Check the names of keyword arguments.

    Args:
        owner: name of the class that has the arguments, for the message.
        names: names that the user has passed.
        known: names that the class has.

    Raises:
        TypeError: if a name is unknown. The message contains a similar name, or all names.
    """
    for name in names:
        if name not in known:
            others = [one for one in _OTHER_NAMES.get(name, ()) if one in known]
            close = others or difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            raise TypeError(f"{owner} has no setting {name!r}; {hint}")


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


def is_disabled() -> bool:
    """Return whether the variable ``ENERGY_CALLBACKS_DISABLED`` disables all measurements."""
    return is_on(DISABLED_VARIABLE)


def is_on(variable: str) -> bool:
    """Return whether an environment variable has a value other than ``0``, ``false`` and ``no``.

    An empty value counts as no value.
    """
    return os.environ.get(variable, "").strip() != "" and not is_off(variable)


def is_off(variable: str) -> bool:
    """Return whether an environment variable has the value ``0``, ``false`` or ``no``."""
    return os.environ.get(variable, "").strip().lower() in ("0", "false", "no")


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


def check_settings(**values: Any) -> None:
    """Check the values of settings; environment and files are not read.

    Raises:
        ValueError: for an invalid value.
        TypeError: for a value of the wrong type.
    """
    for name, value in values.items():
        _CHECKS[name](value)
    _check_region(values.get("region"), values.get("country"))


def check_currency(currency: str | None, price_per_kwh: float | None) -> None:
    """Check the currency of a price.

    Raises:
        ValueError: if it is not a code of three capital letters, or if there is no price.
        TypeError: if it is not a text.
    """
    _check_currency(currency)
    if currency is not None and price_per_kwh is None:
        raise ValueError(f"currency={currency!r} needs a price of electricity; set price_per_kwh")


def settings_in_use(config: EnergyConfig) -> dict[str, layers.Found]:
    """Return the value that is used for each setting, and its origin.

    This includes the environment variables that have precedence over arguments.
    """
    origins = {**config.origins}
    if os.environ.get(RUN_DIR_VARIABLE):
        origins["report_dir"] = layers.name_of_variable(RUN_DIR_VARIABLE)
    if not config.writes_command and config.record_command:
        origins["record_command"] = layers.name_of_variable(NO_COMMAND_VARIABLE)
    used = {"report_dir": config.run_folder, "record_command": config.writes_command}
    return {
        name: layers.Found(used.get(name, getattr(config, name)), origin)
        for name, origin in origins.items()
    }


@cache
def _settings() -> dict[str, Setting]:
    return {one.name: one.metadata[_SETTING] for one in fields(EnergyConfig) if one.init}


def _check(name: str, value: object, origin: str) -> None:
    """Check a setting; the message of an error names the variable or file that it comes from."""
    try:
        _CHECKS[name](value)
    except (TypeError, ValueError) as error:
        if origin in (layers.ARGUMENT, layers.DEFAULT):
            raise
        raise ValueError(f"{origin}: {error}") from None


def check_type(name: str, value: object, kind: Any, words: str) -> None:
    """Check the type of a setting; ``words`` describe the type.

    Raises:
        TypeError: if the value has another type.
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {words}, got {value!r}; leave {name} out for the default")


def _check_optional_number(name: str, value: float | None, *, low: float, high: float) -> None:
    if value is not None:
        _check_number(name, value, low=low, high=high)


def _check_number(name: str, value: float, *, low: float, high: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number, got {value!r}; pass a plain int or float")
    if not low <= value <= high or math.isinf(value):
        raise ValueError(
            f"{name} must lie between {low:g} and {high:g}, got {value!r}; "
            f"leave {name} out for the default"
        )


def _check_devices(devices: Devices) -> None:
    if isinstance(devices, str) and devices in ("auto", "all"):
        return
    if isinstance(devices, str | bytes) or not isinstance(devices, Sequence):
        is_index = isinstance(devices, int) and not isinstance(devices, bool)
        raise ValueError(
            "devices must be 'auto', 'all' or a list of indices, UUIDs and PCI addresses, got "
            f"{devices!r}; write devices=[{devices if is_index else 0!r}] for one card"
        )
    if not devices:
        raise ValueError("devices=[] contains no GPU; leave it out to measure the GPUs in use")
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


def _check_machine_power(value: str) -> None:
    if value not in get_args(MachinePower):
        raise ValueError(
            f"machine_power must be 'auto', 'acpi' or 'ipmi', got {value!r}; leave it out for "
            "sensors that every run reads"
        )


def _check_carbon_intensity(value: float | str | Path | None) -> None:
    if value is None or isinstance(value, str | os.PathLike):
        return
    name = "carbon_intensity"
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


def _check_currency(value: str | None) -> None:
    check_type("currency", value, str | None, "a code of three letters, such as 'EUR'")
    if value is not None and not re.fullmatch("[A-Z]{3}", value):
        raise ValueError(
            f"currency must be a code of three capital letters (ISO 4217), got {value!r}; "
            "write 'EUR' or 'USD', for example"
        )


def _check_region(region: str | None, country: str | None) -> None:
    if region is not None and country is None:
        raise ValueError(f"region={region!r} needs a country; add country='USA' or country='CAN'")


def _check_power_limit(value: object) -> None:
    if value is None or isinstance(value, Mapping):
        return
    if isinstance(value, type) or not callable(getattr(value, "begin", None)):
        raise TypeError(
            f"power_limit must be PowerLimitOptimizer(...) of energy_callbacks.powercap, "
            f"got {value!r}; leave power_limit out for no search"
        )


def _typed(name: str, kind: Any, words: str) -> Callable[[Any], object]:
    return lambda value: check_type(name, value, kind, words)


# The check of each setting.
_CHECKS: Final[Mapping[str, Callable[[Any], object]]] = {
    "report_dir": _typed("report_dir", str | os.PathLike | None, "a path"),
    "carbon_intensity": _check_carbon_intensity,
    "currency": _check_currency,
    "devices": _check_devices,
    "machine_power": _check_machine_power,
    "power_limit": _check_power_limit,
    "tag_prefix": _typed("tag_prefix", str, "a string, such as 'train/'"),
    "tags": _typed("tags", Mapping, "a dict of labels, such as {'team': 'vision'}"),
    "pue": partial(_check_number, "pue", low=1.0, high=10.0),
    "price_per_kwh": partial(_check_optional_number, "price_per_kwh", low=0.0, high=math.inf),
    "sample_interval_s": partial(_check_number, "sample_interval_s", low=0.05, high=1.0),
    **{name: _typed(name, str | None, "a word") for name in ("country", "region", "run_name")},
    **{
        name: _typed(name, bool, "True or False")
        for name in ("raw_readings", "step_events", "record_command")
    },
    **{name: partial(check_positive, name) for name in ("max_energy_wh", "max_emissions_g")},
}
