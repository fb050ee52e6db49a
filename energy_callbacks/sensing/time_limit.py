"""Calls into a driver with a time limit."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

Answer = TypeVar("Answer")

PATIENCE_S: Final = 10.0
"""Time limit for NVIDIA's driver. Without the persistence daemon it wakes up each card in one to
three seconds (NVIDIA, "Driver Persistence")."""

_hanging: dict[str, threading.Thread] = {}


def within(timeout_s: float, ask: Callable[[], Answer], name: str) -> Answer:
    """Call ``ask`` on a thread of its own and return its result, or raise its exception.

    Args:
        timeout_s: how long to wait. A call that takes longer is abandoned on its thread.
        ask: the call.
        name: name of the callee. While an earlier call of this name hangs, no other is made.

    Raises:
        TimeoutError: if there is no result in time.
    """
    before = _hanging.get(name)
    if before is not None and before.is_alive():
        raise TimeoutError(f"{name}: an earlier call has no answer yet")
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised again in the calling thread
            answer.set_exception(error)

    thread = threading.Thread(target=run, name=f"energy_callbacks {name}", daemon=True)
    thread.start()
    thread.join(timeout_s)
    _hanging[name] = thread
    if not answer.done():
        raise TimeoutError(f"{name}: no answer within {timeout_s:g} s")
    return answer.result()
