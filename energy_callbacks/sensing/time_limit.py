"""Calls into a driver with a time limit."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

Answer = TypeVar("Answer")

PATIENCE_S: Final = 10.0
"""Without the persistence daemon NVIDIA's driver wakes each card in one to three seconds (NVIDIA,
"Driver Persistence"); one that says nothing for longer than a few such cards take hangs."""

_left: dict[str, threading.Thread] = {}


def within(timeout_s: float, ask: Callable[[], Answer], name: str) -> Answer:
    """What ``ask`` returns or raises; it runs on a thread of its own, which is left if it hangs.

    Args:
        timeout_s: how long to wait.
        ask: the call.
        name: of the callee; while an earlier call of this name still hangs, no call waits again.

    Raises:
        TimeoutError: if there is no answer in time.
    """
    before = _left.get(name)
    if before is not None and before.is_alive():
        raise TimeoutError(f"{name}: an earlier call has no answer yet")
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked
            errors.append(error)

    thread = threading.Thread(target=run, name=f"energy_callbacks {name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    _left[name] = thread
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"{name}: no answer within {timeout_s:g} s")
    return answers[0]
