"""The settings that all adapters share, checked at construction."""

import difflib
import math
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar

Function = TypeVar("Function")
Devices = Literal["auto", "all"] | Sequence[int | str]

# Environment variables: they disable all measurements, leave out command lines, and set the run
# folder.
DISABLED_VARIABLE = "ENERGY_CALLBACKS_DISABLED"
NO_COMMAND_VARIABLE = "ENERGY_CALLBACKS_NO_COMMAND"
RUN_DIR_VARIABLE = "ENERGY_CALLBACKS_RUN_DIR"

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

    Args:
        report_dir: run folder; ``None`` lets the adapter choose one next to the training's logs.
            The environment variable ``ENERGY_CALLBACKS_RUN_DIR`` takes precedence.
        country: ISO 3166 code or English name of the country whose grid supplies the machine;
            ``None`` uses CodeCarbon's configuration. Without a location, emissions are a range.
        region: state or province, if ``country`` is the USA or Canada; ``None`` uses the carbon
            intensity of the whole country.
        pue: power usage effectiveness of the building, 1 to 10; multiplies emissions and cost.
        price_per_kwh: price of electricity in any currency; ``None`` leaves out the cost.
        devices: ``"auto"`` (the GPUs that this run uses), ``"all"``, or a list of NVML indices and
            UUIDs.
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
        record_command: whether the command line of the process, without secrets, is written to the
            journal. The environment variable ``ENERGY_CALLBACKS_NO_COMMAND=1`` takes precedence.
        run_name: display name of the run.
        tags: labels that appear in the report: value by name.
        tag_prefix: text before the names of all figures that are logged with the loss, such as
            ``"train/"``. It is not added to the figures in the report.

    Raises:
        ValueError: for an invalid value, or if ``devices`` is not ``"auto"``, ``"all"`` or a
            sequence.
        TypeError: for any other value of the wrong type.
    """

    report_dir: str | Path | None = None
    country: str | None = None
    region: str | None = None
    pue: float = 1.0
    price_per_kwh: float | None = None
    devices: Devices = "auto"
    sample_interval_s: float = 0.8
    raw_readings: bool = False
    step_events: bool = False
    max_energy_wh: float | None = None
    max_emissions_g: float | None = None
    record_command: bool = True
    run_name: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    tag_prefix: str = ""

    def __post_init__(self) -> None:
        _check_type("report_dir", self.report_dir, str | os.PathLike | None, "a path")
        for name in ("country", "region", "run_name"):
            _check_type(name, getattr(self, name), str | None, "a word")
        _check_type("raw_readings", self.raw_readings, bool, "True or False")
        _check_type("tags", self.tags, Mapping, "a dict of labels, such as {'team': 'vision'}")
        _check_type("tag_prefix", self.tag_prefix, str, "a text, such as 'train/'")
        _check_type("step_events", self.step_events, bool, "True or False")
        _check_type("record_command", self.record_command, bool, "True or False")
        _check_number("sample_interval_s", self.sample_interval_s, low=0.05, high=1.0)
        _check_number("pue", self.pue, low=1.0, high=10.0)
        if self.price_per_kwh is not None:
            _check_number("price_per_kwh", self.price_per_kwh, low=0.0, high=math.inf)
        check_positive("max_energy_wh", self.max_energy_wh)
        check_positive("max_emissions_g", self.max_emissions_g)
        if self.region is not None and self.country is None:
            raise ValueError(
                f"region={self.region!r} needs a country; add country='USA' or country='CAN'"
            )
        _check_devices(self.devices)

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
    """The fields of ``EnergyConfig`` as keyword arguments; ``None`` is the default."""

    report_dir: str | Path | None
    country: str | None
    region: str | None
    pue: float
    price_per_kwh: float | None
    devices: Devices
    sample_interval_s: float
    raw_readings: bool
    step_events: bool
    max_energy_wh: float | None
    max_emissions_g: float | None
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


def _check_type(name: str, value: object, kind: Any, words: str) -> None:
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


def _check_devices(devices: Devices) -> None:
    if isinstance(devices, str) and devices in ("auto", "all"):
        return
    if isinstance(devices, str | bytes) or not isinstance(devices, Sequence):
        is_index = isinstance(devices, int) and not isinstance(devices, bool)
        raise ValueError(
            "devices must be 'auto', 'all' or a list of NVML indices and UUIDs, got "
            f"{devices!r}; write devices=[{devices if is_index else 0!r}] for one card"
        )
    if not devices:
        raise ValueError("devices=[] names no card; leave it out to measure the GPUs in use")
    for device in devices:
        _check_device(device)


def _check_device(device: int | str) -> None:
    if isinstance(device, bool) or not isinstance(device, int | str):
        raise TypeError(
            f"a device is an NVML index or a UUID, got {device!r}; 'nvidia-smi -L' lists both"
        )
    if isinstance(device, int) and device < 0:
        raise ValueError(
            f"a device index must not be negative, got {device}; 'nvidia-smi -L' lists them"
        )
