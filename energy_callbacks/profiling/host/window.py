"""Runs cProfile for a while, unless another profiler is active."""

import cProfile
import marshal
import os
import pstats
import sys
import threading
from pathlib import Path

from energy_callbacks.profiling.common.main_thread import on_thread
from energy_callbacks.profiling.host.calls import Calls


class ProfileWindow:
    """One period of the calling thread under cProfile; from Python 3.12 on, of all threads.

    Raises:
        ValueError: if another profiler is active in this process.
    """

    def __init__(self) -> None:
        if (other := _active()) is not None:
            raise ValueError(
                f"another profiler is active ({other}), and Python bears but one; "
                "end it before the training, or leave HostProfiler out"
            )
        self._thread = threading.get_ident()
        self._profile = cProfile.Profile()
        self._profile.enable()
        _open.add(self)

    def end(self) -> None:
        """Switch it off; on another thread than that which began it, soon."""
        if self not in _open:
            return
        _open.discard(self)
        if sys.version_info >= (3, 12):
            self._profile.disable()
        else:
            on_thread(self._thread, self._disable)

    def _disable(self) -> None:
        # Before 3.12 to disable one ends whichever is at work, another of the user's too.
        at_work: object = sys.getprofile()
        if at_work is self._profile:
            self._profile.disable()

    def save(self, path: Path) -> Calls:
        """Write what was seen, for SnakeViz and pstats, and give it as figures.

        Args:
            path: of the file.

        Raises:
            OSError: if it cannot be written.
        """
        self.end()
        self._profile.snapshot_stats()  # not create_stats, which disables again
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            marshal.dump(vars(self._profile)["stats"], file)
        return Calls(vars(pstats.Stats(str(path)))["stats"])


# A forked child would go on for its parent, and permanently.
_open: set[ProfileWindow] = set()


def _end_all() -> None:
    for window in tuple(_open):
        window.end()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_end_all)


def _active() -> str | None:
    """The profiler that is at work in this thread or, from Python 3.12 on, in the process."""
    if (function := sys.getprofile()) is not None:
        return repr(function)
    if sys.version_info >= (3, 12):
        return sys.monitoring.get_tool(sys.monitoring.PROFILER_ID)
    return None
