"""Runs a command in a real terminal (tmux) and reads the screen."""

import os
import shlex
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# Variables of the tests' own terminal must not reach the command.
_OURS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "TMUX")
# Written after the output of the command; terminals ignore this character.
_END = b"\0"


class Terminal:
    """One window of tmux with a server of its own.

    Args:
        server: name of the server.
        raw: file with everything that the command has written.
    """

    def __init__(self, server: str, raw: Path) -> None:
        self._tmux = ("tmux", "-u", "-f", "/dev/null", "-L", server)
        self._raw = raw

    def tmux(self, *command: str, timeout_s: float = 600.0) -> str:
        """Run a command of the server."""
        done = subprocess.run(
            [*self._tmux, *command],
            capture_output=True, text=True, check=True, timeout=timeout_s,
        )  # fmt: skip
        return done.stdout

    def wait(self, timeout_s: float = 600.0) -> int:
        """Wait until the command has ended and all its output is there; return its exit code."""
        end_s = time.monotonic() + timeout_s
        while not self._raw.read_bytes().endswith(_END):
            assert time.monotonic() < end_s, self.lines
            time.sleep(0.02)
        return int((self._raw.parent / "code").read_text())

    @property
    def lines(self) -> list[str]:
        """Return all lines of the screen and of its history."""
        return self.tmux("capture-pane", "-p", "-S", "-").rstrip().splitlines()

    @property
    def wrapped(self) -> int:
        """Return the number of lines that were wider than the terminal."""
        joined = self.tmux("capture-pane", "-p", "-J", "-S", "-").rstrip().splitlines()
        return len(self.lines) - len(joined)

    @property
    def raw(self) -> str:
        """Return everything that was written so far, including escape sequences."""
        return self._raw.read_text(encoding="utf-8", errors="replace")


@contextmanager
def terminal(
    command: Sequence[str],
    folder: Path,
    *,
    environment: Mapping[str, str] | None = None,
    width: int = 80,
    height: int = 50,
    **settings: str,
) -> Iterator[Terminal]:
    """Open a terminal in which a command runs.

    Args:
        command: to run.
        folder: for its output.
        environment: of the command; by default that of this process.
        width: in columns.
        height: in lines.
        settings: additional variables, such as ``NO_COLOR="1"``.
    """
    folder.mkdir(parents=True, exist_ok=True)
    inherited = {k: v for k, v in (environment or os.environ).items() if k not in _OURS}
    shown = Terminal(f"test-{uuid.uuid4().hex[:8]}", folder / "raw")
    (folder / "raw").touch()
    words = ["env", *(f"{name}={value}" for name, value in settings.items()), *command]
    # The pipe is opened before the command begins; its exit code is written when it has ended.
    # Without the trap, Ctrl-C would also end a shell such as dash.
    script = (
        f"trap : INT; tmux wait-for begin; {shlex.join(words)}; "
        f"echo $? > {shlex.quote(str(folder / 'code'))}; printf '\\000'; sleep 600"
    )
    subprocess.run(
        [*shown._tmux, "new-session", "-d", "-x", str(width), "-y", str(height), script],
        env=inherited | {"LANG": "C.UTF-8"}, check=True, timeout=600.0,
    )  # fmt: skip
    try:
        shown.tmux("pipe-pane", f"cat > {shlex.quote(str(folder / 'raw'))}")
        shown.tmux("wait-for", "-S", "begin")
        yield shown
    finally:
        shown.tmux("kill-server")
