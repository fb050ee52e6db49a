"""A ``powermetrics`` in virtual time, whose energies are those of known powers."""

import math
import plistlib
from collections.abc import Mapping, Sequence
from typing import Final

from energy_callbacks.testing import FakeClock
from tests.fake_nvml.signals import Signal
from tests.sensing.sources.commands.recordings import DATA

_PERIOD_S: Final = 0.5


class FakePowermetrics:
    """Replaces ``Command``: prints a document of the recording every half second of a clock.

    Args:
        clock: the clock.
        powers: power for each field of a document.
        arguments: command line.
        start_s: monotonic time at which the signals are at 0.
    """

    def __init__(
        self,
        clock: FakeClock,
        powers: Mapping[str, Signal],
        arguments: Sequence[str],
        start_s: float = 1000.0,
    ) -> None:
        assert "powermetrics" in arguments
        self._clock, self._powers, self._start_s = clock, powers, start_s
        self._end_s = clock.monotonic_s()
        first, *_ = (DATA / "powermetrics.plist").read_bytes().split(b"\0")
        self._document = plistlib.loads(first)

    def documents(self, end: bytes, patience_s: float = 0.0) -> list[bytes]:
        """Return the documents since the last call; the first call does not wait."""
        if patience_s:
            return [self._next(0.0, end)]
        count = math.floor((self._clock.monotonic_s() - self._end_s) / _PERIOD_S + 1e-6)
        return [self._next(_PERIOD_S, end) for _ in range(count)]

    def _next(self, length_s: float, end: bytes) -> bytes:
        begin_s = self._end_s - self._start_s
        self._end_s += length_s
        energies = {
            field: round(1e3 * power.energy_j(begin_s, begin_s + length_s))
            for field, power in self._powers.items()
        }
        processor = self._document["processor"] | energies
        content = self._document | {"elapsed_ns": round(length_s * 1e9), "processor": processor}
        return plistlib.dumps(content).strip().removesuffix(end)

    def close(self) -> None:
        """End the command."""
