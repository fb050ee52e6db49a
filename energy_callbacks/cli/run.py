"""``energy-callbacks run``: measures a command from its start to its end."""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import COMMAND, TrainingProcess, new_folder
from energy_callbacks.cli.common import child, options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.common.run_folders import newest_at
from energy_callbacks.core import atomic_files
from energy_callbacks.core.config import RUN_DIR_VARIABLE, EnergyConfig, is_disabled
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import check_installed
from energy_callbacks.core.settings import texts
from energy_callbacks.core.signals import ENDING, SignalHold, existing
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.report import FORMATS, EnergyReport, Format, build, load, save
from energy_callbacks.report.analysis import side_by_side
from energy_callbacks.report.build import gather
from energy_callbacks.report.charts import gpu_stats_plot
from energy_callbacks.report.charts.drawing import why_left_out
from energy_callbacks.report.collect import gpu_stats
from energy_callbacks.report.model import schema
from energy_callbacks.report.render.text import summary_line
from energy_callbacks.sensing.gpus.drm_finder import keys_used_by
from energy_callbacks.sensing.sources.nvidia.processes import card_processes

HELP = "run a command and measure its energy"

# Signals that are held back while the command runs. They are passed on to the command, unless a
# terminal sent them, because a terminal also sends them to the command itself.
_PASSED_ON: Final = (*ENDING, *existing("SIGQUIT", "SIGUSR1", "SIGUSR2"))
# Options that are passed to ``EnergyConfig`` as settings of the same name, if they are given.
_SETTINGS: Final = (
    "country", "region", "carbon_intensity", "pue", "price_per_kwh", "currency", "devices"
)  # fmt: skip
# Interval in s at which the processes on the GPUs are listed, to find the GPUs that the command
# uses. A GPU that the command uses for a shorter time may be missed.
_CARD_CHECK_S: Final = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "energy-callbacks run [options] -- COMMAND [ARGUMENTS]"
    add_settings(parser)
    command = "-- COMMAND [ARGUMENTS]"
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar=command, help="command to run")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Declare all arguments except the command to measure."""
    add = parser.add_argument
    add("--name", help="name of the run (default: the name of the program)")
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="run folder; it must not contain a run (default: energy_runs/NAME-TIME)",
    )
    add(
        "--devices",
        type=options.device_list,
        metavar="LIST",
        help="GPUs to measure: all, or indices and UUIDs, such as 0,1 (default: the GPUs "
        "that the command can use, or only those that its processes are found to use)",
    )
    add(
        "--tag",
        type=_tag,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="label that the report shows, such as lr=1e-3; may be given several times",
    )
    options.add_location(parser)
    add(
        "--carbon-intensity",
        type=texts.number,
        metavar="X",
        help="gCO2e per kWh of electricity, or a CSV file with times and intensities",
    )
    add("--pue", type=float, help="power usage effectiveness of the building (default: 1)")
    options.add_price(parser)
    add("--no-html", action="store_true", help="write no HTML page, only JSON and text")
    add("--graphs", action="store_true", help="also write each chart of the report as a PNG file")
    add(
        "--compare-with",
        type=Path,
        metavar="PATH",
        help="run folder or report of an earlier run, which is printed side by side with this run",
    )
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure the command after ``--``, and return its exit code."""
    return measure(arguments, words(arguments))


def words(arguments: argparse.Namespace) -> list[str]:
    """Return the command to measure with its arguments: the words after ``--``."""
    given: list[str] = arguments.words
    return given[1:] if given[:1] == ["--"] else given


