"""Common part of the callbacks of all frameworks: settings, report, errors for wrong imports."""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypedDict

from energy_callbacks.accounting.profilers import Profiler
from energy_callbacks.core.config import Devices, EnergyConfig
from energy_callbacks.meter import EnergyMeter

if TYPE_CHECKING:
    from energy_callbacks.report.model.schema import EnergyReport

_DOORS = "energy_callbacks.lightning, energy_callbacks.keras or energy_callbacks.huggingface"


class CallbackSettings(TypedDict, total=False):
    """Keyword arguments of every ``GpuEnergyCallback``.

    ``EnergyConfig`` has their defaults, except for ``profile`` and ``meter``. Settings that are not
    passed come from the environment or a settings file, see ``EnergyConfig``.

    Attributes:
        report_dir: folder of journals and report; by default next to the logs of the training.
        country: ISO 3166 code or name of the country whose grid supplies the machine.
        region: state or province, for ``USA`` and ``CAN``.
        carbon_intensity: gCO2e per kWh of electricity, or path of a CSV file with intensities over
            time.
        pue: power usage effectiveness of the building; multiplies emissions and cost.
        price_per_kwh: price of electricity per kWh.
        currency: code of the currency of the price, such as ``EUR``.
        devices: ``"auto"`` for the GPUs this training uses, ``"all"``, or NVML indices and UUIDs.
        sample_interval_s: interval between updates of the measured values, s.
        step_events: measure the end of each step with CUDA events (PyTorch only).
        max_energy_wh: stop training gracefully when GPUs and host have used this energy, Wh.
        max_emissions_g: stop training gracefully when the emissions reach this mass, gCO2e.
        record_command: write the command line, without secrets, to journal and report.
        run_name: name shown in the report.
        tags: labels for the report.
        profile: profilers, such as ``KernelProfiler()``.
        meter: a meter with its own settings; the settings above cannot be combined with it.
    """

    report_dir: str | Path | None
    country: str | None
    region: str | None
    carbon_intensity: float | str | Path | None
    pue: float
    price_per_kwh: float | None
    currency: str | None
    devices: Devices
    sample_interval_s: float
    step_events: bool
    max_energy_wh: float | None
    max_emissions_g: float | None
    record_command: bool
    run_name: str | None
    tags: Mapping[str, str] | None
    profile: Sequence[Profiler]
    meter: EnergyMeter | None


SETTINGS: Final = tuple(CallbackSettings.__annotations__)


def meter_from(settings: CallbackSettings, own: Sequence[str]) -> EnergyMeter:
    """Return the setting ``meter`` of a callback, or a new meter with the other settings.

    Args:
        settings: keyword arguments that the user has passed.
        own: names of settings that only this framework's callback has, for error messages.

    Raises:
        TypeError: if a setting is unknown or has the wrong type.
        ValueError: if a value is wrong, or ``meter`` is combined with other settings.
    """
    known = (*own, *SETTINGS)
    for name in settings:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
            raise TypeError(f"GpuEnergyCallback has no setting {name!r}; {hint}")
    values: dict[str, Any] = {**settings}
    meter: EnergyMeter | None = values.pop("meter", None)
    profile = values.pop("profile", ())
    if values.get("tags") is None:
        values.pop("tags", None)
    config = EnergyConfig(**values)
    if meter is None:
        return EnergyMeter(config=config, profilers=profile)
    if config != EnergyConfig():
        raise ValueError(
            f"meter= brings its own settings, but others were given too: {config}; "
            "pass them to EnergyMeter(config=EnergyConfig(...))"
        )
    if profile:
        raise ValueError(
            f"meter= brings its own profilers, but others were given too: {profile}; "
            "pass them to EnergyMeter(profilers=[...])"
        )
    return meter


class EnergyCallback:
    """The part of every ``GpuEnergyCallback`` that does not depend on a framework.

    Attributes:
        framework_name: name of the framework, for messages.
    """

    framework_name: ClassVar[str]
    _meter: EnergyMeter

    def __getattr__(self, name: str) -> object:
        """Raise an error that names the modules from which users import the callbacks.

        Usually the callback was passed to a different framework, which calls one of its own hooks.

        Raises:
            AttributeError: always.
        """
        if hasattr(type(self), name):  # a property raised AttributeError: raise it again
            return object.__getattribute__(self, name)
        raise AttributeError(
            f"the GpuEnergyCallback of {self.framework_name} has no {name!r}; "
            f"in another framework import it from its own door: {_DOORS}"
        )

    @property
    def report(self) -> "EnergyReport":
        """The energy report so far; may be read at any time after the meter has started."""
        return self._meter.report()

    def wait_for_report(self, timeout_s: float = 60.0) -> Path | None:
        """Wait until the files of the report are complete; see ``EnergyMeter.wait_for_report``."""
        return self._meter.wait_for_report(timeout_s)
