"""Common part of the callbacks of all frameworks: settings, report, errors for wrong imports."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from energy_callbacks.accounting.profilers import OneOrMoreProfilers
from energy_callbacks.core.config import ConfigSettings, check_names
from energy_callbacks.meter import EnergyMeter

if TYPE_CHECKING:
    from energy_callbacks.report.model.schema import EnergyReport

_MODULES = "energy_callbacks.lightning, energy_callbacks.keras or energy_callbacks.huggingface"


class CallbackSettings(ConfigSettings, total=False):
    """Keyword arguments of every ``GpuEnergyCallback``: the settings of ``EnergyConfig`` and these.

    Attributes:
        profilers: profilers: objects such as ``KernelProfiler()``, or the names ``"kernels"``,
            ``"lines"``, ``"phases"`` and ``"host"``; one, or a list.
        meter: a meter with its own settings; no other of these settings may be combined with it.
            The callback starts it, and ends it when the training ends. A meter that is running when
            the training begins goes on after it, until the user ends it.
    """

    profilers: OneOrMoreProfilers
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
    check_names("GpuEnergyCallback", settings, (*own, *SETTINGS))
    others: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    meter: EnergyMeter | None = others.pop("meter", None)
    if not others.get("profilers", True):
        del others["profilers"]
    if meter is None:
        return EnergyMeter(**others)
    if not isinstance(meter, EnergyMeter):
        raise TypeError(
            f"meter must be EnergyMeter(...), got {meter!r}; leave it out for a new one"
        )
    if others:
        raise ValueError(
            f"meter= has its own settings, but {', '.join(others)} was also given; pass all "
            "settings to EnergyMeter(...)"
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
        # With ``obj``, the interpreter would propose a similar hook of the wrong framework.
        raise AttributeError(
            f"the GpuEnergyCallback of {self.framework_name} has no {name!r}; its methods are "
            "report and wait_for_report, and another framework needs the class of the same name "
            f"from {_MODULES}",
            name=name,
        )

    def report(self) -> "EnergyReport":
        """Return the report of the run so far; see ``EnergyMeter.report``."""
        return self._meter.report()

    def wait_for_report(self, timeout_s: float = 60.0) -> Path | None:
        """Wait until the files of the report are complete; see ``EnergyMeter.wait_for_report``."""
        return self._meter.wait_for_report(timeout_s)
