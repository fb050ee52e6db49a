"""The contract: SIGTERM and Ctrl-C at each stage of a training, with a handler of the user.

The signals arrive in the training's own process, in virtual time, in the middle of what the
callback does. ``terminated.py`` sends SIGTERM to separate processes.
"""

import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.accounting.metrics.tags import OWN_TAGS
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report_process.endings import Endings
from tests.integrations.contract.lab import Bench, Plan, Training
from tests.integrations.contract.loggers import watch_writer

PLAN = Plan(validation_samples=20, checkpoint_s=0.1)
# A batch of the second epoch, so that each framework has written rows before.
BATCH = 15


class PreemptedError(Exception):
    """What a user's handler raises to end a training, and to save a checkpoint outside of it."""


def exits(_number: int, _frame: FrameType | None) -> NoReturn:
    """Exit like a shell does after SIGTERM."""
    sys.exit(143)


def raises(_number: int, _frame: FrameType | None) -> NoReturn:
    """Raise an exception that ``except Exception`` catches."""
    raise PreemptedError


HANDLERS: dict[str, tuple[Callable[..., NoReturn], type[BaseException]]] = {
    "exits": (exits, SystemExit),
    "raises": (raises, PreemptedError),
}


def once(number: signal.Signals) -> Callable[..., None]:
    """Return a function that sends a signal to this process at its first call."""
    due = [number]

    def send(*_: object) -> None:
        if due:
            signal.raise_signal(due.pop())

    return send


def before(patch: pytest.MonkeyPatch, owner: type, method: str, send: Callable[..., None]) -> None:
    """Send a signal before a method of one of our classes runs."""
    original = getattr(owner, method)

    def sending(*args: Any, **kwargs: Any) -> Any:
        send()
        return original(*args, **kwargs)

    patch.setattr(owner, method, sending)


STAGES = ("start", "batch", "row", "epoch", "checkpoint", "end")
# Stages inside our methods.
METHODS: dict[str, tuple[type, str]] = {
    "start": (EnergyMeter, "_start"),
    "epoch": (EnergyMeter, "epoch"),
    "checkpoint": (EnergyMeter, "window"),
    "end": (Endings, "_begin"),
}


def training_with_signal(
    bench: Bench, patch: pytest.MonkeyPatch, stage: str, *callbacks: Any
) -> Training:
    """Return a training in which SIGTERM arrives at a stage."""
    send, plan = once(signal.SIGTERM), PLAN
    if stage == "batch":
        plan = Plan(**vars_of(PLAN) | {"before_batch": lambda n: send() if n == BATCH else None})
    elif stage == "row":
        watch_writer(bench, patch, lambda tag: send() if tag in OWN_TAGS else None)
    else:
        before(patch, *METHODS[stage], send)
    return bench.training(plan, *callbacks, folder="with" if callbacks else "without")


def vars_of(plan: Plan) -> dict[str, Any]:
    """Return the parameters of a plan by name."""
    return {name: getattr(plan, name) for name in Plan.__dataclass_fields__}


class StagesContract:
    """Signals in the middle of what the callback does."""

    @pytest.fixture(autouse=True)
    def _handlers(self) -> Iterator[None]:
        held = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        yield
        for number, handler in held.items():
            signal.signal(number, handler)

    @pytest.mark.parametrize("kind", HANDLERS)
    @pytest.mark.parametrize("stage", STAGES)
    def test_what_a_handler_of_sigterm_raises_ends_the_training(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, stage: str, kind: str
    ) -> None:
        """At each stage ``fit`` raises it as without the callback; the report says how it ended."""
        handler, error = HANDLERS[kind]
        ours = bench.callback()
        training = training_with_signal(bench, monkeypatch, stage, ours)
        signal.signal(signal.SIGTERM, handler)
        with pytest.raises(error):
            training.fit()
        bench.clock.advance(60.0)
        if stage == "start":
            with pytest.raises(JournalError, match="train first"):
                ours.report()
            return
        assert ours.report().run.status in ("failed", "interrupted", "finished")
        assert (ours.report().run.status == "finished") <= (stage == "end")
        assert ours.report().energy.gpu.energy_j > 0.0
        assert (ours._meter.run_folder / "energy_report.json").is_file()

    @pytest.mark.parametrize("kind", HANDLERS)
    def test_a_signal_in_a_batch_leaves_the_same_rows(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """Rows and exception are those of the same training and signal without the callback."""
        handler, error = HANDLERS[kind]
        found = []
        for callbacks in ((), (bench.callback(),)):
            training = training_with_signal(bench, monkeypatch, "batch", *callbacks)
            signal.signal(signal.SIGTERM, handler)
            with pytest.raises(error) as caught:
                training.fit()
            rows = training.rows()
            found.append((str(caught.value), {tag: rows.get(tag) for tag in bench.lab.loss_tags}))
        assert found[0] == found[1]

    @pytest.mark.parametrize("second", ["in the report", "in the next training"])
    def test_ctrl_c_twice(self, bench: Bench, monkeypatch: pytest.MonkeyPatch, second: str) -> None:
        """The first one ends the training, the second one what follows; the report is complete."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ours = bench.callback()
        send = once(signal.SIGINT)
        plan = Plan(before_batch=lambda n: send() if n == BATCH else None)
        training = bench.training(plan, ours)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            training.fit()
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning ignores it from now on
        send = once(signal.SIGINT)
        if second == "in the report":
            before(monkeypatch, EnergyMeter, "report", send)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            training.fit() if second == "in the next training" else ours.report()
        bench.clock.advance(60.0)
        assert ours.report().run.status in ("failed", "interrupted")
        assert ours.report().throughput.steps >= BATCH
