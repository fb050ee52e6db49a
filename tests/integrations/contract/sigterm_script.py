"""A training of a framework's lab in real time, to which ``terminated.py`` sends SIGTERM.

``python -m tests.integrations.contract.sigterm_script MODULE:LAB OPTION ...`` trains in the working
directory and writes the index of the current batch to the file ``batch``.
"""

import importlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.testing import ScriptedSource
from tests.integrations.contract.lab import POWER_W, Bench, Lab, Plan
from tests.integrations.no_tensorflow import (
    forbid_tensorflow,
    keep_tensorflow_out,
    lean_keras,
)

EPOCHS, EPOCH_STEPS, STEP_S = 3, 20, 0.1
# SIGTERM is sent at this batch, which waits for the file ``SENT``. The steps of the last second may
# be lost; those of the first epoch are in the journal by then.
LAST_BATCH: Final = 35
SENT: Final = "sent"
_LAST_BATCH_S: Final = 600.0
WITHOUT_US, CATCHES, HANGS, RESUMES = "without us", "catches", "hangs", "resumes"


class RealTime(SystemClock):
    """The system clock with the method ``advance`` of a virtual clock, which sleeps."""

    def advance(self, duration_s: float) -> None:
        """Sleep for this duration."""
        time.sleep(duration_s)


class Card(ScriptedSource):
    """A sensor of constant power whose reads never return once ``hangs`` is true.

    It writes the time of its first reading, before which no energy is known, to the file ``first``.
    """

    hangs = False

    def read(self) -> list[Reading]:
        """See ``ScriptedSource``."""
        if self.hangs:
            threading.Event().wait()
        readings = list(super().read())
        if not Path("first").exists():
            Path("first").write_text(f"{time.time()}")
        return readings


def train(lab: Lab, options: list[str]) -> None:
    """Run or resume a training in the working directory, as the script of a user would."""
    if CATCHES in options:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clock: Any = RealTime()
    card = Card(clock, power_w=lambda _: POWER_W, energy_j=lambda t_s: POWER_W * t_s)
    config = EnergyConfig(report_dir="energy")
    ours = lab.callback(meter=EnergyMeter(sources=[card], config=config))

    def before_batch(batch: int) -> None:
        card.hangs = HANGS in options and batch >= LAST_BATCH - 5
        Path("batch").write_text(f"{batch}")
        if batch == LAST_BATCH and RESUMES not in options:
            end_s = time.monotonic() + _LAST_BATCH_S
            while not Path(SENT).exists() and time.monotonic() < end_s:
                time.sleep(0.01)

    # Logs are off, because the TensorBoard callback of Keras imports TensorFlow.
    plan = Plan(
        epochs=EPOCHS,
        samples=4 * EPOCH_STEPS,
        step_s=STEP_S,
        checkpoint_s=0.0,
        logs=False,
        before_batch=before_batch,
    )
    callbacks = () if WITHOUT_US in options else (ours,)
    training = Bench(lab, Path.cwd(), clock).training(plan, *callbacks)
    training.resume() if RESUMES in options else training.fit()


if __name__ == "__main__":
    if os.environ.get("KERAS_BACKEND") == "tensorflow":
        keep_tensorflow_out()
    else:
        forbid_tensorflow()
    module, _, name = sys.argv[1].partition(":")
    with lean_keras():
        lab = getattr(importlib.import_module(module), name)
    train(lab(), sys.argv[2:])
