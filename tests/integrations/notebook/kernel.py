"""Real time, real processes: what a notebook's cells and a user's script need to train."""

import importlib
import importlib.util
import os
import threading
import time
from pathlib import Path
from typing import Any

from energy_callbacks import EnergyMeter
from energy_callbacks.sensing.clock import SystemClock
from tests.integrations.contract.lab import POWER_W, Plan, constant
from tests.integrations.no_tensorflow import forbid_tensorflow

ROOT = Path(__file__).parents[3]
LABS = {"keras": "KerasLab", "huggingface": "HuggingFaceLab"}
PACKAGES = {"keras": ("keras", "torch"), "huggingface": ("transformers", "accelerate", "torch")}


class RealClock(SystemClock):
    """The system's clock, on which a batch takes as long as it says."""

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        time.sleep(duration_s)


class Session:
    """A training with our callback, which notes when its batches ran.

    Args:
        framework: ``keras`` or ``huggingface``.

    Attributes:
        began_s: when the last call of fit began.
        fit_s: how long it took.
    """

    def __init__(self, framework: str) -> None:
        forbid_tensorflow()
        module = importlib.import_module(f"tests.integrations.{framework}.lab")
        self.clock = RealClock()
        sources = [constant(self.clock, POWER_W, "gpu")]
        self._lab = getattr(module, LABS[framework])()
        self.callback = self._lab.callback(meter=EnergyMeter(sources=sources, clock=self.clock))
        self._threads = set(threading.enumerate())
        self.times_s: list[float] = []
        self.began_s = self.fit_s = 0.0
        self.interruption: Any = None

    def fit(self, interruption: Any = None) -> None:
        """Train for two epochs of ten batches; something happens in place of the sixteenth."""
        self.times_s.clear()
        self.began_s = self.clock.monotonic_s()
        self.interruption = interruption
        plan = Plan(step_s=0.1, logs=False, before_batch=self._before_batch)
        try:
            self._lab.training(Path("user"), self.clock, plan, self.callback).fit()
        finally:
            self.fit_s = self.clock.monotonic_s() - self.began_s

    def _before_batch(self, batch: int) -> None:
        self.times_s.append(self.clock.monotonic_s())
        if batch == 15 and self.interruption is not None:
            self.interruption()

    @property
    def trained_s(self) -> float:
        """From the first batch to the last one."""
        return self.times_s[-1] - self.times_s[0]

    def threads(self) -> list[str]:
        """Threads of ours that are alive."""
        found = set(threading.enumerate()) - self._threads
        return [thread.name for thread in found if "energy_callbacks" in thread.name]


def boom() -> None:
    """A user's bug."""
    raise RuntimeError("boom")


def environment(folder: Path) -> dict[str, str]:
    """Of a process that finds this repository, and leaves the home directory alone."""
    paths = [str(ROOT), str(ROOT / "integrations"), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "IPYTHONDIR": str(folder / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(folder / "jupyter"),
        "KERAS_BACKEND": "torch",
        "HF_HUB_OFFLINE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "CUDA_VISIBLE_DEVICES": "",
    }


def missing(framework: str) -> str | None:
    """The first package that a framework's lab needs and that is not installed."""
    find_spec = importlib.util.find_spec
    return next((name for name in PACKAGES[framework] if find_spec(name) is None), None)
