"""``energy-callbacks demo``: trains a small network and prints its energy report."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from energy_callbacks.cli.common import options
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.extras import requires
from energy_callbacks.profiling import run_quick_profile
from energy_callbacks.profiling.zoo import quick

HELP = "train a small network and show its energy report"
# Options that need --model, with their values if they are not given.
_OF_MODELS: Final[Mapping[str, Any]] = {
    "data": "synthetic",
    "data_dir": Path("data"),
    "batch_size": 64,
    "max_steps": None,
}


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
    epochs = ", ".join(f"{demo.epochs} for {name}" for name, demo in DEMOS.items())
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--framework",
        choices=(*DEMOS, "all"),
        default="lightning",
        help="framework of the training; all trains with each of them (default: %(default)s)",
    )
    what.add_argument(
        "--model",
        choices=(*quick.MODELS, "all"),
        help="train this model in a plain PyTorch loop instead; all trains each of them and prints "
        "a table",
    )
    add = parser.add_argument
    add(
        "--epochs",
        type=int,
        metavar="N",
        help=f"number of passes over the data (default: {epochs}; 1 with --model)",
    )
    add(
        "--data",
        choices=quick.DATA,
        help="data for --model; cifar10 is read from --data-dir and never downloaded (default: "
        f"{_OF_MODELS['data']})",
    )
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help=f"folder that contains cifar-10-batches-py (default: {_OF_MODELS['data_dir']})",
    )
    add(
        "--batch-size",
        type=int,
        metavar="N",
        help=f"samples per step with --model (default: {_OF_MODELS['batch_size']})",
    )
    add("--max-steps", type=int, metavar="N", help="maximum number of steps per model with --model")
    add(
        "--out",
        type=Path,
        default=Path("energy_runs/demo"),
        metavar="DIR",
        help="folder for logs and reports (default: %(default)s)",
    )
    options.add_location(parser, region=False)
    options.add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Train and print the results: reports and paths, or with ``--model`` a table of models.

    With ``--json``, print the report, the rows of the table, or with ``--framework all`` the report
    by framework, which is ``null`` for a demo that failed.

    Returns:
        The exit code.
    """
    if arguments.epochs is not None and arguments.epochs < 1:
        raise ValueError(f"--epochs must be at least 1, got {arguments.epochs}")
    given = {name: one for name in _OF_MODELS if (one := getattr(arguments, name)) is not None}
    if arguments.model is not None:
        return _run_models(arguments, **{**_OF_MODELS, **given})
    for name in given:
        raise ValueError(f"--{name.replace('_', '-')} needs --model, such as --model simple_cnn")
    if arguments.framework == "all":
        return _run_all(arguments)
    from energy_callbacks.accounting.open_attempts import wait_for_reports
    from energy_callbacks.report import build
    from energy_callbacks.report.model import schema
    from energy_callbacks.report.render.terminal import print_report

    with options.foreign_output(arguments):
        folder = _train(arguments)
        wait_for_reports(folder)
    report = build(folder)
    if arguments.json:
        sys.stdout.write(schema.to_json(report))
        return 0
    print()
    print_report(report)
    print(f"\nReport:  {folder / 'energy_report.html'}")
    print(f"Curves:  tensorboard --logdir {arguments.out}")
    return 0


def _run_models(arguments: argparse.Namespace, **settings: Any) -> int:
    """Train the selected models and print a table; for a single model, also print a report.

    Args:
        arguments: the arguments of the command.
        **settings: values of the options that need ``--model``.
    """
    from energy_callbacks.profiling.zoo import table
    from energy_callbacks.report.render.terminal import print_report

    with options.foreign_output(arguments):
        profiled = run_quick_profile(
            arguments.model,
            settings.pop("data"),
            arguments.epochs or 1,
            out=arguments.out / "models",
            config=EnergyConfig(country=arguments.country),
            **settings,
        )
    if arguments.json:
        options.print_json([asdict(row) for row in profiled.rows])
        return 0
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
    command += [f"--{name}" for name in ("json", "quiet", "verbose") if getattr(arguments, name)]
    codes, reports = [], {}
    for framework in DEMOS:
        if not arguments.json:
            print(f"\n== {framework} ==", flush=True)
        words = [*command, "--framework", framework]
        out = subprocess.PIPE if arguments.json else None
        ended = subprocess.run(words, check=False, stdout=out)  # noqa: S603
        codes.append(ended.returncode)
        reports[framework] = json.loads(ended.stdout) if ended.stdout else None
    if arguments.json:
        options.print_json(reports)
    return next((code for code in codes if code), 0)
