"""The worker processes of PyTorch's ``DataLoader``: each follows itself into files of its own.

While a profiler runs, ``DataLoader`` gives its new workers a ``WorkerTracker``. As
``worker_init_fn`` it begins, as ``collate_fn`` it counts the worker's batches, and in both it calls
what the user gave.
"""

import functools
import logging
import os
import pstats
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import util
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.line_profile import profile_lines
from energy_callbacks.core import atomic_files
from energy_callbacks.profiling.common.imports import when_imported
from energy_callbacks.profiling.host.calls import Calls
from energy_callbacks.profiling.host.window import ProfileWindow

logger = logging.getLogger("energy_callbacks")

# Workers may be ended from outside; what they have written until then is kept.
_SAVED_EVERY_S: Final = 1.0
# The report is not the place for the tables of all workers.
_LINES: Final = 40


class WorkerTracker:
    """The profiler's part in one worker; pickled if workers are spawned.

    Args:
        folder: for the files.
        functions: whose lines are followed.
        batches: calls are followed for this many batches at most; lines until the end.
        longest_s: calls are followed for this long at most, s.
        inherited: the lines that the parent follows, which a forked worker lets be.
        init: the user's ``worker_init_fn``.
        collate: the user's ``collate_fn``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        functions: Sequence[str],
        batches: int,
        longest_s: float,
        inherited: profile_lines | None,
        init: Callable[[int], Any] | None,
        collate: Callable[[Any], Any],
    ) -> None:
        self._folder, self._functions = folder, tuple(functions)
        self._batches, self._longest_s = batches, longest_s
        self._inherited = inherited
        self._init, self._collate = init, collate
        self._window: ProfileWindow | None = None
        self._lines: profile_lines | None = None
        self._start_s = self._saved_s = 0.0

    def begin(self, worker: int) -> None:
        """As ``worker_init_fn``: follow this process from here on."""
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - the user's batches must not suffer by it
            logger.warning("a data-loader worker is not followed: %r", error)
        if self._init is not None:
            self._init(worker)

    def _begin(self) -> None:
        self._start_s = self._saved_s = time.monotonic()
        util.Finalize(None, self._save, exitpriority=10)
        if self._inherited is not None:
            self._inherited.__exit__(None, None, None)
        if self._functions:
            self._lines = profile_lines(*self._functions).__enter__()
        self._window = ProfileWindow()

    def collate(self, samples: Any) -> Any:
        """As ``collate_fn``: the user's batch."""
        batch = self._collate(samples)
        self._batches -= 1
        now_s = time.monotonic()
        if self._batches == 0 or now_s - self._start_s >= self._longest_s:
            self._save_calls()
        if self._lines is not None and now_s - self._saved_s >= _SAVED_EVERY_S:
            self._save_lines()
            self._saved_s = now_s
        return batch

    def _save(self) -> None:
        self._save_calls()
        self._save_lines()

    def _save_calls(self) -> None:
        window, self._window = self._window, None
        if window is not None:
            with _tried():
                window.save(self._folder / f"host.{os.getpid()}.prof")

    def _save_lines(self) -> None:
        if self._lines is not None and (text := self._lines.text):
            with _tried():
                atomic_files.write(self._folder / f"memory_lines.{os.getpid()}.txt", text)

    def __getstate__(self) -> dict[str, Any]:
        """A spawned worker inherits nothing."""
        return self.__dict__ | {"_inherited": None}


@contextmanager
def _tried() -> Iterator[None]:
    """A full disk costs files of ours, not the user's batches."""
    try:
        yield
    except OSError as error:
        logger.warning("a data-loader worker could not write its profile: %s", error)


class Workers:
    """Lets the workers that begin between ``start`` and ``stop`` be followed.

    Args:
        folder: of the profile's files.
        settings: those of a ``WorkerTracker`` but for what is the user's.
    """

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder = folder
        self._follower = functools.partial(WorkerTracker, folder, **settings)
        self._undo = ExitStack()

    def start(self) -> None:
        """From now on, also if PyTorch is imported later."""
        for path in self._files("host.*.prof", "memory_lines.*.txt"):
            path.unlink(missing_ok=True)
        self._undo.callback(when_imported("torch.utils.data.dataloader", self._patch))

    def _patch(self, loaders: Any) -> None:
        self._undo.callback(_patch(loaders.DataLoader, self._follower))

    def stop(self) -> dict[str, Any] | None:
        """Results of the workers so far; ``None`` if there are none.

        Returns:
            How many, their functions together, and the first lines of their tables.
        """
        self._undo.close()
        profiles, tables = self._files("host.*.prof"), self._files("memory_lines.*.txt")
        if not profiles and not tables:
            return None
        functions = []
        if profiles:
            merged = pstats.Stats(*map(str, profiles))
            functions = Calls(vars(merged)["stats"]).top()
        lines = [line for path in tables for line in _table(path)]
        return {
            "processes": max(len(profiles), len(tables)),
            "files": [path.name for path in (*profiles, *tables)][:32],
            "functions": functions,
            "lines": lines[:_LINES],
        }

    def _files(self, *patterns: str) -> list[Path]:
        return [path for pattern in patterns for path in sorted(self._folder.glob(pattern))]


def _table(path: Path) -> Iterator[str]:
    yield path.name
    yield from path.read_text(encoding="utf-8").splitlines()


def _patch(loader_class: Any, follower: Callable[..., WorkerTracker]) -> Callable[[], None]:
    """Let a class of loaders hand followers to the workers that an iteration starts."""
    original = loader_class.__iter__

    @functools.wraps(original)
    def followed(self: Any) -> Any:
        if not self.num_workers:
            return original(self)
        with _lent(self, follower(init=self.worker_init_fn, collate=self.collate_fn)):
            return original(self)

    loader_class.__iter__ = followed
    return functools.partial(setattr, loader_class, "__iter__", original)


@contextmanager
def _lent(loader: Any, follower: WorkerTracker) -> Iterator[None]:
    """The workers of one iteration take their functions from the loader while they start."""
    kept = loader.worker_init_fn, loader.collate_fn
    loader.worker_init_fn, loader.collate_fn = follower.begin, follower.collate
    try:
        yield
    finally:
        loader.worker_init_fn, loader.collate_fn = kept
