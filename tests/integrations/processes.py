"""Scripts in processes of their own, as users run them: ranks, and what signals end.

Importing a framework takes longer than most of these trainings. So ``Forking`` forks a process that
has imported it. Not for TensorFlow and JAX, whose threads do not survive a fork: with ``Spawning``
each process begins from nothing. Either way a script ends as an interpreter does: with its exit
status, its traceback and its exit hooks.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar, Protocol

from tests.integrations.run_script import serve_in_a_fork

ROOT = Path(__file__).parents[2]
# What every training of ours imports.
_ALWAYS = ("codecarbon", "pandas", "energy_callbacks.report", "tests.fake_nvml")
_RUN = (sys.executable, "-m", "tests.integrations.run_script")
SHARED = {
    "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "integrations"))),
    "OMP_NUM_THREADS": "1",
}


@dataclass(frozen=True, kw_only=True)
class Script:
    """A script and how to run it.

    Attributes:
        module: its name.
        folder: where it runs, and where ``output`` has what it says on both streams.
        arguments: of its command line.
        environment: of its process, beside ours.
    """

    module: str
    folder: Path
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def output(self) -> str:
        """What it has said; nothing where it has not begun."""
        path = self.folder / "output"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


class Running(Protocol):
    """A script that has been started.

    Attributes:
        pid: of its process.
    """

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Its exit status, negative where a signal ended it; ``None`` while it runs."""


def wait(running: Running, timeout_s: float = 600.0) -> int:
    """The exit status of a script.

    Raises:
        TimeoutError: where it has not ended in time.
    """
    end_s = time.monotonic() + timeout_s
    while (status := running.poll()) is None:
        if time.monotonic() > end_s:
            raise TimeoutError(f"process {running.pid} still runs after {timeout_s:g} s")
        time.sleep(0.01)
    return status


class Scripts(Protocol):
    """Starts scripts.

    Attributes:
        are_quick: whether a process is there in less time than it takes to import a framework.
    """

    are_quick: ClassVar[bool]

    def start(self, script: Script) -> Running:
        """A process with a script."""


class Spawning:
    """Starts scripts from nothing."""

    are_quick: ClassVar = False

    def start(self, script: Script) -> Running:
        """A process with a script."""
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
    """Starts scripts in forks of another process, its server.

    Args:
        questions: to the server, which ends where they do.
        answers: of the server.
        wait: for the end of the server.
    """

    are_quick: ClassVar = True

    def __init__(self, questions: IO[str], answers: IO[str], wait: Callable[[], object]) -> None:
        self._questions = questions
        self._answers = answers
        self._wait = wait
        self._ended: dict[int, int] = {}

    @classmethod
    def importing(cls, *modules: str) -> "Forking":
        """The server is a new process that has imported some modules."""
        server = subprocess.Popen(
            [*_RUN, "--fork-server", *_ALWAYS, *modules],
            cwd=ROOT,
            env=os.environ | SHARED,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert server.stdin is not None
        assert server.stdout is not None
        return cls(server.stdin, server.stdout, server.wait)

    @classmethod
    def this_process(cls) -> "Forking":
        """The server is a fork of this process as it is now: to be made before the first test."""
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
        """A process with a script."""
        content = {
            "module": script.module,
            "folder": str(script.folder),
            "arguments": script.arguments,
            "environment": SHARED | script.environment,
        }
        return Fork(self._ask({"start": content}), self)

    def status_of(self, pid: int) -> int | None:
        """The exit status of a fork; ``None`` while it runs."""
        if pid not in self._ended:
            ended: dict[str, int] = self._ask({"ended": None})
            self._ended |= {int(one): status for one, status in ended.items()}
        return self._ended.get(pid)

    def close(self) -> None:
        """End the server; nobody waits for its forks any more."""
        self._questions.close()
        self._answers.close()
        self._wait()

    def _ask(self, question: Mapping[str, Any]) -> Any:
        print(json.dumps(question), file=self._questions, flush=True)
        return json.loads(self._answers.readline())


@dataclass(frozen=True)
class Fork:
    """A script in a fork."""

    pid: int
    server: Forking

    def poll(self) -> int | None:
        """See ``Running``."""
        return self.server.status_of(self.pid)
