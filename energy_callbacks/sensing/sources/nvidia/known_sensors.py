"""Known properties of the power sensors of each generation of NVIDIA cards, with citations.

Periods and windows are from Yang, Adamek and Armour, "Part-time Power Measurements" (SC'24, arXiv
2312.02741), table of generations, for drivers newer than 530. The authors found that the on-board
sensors are within 5 % of an external meter on most cards and within 10 % on nearly all cards. The
error differs between cards of one model (it is between -5.5 and +1.7 % for five RTX 3090), so it
cannot be corrected by a table. For H100 and H200 no comparison with an external meter has been
published. Energy counter and power samples of an H200 agree within 0.7 %, but may share an error.
"""

from dataclasses import dataclass, replace
from typing import Final

from energy_callbacks.core.records import Sensor

_STUDY: Final = "Yang et al., SC'24, arXiv 2312.02741"
_NVML: Final = "NVML API reference, nvmlDeviceGetPowerUsage"
# Bounds of the relative error of a sensor: for most cards, and for Kepler and Maxwell cards.
_TYPICAL_ERROR: Final = 0.05
_OLD_ERROR: Final = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class CardGeneration:
    """Properties of the sensors of one generation of cards.

    Attributes:
        name: name of the generation, such as ``Hopper``.
        usage: sensor of ``nvmlDeviceGetPowerUsage``.
        instant: sensor of the field ``POWER_INSTANT``; ``None`` if this field is not better than
            ``usage``.
        counter_period_s: time between two values of the energy counter, s.
    """

    name: str
    usage: Sensor
    instant: Sensor | None = None
    counter_period_s: float = 0.1


def _polled(
    period_s: float,
    window_s: float | None,
    *,
    name: str = "nvmlDeviceGetPowerUsage",
    error: float = _TYPICAL_ERROR,
    note: str = "",
) -> Sensor:
    """Return a sensor that is polled at times unrelated to its updates.

    The lag of the sensor is half the window plus half the period: a value belongs to the middle of
    its window, and is on average half a period old when it is read. This was checked with a
    recording of the study: the field POWER_INSTANT of an RTX 3090 (period and window 0.1 s, polled
    every 0.1 s) and an external meter. The error of the energy of 1 s (95th percentile) is 1.1 %
    with this lag of 0.1 s, and 2.3 % with a lag of half the window.
    """
    return Sensor(
        name=name,
        period_s=period_s,
        window_s=window_s,
        lag_s=((window_s or 0.0) + period_s) / 2.0,
        relative_error=error,
        citation=_STUDY + note,
    )


def _instant(window_s: float | None, note: str = "") -> Sensor:
    return _polled(0.1, window_s, name="nvmlDeviceGetFieldValues POWER_INSTANT", note=note)


def _old(name: str, period_s: float) -> CardGeneration:
    note = "; shows a change of power with a slow lag, which is not corrected"
    return CardGeneration(name=name, usage=_polled(period_s, None, error=_OLD_ERROR, note=note))


_MEAN_OF_A_SECOND: Final = _polled(0.1, 1.0, note=f"; {_NVML}: average over 1 s")
# The 1 s means of an RTX 3090 agree best with its external meter if their times are moved back by
# 0.7 s: the error of the energy of 1 s (95th percentile) is then 2.5 %. It is 5.3 % if they are
# moved back by 0.55 s, as for other cards (recording of the SC'24 study, polled every 0.1 s).
_MEAN_OF_GA10X: Final = replace(_MEAN_OF_A_SECOND, lag_s=0.7)
_UNSTUDIED: Final = "; not in that study, assumed to be as for Hopper"

# Generations whose power readings are means over 10 ms in every 20 ms.
_SHORT_WINDOWS: Final = ("Pascal", "Volta")

