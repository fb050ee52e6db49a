"""The host estimate against closed forms of CodeCarbon's models, and for what it must not do."""

import os
import platform
import subprocess
import sys
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest
from codecarbon.external.hardware import CPU

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.sensing import codecarbon_tables
from energy_callbacks.sensing.sources import codecarbon_models, estimate
from energy_callbacks.sensing.sources.estimate import HostEstimateSource


class Times(NamedTuple):
    """What psutil says on Linux."""

    user: float
    nice: float
    system: float
    idle: float
    iowait: float
    irq: float
    softirq: float
    steal: float
    guest: float
    guest_nice: float


XEON = """processor\t: 0
model name\t: Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz
physical id\t: 0
flags\t\t: fpu vme

processor\t: 1
model name\t: Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz
physical id\t: 1
flags\t\t: fpu vme
"""
XEON_TDP_W = 205  # of one package: Intel ARK, Xeon Platinum 8280


class Clock:
    """Time that stands still."""

    def monotonic_s(self):
        return 7.0


@pytest.fixture
def cpu_times(monkeypatch):
    """The machine's CPU times, which the test moves by busy and idle seconds."""
    state = dict.fromkeys(Times._fields, 1000.0)

    def move(busy_s, idle_s, guest_s=0.0):
        state["user"] += busy_s
        state["guest"] += guest_s
        state["idle"] += idle_s / 2
        state["iowait"] += idle_s / 2

    monkeypatch.setattr(psutil, "cpu_times", lambda: Times(**state))
    return move


def opened_cpu(monkeypatch, cpuinfo=XEON):
    """A CPU source on the machine that ``cpuinfo`` describes."""
    monkeypatch.setattr(estimate, "_cpuinfo", lambda: cpuinfo)
    source = HostEstimateSource(Clock(), cpu=True, ram=False)
    (channel,) = source.open()
    return source, channel


def has_memory(monkeypatch, size_gib):
    """A machine of this size."""
    memory = SimpleNamespace(total=size_gib * 2**30)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


@pytest.mark.parametrize("load", [0.0, 0.1, 0.5, 1.0])
def test_power_follows_the_cube_of_the_load(monkeypatch, cpu_times, load):
    """Two packages of 205 W give 410 W * (0.1 + 0.9 load^3), the load being that of the window."""
    source, channel = opened_cpu(monkeypatch)
    cpu_times(busy_s=100 * load, idle_s=100 * (1 - load))
    *_, reading = source.read()
    assert reading.value == pytest.approx(2 * XEON_TDP_W * (0.1 + 0.9 * load**3), rel=1e-9)
    assert reading.t_s == 7.0
    assert (channel.quantity, channel.kind) == ("power", "mean")
    assert (channel.device.key, channel.device.scope) == ("cpu", "host")
    assert channel.device.origin == "estimated"
    assert "TDP 410 W" in channel.sensor.name
    assert channel.sensor.relative_error == 0.5
    assert "whole machine" in channel.device.notes[0]


def test_formula_is_codecarbons_own(monkeypatch, cpu_times):
    """For the same load, CodeCarbon's CPU class and this source give the same power."""
    source, _ = opened_cpu(monkeypatch)
    cpu_times(busy_s=37, idle_s=63)
    theirs = CPU(output_dir=".", mode="cpu_load", model="any", tdp=2 * XEON_TDP_W)
    monkeypatch.setattr(theirs._cpu_load_meter, "percent", lambda: 37.0)
    assert source.read()[0].value == pytest.approx(theirs._get_power_from_cpu_load().W, rel=1e-9)


def test_each_reading_is_the_mean_since_the_one_before(monkeypatch, cpu_times):
    """A busy and an idle span are two readings, each with the load of its own span."""
    source, _ = opened_cpu(monkeypatch)
    cpu_times(busy_s=10, idle_s=0)
    assert source.read()[0].value == pytest.approx(410.0)
    cpu_times(busy_s=0, idle_s=10)
    assert source.read()[0].value == pytest.approx(41.0)


def test_guests_are_counted_once(monkeypatch, cpu_times):
    """Linux counts a guest's seconds as user seconds too: ten of twenty busy are half a load."""
    source, _ = opened_cpu(monkeypatch)
    cpu_times(busy_s=10, idle_s=10, guest_s=10)
    assert source.read()[0].value == pytest.approx(410 * (0.1 + 0.9 * 0.125))


def test_standing_clocks_give_no_reading(monkeypatch, cpu_times):
    """Where no CPU time has passed the load is not known, and no number is made up."""
    source, _ = opened_cpu(monkeypatch)
    assert source.read() == []
    cpu_times(busy_s=1, idle_s=0)
    assert source.read()[0].value == pytest.approx(410.0)


def test_the_first_mean_begins_at_open(monkeypatch, cpu_times):
    """What the CPUs did while the table was read is counted: a reading is at the time of open."""
    source, _ = opened_cpu(monkeypatch)
    opened_s = source._clock.monotonic_s()
    source._clock.monotonic_s = lambda: opened_s + 2.0
    cpu_times(busy_s=1, idle_s=1)
    assert [reading.t_s for reading in source.read()] == [opened_s, opened_s + 2.0]
    cpu_times(busy_s=1, idle_s=1)
    assert len(source.read()) == 1


def test_failing_psutil_is_a_missed_reading(monkeypatch, cpu_times):
    """An error of the operating system is a missed reading, not 0 W."""
    source, _ = opened_cpu(monkeypatch)

    def broken():
        raise OSError("no /proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", broken)
    with pytest.raises(ReadingMissed, match="no /proc/stat"):
        source.read()


