"""A tenant: the program of a process that runs one model, as its parent process commands.

Commands are JSON objects, one a line on standard input, and so are the answers:

========== ============================================== ==============================
``do``     what the tenant does                           answer
========== ============================================== ==============================
``load``   builds a model and runs one batch              ``{"ready": true, "note": text}``
``run``    runs batches until the next ``rest``           none
``report`` goes on                                        ``{"ends_s": [...]}``
``rest``   waits, with the model loaded                   none
``batch``  runs one batch of ``samples`` samples, which   ``{"start_s": x, "end_s": y}``
           are at most those of the loaded batch
========== ============================================== ==============================

``ends_s`` are the monotonic times of the ends of all batches since the last report; the first is
the start of the first batch, or the last time of the last report. Several commands ``batch`` may be
sent at once, so that the tenant does not wait between two batches.

After a fault, the answer is
``{"status": "oom" | "error", "note": text}``, and the tenant ends. It also ends when standard input
is closed.
"""

import json
import os
import select
import time
from collections.abc import Callable
from typing import Any, Final

Step = Callable[[int], None]
_NOTE_LENGTH: Final = 300


class _Commands:
    """Reads lines from standard input, without waiting if there is none."""

    def __init__(self) -> None:
        self._text = b""

    def next(self, *, wait: bool) -> dict[str, Any] | None:
        """Return the next command; ``None`` if there is none.

        Raises:
            EOFError: if standard input is closed.
        """
        while b"\n" not in self._text:
            if not wait and not select.select([0], [], [], 0.0)[0]:
                return None
            more = os.read(0, 65536)
            if not more:
                raise EOFError
            self._text += more
        line, _, self._text = self._text.partition(b"\n")
        command: dict[str, Any] = json.loads(line)
        return command


def serve(answer: Callable[[dict[str, Any]], None], load: Callable[[dict[str, Any]], Step]) -> None:
    """Follow commands until standard input is closed.

    Args:
        answer: sends an answer.
        load: returns what runs a batch of some samples, for a command ``load``.
    """
    commands = _Commands()
    step: Step | None = None
    batch = 0
    is_running = False
    ends_s: list[float] = []
    while True:
        command = commands.next(wait=not is_running)
        if command is None:
            assert step is not None
            step(batch)
            ends_s.append(time.monotonic())
            continue
        match command["do"]:
            case "load":
                step = None  # frees the memory of the model before
                batch = command["batch"]
                step = load(command)
                step(batch)
                answer({"ready": True, "note": getattr(step, "note", "")})
            case "batch":
                assert step is not None
                start_s = time.monotonic()
                step(command["samples"])
                answer({"start_s": start_s, "end_s": time.monotonic()})
            case "report":
                answer({"ends_s": ends_s})
                ends_s = ends_s[-1:]
            case "run" | "rest":
                is_running = command["do"] == "run"
                ends_s = [time.monotonic()]


def main() -> None:
    """Serve on standard input and output; what libraries print goes to standard error."""
    pipe = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)

    def answer(fields: dict[str, Any]) -> None:
        pipe.write(json.dumps(fields) + "\n")

    from energy_callbacks.inference.profile import steps

    try:
        serve(answer, steps.Loader().load)
    except EOFError:
        return
    except Exception as error:
        from energy_callbacks.tuning.out_of_memory import is_out_of_memory, said

        status = "oom" if is_out_of_memory(error) else "error"
        note = " ".join(f"{type(error).__name__}: {said(error)}".split())  # of one line
        answer({"status": status, "note": note[:_NOTE_LENGTH]})
        raise


if __name__ == "__main__":
    main()