def measure(arguments: argparse.Namespace, command: list[str]) -> int:
    """Measure a command, and write the report.

    If the package is disabled, or if another ``energy-callbacks run`` measures this process, the
    command replaces this process, and this call measures nothing. With ``--json``, standard output
    is for the report, and what the command prints there goes to standard error.

    Args:
        arguments: settings that ``add_settings`` declares.
        command: program and arguments.

    Returns:
        The exit code of the command; 126 or 127, as in a shell, if the command cannot be run. If a
        signal ended the command, the same signal ends this process instead.

    Raises:
        ValueError: if there is no command, if a setting is invalid, if this process is one of
            several processes of a launcher (``WORLD_SIZE`` above 1), or if the run folder already
            contains a run.
        JournalError: if the older run to compare with cannot be read.
        MissingExtraError: for ``--graphs`` if matplotlib is not installed.
    """
    _check(arguments, command)
    if is_disabled() or _is_measured():
        if arguments.json:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        if sys.platform == "win32":  # there, ``execvp`` would not wait for the command
            return subprocess.call(command)  # noqa: S603 - the command comes from the user
        os.execvp(command[0], command)  # noqa: S606 - the command comes from the user
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ValueError(
            "WORLD_SIZE is set: a launcher has started several of these processes, and each would "
            "measure the same host; measure the launcher: energy-callbacks run -- torchrun ..."
        )
    if (problem := child.problem(command[0])) is not None:
        logger.error("energy-callbacks run: %s: %s", command[0], problem[1])
        return problem[0]
    before = None if arguments.compare_with is None else load(newest_at(arguments.compare_with))
    hold = SignalHold(_PASSED_ON)
    with hold.held():
        meter = _meter(arguments, command)
        logger.debug("run folder: %s", meter.run_folder)
        code = _measured(meter, command, hold, own_stdout=not arguments.json)
        assert meter.run_folder is not None
        try:
            _report(meter.run_folder, arguments, before)
        except Exception as error:  # noqa: BLE001 - the command's exit code must not change
            logger.error(
                "energy-callbacks run: the report failed: %r; the journal is in %s",
                *(error, meter.run_folder),
                exc_info=arguments.verbose,
            )
    return child.end_as(code)


def _is_measured() -> bool:
    """Return whether another ``energy-callbacks run`` measures this process."""
    folder = os.environ.get(RUN_DIR_VARIABLE)
    for path in journal.find(Path(folder)) if folder else ():
        with suppress(JournalError):
            header = journal.header(path)
            if header.get("framework") == COMMAND and not journal.is_gone(header):
                return True
    return False


def _meter(arguments: argparse.Namespace, command: Sequence[str]) -> EnergyMeter:
    """Return a started meter for a command.

    Raises:
        ValueError: if a setting is invalid, or if the run folder already contains a run.
    """
    name = arguments.name or _name_of(command)
    given = {setting: getattr(arguments, setting) for setting in _SETTINGS}
    given |= {"report_dir": arguments.out, "tags": dict(arguments.tag) or None}
    config = EnergyConfig(
        run_name=name, **{setting: value for setting, value in given.items() if value is not None}
    )
    folder = config.run_folder or _new_folder(name)
    if any(Path(folder).glob("attempts/*/*.jsonl")):
        raise ValueError(f"--out {folder} already contains a run; give another folder")
    return EnergyMeter(config=config)._start(folder, process=TrainingProcess(framework=COMMAND))


def _name_of(command: Sequence[str]) -> str:
    """Return the name of the command's script, or of its program if there is no script.

    The name has no suffix. The script is the first argument that ends with ``.py`` or ``.sh``.
    """
    scripts = [word for word in command[1:] if word.endswith((".py", ".sh"))]
    return Path(scripts[0] if scripts else command[0]).stem


def _new_folder(name: str) -> Path:
    """Create and return a folder in ``energy_runs``, named after the run and the current time."""
    return new_folder(Path("energy_runs") / f"{_safe(name)}-{time.strftime('%Y%m%d-%H%M%S')}")


