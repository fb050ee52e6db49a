"""In a forked child, a meter of the parent answers at once, whatever other threads were doing."""

import gc
import os
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.config import DISABLED_VARIABLE, RUN_DIR_VARIABLE
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.sensing.codecarbon_import import quiet_codecarbon
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.core.forking import in_a_child

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

LOCKS: Final = (type(threading.Lock()), type(threading.RLock()))
# How long the test waits for a lock, s. Locks of waiting threads are never free.
PATIENCE_S: Final = 0.3
# Longest time that a call in a child may take, s.
AT_ONCE_S: Final = 60.0


def wait_for_ranks(share: float) -> float:
    """Wait for ever: a child is no rank, so nobody answers it."""
    threading.Event().wait()
    return share


# Arguments of methods that need some.
ARGUMENTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "_abandon": ("a message",),
    "energy": (0.0, 1.0),
    "enter": ("train",),
    "epoch": (1,),
    "is_over_budget": (wait_for_ranks,),
    "leave": ("train",),
    "log": (1,),
    "mark": ("compiled",),
    "measure": ("predict",),
    "plan": (10,),
    "_record": ("batch_sizes",),
    "record_metrics": ({"loss": 1.0},),
    "resumed": (1,),
    "_wait_until_seen": (0.0, 2.0 * AT_ONCE_S),
    "window": ("validation", 0.0, 1.0),
}
CONTEXTS: Final[Mapping[str, tuple[Any, ...]]] = {"phase": ("train",), "ending": ()}
# Methods that only adapters call.
OF_ADAPTERS: Final = ("_abandon", "_record", "_start", "_step_marks", "_wait_until_seen")
PUBLIC: Final = sorted(name for name in dir(EnergyMeter) if not name.startswith("_"))


def called(meter: EnergyMeter, name: str) -> object:
    """Use one public name of a meter."""
    if name in CONTEXTS:
        with getattr(meter, name)(*CONTEXTS[name]) as entered:
            return entered
    found = getattr(meter, name)
    return found(*ARGUMENTS.get(name, ())) if isinstance(found, types.MethodType) else found


def parts(thing: object) -> list[object]:
    """Return the objects of which one of ours consists, without classes and modules."""
    if isinstance(thing, types.FunctionType):
        return [cell.cell_contents for cell in thing.__closure__ or ()]
    if isinstance(thing, types.MethodType):
        return [thing.__self__]
    is_container = isinstance(thing, dict | list | tuple | set | deque)
    home = type(thing).__module__.partition(".")[0]
    return (
        gc.get_referents(thing) if is_container or home in ("energy_callbacks", "threading") else []
    )


def locks_of(*roots: object) -> list[Any]:
    """Return all locks that objects and our modules hold."""
    modules = [m for name, m in sys.modules.items() if name.startswith("energy_callbacks")]
    known: dict[int, object] = {}
    left: list[object] = [*roots, *(value for m in modules for value in vars(m).values())]
    while left:
        thing = left.pop()
        if id(thing) not in known and not isinstance(thing, type | types.ModuleType):
            known[id(thing)] = thing
            left += parts(thing)
    return [thing for thing in known.values() if isinstance(thing, LOCKS)]


@pytest.fixture
def meter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EnergyMeter]:
    """A running meter on real threads, with an output that has an open file."""
    for name in (DISABLED_VARIABLE, RUN_DIR_VARIABLE, "RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    config = EnergyConfig(report_dir=tmp_path, sample_interval_s=0.05, max_energy_wh=1.0)
    source = ScriptedSource(FakeClock(), power_w=lambda _: 100.0, interval_s=0.05)
    output = TensorBoardOutput(tmp_path / "events")
    output.write({"a": 1.0}, 1, 1.0)
    with EnergyMeter(config=config, sources=[source], outputs=[output]) as meter:
        yield meter


@pytest.fixture
def locked(meter: EnergyMeter) -> Iterator[list[Any]]:
    """All locks of the meter, which another thread holds during the test."""
    held: list[Any] = []
    ready, release = threading.Event(), threading.Event()

    def hold() -> None:
        held.extend(lock for lock in locks_of(meter) if lock.acquire(timeout=PATIENCE_S))
        ready.set()
        release.wait(60.0)
        for lock in held:
            lock.release()

    thread = threading.Thread(target=hold)
    thread.start()
    assert ready.wait(60.0)
    yield held
    release.set()
    thread.join()


def test_every_public_method_returns_at_once(
    meter: EnergyMeter, locked: list[Any], tmp_path: Path
) -> None:
    """A child that was forked while another thread held every lock of the meter waits for none."""
    assert len(locked) >= 5, "the locks of timeline, figures, threads and imports"
    size = (tmp_path / "attempts" / "1").stat().st_size

    def works(name: str) -> Callable[[], bool]:
        return lambda: (called(meter, name), True)[1]

    codes = {name: in_a_child(works(name), AT_ONCE_S) for name in (*PUBLIC, *OF_ADAPTERS)}
    assert {name: code for name, code in codes.items() if code} == {}
    assert (tmp_path / "attempts" / "1").stat().st_size == size


def test_a_child_does_not_close_the_outputs_of_its_parent(meter: EnergyMeter) -> None:
    """Closing an output may end a connection that the parent needs."""
    closed: list[int] = []

    class Counting:
        def write(self, *_: object) -> None: ...

        def close(self) -> None:
            closed.append(1)

    meter._outputs = (Counting(),)  # type: ignore[assignment]

    def work() -> bool:
        meter.close()
        return not closed

    assert in_a_child(work) == 0


def test_a_child_knows_no_devices(meter: EnergyMeter) -> None:
    """The devices are those that this process measures."""
    assert in_a_child(lambda: meter.devices == ()) == 0


def test_a_child_may_use_codecarbon_while_its_parent_did() -> None:
    """The lock of the import is free in a child, even if another thread held it at the fork."""
    inside, release = threading.Event(), threading.Event()

    def hold() -> None:
        with quiet_codecarbon():
            inside.set()
            release.wait(60.0)

    def work() -> bool:
        with quiet_codecarbon():
            return True

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(60.0)
    code = in_a_child(work)
    release.set()
    thread.join()
    assert code == 0
