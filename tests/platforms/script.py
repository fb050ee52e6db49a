"""Imports and uses the package on simulated platforms: ``script.py FOLDER PLATFORM...``.

Results are in ``FOLDER/PLATFORM.json``. Frameworks are imported once; each platform is simulated in
a fork.
"""

import io
import json
import os
import pkgutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
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


def _error_of(work: Callable[[], object]) -> str | None:
    """Return the type and the message of the error that a call raises; ``None`` without error."""
    try:
        work()
    except Exception as error:  # noqa: BLE001 - is reported
        return f"{type(error).__name__}: {error}"
    return None


def missing() -> list[str]:
    """Return what of Linux is not there, so that tests fail if nothing is simulated."""
    names = [name for name in ("fork", "pread", "waitid") if not hasattr(os, name)]
    folders = [path for path in ("/proc", "/sys") if not Path(path).exists()]
    files = [path for path in ("/proc/stat", "/sys/class") if _error_of(partial(os.open, path, 0))]
    modules = ("fcntl", "grp", "pwd", "resource", "termios")
    return [
        *names,
        *folders,
        *files,
        *(one for one in modules if _error_of(partial(import_module, one))),
    ]


def refusals(folder: Path) -> dict[str, str | None]:
    """Return the errors of what works on Linux only."""
    from energy_callbacks.core import atomic_files
    from energy_callbacks.inference.profile.run_folder import RunFolder
    from energy_callbacks.powercap.safety.gpu_lock import GpuLocks
    from energy_callbacks.profiling.lines.stack_sampler import StackSampler
    from energy_callbacks.sensing.sources.sysfs.open_files import read_start

    with (folder / "file").open("w+b") as file:
        file.write(b"12")
        file.flush()
        return {
            "lock": _error_of(lambda: atomic_files.lock(file.fileno())),
            "read": _error_of(lambda: read_start(file.fileno(), 2)),
            "power limits": _error_of(lambda: GpuLocks(["GPU-0"], folder).close()),
            "models on one device": _error_of(RunFolder),
            "lines": _error_of(lambda: StackSampler(lambda *_: None, 10.0)),
        }


def signals() -> dict[str, Any]:
    """Return what becomes of two signals while a command runs."""
    from energy_callbacks.core.signals import ENDING, SignalHold

    found = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        hold = SignalHold(ENDING)
        with hold.held():
            signal.raise_signal(number)
            found[number.name] = (hold.wait(0.0), hold.first)
    return found


def train(folder: Path) -> dict[str, Any]:
    """Measure a plain loop, and return figures and text of its report."""
    from energy_callbacks import EnergyMeter
    from energy_callbacks.report import build
    from energy_callbacks.report.render import text

    with EnergyMeter(report_dir=folder, country="DEU") as meter, meter.phase("train"):
        end_s = time.monotonic() + 0.2
        meter.step(samples=1)
        while time.monotonic() < end_s:
            meter.step(samples=1)
    report = build(folder)
    return {
        "steps": report.throughput.steps,
        "host_j": report.energy.host.energy_j,
        "text": text.render(report),
    }


def command(*words: str) -> dict[str, Any]:
    """Run a command of the package in this process."""
    from energy_callbacks.cli import main

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(words)
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def results(folder: Path) -> dict[str, Any]:
    """Return what the tests of one platform compare."""
    python = (sys.executable, "-c", "import sys; print('from the child'); sys.exit(3)")
    return {
        "errors": import_all(),
        "missing": missing(),
        "refusals": refusals(folder),
        "signals": signals(),
        "loop": train(folder / "loop"),
        "doctor": command("doctor"),
        "monitor": command("monitor", "--seconds", "0.2", "--interval", "0.1", "--json"),
        "run": command("run", "--json", "--no-html", "--out", str(folder / "run"), "--", *python),
    }


def _simulated(platform: str, folder: Path, known: Collection[str]) -> None:
    folder.mkdir()
    simulate(platform, folder)
    forget()
    try:
        content = results(folder)
        content["errors"] = {k: v for k, v in content["errors"].items() if k not in known}
    except BaseException:  # noqa: BLE001 - is reported
        content = {"failure": traceback.format_exc()}
    folder.with_suffix(".json").write_text(json.dumps(content))


def main(folder: Path, *platforms: str) -> None:
    """Import all modules as they are, then simulate each platform in a fork."""
    known = import_all()  # of frameworks that are not installed
    children = []
    for platform in platforms:
        if (pid := os.fork()) == 0:
            _simulated(platform, folder / platform, known)
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
