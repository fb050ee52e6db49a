"""Imports and uses the package on simulated platforms: ``script.py FOLDER PLATFORM...``.

Results are in ``FOLDER/PLATFORM.json``. Frameworks are imported once; each platform is simulated in
a fork.
"""

import io
import json
import os
import pkgutil
import sys
import time
import traceback
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tests.platforms.simulation import simulate

PACKAGES: Final = (
    "energy_callbacks",
    "energy_callbacks_lightning",
    "energy_callbacks_keras",
    "energy_callbacks_huggingface",
)


def import_all() -> dict[str, str]:
    """Import all modules except programs, and return the errors by module."""
    errors = {}
    for package in PACKAGES:
        path = import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            if not module.name.endswith("__main__"):
                try:
                    import_module(module.name)
                except Exception:  # noqa: BLE001 - is reported
                    errors[module.name] = traceback.format_exc()
    return errors


def forget() -> None:
    """Let the modules of the package be imported again."""
    for name in [name for name in sys.modules if name.partition(".")[0] in PACKAGES]:
        del sys.modules[name]


def missing() -> dict[str, bool]:
    """Return what of Linux is not there, so that a test fails if nothing is simulated."""

    def fails(work: Any) -> bool:
        try:
            work()
        except (ImportError, OSError):
            return True
        return False

    return {
        "/proc": fails(lambda: Path("/proc/self/status").read_text()),
        "/sys": fails(lambda: os.open("/sys", os.O_RDONLY)) and not Path("/sys").exists(),
        "fcntl": fails(lambda: import_module("fcntl")),
        "resource": fails(lambda: import_module("resource")),
        "termios": fails(lambda: import_module("termios")),
        "fork": not hasattr(os, "fork"),
        "sigtimedwait": "SignalHold" in vars(import_module("energy_callbacks.core.signals"))
        and not hasattr(import_module("signal"), "sigtimedwait"),
    }


def train(folder: Path) -> str:
    """Measure a plain loop, and return the text of its report."""
    from energy_callbacks import EnergyMeter
    from energy_callbacks.report import build
    from energy_callbacks.report.render import text

    with EnergyMeter(report_dir=folder, country="DEU") as meter:
        end_s = time.monotonic() + 0.2
        while time.monotonic() < end_s:
            sum(range(10_000))
            meter.step(samples=1)
    return text.render(build(folder))


def command(*words: str) -> dict[str, Any]:
    """Run a command of the package in this process."""
    from energy_callbacks.cli import main

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def results(folder: Path) -> dict[str, Any]:
    """Return what the tests of one platform compare."""
    python = (sys.executable, "-c", "import sys; print('child'); sys.exit(3)")
    return {
        "errors": import_all(),
        "missing": missing(),
        "report": train(folder / "loop"),
        "doctor": command("doctor"),
        "monitor": command("monitor", "--seconds", "0.2", "--interval", "0.1", "--json"),
        "run": command("run", "--json", "--no-html", "--out", str(folder / "run"), "--", *python),
    }


def main(folder: Path, *platforms: str) -> None:
    """Import all modules as they are, then simulate each platform in a fork."""
    import_all()
    for platform in platforms:
        own = folder / platform
        own.mkdir()
        if (pid := os.fork()) == 0:
            simulate(platform, own)
            forget()
            try:
                content = results(own)
            except BaseException:  # noqa: BLE001 - is reported
                content = {"failure": traceback.format_exc()}
            (folder / f"{platform}.json").write_text(json.dumps(content))
            os._exit(0)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
