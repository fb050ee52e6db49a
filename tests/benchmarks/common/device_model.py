"""A device whose best batch sizes are known: closed forms for time, energy and memory of a step.

Time::

    step_s = s_launch (1 + (q(b) / r)^p)^(1/p) · decline(b)
    q(b)   = (1 - share) b + share · tile · ceil(b / tile)      tile quantisation
    decline(b) rises smoothly from 1 at ``decline_from`` to 1 + ``decline`` at eight times that

``p`` = 1 adds launch and work, large ``p`` overlaps them. Power rises with the share of the time in
which the device works, ``u = work / step``, and saturates with it::

    power_w = idle_w + (full_w - idle_w) u^gamma

With ``gamma`` above 1 joules per sample have their own optimum below the saturation. Memory is
affine in the size, rounded up to whole blocks of the allocator (2 MiB, PyTorch's
``kLargeBuffer`` rounding), and a step needs a few per cent more than its peak (fragmentation).
The search's own family has no tiles, no such decline and no such power.

Trials of the same size differ. All sizes have the same relative scatter; sizes whose steps wait for
the host have a further one, because the speed of the host changes::

    d log(step_s) / d log(s_launch) = 1 / (1 + (q / r)^p)      share of the host's scatter
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from energy_callbacks.core.records import Energy
from energy_callbacks.tuning.search.trial import Trial

Array = npt.NDArray[np.float64]
BLOCK = 2 * 2**20
LARGEST = 8192
# Share of the scatter between trials that a trial states, as its blocks show it. The second is of
# the host's scatter. On an H100, 25 trials of 2.5 s whose steps waited for the host scattered by
# 6.3 %, and stated 2.2 % (docs/h200.md).
STATED = 0.1
STATED_OF_HOST = 1.0 / 3.0
# Degrees of freedom of the stated error: ten blocks of a quarter of a second.
FREEDOM = 9


@dataclass(frozen=True, kw_only=True)
class Device:
    """The true behaviour of one device and one model that trains on it."""

    launch_s: float = 0.01
    corner: float = 64.0
    sharpness: float = 1.0
    tile: int = 1
    tile_share: float = 0.0
    decline: float = 0.0
    decline_from: float = 1024.0
    idle_w: float = 90.0
    full_w: float = 600.0
    gamma: float = 1.0
    memory_bytes: int = 80 * 2**30
    fixed_bytes: int = 4 * 2**30
    sample_bytes: int = 4 * 2**20
    fragmentation: float = 0.03
    host_noise: float = 0.0

    def host_share(self, sizes: Array) -> Array:
        """Return the change of log(step time) per change of log(launch time), 0 to 1."""
        return np.asarray(1.0 / (1.0 + self._work(sizes) ** self.sharpness))

    def _work(self, sizes: Array) -> Array:
        """Return the time of the work over that of launching it."""
        whole = self.tile * np.ceil(sizes / self.tile)
        return np.asarray(((1.0 - self.tile_share) * sizes + self.tile_share * whole) / self.corner)

    def step_s(self, sizes: Array) -> Array:
        way = np.clip(np.log2(sizes / self.decline_from) / 3.0, 0.0, 1.0)
        decline = 1.0 + self.decline * way**2 * (3.0 - 2.0 * way)
        step = (1.0 + self._work(sizes) ** self.sharpness) ** (1.0 / self.sharpness)
        return np.asarray(self.launch_s * step * decline)

    def power_w(self, sizes: Array) -> Array:
        busy = sizes / self.corner * self.launch_s / self.step_s(sizes)
        return np.asarray(self.idle_w + (self.full_w - self.idle_w) * busy**self.gamma)

    def peak_bytes(self, sizes: Array) -> npt.NDArray[np.int64]:
        needed = np.asarray(self.fixed_bytes + self.sample_bytes * sizes)
        return np.asarray(np.ceil(needed / BLOCK) * BLOCK).astype(np.int64)

    def fits(self, sizes: Array, margin: float) -> npt.NDArray[np.bool_]:
        """Whether a size runs and leaves the margin free."""
        peak = self.peak_bytes(sizes)
        runs = peak * (1.0 + self.fragmentation) <= self.memory_bytes
        return np.asarray(runs & (peak <= (1.0 - margin) * self.memory_bytes))

    def cost(self, sizes: Array, weight: float) -> Array:
        """Return (J per sample)^weight (s per sample)^(1 - weight)."""
        return np.asarray(self.step_s(sizes) * self.power_w(sizes) ** weight / sizes)

    def sizes(self, margin: float = 0.1, multiple_of: int = 1) -> Array:
        """Return all sizes that may be answered."""
        sizes = np.arange(multiple_of, LARGEST + 1, multiple_of, dtype=float)
        return sizes[self.fits(sizes, margin)]

    def knee(self, share: float = 0.03, margin: float = 0.1, multiple_of: int = 1) -> int:
        sizes = self.sizes(margin, multiple_of)
        speed = 1.0 / self.cost(sizes, 0.0)
        return int(sizes[speed >= (1.0 - share) * speed.max()][0])

    @property
    def has_few_odd_tiles(self) -> bool:
        """Whether less than five whole tiles fit, and no round number of samples fills one."""
        is_odd = self.tile & (self.tile - 1) != 0
        return is_odd and bool(self.sizes()[-1] < 5 * self.tile)

    def trial(self, size: int, dice: np.random.Generator, noise: float, steps: int = 20) -> Trial:
        """Run a size.

        Time and energy differ from trial to trial by independent relative errors of ``noise``. A
        trial states only ``STATED`` of it, because what changes between trials does not show
        within one of them. Time also differs by ``host_noise``, times the share of the host; a
        longer step then draws the idle power for longer.
        """
        sizes = np.array([float(size)])
        peak = int(self.peak_bytes(sizes)[0])
        if peak * (1.0 + self.fragmentation) > self.memory_bytes:
            return Trial(size=size, status="out_of_memory", reason="out of memory", cost_s=1.0)
        true_s = float(self.step_s(sizes)[0]) * steps
        true_j = float(self.power_w(sizes)[0]) * true_s
        duration_s = true_s * math.exp(noise * dice.normal())
        energy_j = true_j * math.exp(noise * dice.normal())
        error = STATED * noise
        if self.host_noise:
            host_noise = self.host_noise * float(self.host_share(sizes)[0])
            longer_s = duration_s * math.expm1(host_noise * dice.normal())
            duration_s, energy_j = duration_s + longer_s, energy_j + self.idle_w * longer_s
            blocks = math.sqrt(dice.chisquare(FREEDOM) / FREEDOM)
            error = math.hypot(error, STATED_OF_HOST * host_noise * blocks)
        return Trial(
            size=size,
            steps=steps,
            duration_s=duration_s,
            stderr_s=error * duration_s,
            energy=Energy(energy_j=energy_j, stderr_j=error * energy_j, method="counter"),
            peak_bytes=peak,
            cost_s=1.5 * true_s + 1.0,
        )


def seeded(seed: int) -> Device:
    """Return a random device: launch-bound or saturated, with or without tiles and decline."""
    dice = np.random.default_rng([20, seed])

    def spread(low: float, high: float) -> float:
        return float(math.exp(dice.uniform(math.log(low), math.log(high))))

    fixed = int(spread(0.5, 20.0) * 2**30)
    limit = spread(150.0, 30_000.0)
    return Device(
        launch_s=spread(0.002, 0.03),
        corner=spread(4.0, 400.0),
        sharpness=float(dice.choice([1.0, 1.0, 1.5, 2.0, 4.0])),
        tile=int(dice.choice([1, 4, 16, 64, 132])),
        tile_share=float(dice.uniform(0.0, 0.5)),
        decline=float(dice.choice([0.0, dice.uniform(0.02, 0.15)])),
        decline_from=spread(256.0, 2048.0),
        idle_w=float(dice.uniform(60.0, 150.0)),
        full_w=float(dice.uniform(350.0, 1000.0)),
        gamma=float(dice.uniform(0.5, 2.0)),
        fixed_bytes=fixed,
        sample_bytes=int((0.9 * 80 * 2**30 - fixed) / limit),
        fragmentation=float(dice.uniform(0.0, 0.15)),
    )
