"""Commands are ended in time, together with their children, and never wait for input."""

import os
import resource
import subprocess
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from energy_callbacks.core.errors import SourceLost, SourceUnavailable
from energy_callbacks.sensing.sources.commands.command import Command
from tests.core.waiting import until
from tests.sensing.sources.commands.recordings import python, refused

# Starts a child that writes now and then, writes the process ids of both, ignores the polite
# signal, and sleeps.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
writer = "import time\\nwhile True: print('+', end='', flush=True); time.sleep(0.01)"
child = subprocess.Popen([sys.executable, "-c", writer])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_the_output_of_a_command_that_ends_is_returned() -> None:
    """Its texts are in English, and it has no input to wait for."""
    script = "import os, sys; print(os.environ['LC_ALL'], repr(sys.stdin.read()))"
    assert Command(python(script)).output(30.0) == b"C ''\n"


def test_a_failure_has_the_message_of_the_command() -> None:
    """The exit code decides, and is named if there is no message."""
    with pytest.raises(SourceLost, match="has ended: no permission"):
        Command(refused("no permission")).output(30.0)
    with pytest.raises(SourceLost, match="has ended: exit code 3"):
        Command(refused("", 3)).output(30.0)


def test_a_program_that_does_not_exist_is_unavailable() -> None:
    """The message names it."""
    with pytest.raises(SourceUnavailable, match="cannot run no-such-program: No such file"):
        Command(("no-such-program",))


def test_a_command_that_hangs_is_killed_with_its_children() -> None:
    """It ignores the polite signal; neither it nor its child is left, also not as a zombie."""
    command = Command(python(STUBBORN))
    [line] = command.documents(b"\n", 30.0)
    pid, child = map(int, line.replace(b"+", b"").split())
    assert is_running(pid)
    assert is_running(child)
    with pytest.raises(SourceLost, match=r"has not ended within 0.1 s"):
        command.output(0.1)
    assert not psutil.pid_exists(pid)
    until(lambda: not is_running(child))
    command.close()


def test_documents_are_returned_when_they_are_complete(tmp_path: Path) -> None:
    """The rest of an unfinished document comes with the next one."""
    os.mkfifo(tmp_path / "pipe")
    script = "import sys\nfor line in open(sys.argv[1]): print(line[:-1], end='', flush=True)"
    command = Command(python(script, tmp_path / "pipe"))
    with (tmp_path / "pipe").open("w") as pipe:
        print("one;tw", file=pipe, flush=True)
        assert command.documents(b";", 30.0) == [b"one"]
        assert command.documents(b";") == []
        print("o;three;", file=pipe, flush=True)
        assert command.documents(b";", 30.0) == [b"two", b"three"]
    with pytest.raises(SourceLost, match="has ended: exit code 0"):
        command.documents(b";", 30.0)
    command.close()
    command.close()


def test_a_process_with_many_open_files_reads_the_output() -> None:
    """File descriptors may be above 1024, the largest number that ``select`` takes."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 1200), limits[1]))
    with ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        for _ in range(1100):
            opened.enter_context(Path(os.devnull).open())
        command = Command(python("print('one;')"))
        opened.callback(command.close)
        assert command.documents(b";", 30.0) == [b"one"]
        assert Command(python("print(1)")).output(30.0) == b"1\n"


def test_a_command_ends_if_this_process_is_killed() -> None:
    """It writes to a pipe that nobody reads."""
    script = (
        "import os, sys; from energy_callbacks.sensing.sources.commands.command import Command\n"
        "writer = 'while True: print(os.getpid(), flush=True); time.sleep(0.01)'\n"
        "command = Command((sys.executable, '-c', 'import os, time\\n' + writer))\n"
        "print(command.documents(b'\\n', 30.0)[0].decode(), flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run(python(script), stdout=subprocess.PIPE, check=False)
    assert killed.returncode == -9
    until(lambda: not is_running(int(killed.stdout)))
