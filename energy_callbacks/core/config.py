"""The settings that all adapters share, checked at construction."""

import difflib
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Final, TypedDict

from energy_callbacks.core.settings import checks, layers, texts
from energy_callbacks.core.settings.checks import Devices, MachinePower
from energy_callbacks.core.settings.layers import Setting

# Environment variables: they disable all measurements, leave out command lines, and set the run
# folder.
DISABLED_VARIABLE = "ENERGY_CALLBACKS_DISABLED"
NO_COMMAND_VARIABLE = "ENERGY_CALLBACKS_NO_COMMAND"
RUN_DIR_VARIABLE = "ENERGY_CALLBACKS_RUN_DIR"

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
        phase_events: whether CUDA events measure when the GPU enters a phase, which is later than
            the host. If ``False``, or without PyTorch and an NVIDIA GPU, the delay is estimated
            from the readings, and the energies of short phases are less certain.
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
    phase_events: bool = _setting(True, texts.boolean)
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
        checks.check_region(self.region, self.country)

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
    phase_events: bool
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
        checks.check_value(name, value)
    except (TypeError, ValueError) as error:
        if origin in (layers.ARGUMENT, layers.DEFAULT):
            raise
        raise ValueError(f"{origin}: {error}") from None
