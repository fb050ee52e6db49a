"""A card in virtual time: its power and the speed of its steps follow the power limit."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.core.records import Device
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.powercap.actuators.protocol import Probe
from energy_callbacks.powercap.safety import changed_cards
from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting
from energy_callbacks.testing import FakeClock, ScriptedSource

UUID = "GPU-00000000-0000-0000-0000-000000000001"
FOUND_W = 400.0


@dataclass
class ScriptedCard:
    """A card and the actuator that changes it.

    The clock follows the limit with the exponent 2.5, and steps are partly limited by the memory.

    Attributes:
        limit_w: the power limit.
        writes: all values that were written.
        scale: factor of the time of a step, to simulate another batch size.
    """

    clock: FakeClock
    uuid: str = UUID
    limit_w: float = FOUND_W
    scale: float = 1.0
    writes: list[float | None] = field(default_factory=list)
    name: str = "scripted"
    _energy_j: float = 0.0
    _from_s: float = 0.0
    is_training: bool = False

    def step_s(self, limit_w: float | None = None) -> float:
        """The time of a step at a limit."""
        speed = ((limit_w or self.limit_w) / FOUND_W) ** 0.4
        return self.scale * 0.1 * max(0.85 / speed, 1.0)

    def step_j(self, limit_w: float | None = None) -> float:
        """The energy of a step at a limit."""
        return self.power_of(limit_w or self.limit_w) * self.step_s(limit_w)

    @staticmethod
    def power_of(limit_w: float) -> float:
        """The power in training: the limit."""
        return limit_w

    def power_w(self, t_s: float) -> float:
        """The power now."""
        return self.power_of(self.limit_w) if self.is_training else 50.0

    def energy_j(self, t_s: float) -> float:
        """The counter: exact, because every change calls ``settle`` before."""
        return self._energy_j + self.power_w(t_s) * (t_s - self._from_s)

    def settle(self) -> None:
        """Add up the energy until now; must be called before the power changes."""
        now_s = self.clock.monotonic_s()
        self._energy_j, self._from_s = self.energy_j(now_s), now_s

    def probe(self, uuid: str) -> Probe:
        """It can write."""
        return Probe(actuator=self.name, knobs=("limit",), can_write=True, needs="", found="")

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        """100 to 400 W."""
        return KnobRange(
            knob=knob, lowest=100.0, highest=400.0, present=self.limit_w, default=400.0
        )

    def read(self, uuid: str, knob: Knob) -> float | None:
        """The limit."""
        return self.limit_w

    def agrees(self, uuid: str, setting: Setting) -> bool:
        """Whether the limit is this one."""
        return self.limit_w == setting.value

    def write(self, uuid: str, setting: Setting) -> None:
        """Change the limit now."""
        assert setting.value is not None
        self.settle()
        self.limit_w = setting.value
        self.writes.append(setting.value)

    def source(self) -> ScriptedSource:
        """A sensor of the card."""
        device = Device(
            key="gpu0", kind="gpu", scope="gpu", name="scripted", uuid=self.uuid, limit_w=FOUND_W
        )
        return ScriptedSource(
            self.clock, power_w=self.power_w, energy_j=self.energy_j, device=device
        )


class NoWatchdog:
    """Stands for the watchdog, which is a real process."""

    is_running = True

    def __init__(self, *_: Any) -> None: ...

    def close(self) -> None:
        """Nothing."""

    def close_pipe(self) -> None:
        """Nothing."""


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock()


@pytest.fixture
def card(clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScriptedCard:
    """A card at its highest limit; state files lie in a folder of the test."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "state"))
    monkeypatch.setattr(changed_cards, "Watchdog", NoWatchdog)
    return ScriptedCard(clock)


@dataclass
class Loop:
    """A training loop in virtual time."""

    meter: EnergyMeter
    card: ScriptedCard

    def train(self, duration_s: float, *, sleeps: bool = False) -> None:
        """Make steps for some time in phase ``train``.

        Args:
            duration_s: at least this time.
            sleeps: whether the card is idle while the meter sleeps after a step.
        """
        clock = self.card.clock
        until_s = clock.monotonic_s() + duration_s
        with self.meter.phase("train"):
            while clock.monotonic_s() < until_s:
                with self.busy():
                    clock.advance(self.card.step_s())
                    if not sleeps:
                        self.meter.step(samples=8)
                if sleeps:
                    self.meter.step(samples=8)

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """The card is busy."""
        self.card.settle()
        self.card.is_training = True
        try:
            yield
        finally:
            self.card.settle()
            self.card.is_training = False

    def validate(self, duration_s: float) -> None:
        """Validation, in which the card is idle."""
        with self.meter.phase("validation"):
            self.card.clock.advance(duration_s)


def loop(card: ScriptedCard, folder: Path, **settings: Any) -> Loop:
    """A started meter with an optimizer."""
    optimizer = PowerLimitOptimizer(actuator=card, **settings)
    meter = EnergyMeter(
        sources=[card.source()], clock=card.clock, report_dir=folder, power_limit=optimizer
    )
    meter.start()
    return Loop(meter, card)


def changes(lines: Sequence[dict[str, Any]]) -> list[tuple[str, float]]:
    """Why and value of each change in a journal."""
    return [(one["why"], one["value"]) for one in lines if one.get("kind") == "power_limit"]