def _safe(name: str) -> str:
    """Return a run's name as a file name: at most 60 letters, digits, ``.``, ``_`` and ``-``."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:60] or "run"


def _measured(
    meter: EnergyMeter, command: Sequence[str], hold: SignalHold, *, own_stdout: bool
) -> int:
    """Run a command, and stop the meter when the command has ended.

    Child processes of the command that outlive it are not waited for. If a signal has already
    arrived, the command is not started.

    Args:
        meter: the running meter.
        command: program and arguments.
        hold: holds back the signals ``_PASSED_ON``.
        own_stdout: whether the command prints to the standard output of this process; otherwise, it
            prints to standard error.

    Returns:
        The exit code of the command, or minus the number of the signal that ended the command or
        arrived before its start.
    """
    hold.wait(0.0)
    if (number := hold.first) is not None:
        meter.stop(KeyboardInterrupt(signal.Signals(number).name))
        return -number
    seen: set[str] = set()
    environment = {**os.environ, RUN_DIR_VARIABLE: str(meter.run_folder)}
    process = child.start(command, environment, hold.mask_before, own_stdout=own_stdout)
    while (code := process.poll()) is None:
        for number in hold.wait(_CARD_CHECK_S):
            process.send_signal(number)
        if process.poll() is None and (used := _used(meter, process.pid, seen)):
            meter._record("used", devices=list(used))
            seen |= used
    meter.stop(child.as_error(code))
    return code


def _used(meter: EnergyMeter, pid: int, seen: set[str]) -> set[str]:
    """Return the keys of GPUs on which a process of the command is found for the first time.

    Args:
        meter: the running meter, which knows the GPUs.
        pid: process id of the command.
        seen: keys of GPUs on which a process of the command was found before.
    """
    unseen = [one for one in meter.devices if one.kind == "gpu" and one.key not in seen]
    pids = _with_descendants(pid) if unseen else set()
    others = keys_used_by(pids)
    return {
        device.key
        for device in unseen
        if device.key in others
        or (device.uuid and pids & {process.pid for process in card_processes(device.uuid)})
    }


def _with_descendants(pid: int) -> set[int]:
    with suppress(psutil.Error):
        return {pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))}
    return {pid}


def _report(folder: Path, arguments: argparse.Namespace, before: EnergyReport | None) -> None:
    """Write the files of the report, and print a summary to standard error, or the report as JSON.

    Args:
        folder: run folder of the stopped meter.
        arguments: settings that ``add_settings`` declares.
        before: report of an older run to compare with; ``None`` for no comparison.
    """
    report = build(folder)
    formats: list[Format] = [name for name in FORMATS if not (arguments.no_html and name == "html")]
    paths = save(report, folder, formats)
    logger.info("energy: %s", summary_line(report, paths[0]))
    _save_samples(folder, report.run.name or "run")
    if arguments.graphs:
        save(report, folder, ("png",))
    if before is not None:
        comparison = side_by_side.render(before, report)
        atomic_files.write(folder / "comparison.txt", comparison)
        logger.info("%s", comparison.rstrip())
    if arguments.json:
        with options.until_reader_ends():
            sys.stdout.write(schema.to_json(report))


def _check(arguments: argparse.Namespace, command: list[str]) -> None:
    if not command:
        raise ValueError("there is no command; write it after --: run -- python train.py")
    if arguments.graphs:
        check_installed("matplotlib")


def _save_samples(folder: Path, name: str) -> None:
    """Write the readings of the GPUs as JSON, as a plot, and as a text summary.

    The JSON has the field names of the program gputop. Without readings, no file is written.
    """
    attempts = gather(folder)
    samples = gpu_stats.samples(attempts)
    if not samples:
        return
    started = time.strftime("%Y%m%d_%H%M%S", time.localtime(attempts[0].lead.unix_s))
    stem = folder / f"gpu_stats_{_safe(name)}_{started}"
    gpu_stats.write(samples, stem.with_name(f"{stem.name}.json"))
    if not why_left_out():
        gpu_stats_plot.save(samples, stem.with_name(f"{stem.name}_plot.png"))
    atomic_files.write(stem.with_name(f"{stem.name}_summary.txt"), gpu_stats.summary(samples))


def _tag(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE, such as lr=1e-3, got {word!r}")
    return name, value
