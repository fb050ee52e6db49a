"""Profilers receive the events of a meter, and their failures do not affect it."""

import logging
import subprocess
import sys

import pytest

from energy_callbacks import EnergyMeter, profiling
from energy_callbacks.accounting.profiler_names import PROFILERS
from energy_callbacks.accounting.profilers import ProfilerOffer, Profilers
from energy_callbacks.callback import meter_from
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.report import build
from energy_callbacks.report.render import html, text
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.charts import no_charts  # noqa: F401 - a fixture of all tests here

PHASES = {
    "device": "gpu0",
    "timed_by": "host",
    "steps": 10,
    "step_s": 0.1,
    "measured_j": 20.0,
    "split_j": 20.0,
    "lag_s": 0.0,
    "response_s": 0.015,
    "refusal": None,
    "help": None,
    "phases": [{"name": "forward", "time_s": 0.1, "energy_j": 20.0, "error_j": 1.0}],
}


class Heard:
    """A profiler that records its calls, and fails in one of them if requested."""

    def __init__(self, fails_in=None):
        self.told = []
        self.fails_in = fails_in

    def _hear(self, name, *details):
        self.told.append((name, *details))
        if name == self.fails_in:
            raise RuntimeError("a bug of the profiler")

    def start(self, meter):
        self.meter = meter
        self._hear("start")

    def mark(self, name, t_s):
        self._hear("mark", name)

    def step(self, t_s):
        self._hear("step")

    def stop(self):
        self.energy_j = self.meter.energy(1000.0, 1005.0).energy_j
        self.meter.record_profile("step_phases", PHASES)
        self._hear("stop")


def train(folder, *profilers):
    """Three steps of two seconds at 200 W."""
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda t_s: 200.0)
    config = EnergyConfig(report_dir=folder)
    meter = EnergyMeter(sources=[source], clock=clock, config=config, profilers=profilers)
    with meter, meter.phase("train"):
        for _ in range(3):
            meter.data_ready()
            clock.advance(2.0)
            meter.step(samples=8)
    return meter


def test_profilers_hear_what_the_meter_hears_in_order(tmp_path):
    """Phases, marks and steps are passed on in order."""
    heard = Heard()
    train(tmp_path, heard)
    step = [("mark", "data_ready"), ("step",)]
    assert heard.told == [
        ("start",), ("mark", "phase:train"), *step, *step, *step, ("mark", "phase:idle"), ("stop",)
    ]  # fmt: skip


def test_energy_can_be_asked_and_a_profile_is_in_the_report(tmp_path):
    """A profile that is recorded at the end is in the report."""
    heard = Heard()
    train(tmp_path, heard)
    assert heard.energy_j == pytest.approx(1000.0, rel=1e-3)
    found = build(tmp_path).profile.step_phases
    assert found.phases[0].name == "forward"
    assert "100.0 % of the measured energy" in found.sentence
    for shown in (text.render(build(tmp_path)), html.render(build(tmp_path))):
        assert "Phases of a step" in shown


@pytest.mark.parametrize("where", ["start", "mark", "step", "stop"])
def test_what_a_profiler_raises_ends_it_alone(tmp_path, caplog, where):
    """The other profilers continue, and the report is as without it."""
    broken, heard = Heard(fails_in=where), Heard()
    with caplog.at_level(logging.WARNING):
        meter = train(tmp_path, broken, heard)
    assert "Heard ends here" in caplog.text
    assert len(heard.told) == 10
    assert meter.report().throughput.samples == 24
    assert sum(told[0] == where for told in broken.told) == 1, "it was told more after it failed"
    assert broken.told[-1] == ("stop",), "it was not ended"


def test_what_is_no_profiler_is_refused_at_once():
    """An object without the methods of a profiler, a class, and an unknown name are errors."""
    with pytest.raises(TypeError, match="without start, mark, step, stop"):
        EnergyMeter(profilers=[object()])
    with pytest.raises(TypeError, match=r"got the class; write Heard\(\)"):
        EnergyMeter(profilers=[Heard])
    names = "'kernels', 'lines', 'host', 'phases'"
    with pytest.raises(ValueError, match=f"unknown profiler 'kernel'; .* takes the names {names}"):
        EnergyMeter(profilers=["kernel"])


