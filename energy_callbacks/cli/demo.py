"""``energy-callbacks demo``: a real training of some seconds, with its energy report."""

import argparse
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.extras import requires
from energy_callbacks.profiling import run_quick_profile
from energy_callbacks.profiling.zoo import plan

HELP = "train a small network on real data and print its energy report"


@dataclass(frozen=True, slots=True)
class Demo:
    """One framework's demo: its file in ``cli/demos``, and what it needs."""

    module: str
    packages: tuple[str, ...]
    extra: str
    epochs: int


DEMOS: Mapping[str, Demo] = MappingProxyType(
    {
        "lightning": Demo("digits_lightning", ("lightning", "sklearn"), "demo", 60),
        "keras": Demo("digits_keras", ("keras", "sklearn"), "demo,keras", 60),
        "huggingface": Demo(
            "text_huggingface", ("transformers", "accelerate", "torch"), "huggingface", 2
        ),
    }
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo's own options."""
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
        choices=(*plan.MODELS, "all"),
        help="instead: a plain PyTorch loop with this model, or a table over all of them",
    )
    parser.add_argument("--epochs", type=int, help=f"default: {epochs}; 1 with --model")
    _add_model_arguments(parser)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("energy_runs/demo"),
        metavar="DIR",
        help="where logs and report go, default: %(default)s",
    )
    parser.add_argument("--country", help="ISO code or name of your place, for emissions")


def _add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options for ``--model``."""
    parser.add_argument(
        "--data",
        choices=plan.DATA,
        default="synthetic",
        help="for --model, default: %(default)s; cifar10 is never downloaded",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("data"),
        metavar="DIR",
        help="with cifar-10-batches-py, default: %(default)s",
    )
    parser.add_argument("--batch-size", type=int, default=64, help="for --model, default: 64")
    parser.add_argument("--max-steps", type=int, help="for --model: at most so many steps of each")


def run(arguments: argparse.Namespace) -> int:
    """Train, print the report and how to look at the curves."""
    if arguments.epochs is not None and arguments.epochs < 1:
        raise ValueError(f"--epochs must be at least 1, got {arguments.epochs}")
    if arguments.model is not None:
        return _run_models(arguments)
    if arguments.framework == "all":
        return _run_all(arguments)
    from energy_callbacks.report import build
    from energy_callbacks.report.render.terminal import print_report

    folder = _train(arguments)
    print()
    print_report(build(folder))
    print(f"\nReport:  {folder / 'energy_report.html'}")
    print(f"Curves:  tensorboard --logdir {arguments.out}")
    return 0


def _run_models(arguments: argparse.Namespace) -> int:
    """The table over models."""
    from energy_callbacks.profiling.zoo import table
    from energy_callbacks.report.render.terminal import print_report

    found = run_quick_profile(
        arguments.model,
        arguments.data,
        arguments.epochs or 1,
        arguments.batch_size,
        data_dir=arguments.data_dir,
        max_steps=arguments.max_steps,
        out=arguments.out / "models",
        config=EnergyConfig(country=arguments.country),
    )
    for report in found.reports.values() if len(found.reports) == 1 else ():
        print_report(report)
    print(table.text(found.rows))
    print(f"Tables and reports: {found.folder}")
    return 0


def _train(arguments: argparse.Namespace) -> Path:
    demo = DEMOS[arguments.framework]
    if arguments.framework == "keras":
        _choose_backend()
    with requires(*demo.packages, extra=demo.extra):
        try:
            module = import_module(f"energy_callbacks.cli.demos.{demo.module}")
        except ModuleNotFoundError as error:
            if error.name not in demo.packages:
                import_module(f"energy_callbacks.{arguments.framework}")  # it has words for it
            raise
    epochs = arguments.epochs or demo.epochs
    folder = module.train(arguments.out, epochs, {"country": arguments.country})
    assert isinstance(folder, Path)
    return folder


def _choose_backend() -> None:
    """Without a choice Keras takes TensorFlow, also if only another backend is installed."""
    if "KERAS_BACKEND" not in os.environ:
        installed = (name for name in ("tensorflow", "jax", "torch") if find_spec(name))
        os.environ["KERAS_BACKEND"] = next(installed, "tensorflow")


def _run_all(arguments: argparse.Namespace) -> int:
    """Each framework in a process of its own, as frameworks share memory and threads badly.

    Returns:
        The exit code of the first that failed, else 0; the others are run all the same.
    """
    options = ["--out", str(arguments.out)]
    for name in ("epochs", "country"):
        value = getattr(arguments, name)
        options += [] if value is None else [f"--{name}", str(value)]
    codes = []
    for framework in DEMOS:
        print(f"\n== {framework} ==", flush=True)
        command = [sys.executable, "-P", "-m", "energy_callbacks", "demo", *options]
        command += ["--framework", framework]
        codes.append(subprocess.run(command, check=False).returncode)  # noqa: S603
    return next((code for code in codes if code), 0)
