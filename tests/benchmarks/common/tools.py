"""One interface to ours and other tools, each used as its documentation says.

``python -m tests.benchmarks.common.tools NAME PLAN OUT`` measures windows with one tool in its own
process. PLAN is a JSON list of ``[pause_s, duration_s]``; OUT gets ``[start_unix_s, end_unix_s,
energy_j]`` of each window. OUT is a file, as importing ``amdsmi``, which comes with Zeus, prints.
"""

import json
import logging
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Protocol

# Ours measures before the first window and after the last, as in a training.
_MARGIN_S: Final = 2.0
_J_PER_KWH: Final = 3.6e6


class Tool(Protocol):
    """Measures the energy of GPU 0 in consecutive windows."""

    def begin(self) -> None:
        """Begin a window."""
        ...

    def end(self) -> None:
        """End the window."""
        ...

    def close(self) -> list[float]:
        """Return the energy of all windows, J; the last call."""
        ...


class Ours:
    """``EnergyMeter``: energies of windows are read afterwards."""

    def __init__(self, *, sync: bool) -> None:
        del sync  # never needed
        from energy_callbacks import EnergyConfig, EnergyMeter

        self._folder = tempfile.TemporaryDirectory()
        self.meter = EnergyMeter(config=EnergyConfig(report_dir=self._folder.name))
        self.meter._start(used_gpus=(0,))
        self._starts_s: list[float] = []
        self._ends_s: list[float] = []
        time.sleep(_MARGIN_S)

    def begin(self) -> None:
        self._starts_s.append(time.monotonic())

    def end(self) -> None:
        self._ends_s.append(time.monotonic())

    def close(self) -> list[float]:
        time.sleep(_MARGIN_S)
        self.meter.stop()
        spans = zip(self._starts_s, self._ends_s, strict=True)
        found = [self.meter.energy(start, end, scope="gpu").energy_j for start, end in spans]
        self._folder.cleanup()
        energies_j = [energy_j for energy_j in found if energy_j is not None]
        if len(energies_j) < len(found):
            raise RuntimeError(f"{len(found) - len(energies_j)} windows have no energy")
        return energies_j


class Zeus:
    """``ZeusMonitor.begin_window`` and ``end_window``, for the GPU alone.

    Args:
        sync: wait for the GPU at both ends, as Zeus does by default.
        approx_instant_energy: option of ZeusMonitor.
    """

    def __init__(self, *, sync: bool, approx_instant_energy: bool = False) -> None:
        from zeus.monitor import ZeusMonitor

        warnings.filterwarnings("ignore", module="zeus")  # that a window was measured as 0 J
        self._sync = sync
        self._energies_j: list[float] = []
        self._monitor = ZeusMonitor(
            gpu_indices=[0], cpu_indices=[], approx_instant_energy=approx_instant_energy
        )

    def begin(self) -> None:
        self._monitor.begin_window("window", sync_execution=self._sync)

    def end(self) -> None:
        measured = self._monitor.end_window("window", sync_execution=self._sync)
        self._energies_j.append(measured.gpu_energy[0])

    def close(self) -> list[float]:
        return self._energies_j


class CodeCarbon:
    """``start_task`` and ``stop_task``, CodeCarbon's most accurate calls for short windows."""

    def __init__(self, *, sync: bool) -> None:
        del sync  # CodeCarbon never waits for the GPU
        from codecarbon import OfflineEmissionsTracker

        logging.getLogger("codecarbon").disabled = True  # it prints before log_level is set
        self._energies_j: list[float] = []
        self._tasks = 0
        self._tracker: Any = OfflineEmissionsTracker(
            country_iso_code="USA",
            gpu_ids=[0],
            save_to_file=False,
            allow_multiple_runs=True,
        )
        self.begin()  # the first task searches hardware, which takes a second
        self.end()
        self._energies_j.clear()

    def begin(self) -> None:
        self._tasks += 1
        self._tracker.start_task(f"window {self._tasks}")

    def end(self) -> None:
        energy_kwh = self._tracker.stop_task().gpu_energy
        self._energies_j.append(energy_kwh * _J_PER_KWH)

    def close(self) -> list[float]:
        self._tracker.stop()
        return self._energies_j


