"""``energy-callbacks run``: any command, measured from its start to its end."""

import argparse
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from energy_callbacks.accounting.journal.launch import COMMAND, TrainingProcess, new_folder
from energy_callbacks.cli.child import Child, end_as, first_pending, signals_held
from energy_callbacks.core import atomic_files
from energy_callbacks.core.config import RUN_DIR_VARIABLE, EnergyConfig, is_disabled
from energy_callbacks.core.errors import JournalError
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.report import EnergyReport, load, save
from energy_callbacks.report.analysis import side_by_side
from energy_callbacks.report.build import gather
from energy_callbacks.report.charts import gpu_stats_plot
from energy_callbacks.report.collect import gpu_stats
from energy_callbacks.sensing.sources.nvidia.processes import card_processes

HELP = "measure any command from its start to its end"

# What shells answer for a program that is not there, and for one that may not be run.
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
# A program that computes for less than this on a card may not be seen there.
_LOOK_S: Final = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.usage = "energy-callbacks run [options] -- COMMAND [ARGUMENTS]"
    add_settings(parser)
    parser.add_argument(
        "words",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND [ARGUMENTS]",
        help="what to measure",
    )


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Declare all but the command itself."""
    parser.add_argument("--name", help="of the run; default: that of the program")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="run folder, without an older run; default: energy_runs/NAME-STAMP",
    )
    parser.add_argument(
        "--devices",
        type=_devices,
        metavar="LIST",
        help="all, or NVML indices and UUIDs, such as 0,1; default: the GPUs that the command "
        "sees, without those on which none of its processes was seen",
    )
    parser.add_argument(
        "--tag",
        type=_tag,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a label that the report keeps, such as lr=1e-3; may be given several times",
    )
    parser.add_argument("--country", help="ISO code or name of your place, for emissions")
    parser.add_argument("--region", help="state of the USA or province of Canada")
    parser.add_argument("--pue", type=float, default=1.0, help="of the building (default: 1)")
    parser.add_argument("--price-per-kwh", type=float, metavar="PRICE", help="in your currency")
    parser.add_argument("--graphs", action="store_true", help="the report's charts as PNG, too")
    parser.add_argument(
        "--compare-with",
        type=Path,
        metavar="PATH",
        help="an older run's folder or report: print both side by side",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run it, write the report, say its summary on the standard error; end as it has ended."""
    return measure(arguments, words(arguments))


def words(arguments: argparse.Namespace) -> list[str]:
    """The words after ``--``."""
    found: list[str] = arguments.words
    return found[1:] if found[:1] == ["--"] else found


def measure(arguments: argparse.Namespace, command: list[str]) -> int:
    """Measure a command with the settings of ``add_settings``; end as it has ended."""
    if not command:
        raise ValueError("no command: write it after --, as in: run -- python train.py")
    if is_disabled() or _is_measured():
        os.execvp(command[0], command)  # noqa: S606 - it is the user's command, and its own words
    if int(os.environ.get("WORLD_SIZE") or 1) > 1:
        raise ValueError(
            "this process is one of several of a launcher (WORLD_SIZE is set), and each would "
            "count the host; measure the launcher: energy-callbacks run -- torchrun ..."
        )
    if (problem := _problem(command[0])) is not None:
        print(f"energy-callbacks run: {command[0]}: {problem[1]}", file=sys.stderr)
        return problem[0]
    before = None if arguments.compare_with is None else load(arguments.compare_with)
    with signals_held() as mask:
        meter = _meter(arguments, command)
        code = _measured(meter, command, mask)
        try:
            _tell(meter, before, graphs=arguments.graphs)
        except Exception as error:  # noqa: BLE001 - the command's own end must not suffer by it
            _say(f"energy-callbacks run: {error!r}; the journal is in {meter.run_folder}")
    return end_as(code)


def _tell(meter: EnergyMeter, before: EnergyReport | None, *, graphs: bool) -> None:
    """Files into the run folder, what they say in short to the standard error."""
    folder = meter.run_folder
    assert folder is not None
    if summary := meter.save_report():
        _say(f"energy: {summary}")
    _save_samples(folder, meter.config.run_name or "run")
    if not graphs and before is None:
        return
    report = meter.report()
    if graphs:
        save(report, folder, ("png",))
    if before is not None:
        said = side_by_side.render(before, report)
        atomic_files.write(folder / "comparison.txt", said)
        _say(said.rstrip())


def _say(text: str) -> None:
    """To the standard error, unless the other end of a pipe has gone."""
    with suppress(OSError):
        print(text, file=sys.stderr, flush=True)


