"""A script whose training is never stopped: ``python -m tests.unstopped END``, one of ``ENDS``."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting import journal_thread, open_attempts
from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.records import Channel, Device, Reading
from tests.core.waiting import until

PATIENCE_S = 60.0


def fit(meter: EnergyMeter, error: BaseException | None = None) -> None:
    """Train for one step, without a hook at the end."""
    meter._start(call=ActiveCall.find("fit", package="__main__"))
    meter.enter("train")
    meter.step(samples=4)
    if error is not None:
        raise error


def catch(meter: EnergyMeter) -> None:
    """Continue after the exception until the meter has detected it."""
    with suppress(RuntimeError):
        fit(meter, RuntimeError("boom"))
    until(lambda: not any("energy_callbacks" in one.name for one in threading.enumerate()))
    assert not meter.is_running


def end(meter: EnergyMeter) -> None:
    """Train, and end as adapters do."""
    meter.start()
    meter.step(samples=4)
    with meter.ending():
        pass


class Impatient:
    """A source whose last reading hangs; the user presses Ctrl-C when the exit waits for it."""

    name = "impatient"
    interval_s = 0.1

    def __init__(self) -> None:
        self.is_exiting = threading.Event()

    def open(self) -> Sequence[Channel]:
        device = Device(key="gpu0", kind="gpu", scope="gpu", name="a GPU")
        return [Channel(device=device, quantity="power", kind="gauge")]

    def read(self) -> Sequence[Reading]:
        return []

    def finish(self) -> Sequence[Reading]:
        """See ``FinishingSource``."""
        self.is_exiting.wait()
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait()
        return []

    def close(self) -> None:
        """Nothing to do."""


def interrupt_twice(meter: EnergyMeter) -> None:
    """Press Ctrl-C in the training, and once more while the exit waits for a sensor."""
    source, add = Impatient(), open_attempts.add

    def add_told(one: ActiveAttempt, at_exit: Callable[[], object]) -> None:
        add(one, lambda: (source.is_exiting.set(), at_exit()))

    open_attempts.add = add_told
    journal_thread._STOP_TIMEOUT_S = PATIENCE_S  # type: ignore[misc]
    meter = EnergyMeter(config=meter.config, sources=[source])
    fit(meter, KeyboardInterrupt())


ENDS = {
    "interrupts twice": interrupt_twice,
    "ends": end,
    "raises": lambda meter: fit(meter, RuntimeError("boom")),
    "interrupts": lambda meter: fit(meter, KeyboardInterrupt()),
    "returns": fit,
    "catches": catch,
}

if __name__ == "__main__":
    ENDS[sys.argv[1]](EnergyMeter(config=EnergyConfig(report_dir="."), sources=[]))
