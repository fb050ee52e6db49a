"""Computes clock, power and temperature of a simulated GPU over time, in steps of 1 ms."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from energy_callbacks.inference.simulated.physics import Array, Card, Running, running

STEP_S: Final = 0.001
# The power limit is compared with the mean power of this time, in ms: an assumption, because NVIDIA
# publishes no value.
_LIMITER_MS: Final = 50
# Workloads with pauses have one in each cycle of this length, in ms; it is longer than the time in
# which the power limit acts, and shorter than the windows in which power is measured.
_CYCLE_MS: Final = 1000
# Sensors of NVIDIA GPUs have a new value every 100 ms; those of the instant kind measure for 25 ms
# of them (Yang, Adamek, Armour, "Part-time power measurements", SC 2024).
_SENSOR_MS: Final = 100
_SENSOR_DUTY: Final = 0.25
_BOXCAR: Final = 10  # values of 100 ms in a mean of 1 s
SENSOR_S: Final = _SENSOR_MS * STEP_S
WINDOWS_S: Final = {"instant": _SENSOR_DUTY * SENSOR_S, "boxcar": _BOXCAR * SENSOR_S}
_SENSOR_NOISE: Final = 0.005
# Power of constant work changes by this share from one 50 ms to the next.
_POWER_NOISE: Final = 0.01


class State:
    """Clock, power and temperature of a GPU.

    Args:
        card: the GPU.
        seed: seed of the noise of the power and of the sensor.

    Attributes:
        running: what the GPU does; ``run`` changes it.
        limit_w: power limit, W.
        clock_mhz: upper limit of the clock, MHz.
        power_w: present power, W.
        temperature_c: present temperature, degrees Celsius.
        energy_j: energy since the start, J.
        sensor_w: present value of the sensor, W.
        ms: time since the start, ms.
    """

    def __init__(self, card: Card, seed: int) -> None:
        self.card = card
        self.running: Running = running(card, ())
        self.limit_w = card.limits_w[2]
        self.clock_mhz = card.clocks_mhz[1]
        self.temperature_c = card.ambient_c + card.kelvin_per_w * card.idle_w
        self.power_w = self.sensor_w = card.idle_w
        self.energy_j = 0.0
        self.ms = 0
        self.readings_w: list[float] = []
        self.ms_at = np.zeros(card.ladder_mhz.size)
        self._ladder = card.ladder_mhz
        self._held = int(np.searchsorted(self._ladder, card.held_mhz))
        self._at = self._cap = self._cool = self._ladder.size - 1
        self._noise = np.random.default_rng([seed, 0])
        self._sensor_noise = np.random.default_rng([seed, 1])
        self._factor = 1.0
        self._mean_j = self._duty_j = self._block_j = 0.0
        self._block_ms = 0
        self._work_ms = _CYCLE_MS
        self._last_w: list[float] = [card.idle_w] * _BOXCAR

    @property
    def sm_mhz(self) -> float:
        """Present clock of the multiprocessors, MHz."""
        return float(self._ladder[self._at])

    def run(self, work: Running) -> None:
        """Change what the GPU does from now on."""
        self.running = work
        self._work_ms = _CYCLE_MS

    def advance(self, steps: int) -> None:
        """Let ``steps`` ms pass."""
        highest = int(np.searchsorted(self._ladder, self.clock_mhz + 1e-6, side="right")) - 1
        static_w, dynamic_w = self.running.static_w.tolist(), self.running.dynamic_w.tolist()
        for _ in range(steps):
            goal = min(self._cap, max(highest, 0))
            self._at += (goal > self._at) - (goal < self._at)
            leakage = 1.0 + self.card.leakage_per_k * (self.temperature_c - 50.0)
            is_working = self.ms % _CYCLE_MS < self._work_ms
            power_w = static_w[self._at] * leakage
            if is_working:
                power_w += dynamic_w[self._at] * self._factor
            self._add(power_w, is_working=is_working)

    def _add(self, power_w: float, *, is_working: bool) -> None:
        card = self.card
        energy_j = power_w * STEP_S
        self.power_w = power_w
        self.energy_j += energy_j
        self._mean_j += energy_j
        rise = (power_w * card.kelvin_per_w + card.ambient_c - self.temperature_c) / card.thermal_s
        self.temperature_c += rise * STEP_S
        self.ms += 1
        if self.ms % _SENSOR_MS > _SENSOR_MS * (1.0 - _SENSOR_DUTY) or self.ms % _SENSOR_MS == 0:
            self._duty_j += energy_j
        if is_working:
            self.ms_at[self._at] += 1
            self._block_j += energy_j
            self._block_ms += 1
        if self._block_ms == _LIMITER_MS:
            self._limit()
        if self.ms % _SENSOR_MS == 0:
            self._sense()
        if self.ms % _CYCLE_MS == 0:
            self._work_ms = round(_CYCLE_MS * (1.0 - self.running.pause[self._at]))

    def _limit(self) -> None:
        """Change the highest clock by the mean power of 50 ms of work and by the temperature.

        The farther the power is from the limit, the more steps the clock changes. Of a hot GPU, the
        clock falls by one step at a time.
        """
        mean_w = self._block_j / (_LIMITER_MS * STEP_S)
        self._block_j, self._block_ms = 0.0, 0
        self._factor = 1.0 + _POWER_NOISE * float(self._noise.standard_normal())
        limits_w, held_w = np.array(self.card.held_w).T
        held = float(np.interp(self.limit_w, limits_w, held_w))
        allowed = np.flatnonzero(self._scaled(mean_w) <= held)
        goal = int(allowed[-1]) if allowed.size else 0
        if self.temperature_c > self.card.throttle_c:
            self._cool = max(min(self._cool, self._at) - 1, 0)
        else:
            self._cool = min(self._cool + 1, self._ladder.size - 1)
        self._cap = min(max(goal, self._held), self._cool)

    def _scaled(self, mean_w: float) -> Array:
        """Return the power at each clock, as the GPU's firmware estimates it."""
        estimate = self.running.static_w + self.running.dynamic_w
        return np.asarray(estimate * (mean_w / max(estimate[self._at], 1e-9)))

    def _sense(self) -> None:
        """Update the value of the sensor, which is a whole number of mW."""
        self._last_w = [*self._last_w[1:], self._mean_j / (_SENSOR_MS * STEP_S)]
        instant_w = self._duty_j / (_SENSOR_MS * _SENSOR_DUTY * STEP_S)
        true_w = instant_w if self.card.sensor == "instant" else float(np.mean(self._last_w))
        noise = 1.0 + _SENSOR_NOISE * float(self._sensor_noise.standard_normal())
        self.sensor_w = round(true_w * noise, 3)
        self.readings_w.append(self.sensor_w)
        self._mean_j = self._duty_j = 0.0


def samples(ms_at: Array, work: Running) -> Sequence[float]:
    """Return the samples of each tenant in the time at each clock."""
    return [float(row @ ms_at) * STEP_S for row in work.rates_per_s]
