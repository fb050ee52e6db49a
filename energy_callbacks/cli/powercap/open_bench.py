"""What ``profile`` and ``verify`` measure on: a GPU, the CPU, or a simulated GPU."""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.cli.common import options
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.cli.powercap import cards
from energy_callbacks.core.errors import ActuatorError, SourceUnavailable
from energy_callbacks.inference.profile import images
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.inference.profile.local_bench import LocalBench
from energy_callbacks.inference.profile.open_device import CPU, LocalDevice
from energy_callbacks.inference.profile.steps import check_name
from energy_callbacks.inference.profile.tenants import LOAD_S
from energy_callbacks.inference.protocols import Bench
from energy_callbacks.inference.records import Configuration, Mode, needed
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.settings import Knob, KnobRange
from energy_callbacks.sensing.gpus import devices
from energy_callbacks.sensing.sources.nvidia.source import inventory

if TYPE_CHECKING:
    from energy_callbacks.inference.simulated.gpu import SimulatedGpu

_MODES: Final = {"infer": "inference", "train": "training"}
_SIMULATED: Final = "sim:"  # as in the names of presets, which are imported when needed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the bench."""
    add = parser.add_argument
    add(
        "--gpu",
        default="auto",
        metavar="GPU",
        help="NVML index or UUID of a GPU; cpu; sim:NAME for a simulated GPU, such as sim:h200; "
        "auto for the first GPU that CUDA may use, else the CPU (default: auto)",
    )
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of images, such as Tiny ImageNet or Caltech-256 (default: synthetic images)",
    )
    add("--seed", type=int, default=0, metavar="N", help="seed of a simulated GPU (default: 0)")
    add(
        "--load-timeout",
        type=options.seconds,
        default=LOAD_S,
        metavar="S",
        help=f"time for a tenant to load its model, in seconds (default: {LOAD_S:g})",
    )
    cards.add_consent(parser)


def is_simulated(arguments: argparse.Namespace) -> bool:
    """Return whether ``--gpu`` names a simulated GPU."""
    return bool(arguments.gpu.startswith(_SIMULATED))


def simulated(arguments: argparse.Namespace) -> "SimulatedGpu":
    """Return the simulated GPU that ``--gpu`` names.

    Raises:
        ValueError: if there is no such preset, or if images are given, which it does not read.
    """
    from energy_callbacks.inference.simulated.presets import simulated_gpu

    if arguments.data is not None:
        raise ValueError(f"{arguments.gpu} reads no images; remove --data {arguments.data}")
    return simulated_gpu(arguments.gpu, seed=arguments.seed)


def device(name: str) -> LocalDevice:
    """Return the device that ``--gpu`` names.

    Raises:
        ValueError: if there is no such GPU.
        SourceUnavailable: if a GPU is named and there is no driver.
    """
    cpu = LocalDevice(uuid=None, name=CPU)
    if name.lower() == "cpu":
        return cpu
    try:
        found = inventory()
    except SourceUnavailable:
        if name == "auto":
            return cpu
        raise
    if name == "auto":
        chosen = devices.one_per_card(devices.resolve(os.environ, found))
    else:
        chosen = devices.choose(_one(name), found)
    first = next(iter(chosen.items()), None)
    return cpu if first is None else LocalDevice(uuid=first[1][0], name=first[0].name)


def announced_device(arguments: argparse.Namespace) -> LocalDevice:
    """Return the device that ``--gpu`` names, with a message if no GPU was found."""
    where = device(arguments.gpu)
    if arguments.gpu == "auto" and where.uuid is None:
        logger.info("no GPU that CUDA may use was found; the CPU is measured")
    return where


def _one(name: str) -> list[int | str]:
    given = options.device_list(name)
    if isinstance(given, str) or len(given) != 1:
        raise ValueError(f"--gpu must name one GPU, got {name!r}")
    return given


