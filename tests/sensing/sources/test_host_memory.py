"""Host memory, with real processes of known size."""

import mmap
import os
import subprocess
import sys

import psutil
import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceUnavailable
from energy_callbacks.sensing.sources.host_memory import HostMemorySource

MIB = 2**20


class Clock:
    """Time that goes on by eleven seconds a reading: children are listed each time."""

    now_s = 0.0

    def monotonic_s(self):
        self.now_s += 11.0
        return self.now_s


@pytest.fixture
def source():
    """An opened source."""
    source = HostMemorySource(Clock())
    source.open()
    yield source
    source.close()


def rss_bytes(source):
    """The one value of a read."""
    (reading,) = source.read()
    return reading.value


def test_child_of_100_mib_counts(source):
    """A child (and a grandchild) that holds 100 MiB adds that much, and no more once it ended."""
    code = (
        "import subprocess, sys; hold = bytearray(b'x' * (100 << 20));"
        "child = subprocess.Popen([sys.executable, '-c', '''import sys\n"
        'hold = bytearray(b"x" * (50 << 20)); print("ready", flush=True); sys.stdin.read()\'\'\'],'
        " stdout=subprocess.PIPE);"
        "child.stdout.readline(); print('ready', flush=True); sys.stdin.read()"
    )
    before_bytes = rss_bytes(source)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"ready\n"
        grown_bytes = rss_bytes(source) - before_bytes
        child.stdin.close()
        child.wait(timeout=600)
    # Two Python interpreters of about 10 MiB each come on top.
    assert 150 * MIB < grown_bytes < 210 * MIB
    assert abs(rss_bytes(source) - before_bytes) < 10 * MIB


def test_own_memory_counts(source):
    """100 MiB that this process touches are seen."""
    before_bytes = rss_bytes(source)
    # A mapping of its own: malloc may keep or reuse memory that was freed before.
    with mmap.mmap(-1, 100 * MIB) as hold:
        for _ in range(100):
            hold.write(b"x" * MIB)
        assert rss_bytes(source) - before_bytes == pytest.approx(len(hold), rel=0.05)


def test_child_that_vanishes_is_no_error(source, monkeypatch):
    """A child that ends between listing and reading counts nothing; the others still count."""
    own_bytes = psutil.Process().memory_info().rss
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        child = psutil.Process(ended.pid)
        ended.wait(timeout=600)
    asked = []
    monkeypatch.setattr(psutil.Process, "children", lambda *_, **__: asked.append(1) or [child])
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        assert rss_bytes(source) == pytest.approx(own_bytes, rel=0.05)
        living.communicate(b"\n", timeout=600)
    assert asked


def test_who_has_no_child_looks_for_none() -> None:
    """A look at every process of the machine is saved; a child that ended is left to its wait."""
    code = """if True:
        import os, psutil, subprocess, sys
        from energy_callbacks.sensing.clock import SystemClock
        from energy_callbacks.sensing.sources.host_memory import HostMemorySource

        def looks():
            source, asked = HostMemorySource(SystemClock()), []
            psutil.Process.children = lambda *_, **__: asked.append(1) or []
            source.open()
            assert len(source.read()) == 1
            return len(asked)

        assert looks() == 0
        child = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert looks() == 1
        assert child.wait() == 3
        assert looks() == 0
        """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_channel_says_what_it_is():
    """The channel is a gauge without energy that names itself an upper bound."""
    (channel,) = HostMemorySource(Clock()).open()
    assert (channel.quantity, channel.kind, channel.device.scope) == ("rss", "gauge", None)
    assert channel.device.key == channel.device.kind == "process"
    assert "upper bound" in channel.device.notes[0]


def test_failures_are_the_three_of_a_source(source, monkeypatch):
    """A process that cannot be read is a missed reading, or unavailable at the start."""

    def denied(_):
        raise psutil.AccessDenied(os.getpid())

    monkeypatch.setattr(psutil.Process, "memory_info", denied)
    with pytest.raises(ReadingMissed):
        source.read()
    with pytest.raises(SourceUnavailable):
        HostMemorySource(Clock()).open()
    source.close()
    with pytest.raises(ReadingMissed, match="open"):
        source.read()
