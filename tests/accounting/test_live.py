"""What a running meter answers: energies up to now, and reports of the time that is final."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.report.build import build
from energy_callbacks.report.model.runs import Phase
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.testing import FakeClock, ReplaySource, ScriptedSource
from tests.sensing.loads import Card, Staircase, channel

START_S = 1000.0
HALF_S = 0.25
POWER_W = {"train": 550.0, "rest": 100.0}


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock(start_s=START_S)


def meter_of(folder: Path, clock: FakeClock, *sources: object) -> EnergyMeter:
    """A meter on virtual time."""
    config = EnergyConfig(report_dir=folder / "energy")
    return EnergyMeter(config=config, sources=sources, clock=clock)  # type: ignore[arg-type]


def alternating(clock: FakeClock, until_s: float) -> ReplaySource:
    """A card like an H200 under 100 and 550 W, 250 ms each; its counter confirms once a second."""
    load = Staircase.square(2 * HALF_S, until_s=until_s)
    card = Card.under(load, until_s=until_s, seed=1)
    readings = [Reading(r.channel, START_S + r.t_s, r.value, r.t_error_s) for r in card.readings()]
    return ReplaySource(clock, [card.power, card.counter], readings, interval_s=0.2)


def report_of(meter: EnergyMeter, clock: FakeClock) -> EnergyReport:
    """What ``meter.report()`` returns at the virtual time."""
    meter._complete_journals()
    assert meter.run_folder is not None
    return build(meter.run_folder, now_unix_s=clock.unix_s())


def phase(report: EnergyReport, name: str) -> Phase:
    """The phase of this name."""
    return next(one for one in report.phases if one.name == name)


def train(meter: EnergyMeter, clock: FakeClock, turns: int) -> list[EnergyReport]:
    """Rest for half a second, then train and rest in turn; returns a report of every other second.

    The readings of the card begin in the rest at the start.
    """
    reports = []
    if clock.monotonic_s() == START_S:
        clock.advance(2 * HALF_S)
    for turn in range(turns):
        meter.enter("train")
        clock.advance(HALF_S)
        meter.step(samples=8)
        meter.leave("train")
        meter.enter("rest")
        clock.advance(HALF_S)
        meter.leave("rest")
        if turn % 4 == 3:
            reports.append(report_of(meter, clock))
    return reports


def test_a_report_gives_no_phase_the_energy_of_another(tmp_path: Path, clock: FakeClock) -> None:
    """Each report has the true energy of each phase in the time of which it speaks."""
    meter = meter_of(tmp_path, clock, alternating(clock, 30.0)).start()
    for report in train(meter, clock, 20)[1:]:
        assert report.run.status == "running"
        assert report.run.duration_s > 0.0
        whole_s, rest_s = divmod(report.run.duration_s - 2 * HALF_S, 2 * HALF_S)
        true_s = {"train": min(rest_s, HALF_S), "rest": max(rest_s - HALF_S, 0.0)}
        for name, power_w in POWER_W.items():
            found = phase(report, name)
            duration_s = whole_s * HALF_S + true_s[name]
            assert found.duration_s == pytest.approx(duration_s, abs=1e-6)
            true_j = power_w * duration_s
            assert found.gpu.energy_j == pytest.approx(true_j, abs=found.gpu.error_j)
            assert found.gpu.error_j < 0.2 * true_j
        ratio = report.efficiency.gpu.j_per_step
        assert ratio is not None
        assert ratio.value_j == pytest.approx(POWER_W["train"] * HALF_S, rel=0.1)


def test_ended_phases_are_not_idle(tmp_path: Path, clock: FakeClock) -> None:
    """3 s after the last of 40 trainings, the report speaks of all of them, as at the end."""
    meter = meter_of(tmp_path, clock, alternating(clock, 40.0)).start()
    train(meter, clock, 40)
    clock.advance(3.0)
    live = report_of(meter, clock)
    meter.stop()
    final = meter.report()
    assert live.run.duration_s >= 20.0
    assert phase(live, "train").duration_s == phase(final, "train").duration_s
    error_j = phase(live, "train").gpu.error_j
    expected_j = phase(final, "train").gpu.energy_j
    assert phase(live, "train").gpu.energy_j == pytest.approx(expected_j, abs=error_j)


def test_a_report_of_another_process_ends_there_too(tmp_path: Path, clock: FakeClock) -> None:
    """Without the meter, a report of the journal has only phases whose energy is final."""
    meter = meter_of(tmp_path, clock, alternating(clock, 30.0)).start()
    train(meter, clock, 20)
    clock.advance(1.5)
    assert meter.run_folder is not None
    report = build(meter.run_folder, now_unix_s=clock.unix_s())
    assert 8.0 <= report.run.duration_s <= 11.5
    total_j = sum(one.gpu.energy_j or 0.0 for one in report.phases)
    assert report.energy.gpu.energy_j == pytest.approx(total_j)
    assert any("covers its first" in warning.message for warning in report.warnings)


def test_phases_after_a_live_report_count_when_the_run_is_killed(
    tmp_path: Path, clock: FakeClock
) -> None:
    """The energies of phases that were written for a report are not those of the whole run."""
    meter = meter_of(tmp_path, clock, alternating(clock, 30.0)).start()
    train(meter, clock, 10)
    meter._complete_journals()
    train(meter, clock, 10)
    clock.advance(10.0)
    assert meter.run_folder is not None
    report = build(meter.run_folder, now_unix_s=clock.unix_s() + 100.0)
    assert report.run.status == "cut off"
    assert phase(report, "train").gpu.energy_j == pytest.approx(20 * 550.0 * HALF_S, rel=0.05)


class Silent(ScriptedSource):
    """A source without readings."""

    def read(self) -> Sequence[Reading]:
        """Return no readings."""
        return []


def test_a_report_before_any_energy_is_final(tmp_path: Path, clock: FakeClock) -> None:
    """A sensor that is late shows power from before the start; the other has no readings yet."""
    late = Slow(clock, channel("power", "gauge", period_s=0.1, lag_s=0.55))
    cpu = Device(key="cpu0", kind="cpu", scope="host", name="cpu0")
    silent = Silent(clock, power_w=lambda _: 0.0, device=cpu)
    meter = meter_of(tmp_path, clock, late, silent).start()
    clock.advance(2.0)
    assert report_of(meter, clock).run.status == "running"
    meter.stop()
    assert meter.report().run.status == "finished"


# --- energy up to now


class Slow(ScriptedSource):
    """A source that is read every 0.8 s; its readings can be asked for."""

    def __init__(self, clock: FakeClock, power: Channel, is_deaf: bool = False) -> None:
        super().__init__(
            clock, power_w=lambda _: 200.0, device=power.device, interval_s=0.8, sensor=power.sensor
        )
        self.asked = 0
        self._is_deaf = is_deaf

    def read_now(self) -> Sequence[Reading]:
        """Return the power now, unless the sensor does not hear."""
        self.asked += 1
        return [] if self._is_deaf else self.read()


POWER = channel("power", "gauge", period_s=0.1)


def test_energy_up_to_now_asks_the_sensors(tmp_path: Path, clock: FakeClock) -> None:
    """A window of 50 ms that ends now is seen, although the sensor is read every 0.8 s."""
    source = Slow(clock, POWER)
    with meter_of(tmp_path, clock, source) as meter:
        clock.advance(5.3)
        now_s = meter.now_s()
        found = meter.energy(now_s - 0.05, now_s)
        assert found.energy_j == pytest.approx(10.0)
        assert found.method == "power"
        assert source.asked == 1
        assert meter.now_s() - now_s <= 0.05


def test_energy_of_the_past_asks_nobody(tmp_path: Path, clock: FakeClock) -> None:
    """A window that is seen already is answered at once."""
    source = Slow(clock, POWER)
    with meter_of(tmp_path, clock, source) as meter:
        clock.advance(5.3)
        now_s = meter.now_s()
        assert meter.energy(now_s - 3.0, now_s - 1.0).energy_j == pytest.approx(400.0)
        assert (source.asked, meter.now_s()) == (0, now_s)


def test_no_wait_extrapolates(tmp_path: Path, clock: FakeClock) -> None:
    """With ``wait=False`` no sensor is asked; the energy is that of the whole window."""
    source = Slow(clock, POWER)
    with meter_of(tmp_path, clock, source) as meter:
        clock.advance(8.3)
        now_s = meter.now_s()
        found = meter.energy(now_s - 0.05, now_s, wait=False)
        assert found.energy_j == pytest.approx(10.0)
        assert found.method == "power, extrapolated"
        assert (source.asked, meter.now_s()) == (0, now_s)


def test_a_sensor_that_does_not_answer_costs_50_ms(tmp_path: Path, clock: FakeClock) -> None:
    """Asked every 5 ms for 50 ms; what it has not told is extrapolated."""
    source = Slow(clock, POWER, is_deaf=True)
    with meter_of(tmp_path, clock, source) as meter:
        clock.advance(8.3)
        now_s = meter.now_s()
        found = meter.energy(now_s - 1.0, now_s)
        assert found.energy_j == pytest.approx(200.0)
        assert found.method.endswith("extrapolated")
        assert 0.04 <= meter.now_s() - now_s <= 0.0501
        assert 2 <= source.asked <= 11
