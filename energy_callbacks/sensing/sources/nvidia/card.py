"""An opened NVIDIA card, and what all readers of a card share."""

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, Protocol

from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.core.yielding import yield_if_due
from energy_callbacks.sensing.clock import PUNCTUAL_S, Clock
from energy_callbacks.sensing.sources.nvidia.known_sensors import CardGeneration

# NVML's "no value" has all bits set (nvml.h, NVML_VALUE_NOT_AVAILABLE).
NO_VALUE: Final = frozenset({2**32 - 1, 2**64 - 1})
# Names of the members of nvmlValue_t, in the order of nvmlValueType_t.
_UNION_MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlCard:
    """An opened card.

    Attributes:
        nvml: the module ``pynvml``, initialised.
        handle: NVML's handle of the card.
        clock: clock that gives monotonic and wall time.
        device: the card, as the report describes it.
        generation: known properties of the card's sensors.
        at_close: callbacks that release resources of readers before NVML is shut down.
    """

    nvml: Any
    handle: Any
    clock: Clock
    device: Device
    generation: CardGeneration
    at_close: ExitStack

    def is_gone(self, error: Exception) -> bool:
        """Return whether an ``NVMLError`` means that the card must be opened again to answer."""
        return getattr(error, "value", None) in {
            self.nvml.NVML_ERROR_UNINITIALIZED,
            self.nvml.NVML_ERROR_DRIVER_NOT_LOADED,
            self.nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            self.nvml.NVML_ERROR_GPU_IS_LOST,
            self.nvml.NVML_ERROR_GPU_NOT_FOUND,
            self.nvml.NVML_ERROR_RESET_REQUIRED,
        }


Query = Callable[[NvmlCard], float | None]
"""Returns the present value of a quantity of a card; ``None`` if the card has no value."""


class Reader(Protocol):
    """Reads one or several channels of a card."""

    @property
    def channels(self) -> tuple[Channel, ...]:
        """Channels of the readings."""
        ...

    @property
    def due_s(self) -> float:
        """Monotonic time of the next reading; earlier calls of ``read`` need ``at_once``."""
        ...

    def read(self, *, at_once: bool = False) -> list[Reading]:
        """Return new readings if they are due; otherwise an empty list.

        Args:
            at_once: whether to return new readings even if they are not due. Ignored by readers of
                means over the time since the previous reading, because this time has a minimum.

        Raises:
            NVMLError: if the query fails.
        """
        ...


def tried(card: NvmlCard, make: Callable[[NvmlCard], Reader | None]) -> Reader | None:
    """Return the reader that ``make`` returns; ``None`` if it raises an ``NVMLError``.

    Raises:
        NVMLError: if the card is gone.
    """
    yield_if_due()
    try:
        return make(card)
    except card.nvml.NVMLError as error:
        if card.is_gone(error):
            raise
        return None


def answer(nvml: Any, ask: Callable[..., Any], *arguments: Any, otherwise: Any = None) -> Any:
    """Return ``ask(*arguments)``, or ``otherwise`` if the call raises an ``NVMLError``."""
    try:
        return ask(*arguments)
    except nvml.NVMLError:
        return otherwise


@dataclass(slots=True, eq=False)
class PolledQuantities:
    """Reads quantities that have a value at any time, with one query.

    Attributes:
        card: the card to query.
        channels: the channels of the readings.
        query: returns the value of each channel in the SI unit, but temperatures in degrees
            Celsius; ``None`` if the driver has no value.
        next_s: returns the monotonic time of the next reading, given that of the last reading.
        due_s: monotonic time of the next reading; the first reading is due immediately.
    """

    card: NvmlCard
    channels: tuple[Channel, ...]
    query: Callable[[NvmlCard], Sequence[float | None]]
    next_s: Callable[[float], float]
    due_s: float = -math.inf

    def read(self, *, at_once: bool = False) -> list[Reading]:
        """Return a reading of each channel if due or ``at_once`` is set; otherwise an empty list.

        The time of the readings is the middle of the query. Quantities for which the driver has no
        value are left out.
        """
        start_s = self.card.clock.monotonic_s()
        if start_s < self.due_s - PUNCTUAL_S and not at_once:
            return []
        self.due_s = self.next_s(start_s)
        values = self.query(self.card)
        end_s = self.card.clock.monotonic_s()
        t_s, t_error_s = (start_s + end_s) / 2.0, (end_s - start_s) / 2.0
        return [
            Reading(channel, t_s, value, t_error_s)
            for channel, value in zip(self.channels, values, strict=True)
            if value is not None
        ]


def polled(
    card: NvmlCard, channel: Channel, query: Query, next_s: Callable[[float], float]
) -> Reader | None:
    """Return a reader of one quantity; ``None`` if the quantity has no value now."""
    if query(card) is None:
        return None
    return PolledQuantities(card, (channel,), lambda card: (query(card),), next_s)


def fields(card: NvmlCard, ids: Sequence[int]) -> dict[int, float]:
    """Query fields of a card in one call, and return the available values by field number."""
    values: dict[int, float] = {}
    for answer in card.nvml.nvmlDeviceGetFieldValues(card.handle, list(ids)):
        value = _number(answer.value, answer.valueType)
        if answer.nvmlReturn == card.nvml.NVML_SUCCESS and value is not None:
            values[int(answer.fieldId)] = value
    return values


def _number(value: Any, value_type: int) -> float | None:
    """Return the member of an ``nvmlValue_t`` for ``value_type``; ``None`` if not available."""
    if value_type >= len(_UNION_MEMBERS):
        return None
    return known(getattr(value, _UNION_MEMBERS[value_type]))


def known(value: float) -> float | None:
    """Return ``value``, or ``None`` if it is NaN or NVML's value for "not available"."""
    return None if value in NO_VALUE or value != value else value  # noqa: PLR0124 - NaN
