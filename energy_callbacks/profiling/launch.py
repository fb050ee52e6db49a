"""``python -m energy_callbacks.profiling.launch [options] SCRIPT``: a program with profilers on.

The program runs in this very process, as ``python SCRIPT ...`` or ``python -m MODULE ...`` would
run it; numpy and what else we import is there before it begins. Optimizer steps of PyTorch are seen
by its own global hooks. A meter that the program itself starts takes the profilers over; until then
they have one of ours.
"""

import argparse
import logging
import os
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from energy_callbacks.accounting.profilers import Profiler, ProfilerOffer, Profilers
from energy_callbacks.core.guard import pass_on_signals
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.profiling.common.imports import when_imported
from energy_callbacks.profiling.common.registry import MEMBERS, create

logger = logging.getLogger("energy_callbacks")


def add_options(parser: argparse.ArgumentParser) -> None:
    """An option for each profiler."""
    for name, member in MEMBERS.items():
        parser.add_argument(
            f"--{name}",
            action=argparse.BooleanOptionalAction,
            default=member.is_default,
            help=f"{member.shows} (default: {'on' if member.is_default else 'off'})",
        )


def options(arguments: argparse.Namespace) -> list[str]:
    """The same options as words again."""
    return [f"--{name}" if getattr(arguments, name) else f"--no-{name}" for name in MEMBERS]


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program of the command line; ends as it ends."""
    parser = argparse.ArgumentParser(prog="python -m energy_callbacks.profiling.launch")
    add_options(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT [ARGUMENTS]")
    arguments = parser.parse_args(argv)
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    if not words or words == ["-m"]:
        parser.error("no program: write it after --, as in: -- train.py --lr 1e-3")
    chosen = [name for name in MEMBERS if getattr(arguments, name)]
    meter = _profiled(list(create(chosen)))
    ended: BaseException | None = None
    try:
        _run(words)
    except BaseException as error:  # noqa: BLE001 - however it ends: raised again below
        ended = error
    is_well = ended is None or (isinstance(ended, SystemExit) and not ended.code)
    meter.stop(None if is_well else ended)
    if ended is not None:
        raise ended


def _profiled(profilers: Sequence[Profiler]) -> EnergyMeter:
    """A meter of ours from now on, until one of the program's comes."""
    meter = EnergyMeter(profilers=profilers)
    try:
        meter.start()
        Profilers.offer = ProfilerOffer(profilers, on_taken=meter.stop)
        when_imported("torch.optim.optimizer", lambda module: _tell_steps(module, meter))
    except Exception as error:  # noqa: BLE001 - the program must run all the same
        pass_on_signals()
        logger.warning("not profiled: %s", error)
    return meter


def _tell_steps(optimizers: ModuleType, meter: EnergyMeter) -> None:
    """Training begins when an optimizer first steps; nothing reports it before."""
    begun = False

    def before(*_: Any) -> None:
        nonlocal begun
        if not begun and meter.is_running:
            meter.enter("train")
            begun = True

    def after(*_: Any) -> None:
        meter.step()

    optimizers.register_optimizer_step_pre_hook(before)
    optimizers.register_optimizer_step_post_hook(after)


def _run(words: Sequence[str]) -> None:
    """The program as ``__main__``, its folder and arguments where Python would put them."""
    if words[0] == "-m":
        if not _is_path_safe():
            sys.path.insert(0, str(Path.cwd()))
        sys.argv = list(words[1:])
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    script, sys.argv = os.path.abspath(words[0]), list(words)  # noqa: PTH100 - as Python does
    if not _is_path_safe():
        sys.path.insert(0, str(Path(script).resolve().parent))
    # Not by runpy.run_path, after which the module would be gone for threads and exit functions.
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


def _is_path_safe() -> bool:
    """Whether the user asked for no folder in front; we ourselves run with ``-P``."""
    return bool(os.environ.get("PYTHONSAFEPATH"))


if __name__ == "__main__":
    main()
