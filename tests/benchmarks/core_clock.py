"""How much of a core this process gets: on a busy machine a time above its bar may be others'."""

import time
from typing import Final

QUIET: Final = 0.95


class CoreClock:
    """Starts when it is made; for work that never waits, which alone has all of a core."""

    def __init__(self) -> None:
        self._start_s, self._cpu_s = time.perf_counter(), time.process_time()

    def share(self) -> float:
        """Processor time since the start, of all threads, over time."""
        return (time.process_time() - self._cpu_s) / (time.perf_counter() - self._start_s)
