"""What a framework's lab can do: a real training in virtual time, in words of no framework."""

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
# Few batches that last: frameworks need milliseconds for each.
EPOCH_BATCHES = 10
J_PER_SAMPLE = POWER_W * STEP_S / BATCH_SIZE


def nothing(batch: int) -> None:
    """What happens before a batch of training, where a plan does not say."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training; each batch of it takes as long, however many samples it has.

    Attributes:
        epochs: how many.
        samples: of training, an epoch.
        step_s: how long a batch takes.
        validation_samples: after each epoch; 0 for no validation.
        accumulate: batches to an optimizer step.
        load_s: how long the loader needs for a batch of training.
        waits: whether the user asks for waiting to be seen, where that has to be asked for.
        checkpoint_s: how long a checkpoint after each epoch takes; ``None`` for no checkpoints.
        log_every: optimizer steps, where the framework logs by steps.
        logs: whether the user logs into TensorBoard.
        workers: processes that load the data of training; 0 for none.
        stream: sizes of the batches of a generator without length, which is then the data.
        settings: of the framework itself, in its own words.
        before_batch: called before each batch of training, numbered from 0 in each call of fit.
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
        """Of training, in all epochs."""
        return self.epochs * -(-self.samples // BATCH_SIZE)


class Training(Protocol):
    """A model, its data, the user's callbacks: ready to fit, as often as one likes.

    Attributes:
        folder: of its files.
    """

    folder: Path

    def fit(self) -> None:
        """Train from the start."""

    def resume(self) -> None:
        """Train on from the newest checkpoint in the folder."""

    def evaluate(self) -> None:
        """Ten batches of validation, by themselves."""

    def predict(self) -> None:
        """Ten batches of prediction, by themselves."""

    def run_folder(self) -> Path:
        """The run directory of TensorBoard that holds the training loss."""

    def weights(self) -> list[bytes]:
        """All parameters of the model, to the bit."""

    def metrics(self) -> dict[str, Any]:
        """What the framework hands back after ``fit``, but for what depends on real time."""

    def steps(self) -> int:
        """Optimizer steps of the last ``fit``, as the framework counts them."""

    def checkpoint(self) -> dict[str, Any]:
        """All values of all files of the newest checkpoint, by their places in it."""

    def rows(self) -> Rows:
        """What stands in the user's event files, tag to (step, value).

        A tag of another run than that of the training loss has the run's name before it.
        What depends on real time is left out.
        """


@dataclass(frozen=True, kw_only=True)
class Stock:
    """A callback that comes with a framework.

    Attributes:
        name: of its class.
        make: with a folder of its own.
        settings: what it needs of the framework.
    """

    name: str
    make: Callable[[Path], Any] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def made(self, folder: Path) -> list[Any]:
        """A new one, where it is handed in and no setting."""
        return [] if self.make is None else [self.make(folder)]


class Lab(Protocol):
    """A framework.

    Attributes:
        name: in the table of frameworks.
        framework: as reports name it.
        callback: the class that its users add.
        loss_tags: tags of the training loss in the user's event file.
        unseen_batches: that ``evaluate`` and ``predict`` by themselves have done before their
            first hook.
        stock: callbacks that come with it.
    """

    name: ClassVar[str]
    framework: ClassVar[str]
    callback: ClassVar[type]
    loss_tags: ClassVar[tuple[str, ...]]
    unseen_batches: ClassVar[int]
    stock: ClassVar[tuple[Stock, ...]]

    def training(self, folder: Path, clock: FakeClock, plan: Plan, *callbacks: Any) -> Training:
        """A training that keeps its files in a folder; a second one there may resume the first."""

    def read(self, folder: Path) -> Rows:
        """What stands in an event file of ours."""


class Bench:
    """A lab, an empty folder and a clock that stands still between batches.

    Args:
        lab: the framework.
        folder: empty.
        clock: time.
        shared: trainings that several tests look at.
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
        # Journals of the past would read as those of a training that was cut off.
        self.clock = clock or FakeClock(start_unix_s=time.time())
        self._shared = shared or SharedTrainings(lab, folder / "shared")

    def without_us(self, plan: Plan) -> Training:
        """A training that has ended and knew nothing of us, the same for each test that asks."""
        return self._shared.trained(plan, None).training

    def with_us(self, plan: Plan, **settings: Any) -> "Trained":
        """One with our callback, the same for each test that asks; tests only look at it."""
        return self._shared.trained(plan, settings)

    @property
    def alone_s(self) -> float:
        """What can be seen of ``evaluate`` or ``predict``."""
        return (10 - self.lab.unseen_batches) * STEP_S

    def callback(self, *, gpu: bool = True, **settings: Any) -> Any:
        """Our callback on a scripted GPU and host of constant power."""
        sources = [constant(self.clock, HOST_W, "host")]
        if gpu:
            sources.append(constant(self.clock, POWER_W, "gpu"))
        return self.lab.callback(
            meter=EnergyMeter(sources=sources, clock=self.clock, config=EnergyConfig(**settings))
        )

    def training(self, plan: Plan, *callbacks: Any, folder: str = "user") -> Training:
        """A training in a folder of its own."""
        return self.lab.training(self.folder / folder, self.clock, plan, *callbacks)

    def fit(self, plan: Plan, *callbacks: Any, folder: str = "user") -> Training:
        """A training that has ended."""
        training = self.training(plan, *callbacks, folder=folder)
        training.fit()
        return training


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A training that has ended.

    Attributes:
        training: with its rows, its weights and its files.
        callback: ours; ``None`` without us.
    """

    training: Training
    callback: Any


class SharedTrainings:
    """Trainings that several tests look at; each is trained when it is first asked for.

    Args:
        lab: the framework.
        folder: of their folders.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self._folder = folder
        self._known: list[tuple[Plan, Mapping[str, Any] | None, Trained]] = []

    def trained(self, plan: Plan, settings: Mapping[str, Any] | None) -> Trained:
        """A training by a plan, with our callback and these settings; without us for ``None``."""
        for known, its_settings, trained in self._known:
            if (known, its_settings) == (plan, settings):
                return trained
        bench = Bench(self._lab, self._folder / str(len(self._known)))
        callback = None if settings is None else bench.callback(**settings)
        training = bench.fit(plan, *([] if callback is None else [callback]))
        self._known.append((plan, settings, Trained(training=training, callback=callback)))
        return self._known[-1][-1]


def constant(clock: FakeClock, power_w: float, scope: str) -> ScriptedSource:
    """A sensor of constant power, with an energy counter."""
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
    )


class BreakingSource(ScriptedSource):
    """A sensor that is lost as soon as ``is_broken`` is set."""

    is_broken = False

    def read(self) -> list[Reading]:
        """See ``ScriptedSource``."""
        if self.is_broken:
            raise OSError("the card has fallen off the bus")
        return list(super().read())
