"""The GPUs of an action of ``powercap``, and what changes their settings."""

import argparse
import os
from collections.abc import Sequence
from typing import Final

from energy_callbacks.cli.common import options, power_status
from energy_callbacks.powercap.actuators import choose as actuators
from energy_callbacks.powercap.actuators.protocol import Actuator
from energy_callbacks.powercap.settings import Knob
from energy_callbacks.sensing.gpus import devices
from energy_callbacks.sensing.gpus.devices import GpuInfo
from energy_callbacks.sensing.sources.nvidia.source import inventory

_DEVICES: Final = (
    "GPUs: all, or NVML indices and UUIDs, such as 0,1 (default: those in CUDA_VISIBLE_DEVICES)"
)


def add_devices(parser: argparse.ArgumentParser) -> None:
    """Declare ``--devices``."""
    parser.add_argument("--devices", type=options.device_list, metavar="LIST", help=_DEVICES)


def add_consent(parser: argparse.ArgumentParser) -> None:
    """Declare ``--yes``."""
    consent = "consent to change settings of the GPUs"
    parser.add_argument("--yes", action="store_true", help=consent)


def of_arguments(arguments: argparse.Namespace) -> list[GpuInfo]:
    """Return the GPUs that ``--devices`` names.

    Raises:
        ValueError: if a GPU does not exist.
        SourceUnavailable: if there is no driver, or if the environment does not identify the GPUs.
    """
    cards = inventory()
    if arguments.devices in (None, "auto"):
        chosen = devices.one_per_card(devices.resolve(os.environ, cards))
    else:
        chosen = devices.choose(arguments.devices, cards)
    return [card for card in cards if card in chosen]


def uuids_to_change(arguments: argparse.Namespace) -> list[str]:
    """Return the UUIDs of the GPUs to change.

    Raises:
        ValueError: without consent, or if there is no GPU.
    """
    if not arguments.yes:
        raise ValueError(f"{arguments.action} changes settings of GPUs; add --yes to consent")
    found = [card.uuid for card in of_arguments(arguments)]
    if not found:
        raise ValueError("there is no GPU among --devices or in CUDA_VISIBLE_DEVICES")
    return found


def actuator(uuids: Sequence[str], knob: Knob) -> Actuator:
    """Return what can change a setting of GPUs."""
    return actuators.choose(uuids, knob, names=power_status.ACTUATORS)
