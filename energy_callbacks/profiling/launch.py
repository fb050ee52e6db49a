"""Runs a program with profilers: ``python -m energy_callbacks.profiling.launch [options] SCRIPT``.

The program runs in this process as ``python SCRIPT ...`` or ``python -m MODULE ...`` would run it,
except that the modules used by this package are already imported. At first, the profilers belong to
a meter that this module starts. Global hooks of PyTorch report optimizer steps to this meter. If
the program starts a meter of its own, that meter takes over the profilers.
"""

import argparse
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from energy_callbacks.accounting.profiler_names import PROFILERS, create
from energy_callbacks.accounting.profilers import Profiler, ProfilerOffer, Profilers
from energy_callbacks.core.guard import logger, pass_on_signals
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.profiling.common.imports import when_imported

# Settings of profilers other than their defaults: a program may report no steps.
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {"host": {"whole": True}}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add one on/off option per profiler to a parser."""
    for name, entry in PROFILERS.items():
        parser.add_argument(
            f"--{name}",
            action=argparse.BooleanOptionalAction,
            default=entry.is_default,
            help=f"{entry.shows} (default: {'on' if entry.is_default else 'off'})",
        )


def options(arguments: argparse.Namespace) -> list[str]:
    """Convert parsed arguments back to the command-line options that select the profilers."""
    return [f"--{name}" if getattr(arguments, name) else f"--no-{name}" for name in PROFILERS]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program given on the command line; exceptions of the program propagate."""
    parser = argparse.ArgumentParser(prog="python -m energy_callbacks.profiling.launch")
    add_options(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGUMENTS]")
    arguments = parser.parse_args(argv)
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not words or words == ["-m"]:
        parser.error("there is no script; write it after --: -- train.py --lr 1e-3")
    chosen = [name for name in PROFILERS if getattr(arguments, name)]
    meter = _start_meter([create(name, **_SETTINGS.get(name, {})) for name in chosen])
    try:
        _run(words)
    except BaseException as error:
        is_success = isinstance(error, SystemExit) and not error.code
        meter.stop(None if is_success else error)
        raise
    meter.stop(None)


def _start_meter(profilers: Sequence[Profiler]) -> EnergyMeter:
    """Return a meter with profilers, started if possible.

    The meter stops when another meter takes over the profilers.
    """
    meter = EnergyMeter(profilers=profilers)
    try:
        meter.start()
        Profilers.offer = ProfilerOffer(profilers, on_taken=meter.stop)
        when_imported("torch.optim.optimizer", lambda module: _count_steps(module, meter))
    except Exception as error:  # noqa: BLE001 - the program must run anyway
        pass_on_signals()
        logger.warning("not profiled: %s", error)
    return meter


def _count_steps(optimizers: ModuleType, meter: EnergyMeter) -> None:
    """Add hooks that report optimizer steps to a meter; the first step begins phase ``train``."""
    has_begun = False

    def before(*_: Any) -> None:
        nonlocal has_begun
        if not has_begun and meter.is_running:
            meter.enter("train")
            has_begun = True

    optimizers.register_optimizer_step_pre_hook(before)
    optimizers.register_optimizer_step_post_hook(lambda *_: meter.step())


def _run(words: Sequence[str]) -> None:
    """Run the program as ``__main__``, with arguments and import path as if started by Python."""
    is_module = words[0] == "-m"
    script = os.path.abspath(words[0])  # noqa: PTH100 - as Python does
    # Python adds this folder to sys.path for a program, but not in this process, because
    # ``cli/profile.py`` starts it with option -P. If PYTHONSAFEPATH is set, Python never adds it.
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, str(Path.cwd() if is_module else Path(script).resolve().parent))
    sys.argv = list(words[1:] if is_module else words)
    if is_module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    # runpy.run_path would remove the module while threads and exit functions may still use it.
    module = ModuleType("__main__")
    loader = SourceFileLoader("__main__", script)
    vars(module).update(
        __file__=script,
        __loader__=loader,
        __builtins__=__builtins__,
        __cached__=None,
        __annotations__={},
    )
    code = compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    sys.modules["__main__"] = module
    exec(code, vars(module))  # noqa: S102 - it is the user's program


if __name__ == "__main__":
    main()
