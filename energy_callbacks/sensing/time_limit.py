"""Calls functions that may hang, such as functions of a driver, with a time limit."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

Answer = TypeVar("Answer")

PATIENCE_S: Final = 5.0
"""Time limit for NVIDIA's driver to initialise or list its GPUs, s, if a caller waits for it.
Without the persistence daemon, the driver takes one to three seconds to initialise each GPU
(NVIDIA, "Driver Persistence")."""

_hanging: dict[str, threading.Thread] = {}


def within(timeout_s: float, ask: Callable[[], Answer], name: str) -> Answer:
    """Call ``ask`` on a new thread, and return its result or raise its exception.

    Args:
        timeout_s: maximum time to wait, s. A call that takes longer continues on its thread.
        ask: the function to call.
        name: name of the call in messages. No new call is made while an earlier call with this name
            is still running after its time limit.

    Raises:
        TimeoutError: if ``ask`` does not end in time, or if no call is made (see ``name``).
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
