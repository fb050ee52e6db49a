"""``energy-callbacks powercap predict``: predicts a configuration that was not measured."""

import argparse
from dataclasses import asdict, replace
from pathlib import Path

from energy_callbacks.cli.common import options
from energy_callbacks.core.tables import aligned
from energy_callbacks.inference.predictor import Predictor
from energy_callbacks.inference.profile import sweeps
from energy_callbacks.inference.records import Configuration, Interval, Prediction

HELP = "predict throughput, latency, power and utilisation of a configuration"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the action's arguments."""
    add = parser.add_argument
    add(
        "--predictor", type=Path, required=True, metavar="FILE", help="file written by powercap fit"
    )
    add(
        "--model",
        nargs="+",
        required=True,
        metavar="NAME",
        help="model of all processes, or of each",
    )
    add(
        "--share",
        nargs="+",
        type=float,
        required=True,
        metavar="PCT",
        help="share of the GPU of all processes, or of each",
    )
    add(
        "--batch",
        nargs="+",
        type=int,
        required=True,
        metavar="N",
        help="batch size of all processes, or of each",
    )
    add("--sm-mhz", type=float, metavar="MHZ", help="clock of the multiprocessors")
    add("--mem-mhz", type=float, metavar="MHZ", help="clock of the memory")
    add("--limit-w", type=float, metavar="W", help="power limit")
    add("--dataset", metavar="NAME", help="fail if the predictor is for another dataset")
    add("--gpu-name", metavar="NAME", help="fail if the predictor is for another GPU")


def run(arguments: argparse.Namespace) -> int:
    """Print the prediction; return 0."""
    predictor = Predictor.load(arguments.predictor)
    predictor.require(dataset=arguments.dataset, gpu_name=arguments.gpu_name)
    configuration = replace(
        sweeps.single(arguments.model, arguments.share, arguments.batch),
        sm_mhz=arguments.sm_mhz,
        mem_mhz=arguments.mem_mhz,
        power_limit_w=arguments.limit_w,
    )
    prediction = predictor.predict(configuration)
    if arguments.json:
        options.print_json(
            {"configuration": asdict(configuration), "prediction": _fields(prediction)}
        )
        return 0
    print(f"from {prediction.source} windows of {predictor.identity['gpu_name'] or 'a GPU'}")
    print("\n".join(aligned(_table(configuration, prediction), "<>")))
    return 0


def _fields(prediction: Prediction) -> dict[str, object]:
    """Return the prediction with its intervals as objects."""
    return {name: _object(getattr(prediction, name)) for name in Prediction.__dataclass_fields__}


def _object(value: object) -> object:
    if isinstance(value, Interval):
        return value._asdict()
    return [_object(one) for one in value] if isinstance(value, tuple) else value


def _table(configuration: Configuration, prediction: Prediction) -> list[tuple[str, ...]]:
    rows: list[tuple[str, Interval | None, str]] = [
        ("throughput", prediction.throughput_per_s, "/s"),
        ("power", prediction.power_w, "W"),
        ("SM utilisation", prediction.sm_util_pct, "%"),
        ("memory utilisation", prediction.mem_util_pct, "%"),
    ]
    each = zip(
        configuration.tenants,
        prediction.tenant_throughputs_per_s,
        prediction.tenant_latencies_ms,
        strict=True,
    )
    for tenant, rate, latency in each:
        name = f"{tenant.model} {tenant.share_pct:g} %, batch {tenant.batch}"
        rows += [(name, rate, "/s"), ("  time of a batch", latency, "ms")]
    table = [
        (name, f"{found.value:.4g} {unit}", f"{found.low:.4g} to {found.high:.4g} {unit}")
        for name, found, unit in rows
        if found is not None
    ]
    return [("", "predicted", "90 % interval"), *table]
