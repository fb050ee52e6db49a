"""A training whose steps take a known virtual time and power."""

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.testing import FakeClock, ScriptedSource


class BusyClock(FakeClock):
    """A clock that reads the sensors while somebody waits."""

    def sleep(self, duration_s: float) -> None:
        """See ``FakeClock.advance``."""
        self.advance(duration_s)


class Training:
    """Steps of ``launch_s + size x sample_s``, slower at first; at most ``most`` samples fit.

    While a step runs the GPU draws ``busy_w``, else ``idle_w``.
    """

    def __init__(self, folder, *, most=1000, launch_s=0.02, sample_s=1e-3, slow_steps=3) -> None:
        self.clock = BusyClock()
        self.most, self.launch_s, self.sample_s = most, launch_s, sample_s
        self.slow_steps = slow_steps
        self.busy_w, self.idle_w = 400.0, 100.0
        self.is_busy = False
        self.steps: list[int] = []
        self.used_j = 0.0
        self._used_s = self.clock.monotonic_s()
        source = ScriptedSource(
            self.clock, power_w=lambda t_s: 0.0, energy_j=lambda t_s: self._energy_j(), kind=None
        )
        self.meter = EnergyMeter(
            config=EnergyConfig(report_dir=folder), sources=[source], clock=self.clock
        )

    def _energy_j(self) -> float:
        now_s = self.clock.monotonic_s()
        power_w = self.busy_w if self.is_busy else self.idle_w
        self.used_j += power_w * (now_s - self._used_s)
        self._used_s = now_s
        return self.used_j

    def step(self, size: int, accumulation: int = 1) -> None:
        """Run one step. The first steps of each size are ten times slower."""
        if size > self.most:
            raise MemoryError(f"{size} samples do not fit")
        newest = self.steps[len(self.steps) - self.slow_steps :]
        is_slow = self.slow_steps > len(self.steps) or newest != [size] * self.slow_steps
        self.steps.append(size)
        self._energy_j()
        self.is_busy = True
        launches_s = accumulation * (self.launch_s + size * self.sample_s)
        self.clock.advance((10.0 if is_slow else 1.0) * launches_s)
        self._energy_j()
        self.is_busy = False
