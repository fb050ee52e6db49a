"""Runs a command of the system and reads its output, within a time limit.

A command never waits for a password or other input, and gets no signals that the terminal sends to
this process. If this process is killed, the pipe closes, so that a command that goes on writing
ends.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Final

from energy_callbacks.core.errors import SourceLost, SourceUnavailable

# Maximum time in s for which the end of a command is awaited after a signal.
_END_S: Final = 1.0
# Size of one read of a pipe, byte.
_CHUNK: Final = 65_536
# Number of characters of an error message that are shown.
_SHOWN: Final = 300


class Command:
    """A running command.

    Args:
        arguments: program and arguments; texts are in English (``LC_ALL=C``).

    Raises:
        SourceUnavailable: if the program cannot be started.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        self._name = arguments[0]
        self._rest = b""
        self._errors: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by ``close``
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - no shell
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise SourceUnavailable(f"cannot run {self._name}: {error.strerror}") from error
        assert self._process.stdout is not None
        self._output: IO[bytes] = self._process.stdout

    def output(self, patience_s: float) -> bytes:
        """Return the whole output of a command that ends by itself.

        Raises:
            SourceLost: if it fails, or has not ended within ``patience_s`` seconds. It was ended.
        """
        try:
            if self._reads_on(b"", patience_s):
                raise SourceLost(f"{self._name} has not ended within {patience_s:g} s")
            if self._process.wait(_END_S):
                raise SourceLost(self.failure())
        finally:
            self.close()
        return self._rest

    def documents(self, end: bytes, patience_s: float = 0.0) -> list[bytes]:
        """Return the documents that the command has completed since the last call.

        Args:
            end: bytes at the end of each document; they are left out.
            patience_s: time to wait for a first document, s.

        Raises:
            SourceLost: if the command has ended and there are no more documents.
        """
        is_open = self._reads_on(end, patience_s)
        *found, self._rest = self._rest.split(end)
        if not is_open and not found:
            raise SourceLost(self.failure())
        return found

    def failure(self) -> str:
        """Return why the command ended, for messages."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-_SHOWN:]
        return f"{self._name} has ended: {said or f'exit code {self._process.poll()}'}"

    def close(self) -> None:
        """End the command; safe to call twice.

        A command that ``sudo`` runs as another user gets no signal from this process. It ends
        because its output is closed.
        """
        self._output.close()
        for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if self._process.poll() is None:
                self._end(number)
        self._errors.close()

    def _end(self, number: int) -> None:
        with suppress(OSError):  # it runs as another user, or has ended
            if sys.platform == "win32":
                self._process.terminate()
            else:
                os.killpg(self._process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)

    def _reads_on(self, end: bytes, patience_s: float) -> bool:
        """Read all output that there is, and return whether the command may write more.

        Waits until there is the end of a document, or for ``patience_s`` seconds. If ``end`` is
        empty, waits until the command closes its output.
        """
        end_s = time.monotonic() + patience_s
        while True:
            is_enough = bool(end) and end in self._rest
            wait_s = 0.0 if is_enough else max(end_s - time.monotonic(), 0.0)
            if not select.select([self._output], [], [], wait_s)[0]:
                return True
            new = os.read(self._output.fileno(), _CHUNK)
            self._rest += new
            if not new:
                return False
