"""A call into a driver that must not hold up the caller for ever."""

import threading
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


def within(timeout_s: float, ask: Callable[[], Answer], name: str) -> Answer:
    """What ``ask`` returns or raises; it runs on a thread of its own, which is left if it hangs.

    Raises:
        TimeoutError: where there is no answer in time.
    """
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
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError(f"{name}: no answer within {timeout_s:g} s")
    return answers[0]
