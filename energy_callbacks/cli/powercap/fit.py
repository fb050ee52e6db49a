"""``energy-callbacks powercap fit``: fits a predictor to traces."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from energy_callbacks.cli.common import options
from energy_callbacks.core.tables import aligned
from energy_callbacks.inference.predictor import Predictor
from energy_callbacks.inference.predictor.held_out import HeldOut
from energy_callbacks.inference.predictor.proposal import untried
from energy_callbacks.inference.records import Configuration, MeasuredWindow
from energy_callbacks.inference.traces import read

HELP = "fit a predictor of throughput, latency and power to measured windows"
_SELECT = "use only rows with this {}, if the traces have several"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    add = parser.add_argument
    add(
        "traces",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="CSV files of powercap profile, Zeus, PctoDL or iGniter",
    )
    add("--out", type=Path, required=True, metavar="FILE", help="JSON file of the predictor")
    add("--prior", type=Path, metavar="FILE", help="predictor of another card to start from")
    for name in ("model", "dataset", "gpu-name", "mode"):
        add(f"--{name}", metavar="NAME", help=_SELECT.format(name.replace("-", " ")))
    add("--mem-mhz", type=float, metavar="MHZ", help=_SELECT.format("memory clock"))


def run(arguments: argparse.Namespace) -> int:
    """Fit the predictor, write it, and print its errors on windows that were left out; return 0."""
    found = [one for path in arguments.traces for one in read(path)]
    windows = [one for one in found if _is_chosen(one, arguments)]
    if found and not windows:
        first = ", ".join(f"{name} {value!r}" for name, value in _fields(found[0]).items())
        raise ValueError(
            f"none of {len(found)} windows was chosen by --model, --dataset, --gpu-name, --mode "
            f"and --mem-mhz; the first window has {first}"
        )
    prior = None if arguments.prior is None else Predictor.load(arguments.prior)
    predictor = Predictor.fit(windows, prior=prior)
    predictor.save(arguments.out)
    candidates = untried(windows)
    following = predictor.next_configuration(candidates) if candidates else None
    if arguments.json:
        options.print_json(
            {
                "file": str(arguments.out),
                "models": predictor.models,
                **predictor.identity,
                "source": predictor.source,
                "windows": len(windows),
                "held_out": [asdict(one) for one in predictor.held_out],
                "next": following and asdict(following),
            }
        )
        return 0
    print(
        f"{arguments.out}: {', '.join(predictor.models)}; {len(windows)} {predictor.source} windows"
    )
    print("Errors on windows that were left out of the fit:")
    print("\n".join(aligned(_table(predictor.held_out), "<>")))
    if following:
        print(f"Most informative configuration to measure next: {_text(following)}")
    return 0


def _is_chosen(one: MeasuredWindow, arguments: argparse.Namespace) -> bool:
    chosen = all(getattr(arguments, name) in (None, value) for name, value in _fields(one).items())
    models = {tenant.model for tenant in one.configuration.tenants}
    return chosen and (arguments.model is None or models <= {arguments.model})


def _fields(one: MeasuredWindow) -> dict[str, Any]:
    """Return what all windows of a fit have in common."""
    names = ("dataset", "gpu_name", "mode")
    return {name: getattr(one, name) for name in names} | {"mem_mhz": one.configuration.mem_mhz}


def _table(found: Sequence[HeldOut]) -> list[tuple[str, ...]]:
    head = ("left out", "values", "windows", "throughput", "power", "in 90 % interval", "")
    rows = [
        (
            "one number of tenants" if one.setting == "tenants" else f"one {one.setting}",
            str(one.values),
            str(one.windows),
            _percent(one.throughput_error),
            _percent(one.power_error),
            _percent(one.throughput_within),
            _percent(one.power_within),
        )
        for one in found
    ]
    return [head, *rows] if rows else [("nothing could be left out: all windows have one setting",)]


def _text(one: Configuration) -> str:
    tenant = one.tenants[0]
    settings = ((one.sm_mhz, "MHz"), (one.mem_mhz, "MHz of memory"), (one.power_limit_w, "W"))
    return ", ".join(
        [
            f"{len(one.tenants)} x {tenant.model}",
            f"share {tenant.share_pct:g} %",
            f"batch {tenant.batch}",
            *(f"{value:g} {unit}" for value, unit in settings if value is not None),
        ]
    )


def _percent(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f} %"