def _save_samples(folder: Path, name: str) -> None:
    """The samples of the cards, in the files and fields that GPU loggers have."""
    attempts, _, _ = gather(folder)
    found = gpu_stats.samples(attempts)
    if not found:
        return
    started = time.strftime("%Y%m%d_%H%M%S", time.localtime(attempts[0].lead.unix_s))
    stem = folder / f"gpu_stats_{_safe(name)}_{started}"
    gpu_stats.write(found, stem.with_name(f"{stem.name}.json"))
    gpu_stats_plot.save(found, stem.with_name(f"{stem.name}_plot.png"))
    atomic_files.write(stem.with_name(f"{stem.name}_summary.txt"), gpu_stats.summary(found))


def _devices(word: str) -> str | list[int | str]:
    if word in ("all", "auto"):
        return word
    return [int(one) if one.isdecimal() else one for one in word.split(",")]


def _tag(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{word!r} is no label; write NAME=VALUE, as in lr=1e-3")
    return name, value


def _problem(program: str) -> tuple[int, str] | None:
    """Why a shell would not run it, and what it would answer."""
    if shutil.which(program) is not None:
        return None
    if os.sep in program and Path(program).exists():
        return _NOT_EXECUTABLE, "permission denied"
    return _NOT_FOUND, "command not found"


def _is_measured() -> bool:
    """Whether this process itself runs inside a command that is measured."""
    from energy_callbacks.accounting.journal import journal

    folder = os.environ.get(RUN_DIR_VARIABLE)
    for path in journal.find(Path(folder)) if folder else ():
        with suppress(JournalError):
            header = journal.header(path)
            if header.get("framework") == COMMAND and not journal.is_gone(header):
                return True
    return False


def _meter(arguments: argparse.Namespace, command: Sequence[str]) -> EnergyMeter:
    name = arguments.name or _name_of(command)
    config = EnergyConfig(
        report_dir=arguments.out,
        run_name=name,
        country=arguments.country,
        region=arguments.region,
        pue=arguments.pue,
        price_per_kwh=arguments.price_per_kwh,
        devices=arguments.devices or "auto",
        tags=dict(arguments.tag),
    )
    folder = config.run_folder or _new_folder(name)
    if any(Path(folder).glob("attempts/*/*.jsonl")):
        raise ValueError(f"--out {folder} already holds a run; give a folder of its own")
    meter = EnergyMeter(config=config)
    return meter.start(folder, process=TrainingProcess(framework=COMMAND))


def _name_of(command: Sequence[str]) -> str:
    """The script if the program is an interpreter, else the program."""
    scripts = [word for word in command[1:] if word.endswith((".py", ".sh"))]
    return Path(scripts[0] if scripts else command[0]).stem


def _new_folder(name: str) -> Path:
    """A new folder."""
    return new_folder(Path("energy_runs") / f"{_safe(name)}-{time.strftime('%Y%m%d-%H%M%S')}")


def _safe(name: str) -> str:
    """A name that any file system bears."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._")[:60] or "run"


def _measured(meter: EnergyMeter, command: Sequence[str], mask: Collection[int]) -> int:
    """Run the command to its end; what the children of its shell do after it is not waited for."""
    if (number := first_pending()) is not None:
        meter.stop(KeyboardInterrupt(signal.Signals(number).name))
        return -number
    environment = {**os.environ, RUN_DIR_VARIABLE: str(meter.run_folder)}
    seen: set[str] = set()
    child = Child(command, environment, mask)
    while (code := child.wait(_LOOK_S)) is None:
        if new := _used(meter, child.pid, seen):
            meter.record("used", devices=list(new))
            seen |= new
    meter.stop(_as_error(code))
    return code


def _used(meter: EnergyMeter, pid: int, seen: set[str]) -> set[str]:
    """Cards on which a process of the command is seen for the first time."""
    unseen = [
        one for one in meter.devices if one.kind == "gpu" and one.uuid and one.key not in seen
    ]
    if not unseen:
        return set()
    pids = {pid, *_descendants(pid)}
    return {
        device.key
        for device in unseen
        if pids & {process.pid for process in card_processes(device.uuid or "")}
    }


def _descendants(pid: int) -> Iterator[int]:
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            yield child.pid


def _as_error(code: int) -> BaseException | None:
    """How the command ended, in the words of the report."""
    if code == 0:
        return None
    if code > 0:
        return ChildProcessError(f"exit code {code}")
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return KeyboardInterrupt(name) if -code in asked else ChildProcessError(f"ended by {name}")