@pytest.mark.parametrize("name", PROFILERS)
def test_a_profiler_can_be_given_by_name(name):
    """A name stands for an object with its defaults, in a meter and in a callback."""
    for meter in (EnergyMeter(profilers=[name]), meter_from({"profilers": [name]}, ())):
        [found] = meter._profilers
        assert type(found).__name__ == PROFILERS[name].class_name


def test_profilers_come_from_one_place():
    """``energy_callbacks.profiling`` has the classes of all names, and no module is imported."""
    classes = {entry.class_name for entry in PROFILERS.values()}
    assert classes < set(profiling.__all__)
    for name in profiling.__all__:
        assert getattr(profiling, name).__name__ == name
    with pytest.raises(AttributeError, match="has no attribute 'Profilers'"):
        _ = profiling.Profilers
    code = "import sys, energy_callbacks.profiling; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert not [one for one in loaded if one.startswith("energy_callbacks.profiling.")]


def test_a_ready_meter_has_its_own_profilers():
    """A meter with its own profilers cannot get others."""
    with pytest.raises(ValueError, match="has its own settings, but profilers"):
        meter_from({"meter": EnergyMeter(), "profilers": [Heard()]}, ())


def test_a_second_attempt_begins_afresh(tmp_path):
    """Each attempt starts and stops the profilers."""
    heard = Heard()
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda t_s: 200.0)
    meter = EnergyMeter(
        sources=[source], clock=clock, config=EnergyConfig(report_dir=tmp_path), profilers=[heard]
    )
    for _ in range(2):
        with meter:
            clock.advance(2.0)
    assert [told[0] for told in heard.told] == ["start", "stop", "start", "stop"]


@pytest.fixture
def offered(monkeypatch):
    """An offer that is withdrawn after the test."""
    heard, taken = Heard(), []
    offer = ProfilerOffer([heard], on_taken=lambda: taken.append(1))
    monkeypatch.setattr(Profilers, "offer", offer)
    return heard, taken


def test_a_meter_takes_what_is_offered(tmp_path, offered):
    """It keeps its own profilers, and takes no offered one of the same class."""
    heard, taken = offered

    class Other(Heard):
        """Another class."""

    other, mine = Other(), Heard()
    train(tmp_path / "a", other)
    assert [told[0] for told in other.told] == [told[0] for told in heard.told] != []
    heard.told.clear()
    train(tmp_path / "b", mine)
    assert mine.told
    assert heard.told == []
    assert len(taken) == 2


def test_of_two_meters_at_once_the_first_has_it(tmp_path, offered):
    """The second meter does not start a running profiler; a later one does."""
    heard, _ = offered
    clock = FakeClock()
    one, two = (
        EnergyMeter(sources=[], clock=clock, config=EnergyConfig(report_dir=tmp_path / name))
        for name in "ab"
    )
    with one, two:
        pass
    assert [told[0] for told in heard.told].count("start") == 1
    with two:
        pass
    assert [told[0] for told in heard.told].count("start") == 2


@pytest.mark.parametrize("one", ["phases", profiling.StepPhases()])
def test_a_single_profiler_needs_no_list(one):
    """A name is not read as a list of letters."""
    assert [type(member) for member in EnergyMeter(profilers=one)._profilers] == [
        profiling.StepPhases
    ]


@pytest.mark.parametrize(
    ("one", "kind", "message"),
    [
        ("phase", ValueError, "unknown profiler 'phase'"),
        (profiling.StepPhases, TypeError, r"got the class; write StepPhases\(\)"),
        (3, TypeError, "got 3 without start"),
    ],
)
def test_a_single_wrong_profiler_is_refused(one, kind, message):
    """The message has the whole value."""
    with pytest.raises(kind, match=message):
        EnergyMeter(profilers=one)