def test_baseline_of_the_user_is_left_alone(monkeypatch):
    """psutil.cpu_percent, which the user may watch, keeps its own baseline."""
    monkeypatch.setattr(psutil, "cpu_percent", lambda *_, **__: pytest.fail("moved the baseline"))
    source = HostEstimateSource(Clock(), cpu=True, ram=True)
    source.open()


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [("model name\t: Acme Thinker 9000\n", "Acme Thinker 9000"), ("", "unknown")],
    ids=["not in the table", "no name"],
)
def test_unknown_cpu_counts_four_watts_a_thread(monkeypatch, cpu_times, cpuinfo, name):
    """A CPU that the table does not have counts 4 W a thread, says so and doubts itself more."""
    monkeypatch.setattr(psutil, "cpu_count", lambda: 12)
    source, channel = opened_cpu(monkeypatch, cpuinfo)
    cpu_times(busy_s=1, idle_s=0)
    assert source.read()[0].value == pytest.approx(48.0)
    assert name in channel.sensor.name
    assert channel.sensor.relative_error == 1.0
    assert any("not in CodeCarbon's table" in note for note in channel.device.notes)


def test_virtual_machine_is_doubted(monkeypatch, cpu_times):
    """On a virtual machine the TDP is that of a whole package, and the report is told."""
    _, channel = opened_cpu(monkeypatch, XEON.replace("fpu vme", "fpu hypervisor"))
    assert channel.sensor.relative_error == 1.0
    assert any("virtual machine" in note for note in channel.device.notes)


@pytest.mark.parametrize(("size_gib", "power_w"), [(8, 10.0), (24, 20.0), (100, 38.0), (512, 38.0)])
def test_memory_is_a_constant_of_its_size(monkeypatch, size_gib, power_w):
    """5 W for each assumed module: 2 up to 16 GiB, 4 up to 64; the fifth to eighth count 4.5 W."""
    has_memory(monkeypatch, size_gib)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    source = HostEstimateSource(Clock(), cpu=False, ram=True)
    (channel,) = source.open()
    assert source.read()[0].value == pytest.approx(power_w)
    assert (channel.device.key, channel.device.kind) == ("ram", "dram")
    assert channel.device.origin == "estimated"


def test_both_parts_on_this_machine():
    """On the machine that runs this test both estimates are positive numbers of watts."""
    source = HostEstimateSource(Clock(), cpu=True, ram=True)
    assert [channel.device.key for channel in source.open()] == ["cpu", "ram"]
    sum(number**2 for number in range(2_000_000))  # passes at least one tick of a CPU clock
    assert all(0 < reading.value < 10_000 for reading in source.read())
    source.close()
    assert list(source.read()) == []


@pytest.fixture
def no_memory_of_cpus():
    """No CPU has been looked up before the test, and none is remembered after it."""
    codecarbon_models.tdp_w.cache_clear()
    yield
    codecarbon_models.tdp_w.cache_clear()


@pytest.mark.usefixtures("no_memory_of_cpus")
@pytest.mark.parametrize("rows", [[], [("Intel Xeon Platinum 8280", "27.29.5")]])
def test_a_table_that_cannot_be_read_is_unavailable(monkeypatch, rows):
    """A missing or malformed table is reported, with the command that installs it."""

    def broken():
        yield from rows
        raise FileNotFoundError("CodeCarbon has no file data/hardware/cpu_power.csv")

    def malformed():
        yield from rows

    monkeypatch.setattr(codecarbon_tables, "cpu_rows", malformed if rows else broken)
    with pytest.raises(SourceUnavailable, match="CPU table") as caught:
        opened_cpu(monkeypatch)
    assert "pip install" in caught.value.fix


@pytest.mark.usefixtures("no_memory_of_cpus")
def test_a_cpu_is_looked_up_once_a_process(monkeypatch):
    """The name is compared with every name in the table, which takes longer than a short step."""
    really, asked = codecarbon_tables.cpu_rows, []
    monkeypatch.setattr(codecarbon_tables, "cpu_rows", lambda: asked.append(1) or really())
    (_, first), (_, second) = (opened_cpu(monkeypatch) for _ in range(2))
    assert first.sensor == second.sensor
    assert len(asked) == 1


def test_nothing_to_estimate_is_a_mistake():
    """Neither CPU nor memory is refused at construction."""
    with pytest.raises(ValueError, match="cpu=False, ram=False"):
        HostEstimateSource(Clock(), cpu=False, ram=False)


def test_it_leaves_no_trace(tmp_path):
    """In a fresh process: no output, no file, no connection, no signal handler, no subprocess."""
    code = """
import os, signal, socket, subprocess, threading
before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
def refuse(*args, **kwargs):
    raise AssertionError(f"not allowed: {args}")
socket.socket.connect = subprocess.Popen.__init__ = os.fork = refuse
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sources.estimate import HostEstimateSource
source = HostEstimateSource(SystemClock(), cpu=True, ram=True)
source.open()
assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
assert threading.active_count() == 1
"""
    environment = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_import_is_light():
    """Importing the module loads no psutil; not even opening it loads CodeCarbon or pandas."""
    code = (
        "import sys, energy_callbacks.sensing.sources.estimate as e;"
        "heavy = {'codecarbon', 'psutil', 'pandas', 'pynvml'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "from energy_callbacks.sensing.clock import SystemClock;"
        "e.HostEstimateSource(SystemClock(), cpu=True, ram=True).open();"
        "assert not {'codecarbon', 'pandas', 'pynvml'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
