"""Keeps the mean power of a window below a cap: the tenants pause when its energy is used."""

from dataclasses import dataclass
from typing import Final

from energy_callbacks.inference.serve.dispatcher import Dispatcher
from energy_callbacks.inference.serve.machine import Machine

# The first look is after this part of a window, s; energy is then known to some percent.
_FIRST: Final = 0.2
# Least time between two looks, s.
_LOOK_S: Final = 0.02
# Readings are asked for before a look, s; reading a GPU takes 3 to 24 ms.
_ASK_S: Final = 0.03
# The power without pauses may become higher than the mean so far by this factor.
_RISE: Final = 1.2
# What the tenants are given, as a part of the cap: readings of the last moments come later.
_AIM: Final = 0.985
_ROUNDING_S: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Budget:
    """The energy that may be used in a window.

    Attributes:
        machine: measures the energy, and lets time pass.
        dispatcher: its tenants pause.
        cap_w: largest mean power of a window, W.
        idle_w: power of the tenants while they wait, W.
    """

    machine: Machine
    dispatcher: Dispatcher
    cap_w: float
    idle_w: float

    def pass_window(self, start_s: float, end_s: float) -> float:
        """Let time pass until the end of a window.

        As soon as the energy might be too high although all tenants pause, they pause; they go on
        if less was used than expected. Without readings of the power, they never pause.

        Args:
            start_s: start of the window, s.
            end_s: its end, s.

        Returns:
            Part of the window in which the tenants paused.
        """
        paused_s, is_paused = 0.0, False
        now_s, look_s = start_s, start_s + _FIRST * (end_s - start_s)
        while end_s - now_s > _ROUNDING_S:
            self.machine.pass_until(min(look_s - _ASK_S, end_s))
            self.machine.sensors.ask()
            self.machine.pass_until(min(look_s, end_s))
            before_s, now_s = now_s, self.machine.pool.now_s()
            paused_s += is_paused * (min(now_s, end_s) - before_s)
            left_s = self._left_s(start_s, end_s)
            if is_paused != (left_s < min(_LOOK_S, end_s - now_s)):
                is_paused = not is_paused
                self.dispatcher.pause(is_paused=is_paused)
            look_s = now_s + max(left_s, _LOOK_S)
        if is_paused:
            self.dispatcher.pause(is_paused=False)
        return paused_s / (end_s - start_s)

    def _left_s(self, start_s: float, end_s: float) -> float:
        """Return for how long the tenants may work at least before they have to pause, s."""
        now_s = self.machine.pool.now_s()
        seen_s = min(self.machine.sensors.reach_s(), now_s)
        if seen_s <= start_s:
            return _LOOK_S
        energy_j = self.machine.sensors.energy(start_s, seen_s).energy_j
        if energy_j is None:
            return end_s - now_s
        mean_w = energy_j / (seen_s - start_s)
        work_w = _RISE * max(mean_w - self.idle_w, 1.0)
        duty = self.dispatcher.duty
        ahead_s = min(self.dispatcher.ahead_s(), end_s - now_s)
        used_j = energy_j + self.idle_w * (end_s - seen_s)
        used_j += work_w * (now_s - seen_s + ahead_s / duty)
        return (_AIM * self.cap_w * (end_s - start_s) - used_j) * duty / work_w
