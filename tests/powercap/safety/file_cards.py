"""Simulated GPUs whose settings are in files, so that several processes share them.

The folder of the files is in the environment variable ``FILE_CARDS``.
"""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.powercap.actuators.hwmon import HwmonActuator
from energy_callbacks.powercap.actuators.nvml import NvmlActuator
from energy_callbacks.powercap.actuators.protocol import Actuator, Probe
from energy_callbacks.powercap.settings import Knob, KnobRange, Setting

VARIABLE: Final = "FILE_CARDS"
NEW: Final[dict[str, Any]] = {"limit": 700.0, "clock": None, "fault": "", "log": []}
RANGES: Final[dict[Knob, tuple[float, float]]] = {"limit": (200.0, 700.0), "clock": (210.0, 1980.0)}


def card(uuid: str) -> dict[str, Any]:
    """Return the state of a card: its settings, its fault, and all writes so far."""
    path = _path(uuid)
    return {**NEW, **json.loads(path.read_text())} if path.exists() else {**NEW, "log": []}


def change(uuid: str, **settings: object) -> None:
    """Change the state of a card, as another program or a fault would."""
    atomic_files.write(_path(uuid), json.dumps({**card(uuid), **settings}))


def _path(uuid: str) -> Path:
    return Path(os.environ[VARIABLE]) / f"{uuid}.json"


class FileActuator:
    """Changes the settings of these cards.

    The fault of a card is ``hangs`` (no call is answered), ``refuses`` (no permission to write) or
    ``rounds`` (writes are rounded to 100).
    """

    name = "file"

    def probe(self, uuid: str) -> Probe:
        return Probe(
            actuator=self.name,
            knobs=("limit", "clock"),
            can_write=card(uuid)["fault"] != "refuses",
            needs="root",
            found="files",
        )

    def range(self, uuid: str, knob: Knob) -> KnobRange:
        lowest, highest = RANGES[knob]
        present = self.read(uuid, knob)
        default: float | None = NEW[knob]
        return KnobRange(
            knob=knob, lowest=lowest, highest=highest, present=present, default=default
        )

    def read(self, uuid: str, knob: Knob) -> float | None:
        state = card(uuid)
        if state["fault"] == "hangs":
            raise ActuatorError("the driver gives no answer within 5 s")
        value: float | None = state[knob] if knob == "limit" else None
        return value

    def agrees(self, uuid: str, setting: Setting) -> bool:
        present = self.read(uuid, "limit")
        if setting.knob == "limit":
            return present == setting.value
        clock = card(uuid)["clock"] or RANGES["clock"][1]  # the card runs at the highest clock
        return setting.value is None or clock <= setting.value

    def write(self, uuid: str, setting: Setting) -> None:
        if setting.value is not None:
            self.range(uuid, setting.knob).check(setting.value)
        state, value = card(uuid), setting.value
        if state["fault"]:
            if state["fault"] != "rounds":
                raise ActuatorError("no permission")
            value = value and float(round(value, -2))
        log = [*state["log"], [setting.knob, value]]
        change(uuid, **{setting.knob: value, "log": log})


class AdminNvmlActuator(NvmlActuator):
    """The actuator of NVML, with the permission of an administrator on the simulated driver."""

    def probe(self, uuid: str) -> Probe:
        found = super().probe(uuid)
        return replace(found, can_write=bool(found.knobs))


ACTUATORS: Final[dict[str, Callable[[], Actuator]]] = {
    "files": FileActuator,
    "nvml": AdminNvmlActuator,
    "hwmon": HwmonActuator,
}
