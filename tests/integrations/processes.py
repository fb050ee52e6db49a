"""Runs scripts in separate processes, as users do, for tests of several ranks and of signals.

Importing a framework takes longer than most of these trainings, so ``Forking`` forks a process that
has already imported it. TensorFlow and JAX start threads, which do not survive a fork, at their
first computation, so that process computes nothing. ``Spawning`` starts a new interpreter for each
script. With both, a script ends like an ordinary Python script: with its exit status, its traceback
and its exit hooks.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Protocol

from energy_callbacks.report_process.queue import PROCESS_VARIABLE
from tests.integrations.run_script import import_late_modules, serve_in_a_fork

ROOT = Path(__file__).parents[2]
# Modules that every training with our callback imports.
_ALWAYS = ("codecarbon", "pandas", "energy_callbacks.report", "tests.fake_nvml")
_RUN = (sys.executable, "-m", "tests.integrations.run_script")
SHARED = {
    "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "integrations"))),
    "OMP_NUM_THREADS": "1",
    # A report process would import everything again; without it, reports are made at exit.
    PROCESS_VARIABLE: "0",
}


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script and how to run it.

    Attributes:
        module: name of the script's module.
        folder: working directory; its file ``output`` receives stdout and stderr of the script.
        arguments: command line arguments.
        environment: environment variables that are added to those of this process.
    """

    module: str
    folder: Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """Return the output of the script so far, or an empty string if it has not started."""
        path = self.folder / "output"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class Running(Protocol):
    """A script that has been started.

    Attributes:
        pid: id of its process.
    """

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return its exit status, negative if a signal ended it, or ``None`` while it runs."""


def wait(running: Running, timeout_s: float = 600.0) -> int:
    """Wait for the end of a script and return its exit status.

    Raises:
        TimeoutError: if it has not ended within ``timeout_s`` seconds.
    """
    end_s = time.monotonic() + timeout_s
    while (status := running.poll()) is None:
        if time.monotonic() > end_s:
            raise TimeoutError(f"process {running.pid} still runs after {timeout_s:g} s")
        time.sleep(0.01)
    return status


class Scripts(Protocol):
    """Starts scripts."""

    def start(self, script: Script) -> Running:
        """Start a process that runs the script."""


class Spawning:
    """Starts each script in a new interpreter."""

    def start(self, script: Script) -> Running:
        """Start a process that runs the script."""
        with (script.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [*_RUN, script.module, *script.arguments],
                cwd=script.folder,
                env=os.environ | SHARED | script.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )


class Forking:
    """Starts scripts in forks of a server process, see ``run_script.serve``.

    Args:
        questions: stream to the server; the server exits when this stream is closed.
        answers: stream from the server.
        wait: called to wait for the end of the server.
    """

    def __init__(self, questions: IO[str], answers: IO[str], wait: Callable[[], object]) -> None:
        self._questions = questions
        self._answers = answers
        self._wait = wait
        self._ended: dict[int, int] = {}

    @classmethod
    def importing(
        cls, *modules: str, always: Sequence[str] = _ALWAYS, **environment: str
    ) -> "Forking":
        """Start a new process as the server, which imports these modules."""
        server = subprocess.Popen(
            [*_RUN, "--fork-server", *always, *modules],
            cwd=ROOT,
            env=os.environ | SHARED | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        return cls(server.stdin, server.stdout, server.wait)

    @classmethod
    def this_process(cls) -> "Forking":
        """Fork this process as it is now to be the server; call this before the first test."""
        import_late_modules()
        (asked, questions), (answers, answered) = os.pipe(), os.pipe()
        server = os.fork()
        if not server:
            os.close(questions)
            os.close(answers)
            serve_in_a_fork(os.fdopen(asked), os.fdopen(answered, "w"))
        os.close(asked)
        os.close(answered)
        return cls(os.fdopen(questions, "w"), os.fdopen(answers), lambda: os.waitpid(server, 0))

    def start(self, script: Script) -> "Fork":
        """Start a fork that runs the script."""
        content = {
            "module": script.module,
            "folder": str(script.folder),
            "arguments": script.arguments,
            "environment": SHARED | script.environment,
        }
        pid = self._ask({"start": content})
        self._ended.pop(pid, None)  # an earlier fork may have had the same process id
        return Fork(pid, self)

    def status_of(self, pid: int) -> int | None:
        """Return the exit status of a fork, or ``None`` while it runs."""
        if pid not in self._ended:
            ended: dict[str, int] = self._ask({"ended": None})
            self._ended |= {int(one): status for one, status in ended.items()}
        return self._ended.get(pid)

    def close(self) -> None:
        """End the server without waiting for forks that are still running."""
        self._questions.close()
        self._answers.close()
        self._wait()

    def _ask(self, question: Mapping[str, Any]) -> Any:
        print(json.dumps(question), file=self._questions, flush=True)
        return json.loads(self._answers.readline())


@dataclass(frozen=True)
class Fork:
    """A script that runs in a fork of the server."""

    pid: int
    server: Forking

    def poll(self) -> int | None:
        """See ``Running``."""
        return self.server.status_of(self.pid)
