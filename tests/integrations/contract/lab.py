"""The interface of labs: real trainings in virtual time, described independently of frameworks."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import Device, Reading
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.integrations.reading import Rows

POWER_W = 200.0
HOST_W = 30.0
STEP_S = 0.4
BATCH_SIZE = 4
# Few but long batches, because a framework needs milliseconds of real time for each.
EPOCH_BATCHES = 10
J_PER_SAMPLE = POWER_W * STEP_S / BATCH_SIZE


def nothing(batch: int) -> None:
    """Do nothing before a training batch; the default of ``Plan.before_batch``."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of a training; all batches take the same time, whatever their size.

    Attributes:
        epochs: number of epochs.
        samples: training samples per epoch.
        step_s: duration of a batch, in s.
        validation_samples: validation samples after each epoch; 0 for no validation.
        accumulate: batches per optimizer step.
        load_s: time that the loader needs for a full training batch, in s.
        waits: whether to enable the measurement of waiting for data, if it is off by default.
        checkpoint_s: duration of the checkpoint after each epoch, in s; ``None`` for none.
        log_every: optimizer steps between two log rows, if the framework logs by steps.
        logs: whether the user logs to TensorBoard.
        workers: number of processes that load the training data; 0 loads it in this process.
        stream: batch sizes of a generator without length that replaces the data; empty for none.
        settings: additional settings of the framework, by the framework's own names.
        before_batch: called before each training batch with its index, from 0 in each ``fit``.
    """

    epochs: int = 2
    samples: int = EPOCH_BATCHES * BATCH_SIZE
    step_s: float = STEP_S
    validation_samples: int = 0
    accumulate: int = 1
    load_s: float = 0.0
    waits: bool = False
    checkpoint_s: float | None = None
    log_every: int = 2
    logs: bool = True
    workers: int = 0
    stream: tuple[int, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    before_batch: Callable[[int], None] = nothing

    @property
    def batches(self) -> int:
        """Return the number of training batches in all epochs."""
        return self.epochs * -(-self.samples // BATCH_SIZE)


class Training(Protocol):
    """A model with its data and callbacks, on which ``fit`` can be called repeatedly.

    Attributes:
        folder: folder of the training's files.
    """

    folder: Path

    def fit(self) -> None:
        """Train from the start."""

    def resume(self) -> None:
        """Resume training from the newest checkpoint in the folder."""

    def evaluate(self) -> None:
        """Run ten batches of validation, without a training."""

    def predict(self) -> None:
        """Run ten batches of prediction, without a training."""

    def run_folder(self) -> Path:
        """Return the TensorBoard run directory that contains the training loss."""

    def weights(self) -> list[bytes]:
        """Return the bytes of each parameter of the model."""

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of the last ``fit``, without those that depend on real time."""

    def steps(self) -> int:
        """Return the framework's own count of the optimizer steps of the last ``fit``."""

    def checkpoint(self) -> dict[str, Any]:
        """Return all values in all files of the newest checkpoint, by their location."""

    def rows(self) -> Rows:
        """Return the rows (step, value) of the user's event files, by tag.

        Tags of runs other than that of the training loss are prefixed with the name of the run.
        Tags that depend on real time are left out.
        """


