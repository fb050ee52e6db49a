"""``energy-callbacks demo``: trains a small network and prints its energy report."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NamedTuple

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.extras import requires
from energy_callbacks.profiling import run_quick_profile
from energy_callbacks.profiling.zoo import quick

HELP = "train a small network on real data and print its energy report"


class Demo(NamedTuple):
    """The demo of a framework.

    Attributes:
        module: name of the demo's module in ``cli/demos``.
        packages: import names of packages that the demo needs.
        extra: names of the extras of this package that install ``packages``, separated by commas.
        epochs: number of epochs, if the user sets none.
    """

    module: str
    packages: tuple[str, ...]
    extra: str
    epochs: int


_TRANSFORMERS = ("transformers", "accelerate", "torch")
DEMOS: Final[Mapping[str, Demo]] = {
    "lightning": Demo("digits_lightning", ("lightning", "sklearn"), "demo", 60),
    "keras": Demo("digits_keras", ("keras", "sklearn"), "demo,keras", 60),
    "huggingface": Demo("text_huggingface", _TRANSFORMERS, "huggingface", 2),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    epochs = ", ".join(f"{demo.epochs} {name}" for name, demo in DEMOS.items())
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--framework",
        choices=(*DEMOS, "all"),
        default="lightning",
        help="default: %(default)s; all runs them one after the other",
    )
    what.add_argument(
        "--model",
        choices=(*quick.MODELS, "all"),
        help="instead: a plain PyTorch loop with this model, or a table over all of them",
    )
    add = parser.add_argument
    add("--epochs", type=int, help=f"default: {epochs}; 1 with --model")
    add(
        "--data",
        choices=quick.DATA,
        default="synthetic",
        help="for --model, default: %(default)s; cifar10 is never downloaded",
    )
    add(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="with cifar-10-batches-py, default: %(default)s",
    )
    add("--batch-size", type=int, default=64, help="for --model, default: 64")
    add("--max-steps", type=int, help="for --model: at most so many steps of each")
    add(
        "--out",
        type=Path,
        default=Path("energy_runs/demo"),
        metavar="DIR",
        help="where logs and report go, default: %(default)s",
    )
    add("--country", help="ISO code or name of your place, for emissions")


def run(arguments: argparse.Namespace) -> int:
    """Train and print the results: reports and paths, or with ``--model`` a table of models.

    Returns:
        The exit code.
    """
    if arguments.epochs is not None and arguments.epochs < 1:
        raise ValueError(f"--epochs must be at least 1, got {arguments.epochs}")
    if arguments.model is not None:
        return _run_models(arguments)
    if arguments.framework == "all":
        return _run_all(arguments)
    from energy_callbacks.accounting.open_attempts import wait_for_reports
    from energy_callbacks.report import build
    from energy_callbacks.report.render.terminal import print_report

    folder = _train(arguments)
    wait_for_reports(folder)
    print()
    print_report(build(folder))
    print(f"\nReport:  {folder / 'energy_report.html'}")
    print(f"Curves:  tensorboard --logdir {arguments.out}")
    return 0


def _run_models(arguments: argparse.Namespace) -> int:
    """Train the selected models and print a table; for a single model, also print a report."""
    from energy_callbacks.profiling.zoo import table
    from energy_callbacks.report.render.terminal import print_report

    profiled = run_quick_profile(
        arguments.model,
        arguments.data,
        arguments.epochs or 1,
        arguments.batch_size,
        data_dir=arguments.data_dir,
        max_steps=arguments.max_steps,
        out=arguments.out / "models",
        config=EnergyConfig(country=arguments.country),
    )
    for report in profiled.reports.values() if len(profiled.reports) == 1 else ():
        print_report(report)
    print(table.text(profiled.rows))
    print(f"Tables and reports: {profiled.folder}")
    return 0


def _train(arguments: argparse.Namespace) -> Path:
    """Run the demo of a framework, and return its run folder.

    Raises:
        MissingExtraError: if a package of the demo is not installed.
    """
    demo = DEMOS[arguments.framework]
    if arguments.framework == "keras":
        _choose_backend()
    with requires(*demo.packages, extra=demo.extra):
        try:
            module = import_module(f"energy_callbacks.cli.demos.{demo.module}")
        except ModuleNotFoundError as error:
            if error.name not in demo.packages:
                # A package that is not in ``demo.packages`` is missing, such as a backend of Keras.
                # This import then raises an error that names the missing package.
                import_module(f"energy_callbacks.{arguments.framework}")
            raise
    epochs = arguments.epochs or demo.epochs
    folder: Path = module.train(arguments.out, epochs, {"country": arguments.country})
    return folder


def _choose_backend() -> None:
    """Choose an installed backend for Keras unless ``KERAS_BACKEND`` is set."""
    if "KERAS_BACKEND" not in os.environ:
        installed = (name for name in ("tensorflow", "jax", "torch") if find_spec(name))
        os.environ["KERAS_BACKEND"] = next(installed, "tensorflow")


def _run_all(arguments: argparse.Namespace) -> int:
    """Run the demos of all frameworks one after the other, each in its own process.

    In a single process, the frameworks would compete for memory. If a demo fails, the other demos
    still run.

    Returns:
        The exit code of the first demo that failed; 0 if none failed.
    """
    command = [sys.executable, "-P", "-m", "energy_callbacks", "demo", "--out", str(arguments.out)]
    for name in ("epochs", "country"):
        value = getattr(arguments, name)
        command += [] if value is None else [f"--{name}", str(value)]
    codes = []
    for framework in DEMOS:
        print(f"\n== {framework} ==", flush=True)
        words = [*command, "--framework", framework]
        codes.append(subprocess.run(words, check=False).returncode)  # noqa: S603
    return next((code for code in codes if code), 0)
