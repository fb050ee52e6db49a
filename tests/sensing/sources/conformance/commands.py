"""Commands: ``ipmitool`` for a server, and ``powermetrics`` for Apple silicon."""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from energy_callbacks.core.errors import SourceLost, SourceUnavailable
from energy_callbacks.sensing.sources.commands import ipmi, powermetrics
from energy_callbacks.sensing.sources.commands.ipmi import IpmiSource
from energy_callbacks.sensing.sources.commands.powermetrics import PowermetricsSource
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.testing import FakeClock
from tests.fake_nvml.signals import Signal, Sine
from tests.sensing.sources.commands.fake_powermetrics import FakePowermetrics
from tests.sensing.sources.commands.recordings import DATA
from tests.sensing.sources.conformance.case import Case, FileCase, FileLab, Lab
from tests.sensing.sources.trees import LiveDevice, LiveFile, State, Tree

_TEXT: Final = (DATA / "ipmitool_dcmi.txt").read_bytes()
_ONE: Final = {"two devices": "a machine has one"}
_NO_COUNTER: Final = dict.fromkeys(
    ("wrap", "reset", "stopped", "stopped at the start"), "no counter"
)


# --- IPMI


def _controller(tree: Tree, index: int = 0, *, start_j: float = 0.0) -> LiveDevice:
    """Add a file with the output of ``ipmitool``."""

    def content(state: State) -> bytes:
        return _TEXT.replace(b"220 Watts", b"%d Watts" % state.power_w)

    return LiveDevice(folder="bmc", files=(LiveFile(path="text", content=content),))


class _Ipmitool:
    """Replaces ``Command``: its output is the content of a file."""

    def __init__(self, path: Path, arguments: Sequence[str]) -> None:
        self._path = path
        if not path.exists():
            raise SourceUnavailable(f"cannot run {arguments[0]}: No such file or directory")

    def output(self, patience_s: float) -> bytes:
        """Return the output."""
        try:
            with open(self._path, "rb", opener=os.open) as file:
                return file.read()
        except OSError as error:
            raise SourceLost(f"ipmitool has ended: Could not open device: {error}") from error


def _ipmi(lab: FileLab) -> tuple[list[Source], list[str]]:
    path = lab.running.tree.root / "bmc/text"
    lab.patch.setattr(ipmi, "Command", partial(_Ipmitool, path))
    return [IpmiSource(lab.clock)], ["machine"]


_IPMI: Final = FileCase(
    name="ipmi",
    source=IpmiSource,
    make=_controller,
    sources=_ipmi,
    scope="machine",
    # Readings are 1 s apart, which is too long for steps.
    load=Sine(mean_w=250.0, amplitude_w=150.0, period_s=28.0),
    no_values={
        "N/A": lambda right: right.replace(b" Watts", b" N/A", 1),
        "zero": lambda _: _TEXT.replace(b"220 Watts", b"0 Watts"),
        "all ones": lambda _: _TEXT.replace(b"220 Watts", b"65535 Watts"),
        "off": lambda right: right.replace(b"activated", b"deactivated"),
        "cut off": lambda right: right[: right.index(b"IPMI timestamp")],
        "empty": lambda _: b"",
    },
    fixes={"missing": "install ipmitool", "permission": "udev rule"},
    impossible=_NO_COUNTER
    | _ONE
    | {
        "unplugged": "a controller that does not answer has no value",
        "not open": "each reading is a command of its own",
    },
)


# --- powermetrics


class _PowermetricsLab(Lab):
    """A Mac, whose GPU has the power that is played."""

    def __init__(self, case: Case, patch: pytest.MonkeyPatch, signal: Signal) -> None:
        super().__init__(case, FakeClock())
        self.signal, self.fault = signal, ""
        self.start_s = self.clock.monotonic_s()
        patch.setattr(powermetrics, "Command", partial(_Powermetrics, self))
        self.sources, self.keys = [PowermetricsSource(self.clock)], ["gpu0"]

    def truth_j(self, start_s: float, end_s: float, index: int = 0) -> float:
        """See ``Lab``."""
        return self.signal.energy_j(start_s, end_s)

    def begin(self, fault: str) -> None:
        """See ``Lab``."""
        self.fault = fault

    def end(self, fault: str) -> None:
        """See ``Lab``."""
        self.fault = ""


class _Powermetrics(FakePowermetrics):
    """The command on a Mac with faults."""

    def __init__(self, lab: _PowermetricsLab, arguments: Sequence[str]) -> None:
        if lab.fault == "missing":
            raise SourceUnavailable(f"cannot run {arguments[0]}: No such file or directory")
        super().__init__(lab.clock, {"gpu_energy": lab.signal}, arguments, lab.start_s)
        self._lab = lab

    def documents(self, end: bytes, patience_s: float = 0.0) -> list[bytes]:
        """Return the documents since the last call; after a stop, the first is of half a second."""
        found = super().documents(end, patience_s)
        if self._lab.fault in ("permission", "unplugged"):
            raise SourceLost("powermetrics has ended: a password is required")
        if self._lab.fault == "damaged":
            return [one[:200] for one in found]
        if self._lab.fault == "other fields":
            return [one.replace(b"_energy", b"_joules") for one in found]
        return [] if self._lab.fault == "stopped" else found


class _PowermetricsCase(Case):
    """See ``_POWERMETRICS``."""

    def lab(
        self, folder: Path, patch: pytest.MonkeyPatch, signals: Sequence[Signal], start_j: float
    ) -> Lab:
        """See ``Case``."""
        return _PowermetricsLab(self, patch, *signals)


_POWERMETRICS: Final = _PowermetricsCase(
    name="powermetrics",
    source=PowermetricsSource,
    gauges={"utilisation": 0.1},
    no_values=("damaged", "other fields"),
    no_value_is="lost",
    back_s=12.0,
    fixes={"missing": "NOPASSWD", "permission": "NOPASSWD"},
    gone="has ended",
    impossible=_ONE
    | {
        "wrap": "each document has the energy of one sample",
        "reset": "each document has the energy of one sample",
        "stopped at the start": "without a first document, there is no value at the start",
    },
)
CASES: Final = (_IPMI, _POWERMETRICS)
