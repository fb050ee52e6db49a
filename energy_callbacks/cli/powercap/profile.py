"""``energy-callbacks powercap profile``: measures models that share a GPU."""

import argparse
import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, get_args

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import open_bench
from energy_callbacks.core import formatting
from energy_callbacks.core.errors import PowerCapError, SourceUnavailable
from energy_callbacks.inference.profile import run as runner
from energy_callbacks.inference.profile import sweeps
from energy_callbacks.inference.profile.sweeps import Job
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Mode, Phase, needed
from energy_callbacks.inference.traces import append, read
from energy_callbacks.inference.traces.table import HEADER
from energy_callbacks.powercap.settings import Knob, Setting

HELP = "measure throughput, latency and power of models that share a GPU"
_SWEEPS: Final[tuple[Phase, ...]] = ("anchor", "clock", "static", "idle")
# Clocks of a sweep over clocks are about this far from each other if none are given, MHz: nine on
# an A100, as in PctoDL's profiles.
_CLOCK_STEP_MHZ: Final = 150.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    add = parser.add_argument
    add(
        "--model",
        nargs="+",
        default=[],
        metavar="M",
        help="models: names of torchvision, such as resnet50; zoo:NAME of the small networks of "
        "this package, such as zoo:simple_cnn; or module:function; eager: before a name, such as "
        "eager:resnet50, for inference without CUDA graphs",
    )
    add(
        "--mode",
        choices=get_args(Mode),
        default="infer",
        help="inference or training (default: infer)",
    )
    add(
        "--sweep",
        choices=_SWEEPS,
        help="anchor: over shares, batches and numbers of tenants (the default without --share); "
        "clock: over clocks and limits; static: tenants that wait; idle: no tenants",
    )
    add(
        "--share",
        nargs="+",
        type=float,
        metavar="P",
        help="one configuration: share of each tenant, in percent",
    )
    add(
        "--batch",
        nargs="+",
        type=int,
        metavar="B",
        help="with --share, batch size of each tenant; in a sweep, the batch sizes",
    )
    add(
        "--share-step",
        type=float,
        default=10.0,
        metavar="P",
        help="smallest share of an anchor sweep, and step between shares (default: 10)",
    )
    add(
        "--tenants",
        nargs="+",
        type=int,
        metavar="N",
        help="numbers of tenants of an anchor sweep (default: powers of two, and the largest)",
    )
    add(
        "--points",
        type=int,
        metavar="N",
        help="measure only N configurations of each model that are far from each other",
    )
    add("--sm-mhz", nargs="+", type=float, default=[], metavar="MHZ", help="SM clocks")
    add("--mem-mhz", nargs="+", type=float, default=[], metavar="MHZ", help="memory clocks")
    add("--limit-w", nargs="+", type=float, default=[], metavar="W", help="power limits")
    text = "length of a measured window in seconds (default: 5)"
    add("--window", type=options.seconds, default=5.0, metavar="S", help=text)
    text = "time before each window, in seconds (default: 3)"
    add("--warmup", type=options.seconds_or_zero, default=3.0, metavar="S", help=text)
    text = "number of measurements of each configuration (default: 1)"
    add("--iterations", type=int, default=1, metavar="N", help=text)
    add(
        "--out",
        type=Path,
        default=Path("profile.csv"),
        metavar="FILE",
        help="file of the rows (default: profile.csv)",
    )
    add("--resume", action="store_true", help="measure what FILE does not have")
    add(
        "--no-privilege",
        action="store_true",
        help="leave out configurations that change clocks or limits",
    )
    add(
        "--dry-run",
        action="store_true",
        help="print configurations and changes of settings, and measure nothing",
    )
    open_bench.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure configurations, and append a row for each; return 1 if no row has figures, else 0.

    Out of memory, time-outs and crashes are rows with a status.
    """
    if not arguments.model and arguments.sweep != "idle":
        raise ValueError("profile needs --model, or --sweep idle")
    open_bench.check_models(arguments, arguments.model)
    jobs = _jobs(arguments)
    if arguments.dry_run:
        _print_plan(arguments, jobs)
        return 0
    if arguments.out.exists() and not arguments.resume:
        raise FileExistsError(
            f"{arguments.out} exists; add --resume to continue it, or name another file with --out"
        )
    rows = _rows(arguments.out)
    _check_same_device(arguments, rows)
    left = runner.missing(jobs, rows)
    if left:
        with open_bench.opened(arguments, [job.configuration for job in left]) as where:
            progress = runner.measured(
                where,
                left,
                lambda row: append(arguments.out, row),
                window_s=arguments.window,
                warmup_s=arguments.warmup,
                run_id=uuid.uuid4().hex[:12],
                done=len(jobs) - len(left),
            )
            for one in progress:
                logger.info("%s", _line(one))
    return _conclude(arguments, len(jobs))


def _rows(path: Path) -> list[MeasuredWindow]:
    """Return the rows of a file; a last line that was not written to its end is removed.

    Raises:
        ValueError: if the file is no trace; it is not changed.
    """
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        if not HEADER.startswith(text[: len(HEADER)]):
            raise ValueError(f"{path} is no trace; name another file with --out")
        logger.warning("%s: the last line is incomplete, and is removed", path)
        os.truncate(path, len(whole))
    return read(path) if whole else []


def _check_same_device(arguments: argparse.Namespace, rows: Sequence[MeasuredWindow]) -> None:
    """Raise ``ValueError`` if rows are of another kind of device or of other data."""
    if not rows:
        return
    name, dataset = open_bench.identity(arguments)
    for row in rows:
        if (row.gpu_name, row.dataset) != (name, dataset):
            raise ValueError(
                f"{arguments.out} has rows of {row.gpu_name} with {row.dataset} data, and this "
                f"profile is of {name} with {dataset} data; name another file with --out"
            )


def _jobs(arguments: argparse.Namespace) -> list[Job]:
    """Return all jobs in the order in which they run.

    Raises:
        ValueError: if nothing is left to measure, or if an option does not suit.
    """
    for option in ("iterations", "points"):
        value = getattr(arguments, option)
        if value is not None and value < 1:
            raise ValueError(f"--{option} must be at least 1, got {value}")
    phase: Phase = arguments.sweep or "anchor"
    clocks = arguments.sm_mhz
    if phase == "clock" and not any((clocks, arguments.mem_mhz, arguments.limit_w)):
        clocks = _clocks(arguments)
    found = sweeps.with_settings(
        _configurations(arguments, phase),
        sm_mhz=clocks,
        mem_mhz=arguments.mem_mhz,
        limits_w=arguments.limit_w,
    )
    if arguments.no_privilege:
        kept = [one for one in found if not needed(one)]
        if omitted := len(found) - len(kept):
            logger.info("configurations left out, as they change settings: %d", omitted)
        found = kept
    if arguments.points is not None and phase != "idle" and found:
        found = sweeps.designed(found, arguments.points)
    if not found:
        raise ValueError("no configuration is left to measure")
    mode: Mode = arguments.mode
    jobs = [Job(configuration=one, phase=phase, mode=mode) for one in found]
    return [job for _ in range(arguments.iterations) for job in jobs]


def _configurations(arguments: argparse.Namespace, phase: Phase) -> list[Configuration]:
    if phase == "idle":
        return [Configuration(tenants=())]
    if arguments.share is not None:
        return [sweeps.single(arguments.model, arguments.share, arguments.batch or [16])]
    if phase == "anchor":
        return sweeps.anchor(
            arguments.model,
            share_step=arguments.share_step,
            batches=arguments.batch,
            counts=arguments.tenants,
        )
    return sweeps.few(arguments.model, arguments.batch)


def _clocks(arguments: argparse.Namespace) -> list[float]:
    """Return clocks of the GPU about 150 MHz apart, from the highest down."""
    uuid_ = None if open_bench.is_simulated(arguments) else open_bench.device(arguments.gpu).uuid
    if uuid_ is None:
        raise ValueError("a sweep over clocks needs --sm-mhz, --mem-mhz or --limit-w")
    steps = open_bench.actuator(uuid_, ["clock"]).range(uuid_, "clock").steps
    chosen: list[float] = []
    for clock_mhz in sorted(steps, reverse=True):
        if not chosen or chosen[-1] - clock_mhz >= _CLOCK_STEP_MHZ:
            chosen.append(clock_mhz)
    return chosen


def _knobs(jobs: Sequence[Job]) -> list[Knob]:
    return list(dict.fromkeys(knob for job in jobs for knob in needed(job.configuration)))


def _print_plan(arguments: argparse.Namespace, jobs: Sequence[Job]) -> None:
    """Print every configuration, and every change of a setting that would precede it."""
    if arguments.json:
        options.print_json([asdict(job) for job in jobs])
        return
    through = _through(arguments, _knobs(jobs))
    before: dict[Knob, float] = {}
    for number, job in enumerate(jobs, start=1):
        values = needed(job.configuration)
        for knob, value in values.items():
            if before.get(knob) != value:
                print(f"privileged: set {Setting(knob=knob, value=value)}{through}")
        for knob in before.keys() - values.keys():
            print(f"privileged: restore {knob.replace('_', ' ')}{through}")
        before = values
        print(f"[{number}/{len(jobs)}] {job.phase}, {job.mode}: {_text(job.configuration)}")
    for knob in before:
        print(f"privileged: restore {knob.replace('_', ' ')}{through}")
    seconds = len(jobs) * (arguments.window + arguments.warmup)
    print(f"{len(jobs)} windows, at least {formatting.duration(seconds)}; nothing was measured")


def _through(arguments: argparse.Namespace, knobs: Sequence[Knob]) -> str:
    """Return what would change the settings, as text."""
    if not knobs or open_bench.is_simulated(arguments):
        return ""
    try:
        where = open_bench.device(arguments.gpu)
        if where.uuid is not None:
            return f" through {open_bench.actuator(where.uuid, knobs).name}"
    except (PowerCapError, SourceUnavailable) as error:
        logger.info("%s", error)
    return " (not possible on this machine)"


def _line(progress: runner.Progress) -> str:
    left = f"{formatting.duration(progress.left_s)} left" if progress.left_s else "done"
    what = _text(progress.row.configuration)
    figures = ", ".join(_figures(progress.row))
    return f"[{progress.done}/{progress.count}] {what}: {figures}; {left}"


def _figures(row: MeasuredWindow) -> Iterator[str]:
    label = " (simulated)" if row.source == "simulated" else ""
    if row.status != "ok":
        yield f"{row.status}{label}, {row.note}"
        return
    if row.throughput_per_s is not None:
        yield f"{formatting.grouped(row.throughput_per_s)} samples/s"
    if row.latency_p95_ms is not None:
        yield f"p95 {row.latency_p95_ms:.3g} ms"
    power = "power unknown" if row.power_mean_w is None else formatting.power(row.power_mean_w)
    yield f"{power}{label}"


def _text(one: Configuration) -> str:
    """Return a configuration as a short text, such as ``2 x resnet50 50 % b=16, SM 1410 MHz``."""
    counts: dict[str, int] = {}
    for tenant in one.tenants:
        name = f"{tenant.model} {tenant.share_pct:g} % b={tenant.batch}"
        counts[name] = counts.get(name, 0) + 1
    tenants = " + ".join(f"{count} x {name}" for name, count in counts.items()) or "no tenants"
    values = [str(Setting(knob=knob, value=value)) for knob, value in needed(one).items()]
    return ", ".join((tenants, *values))


def _conclude(arguments: argparse.Namespace, count: int) -> int:
    rows = read(arguments.out)
    failed = sum(row.status != "ok" for row in rows)
    if arguments.json:
        options.print_json([asdict(row) for row in rows])
    else:
        print(f"{arguments.out}: {len(rows)} rows, {failed} without figures, of {count} windows")
    if failed < len(rows):
        return 0
    last = rows[-1]
    logger.error(
        "%s: no row has figures; the last one: %s, %s", arguments.out, last.status, last.note
    )
    return 1