_HOPPER: Final = CardGeneration(name="Hopper", usage=_MEAN_OF_A_SECOND, instant=_instant(0.025))
_NEWER: Final = CardGeneration(
    name="newer than Hopper",
    usage=replace(_MEAN_OF_A_SECOND, citation=_MEAN_OF_A_SECOND.citation + _UNSTUDIED),
    instant=_instant(None, _UNSTUDIED),
)
_BY_CAPABILITY: Final = {
    (3, 0): _old("Kepler", 0.015),
    (7, 5): CardGeneration(name="Turing", usage=_polled(0.1, 0.1)),
    (8, 0): CardGeneration(name="Ampere GA100", usage=_polled(0.1, 0.025)),
    (8, 9): CardGeneration(name="Ada", usage=_MEAN_OF_A_SECOND, instant=_instant(0.1)),
}
_BY_MAJOR: Final = {
    3: _old("Kepler", 0.1),
    5: _old("Maxwell", 0.1),
    6: CardGeneration(name="Pascal", usage=_polled(0.02, 0.01)),
    # The energy counter of a V100 changes every 20 ms, and that of an H200 every 100 ms (measured);
    # PETSc's documentation gives 20 to 100 ms. ``counter_period_s`` is only a first guess;
    # ``counter_ticks`` measures the period.
    7: CardGeneration(name="Volta", usage=_polled(0.02, 0.01), counter_period_s=0.02),
    8: CardGeneration(name="Ampere GA10x", usage=_MEAN_OF_GA10X, instant=_instant(0.1)),
    9: _HOPPER,
}


def generation(compute_capability: tuple[int, int]) -> CardGeneration:
    """Return the properties of the sensors of cards with this compute capability.

    >>> generation((9, 0)).name, generation((8, 0)).name, generation((12, 0)).name
    ('Hopper', 'Ampere GA100', 'newer than Hopper')
    """
    exact = _BY_CAPABILITY.get(compute_capability)
    return exact or _BY_MAJOR.get(compute_capability[0], _NEWER)


def samples_sensor(found: CardGeneration, period_s: float | None) -> Sensor:
    """Return the sensor of the driver's buffer of power samples.

    On an H200 (driver 580) the samples begin to show a change of power after 5 to 15 ms, and then
    approach the new power exponentially with a time constant of 15 to 20 ms. The integral of the
    samples agrees with the energy counter within 0.7 % under seven patterns of power.

    The samples of other generations have not been measured. On Pascal and Volta, power readings are
    means over 10 ms without a response time (study), and the samples are assumed to be the same: a
    sample then belongs to the moment half a window before its stamp. Not known is whether the
    stamp is the end of the window, and whether the samples have a response time. For all other
    generations, lag and response of the H200 are assumed.

    Args:
        found: the card's generation.
        period_s: time between two samples of this card, s; ``None`` if not known: then the H200's
            20 ms are assumed.
    """
    measured = "measured on an H200, driver 580, 2026-11 (docs/how-it-measures.md)"
    how = measured if found is _HOPPER else f"lag and response as {measured}"
    sensor = Sensor(
        name="nvmlDeviceGetSamples TOTAL_POWER",
        period_s=period_s or 0.02,
        lag_s=0.005,
        response_s=0.015,
        relative_error=_TYPICAL_ERROR,
        is_buffered=True,
        citation=f"{how}; error: {_STUDY}",
    )
    window_s = found.usage.window_s
    if found.name not in _SHORT_WINDOWS or window_s is None:
        return sensor
    how = "lag and response not measured; window assumed to be that of nvmlDeviceGetPowerUsage"
    return replace(
        sensor,
        window_s=window_s,
        lag_s=window_s / 2.0,
        response_s=0.0,
        citation=f"{how}, and error: {_STUDY}",
    )


def counter_sensor(found: CardGeneration) -> Sensor:
    """Return the sensor of the energy counter."""
    return Sensor(
        name="nvmlDeviceGetTotalEnergyConsumption",
        period_s=found.counter_period_s,
        relative_error=_TYPICAL_ERROR,
        citation="no check against a meter is published; assumed to be that of the power "
        f"sensor: {_STUDY}",
    )
