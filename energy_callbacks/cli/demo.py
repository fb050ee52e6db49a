"""``energy-callbacks demo``: a real training of some seconds, with its energy report."""

import argparse
import sys
from pathlib import Path

from energy_callbacks.extras import requires

HELP = "train a small network on real digits and print its energy report"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The demo's own options."""
    parser.add_argument("--epochs", type=int, default=60, help="default: %(default)s")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("energy_runs/demo"),
        metavar="DIR",
        help="where logs and report go, default: %(default)s",
    )
    parser.add_argument("--country", help="ISO code or name of your place, for emissions")


def run(arguments: argparse.Namespace) -> int:
    """Train, print the report and how to look at the curves."""
    if arguments.epochs < 1:
        print(
            f"energy-callbacks demo: --epochs must be at least 1, got {arguments.epochs}",
            file=sys.stderr,
        )
        return 2
    with requires("lightning", "sklearn", extra="demo"):
        from energy_callbacks.cli.demos import lightning
    from energy_callbacks.report import build
    from energy_callbacks.report.text import print_report

    folder = lightning.train(arguments.out, arguments.epochs, {"country": arguments.country})
    print()
    print_report(build(folder))
    print(f"\nReport:  {folder / 'energy_report.html'}")
    print(f"Curves:  tensorboard --logdir {arguments.out}")
    return 0
