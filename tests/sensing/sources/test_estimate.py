"""The host estimate against closed forms of CodeCarbon's models, and for what it must not do."""

import logging
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest
from codecarbon.core.cpu import TDP
from codecarbon.external.hardware import CPU
from codecarbon.external.ram import RAM

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.sensing.sources import estimate
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
    """What the CPUs did while CodeCarbon was imported is counted: a reading stands at open."""
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
    monkeypatch.setattr(RAM, "_detect_arm_cpu", lambda _: False)
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


def test_moved_internals_are_unavailable(monkeypatch):
    """Where CodeCarbon has changed, the source says which part and what to install."""
    estimate._table_tdp_w.cache_clear()
    monkeypatch.delattr(TDP, "_get_cpu_power_from_registry")
    with pytest.raises(SourceUnavailable, match="CPU table") as caught:
        HostEstimateSource(Clock(), cpu=True, ram=False).open()
    assert "pip install" in caught.value.fix


def test_a_cpu_is_looked_up_once_a_process(monkeypatch):
    """CodeCarbon compares it with each name in its table, which takes longer than a short step."""
    really = TDP._get_cpu_power_from_registry
    asked = []

    def counted(self, model):
        asked.append(model)
        return really(self, model)

    monkeypatch.setattr(TDP, "_get_cpu_power_from_registry", counted)
    estimate._table_tdp_w.cache_clear()
    (_, first), (_, second) = (opened_cpu(monkeypatch) for _ in range(2))
    assert first.sensor == second.sensor
    assert len(asked) == 1


def test_nonsense_of_the_memory_model_is_refused(monkeypatch):
    """0 W of memory is no estimate; the source refuses it."""
    monkeypatch.setattr(RAM, "_calculate_ram_power", lambda *_: 0.0)
    with pytest.raises(SourceUnavailable, match="memory model"):
        HostEstimateSource(Clock(), cpu=False, ram=True).open()


def test_older_codecarbon_has_one_figure_for_each_gib(monkeypatch):
    """Without the module of version 3, the 3 W for 8 GiB of version 2.8 are taken."""
    monkeypatch.setitem(sys.modules, "codecarbon.external.ram", None)
    older = type("RAM", (), {"power_per_GB": 3 / 8})
    monkeypatch.setattr("codecarbon.external.hardware.RAM", older, raising=False)
    has_memory(monkeypatch, 16)
    source = HostEstimateSource(Clock(), cpu=False, ram=True)
    source.open()
    assert source.read()[0].value == pytest.approx(6.0)


def test_nothing_to_estimate_is_a_mistake():
    """Neither CPU nor memory is refused at construction."""
    with pytest.raises(ValueError, match="cpu=False, ram=False"):
        HostEstimateSource(Clock(), cpu=False, ram=False)


def test_our_use_is_quiet_and_the_users_log_is_not(monkeypatch):
    """CodeCarbon's records are dropped while it works for us, and come through after."""
    logger = logging.getLogger("codecarbon")
    seen = []
    handler = logging.Handler()
    handler.emit = lambda record: seen.append(record.getMessage())
    logger.addHandler(handler)
    really = TDP._get_cpu_power_from_registry

    def talkative(self, model):
        logger.warning("chatter")
        return really(self, model)

    monkeypatch.setattr(TDP, "_get_cpu_power_from_registry", talkative)
    estimate._table_tdp_w.cache_clear()
    try:
        opened_cpu(monkeypatch)
        assert seen == []
        logger.warning("the user's own tracker")
        assert seen == ["the user's own tracker"]
    finally:
        logger.removeHandler(handler)


def test_it_leaves_no_trace(tmp_path):
    """In a fresh process: no output, no file, no connection, no signal handler, no subprocess."""
    code = """
import os, signal, socket, subprocess, threading
before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
import codecarbon  # its import alone asks for rocm-smi; what follows is ours
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
    """Importing the module loads neither CodeCarbon nor psutil; opening it does."""
    code = (
        "import sys, energy_callbacks.sensing.sources.estimate as e;"
        "heavy = {'codecarbon', 'psutil', 'pandas', 'pynvml'};"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules);"
        "from energy_callbacks.sensing.clock import SystemClock;"
        "e.HostEstimateSource(SystemClock(), cpu=True, ram=True).open();"
        "assert {'codecarbon', 'psutil'} <= set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