class Nvitop:
    """``ResourceMetricCollector`` every 0.1 s: mean power times duration, as nvitop has no energy.

    Each window has a new collector, created outside of it: a second window of the same collector
    gets no samples (nvitop 1.7.2).
    """

    def __init__(self, *, sync: bool) -> None:
        del sync  # nvitop never waits for the GPU
        from nvitop import Device

        self._devices = [Device(0)]
        self._energies_j: list[float] = []
        self._start_s = 0.0
        self._collector = self._new()

    def _new(self) -> Any:
        from nvitop import ResourceMetricCollector

        return ResourceMetricCollector(self._devices, interval=0.1)

    def begin(self) -> None:
        self._collector.activate("window")
        self._start_s = time.monotonic()

    def end(self) -> None:
        duration_s = time.monotonic() - self._start_s
        metrics = self._collector.collect()
        self._collector.deactivate("window")
        (power_w,) = (v for name, v in metrics.items() if name.endswith("power_usage (W)/mean"))
        self._energies_j.append(power_w * duration_s)
        self._collector = self._new()

    def close(self) -> list[float]:
        return self._energies_j


def _zeus_instant(*, sync: bool) -> Zeus:
    return Zeus(sync=sync, approx_instant_energy=True)


OURS: Final = "energy_callbacks"
CODECARBON: Final = "CodeCarbon task"
MAKERS: Final[dict[str, Callable[..., Tool]]] = {
    OURS: Ours,
    "Zeus": Zeus,
    "Zeus approx_instant_energy": _zeus_instant,
    CODECARBON: CodeCarbon,
    "nvitop collector 0.1 s": Nvitop,
}
"""Name in tables -> how it is opened."""


def interpreter(name: str, peers: str | None) -> str | None:
    """Return the Python that has a tool; ``None`` if it is that of the peers and was not given.

    CodeCarbon is one of our dependencies; the others have their own environment (``peers.txt``).
    """
    return sys.executable if name in (OURS, CODECARBON) else peers


def nvidia_smi_stub(folder: Path) -> Path:
    """Return a folder for ``PATH``: CodeCarbon uses GPUs only if ``nvidia-smi --help`` runs."""
    stub = folder / "nvidia-smi"
    stub.write_text("#!/bin/sh\nexit 0\n")
    stub.chmod(0o755)
    return folder


def closed(tool: Tool) -> list[float]:
    """Return the energy of all windows, J.

    Raises:
        RuntimeError: if all are 0 J: the tool has not seen the card, so nothing can be compared.
    """
    energies_j = tool.close()
    if not any(energies_j):
        raise RuntimeError("it has read 0 J in every window; is nvidia-smi on the PATH?")
    return energies_j


def measure(name: str, plan: list[tuple[float, float]]) -> list[tuple[float, float, float]]:
    """Run ``(pause_s, duration_s)`` with one tool; returns start, end (Unix) and energy of each.

    A window is the user's block: from the return of ``begin`` to the call of ``end``.
    """
    tool = MAKERS[name](sync=False)
    spans = []
    for pause_s, duration_s in plan:
        time.sleep(pause_s)
        tool.begin()
        start_s = time.time()
        time.sleep(duration_s)
        end_s = time.time()
        tool.end()
        spans.append((start_s, end_s))
    energies_j = closed(tool)
    return [(*span, energy_j) for span, energy_j in zip(spans, energies_j, strict=True)]


if __name__ == "__main__":
    _name, _plan, _out = sys.argv[1:]
    Path(_out).write_text(json.dumps(measure(_name, json.loads(Path(_plan).read_text()))))