@dataclass(frozen=True, kw_only=True)
class Stock:
    """A callback that comes with a framework.

    Attributes:
        name: name of its class.
        make: creates the callback, or a list of them, given a folder for its files; ``None`` if
            ``settings`` alone enable it.
        settings: settings of the framework that it needs.
    """

    name: str
    make: Callable[[Path], Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def made(self, folder: Path) -> list[Any]:
        """Return a list of new callbacks; empty if ``settings`` alone enable them."""
        found = [] if self.make is None else self.make(folder)
        return found if isinstance(found, list) else [found]


def together(*stock: Stock) -> Stock:
    """Return callbacks that only observe a training, so that one training can have all of them."""

    def make(folder: Path) -> list[Any]:
        return [made for one in stock for made in one.made(folder / one.name)]

    return Stock(name=", ".join(one.name for one in stock), make=make)


class Lab(Protocol):
    """Runs trainings of one framework.

    Attributes:
        name: key in the table of frameworks; Keras has one per backend.
        framework: name of the framework in reports.
        callback: our callback class for the framework.
        loss_tags: tags of the training loss in the user's event file.
        unseen_batches: number of batches that ``evaluate`` or ``predict`` without a training runs
            before the first hook is called.
        stock: callbacks that come with the framework.
    """

    name: ClassVar[str]
    framework: ClassVar[str]
    callback: ClassVar[type]
    loss_tags: ClassVar[tuple[str, ...]]
    unseen_batches: ClassVar[int]
    stock: ClassVar[tuple[Stock, ...]]

    def training(self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any) -> Training:
        """Return a training with its files in a folder; a second one there can resume it."""

    def read(self, folder: Path) -> Rows:
        """Return the rows (step, value) of our own event file in a folder, by tag."""

    def scalar_writers(self) -> tuple[tuple[Any, str], ...]:
        """Return owner and name of each function that writes scalars to TensorBoard.

        It is called for each scalar of the user's TensorBoard run, with the tag as first text, or
        for each row, with a serialized ``Summary``.
        """


class Bench:
    """A lab, an empty folder and a virtual clock, which advances only by the times of a plan.

    Args:
        lab: lab of the framework.
        folder: an empty folder.
        clock: the virtual clock; by default a new one that starts at the current time.
        shared: cache of trainings that several tests read; by default a new one.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        clock: FakeClock | None = None,
        shared: "SharedTrainings | None" = None,
    ) -> None:
        self.lab = lab
        self.folder = folder
        # Journals with old times would be taken for those of a process that was killed.
        self.clock = clock or FakeClock(start_unix_s=time.time())
        self._shared = shared or SharedTrainings(lab, folder / "shared")

    def without_us(self, plan: Plan) -> Training:
        """Return a finished training without our callback; tests share it, so do not change it."""
        return self._shared.trained(plan, None).training

    def with_us(self, plan: Plan, **settings: Any) -> "Trained":
        """Return a finished training with our callback; tests share it, so do not change it."""
        return self._shared.trained(plan, settings)

    @property
    def alone_s(self) -> float:
        """Return the measurable duration of ``evaluate`` or ``predict`` alone, in s."""
        return (10 - self.lab.unseen_batches) * STEP_S

    def callback(self, *, gpu: bool = True, **settings: Any) -> Any:
        """Return our callback with a scripted host, and a GPU if ``gpu``, of constant power."""
        sources = [constant(self.clock, HOST_W, "host")]
        if gpu:
            sources.append(constant(self.clock, POWER_W, "gpu"))
        return self.lab.callback(
            meter=EnergyMeter(sources=sources, clock=self.clock, config=EnergyConfig(**settings))
        )

    def training(self, plan: Plan, *callbacks: Any, folder: str = "user") -> Training:
        """Return a training that has not started, in a subfolder with this name."""
        return self.lab.training(self.folder / folder, self.clock, plan, *callbacks)

    def fit(self, plan: Plan, *callbacks: Any, folder: str = "user") -> Training:
        """Run a training in a subfolder with this name, and return it."""
        training = self.training(plan, *callbacks, folder=folder)
        training.fit()
        return training


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A training that has ended.

    Attributes:
        training: the training, from which rows, weights and files can be read.
        callback: our callback; ``None`` if the training ran without it.
    """

    training: Training
    callback: Any


class SharedTrainings:
    """A cache of trainings that several tests read; each runs when it is first requested.

    Args:
        lab: lab of the framework.
        folder: parent of the folders of all trainings.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._known: list[tuple[Plan, Mapping[str, Any] | None, Trained]] = []

    def trained(self, plan: Plan, settings: Mapping[str, Any] | None) -> Trained:
        """Return a finished training.

        Args:
            plan: parameters of the training.
            settings: settings of our callback; ``None`` trains without it.
        """
        for known, its_settings, trained in self._known:
            if (known, its_settings) == (plan, settings):
                return trained
        bench = Bench(self._lab, self._folder / str(len(self._known)))
        callback = None if settings is None else bench.callback(**settings)
        training = bench.fit(plan, *([] if callback is None else [callback]))
        self._known.append((plan, settings, Trained(training=training, callback=callback)))
        return self._known[-1][-1]


def constant(clock: FakeClock, power_w: float, scope: str) -> ScriptedSource:
    """Return a sensor of constant power with an energy counter; ``scope`` is gpu or host.

    It has one reading per batch: with constant power more of them add only real time.
    """
    device = Device(
        key="gpu0" if scope == "gpu" else "cpu0",
        kind="gpu" if scope == "gpu" else "cpu",
        scope=scope,
        name=f"scripted {scope}",
    )
    return ScriptedSource(
        clock,
        power_w=lambda t_s: power_w,
        energy_j=lambda t_s: power_w * t_s,
        device=device,
        interval_s=STEP_S,
    )


class BreakingSource(ScriptedSource):
    """A sensor that can fail.

    Attributes:
        is_broken: whether reads fail.
        garbage: changes the readings; ``None`` if they are right.
    """

    is_broken = False
    garbage: Callable[[list[Reading]], Any] | None = None

    def read(self) -> Any:
        """See ``ScriptedSource``."""
        if self.is_broken:
            raise OSError("the card has fallen off the bus")
        readings = list(super().read())
        return readings if self.garbage is None else self.garbage(readings)
