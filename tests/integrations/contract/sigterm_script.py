"""Run by ``terminated.py``: trainings of a framework's lab in real time, ended by a real SIGTERM.

``python -m tests.integrations.contract.sigterm_script MODULE:LAB FOLDER`` imports the framework,
which takes long, and forks a process for each training before anything was computed. Each gets
SIGTERM in its second epoch; then the one that was killed is resumed. ``FOLDER/ended.json`` says how
they ended.
"""

import importlib
import json
import os
import shutil
import signal
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks import EnergyMeter
from energy_callbacks.records import Reading
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.testing import ScriptedSource
from tests.integrations.contract.lab import POWER_W, Bench, Lab, Plan
from tests.integrations.no_tensorflow import keep_tensorflow_out

EPOCHS, EPOCH_STEPS = 3, 20
# The last second's steps may be lost: by then those of the first epoch are in the journal.
LAST_BATCH: Final = 35
WITHOUT_US, CATCHES, HANGS, RESUMES = "without us", "catches", "hangs", "resumes"
# By their folders: what is different in each training.
RUNS: Final = {
    "without": (WITHOUT_US,),
    "with": (),
    "without, caught": (WITHOUT_US, CATCHES),
    "caught": (CATCHES,),
    "hung": (CATCHES, HANGS),
}
# What a handler raises while native code calls Python is lost, without us too: seen once with Keras
# on JAX, in a hundred. A training that ended as if nothing had been is run again; one that always
# does so stays.
_TRIES: Final = 3
_LIMIT_S: Final = 60.0


class RealTime(SystemClock):
    """Batches take as long as the contract says."""

    def advance(self, duration_s: float) -> None:
        """Let time pass."""
        time.sleep(duration_s)


class Card(ScriptedSource):
    """Of constant power; it may not answer any more from one moment on."""

    hangs = False

    def read(self) -> list[Reading]:
        """See ``ScriptedSource``."""
        if self.hangs:
            threading.Event().wait()
        return list(super().read())


def train(lab: Lab, folder: Path, options: tuple[str, ...]) -> None:
    """A training as a user's script has it; it tells the batch that it is at."""
    if CATCHES in options:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    clock: Any = RealTime()
    card = Card(clock, power_w=lambda _: POWER_W, energy_j=lambda t_s: POWER_W * t_s)
    ours = lab.callback(meter=EnergyMeter(sources=[card]))

    def before_batch(batch: int) -> None:
        card.hangs = HANGS in options and batch >= LAST_BATCH - 5
        (folder / "batch").write_text(f"{batch}")

    plan = Plan(epochs=EPOCHS, samples=4 * EPOCH_STEPS, checkpoint_s=0.0, before_batch=before_batch)
    callbacks = () if WITHOUT_US in options else (ours,)
    training = Bench(lab, folder, clock).training(plan, *callbacks)
    training.resume() if RESUMES in options else training.fit()


@dataclass(kw_only=True)
class Ended:
    """How a process ended.

    Attributes:
        status: negative where a signal ended it; ``None`` while it goes on.
        signal_unix_s: when SIGTERM was sent.
        end_s: how long it took to end from then on.
    """

    status: int | None = None
    signal_unix_s: float = 0.0
    end_s: float = 0.0


class Child:
    """A training in a process of its own, which ends as a script does."""

    def __init__(self, lab: Lab, folder: Path, options: tuple[str, ...]) -> None:
        folder.mkdir(exist_ok=True)
        self.ended = Ended()
        self._folder = folder
        self._pid = os.fork()
        if not self._pid:
            self._redirect()
            train(lab, folder, options)
            sys.exit()

    def _redirect(self) -> None:
        """What it says goes into a file."""
        said = os.open(self._folder / "said", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(said, stream)
        os.chdir(self._folder)

    def is_due(self) -> bool:
        """Whether it has come to its last batch."""
        batch = self._folder / "batch"
        return batch.exists() and int(batch.read_text() or 0) >= LAST_BATCH

    def send(self, number: int) -> None:
        """Send a signal."""
        self.ended.signal_unix_s = time.time()
        os.kill(self._pid, number)

    def look(self) -> None:
        """See whether it has ended."""
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid:
            self.ended.status = os.waitstatus_to_exitcode(status)
            self.ended.end_s = time.time() - self.ended.signal_unix_s


def watch(children: list[Child], *, terminates: bool) -> None:
    """Until all have ended, by SIGTERM where so said; by SIGKILL after a minute."""
    deadline_s = time.monotonic() + _LIMIT_S
    while going_on := [child for child in children if child.ended.status is None]:
        for child in going_on:
            if terminates and not child.ended.signal_unix_s and child.is_due():
                child.send(signal.SIGTERM)
            if time.monotonic() > deadline_s:
                child.send(signal.SIGKILL)
            child.look()
        time.sleep(0.01)


def main(lab: Lab, folder: Path) -> None:
    """All trainings at once, then the one that goes on."""
    children = {name: Child(lab, folder / name, options) for name, options in RUNS.items()}
    watch(list(children.values()), terminates=True)
    for _ in range(1, _TRIES):
        for name, options in RUNS.items():
            if CATCHES in options and children[name].ended.status == 0:
                shutil.rmtree(folder / name)
                children[name] = Child(lab, folder / name, options)
                watch([children[name]], terminates=True)
    shutil.copytree(folder / "with", folder / "as it was killed")
    children["resumed"] = Child(lab, folder / "with", (RESUMES,))
    watch([children["resumed"]], terminates=False)
    ended = {name: asdict(child.ended) for name, child in children.items()}
    (folder / "ended.json").write_text(json.dumps(ended))


if __name__ == "__main__":
    if "keras" not in sys.argv[1]:
        keep_tensorflow_out()
    module, _, name = sys.argv[1].partition(":")
    main(getattr(importlib.import_module(module), name)(), Path(sys.argv[2]).absolute())
