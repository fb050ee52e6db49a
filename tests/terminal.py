"""Runs a command in a real terminal (tmux) and reads the screen."""

import os
import shlex
import subprocess
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

# Variables of the tests' own terminal must not reach the command.
_OURS = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "TMUX")


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

    def wait(self) -> int:
        """Wait until the command has ended; return its exit code."""
        self.tmux("wait-for", "ended")
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
        """Return everything that was written, including escape sequences."""
        return self._raw.read_text(encoding="utf-8")


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
    script = (
        f"tmux wait-for begin; {shlex.join(words)}; echo $? > {shlex.quote(str(folder / 'code'))}; "
        "tmux wait-for -S ended; sleep 600"
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