def identity(arguments: argparse.Namespace) -> tuple[str, str]:
    """Return the names of the device and of the data, as in rows."""
    if is_simulated(arguments):
        return simulated(arguments).card.name, images.SYNTHETIC
    return device(arguments.gpu).name, images.dataset_name(arguments.data)


def check_made_for(
    arguments: argparse.Namespace, file: Path, made: Mapping[str, Any], asked: Mode | None
) -> None:
    """Raise ``ValueError`` if a plan or predictor was made for another GPU, other data or mode.

    Args:
        arguments: options of the command.
        file: the plan or predictor.
        made: GPU, data and mode for which it was made, as in ``IDENTITY``; empty or ``None`` if
            they are not known.
        asked: the mode that is needed; ``None`` for that of the file.
    """
    name, dataset = identity(arguments)
    mode = made["mode"]
    if made["gpu_name"] not in ("", name):
        raise ValueError(
            f"{file} is for {made['gpu_name']}, but --gpu {arguments.gpu} is {name}; name the "
            "other GPU with --gpu, or profile this one, fit, and plan again"
        )
    if made["dataset"] not in ("", dataset):
        raise ValueError(
            f"{file} is for {made['dataset']} data, but this command uses {dataset} data; choose "
            "the other data with --data, or profile with these, fit, and plan again"
        )
    if mode and asked and mode != asked:
        raise ValueError(
            f"{file} is for {_MODES[mode]}, not for {_MODES[asked]}; use one that was made from a "
            f"profile with --mode {asked}"
        )


def check_models(arguments: argparse.Namespace, models: Sequence[str]) -> None:
    """Raise ``ValueError`` if the device cannot have one of these models."""
    if not is_simulated(arguments):
        for model in models:
            check_name(model)
        return
    known = simulated(arguments).models
    for model in models:
        if model not in known:
            raise ValueError(
                f"{arguments.gpu} has no model {model!r}; it has {', '.join(sorted(known))}"
            )


@contextmanager
def opened(
    arguments: argparse.Namespace, configurations: Sequence[Configuration]
) -> Iterator[Bench]:
    """Provide the bench for some configurations; their settings are checked before the first.

    Raises:
        ValueError: if settings are to be changed without consent, or if the device does not accept
            them.
        ActuatorError: if they cannot be changed.
    """
    values = {pair for one in configurations for pair in needed(one).items()}
    if is_simulated(arguments):
        gpu = simulated(arguments)
        for knob, value in values:
            gpu.range(knob).check(value)
        yield gpu
        return
    where = announced_device(arguments)
    settings = None
    if values:
        knobs: list[Knob] = sorted({knob for knob, _ in values})
        if not arguments.yes:
            raise ValueError(
                f"{arguments.action} would change settings of the GPU ({', '.join(knobs)}); add "
                "--yes to consent"
            )
        if where.uuid is None:
            raise ValueError("clocks and limits of a CPU cannot be changed; name a GPU with --gpu")
        chosen = actuator(where.uuid, knobs)
        found = ranges(chosen, where.uuid, knobs)
        for knob, value in values:
            found[knob].check(value)
        settings = GpuSettings(chosen, where.uuid, allow_changes=arguments.yes)
    with LocalBench(
        where, data=arguments.data, settings=settings, load_s=arguments.load_timeout
    ) as bench:
        yield bench


def actuator(uuid: str, knobs: Sequence[Knob]) -> Actuator:
    """Return what can change all of some settings of a GPU.

    Raises:
        ActuatorError: if nothing can.
    """
    chosen = cards.actuator([uuid], knobs[0])
    lacking = [knob for knob in knobs if knob not in chosen.probe(uuid).knobs]
    if lacking:
        raise ActuatorError(f"{chosen.name} cannot change {', '.join(lacking)} of {uuid}")
    return chosen


def ranges(chosen: Actuator, uuid: str, knobs: Sequence[Knob]) -> dict[Knob, KnobRange]:
    """Return the accepted values of those of some settings that an actuator can change."""
    can = chosen.probe(uuid).knobs
    return {knob: chosen.range(uuid, knob) for knob in knobs if knob in can}
