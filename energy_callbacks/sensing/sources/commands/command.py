"""Runs a command of the system and reads its output, within a time limit.

A command never waits for a password or other input, and gets no signals that the terminal sends to
this process. If this process is killed, the pipe closes, so that a command that goes on writing
ends.
"""

import os
import selectors
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from typing import IO, Final

from energy_callbacks.core.errors import SourceLost, SourceUnavailable

# Maximum time in s for which the end of a command is awaited.
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
            content, _ = self._process.communicate(timeout=patience_s)
            if self._process.returncode:
                raise SourceLost(self._failure())
        except subprocess.TimeoutExpired as error:
            raise SourceLost(f"{self._name} has not ended within {patience_s:g} s") from error
        finally:
            self.close()
        return content

    def documents(self, end: bytes, patience_s: float = 0.0) -> list[bytes]:
        """Return the documents that the command has completed since the last call.

        Args:
            end: bytes at the end of each document; they are left out.
            patience_s: time to wait for a first document, s.

        Raises:
            SourceLost: if the command has ended and there are no more documents.
        """
        end_s = time.monotonic() + patience_s
        is_open = True
        while is_open and self._has_output(0.0 if end in self._rest else end_s - time.monotonic()):
            new = os.read(self._output.fileno(), _CHUNK)
            self._rest += new
            is_open = bool(new)
        *found, self._rest = self._rest.split(end)
        if not (found or is_open):
            raise SourceLost(self._failure())
        return found

    def _has_output(self, wait_s: float) -> bool:
        """Wait until there is more output, or the command has closed it; return whether so."""
        # ``select.select`` would fail in a process with more than 1024 open files.
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            return bool(selector.select(max(wait_s, 0.0)))

    def _failure(self) -> str:
        """Return why the command ended, for messages."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip()[-_SHOWN:]
        return f"{self._name} has ended: {said or f'exit code {self._process.poll()}'}"

    def close(self) -> None:
        """End the command; safe to call twice.

        Its children, and a command that ``sudo`` runs as another user, get no signal from this
        process. They end because their output is closed.
        """
        self._output.close()
        with suppress(OSError):  # it runs as another user
            self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._errors.close()
