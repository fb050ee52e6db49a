"""Runs a matrix as users do: a TOML file, and the command in this process or in a new one."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

from energy_callbacks.cli import main

ROOT = Path(__file__).parents[2]
# Each job writes a line with its name, its start and its end.
JOB = """
import os, sys, time
begun = time.time()
name, rest_s, code = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
open("begun", "a").write(name + "\\n")
print("job", name)
time.sleep(rest_s)
mask = os.environ.get('CUDA_VISIBLE_DEVICES') or '-'
open("log", "a").write(f"{name} {begun} {time.time()} {mask}\\n")
sys.exit(code)
"""


class Lab:
    """A folder with a matrix of ``JOB``.

    Args:
        folder: an empty folder.
        environment: environment of the command; ``None`` for that of the caller.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self.folder = folder
        self.file = folder / "matrix.toml"
        self.results = folder / "energy_runs" / "lab"
        known = dict(os.environ if environment is None else environment)
        folders = (ROOT, ROOT / "integrations", Path(__file__).parent / "quick")
        path = os.pathsep.join(map(str, folders))
        self.environment = {"CUDA_VISIBLE_DEVICES": "", **known, "PYTHONPATH": path}
        (folder / "job.py").write_text(JOB, encoding="utf-8")
        self._started: list[subprocess.Popen[str]] = []

    def write(self, **changed: Any) -> None:
        """Write the TOML file; tables come last, as TOML requires."""
        content: dict[str, Any] = {
            "name": "lab",
            "command": [sys.executable, "job.py", "{a}-{b}-{repeat}", "0.3", "0"],
            "repeats": 1,
            "cool_down_s": 0,
            "graphs": False,
            "parameters": {"a": ["x"], "b": [1, 2]},
            **changed,
        }
        plain = {name: value for name, value in content.items() if not isinstance(value, dict)}
        tables = {name: value for name, value in content.items() if isinstance(value, dict)}
        lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
        for name, table in tables.items():
            lines += [f"[{name}]", *(f"{k} = {json.dumps(v)}" for k, v in table.items())]
        self.file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start the command in a new process group."""
        command = [sys.executable, "-m", "energy_callbacks", "matrix", str(self.file), *options]
        self._started.append(
            subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                process_group=0,
            )
        )
        return self._started[-1]

    def finish(self, *options: str, timeout_s: float = 600.0) -> "Ended":
        """Run the command in a new process until it ends."""
        process = self.start(*options)
        out, err = process.communicate(timeout=timeout_s)
        return Ended(process.returncode, out, err)

    def run(self, *options: str) -> "Ended":
        """Run the command in this process."""
        return self.call(str(self.file), *options)

    def call(self, *arguments: str) -> "Ended":
        """Run the command in this process with any arguments."""
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.dict(os.environ, self.environment, clear=True),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            code = main(["matrix", *arguments])
        return Ended(code, out.getvalue(), err.getvalue())

    @property
    def log(self) -> list[str]:
        """Names of the jobs that have ended, in order."""
        return [line.split()[0] for line in self._lines("log")]

    @property
    def begun(self) -> list[str]:
        """Names of the jobs that have begun, in order."""
        return self._lines("begun")

    def spans(self) -> list[tuple[float, float, str]]:
        """Return start, end and GPU mask of each job."""
        rows = (line.split() for line in self._lines("log"))
        return [(float(begun), float(ended), mask) for _, begun, ended, mask in rows]

    def table(self) -> dict[str, Any]:
        """Return the content of ``matrix.json``."""
        found: dict[str, Any] = json.loads((self.results / "matrix.json").read_text())
        return found

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def close(self) -> None:
        """Kill processes that a failed test has left."""
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


class Ended:
    """The exit code and output of a call."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err
