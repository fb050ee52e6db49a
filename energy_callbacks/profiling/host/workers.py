"""Profiles the worker processes of PyTorch's ``DataLoader``; each worker writes its own files.

While a ``HostProfiler`` runs, each new worker gets a ``WorkerTracker``. The tracker's method
``begin`` replaces the loader's ``worker_init_fn`` and starts profiling; the method ``collated``
replaces ``collate_fn`` and counts batches. Both methods also call the functions that they replace.
"""

import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from multiprocessing import util
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.line_profile import profile_lines
from energy_callbacks.core import atomic_files
from energy_callbacks.core.guard import logger
from energy_callbacks.profiling.common.imports import when_imported
from energy_callbacks.profiling.host.calls import Calls, ProfileWindow

# After a batch, a worker writes its memory table if this many seconds have passed since the last
# write. Thus a table remains if the worker is killed.
_SAVED_EVERY_S: Final = 1.0
# Maximum number of lines of all workers' memory tables together in the report.
_LINES: Final = 40


@dataclass(kw_only=True)
class WorkerTracker:
    """Profiles one worker; this object is pickled if workers are spawned.

    Attributes:
        folder: folder for the files.
        functions: names of the functions whose memory is measured by line until the worker ends.
        batches: number of batches until the profiling of calls ends.
        longest_s: seconds from the start of the worker; the profiling of calls ends with the first
            batch that is complete after this time.
        inherited: the memory profile of the parent process, which a forked worker inherits and
            must end; ``None`` if there is none.
        init: the user's ``worker_init_fn``; ``None`` if not given.
        collate: the user's ``collate_fn``; ``None`` in the template of ``Workers``.
    """

    folder: Path
    functions: Sequence[str]
    batches: int
    longest_s: float
    inherited: profile_lines | None
    init: Callable[[int], Any] | None = None
    collate: Callable[[Any], Any] | None = None
    _window: ProfileWindow | None = None
    _lines: profile_lines | None = None
    _start_s: float = 0.0
    _saved_s: float = 0.0

    def begin(self, worker: int) -> None:
        """Start to profile this process, then call ``init``; used as ``worker_init_fn``.

        Args:
            worker: number of the worker, which is passed to ``init``.
        """
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - errors must not affect the user's batches
            logger.warning("a data-loader worker is not profiled: %r", error)
        if self.init is not None:
            self.init(worker)

    def _begin(self) -> None:
        self._start_s = self._saved_s = time.monotonic()
        util.Finalize(None, self._save, exitpriority=10)
        if self.inherited is not None:
            self.inherited.__exit__(None, None, None)
        if self.functions:
            self._lines = profile_lines(*self.functions).__enter__()
        self._window = ProfileWindow()

    def collated(self, samples: Any) -> Any:
        """Return the batch from the user's ``collate_fn`` and count it; used as ``collate_fn``."""
        assert self.collate is not None
        batch = self.collate(samples)
        self.batches -= 1
        now_s = time.monotonic()
        if self.batches == 0 or now_s - self._start_s >= self.longest_s:
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
            with _logged_errors():
                window.save(self.folder / f"host.{os.getpid()}.prof")

    def _save_lines(self) -> None:
        if self._lines is not None and (text := self._lines.text):
            with _logged_errors():
                atomic_files.write(self.folder / f"memory_lines.{os.getpid()}.txt", text)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without ``inherited``: a spawned worker inherits no profile."""
        return self.__dict__ | {"inherited": None}


@contextmanager
def _logged_errors() -> Iterator[None]:
    """Log errors of file operations, such as a full disk, instead of raising them."""
    try:
        yield
    except OSError as error:
        logger.warning("a data-loader worker could not write its profile: %s", error)


class Workers:
    """Profiles the workers that start between the creation of this object and ``stop``.

    Args:
        template: a tracker without ``init`` and ``collate``. When workers start, it is copied, and
            the copy gets these functions from the loader.
    """

    def __init__(self, template: WorkerTracker) -> None:
        self._template = template
        self._is_over = False
        self._undo = ExitStack()
        for path in self._files("host.*.prof", "memory_lines.*.txt"):
            path.unlink(missing_ok=True)
        self._undo.callback(when_imported("torch.utils.data.dataloader", self._patch))

    def _patch(self, loaders: Any) -> None:
        """Replace ``DataLoader.__iter__`` in PyTorch's module so that new workers get a tracker."""
        create = loaders.DataLoader.__iter__

        @functools.wraps(create)
        def tracked(loader: Any) -> Any:
            if self._is_over or not loader.num_workers:
                return create(loader)
            init, collate = loader.worker_init_fn, loader.collate_fn
            tracker = replace(self._template, init=init, collate=collate)
            loader.worker_init_fn, loader.collate_fn = tracker.begin, tracker.collated
            try:  # the workers start here and read both functions from the loader
                return create(loader)
            finally:
                loader.worker_init_fn, loader.collate_fn = init, collate

        def restore() -> None:
            if loaders.DataLoader.__iter__ is tracked:  # else another wrapper may call it
                loaders.DataLoader.__iter__ = create

        loaders.DataLoader.__iter__ = tracked
        self._undo.callback(restore)

    def stop(self) -> dict[str, Any] | None:
        """Stop tracking new workers, and return the results of the workers so far.

        Returns:
            The number of workers with files, names of at most 32 files, the functions with the most
            time in all workers together, and the first 40 lines of the memory tables. ``None`` if
            no worker has written a file.
        """
        self._is_over = True
        self._undo.close()
        profiles, tables = self._files("host.*.prof"), self._files("memory_lines.*.txt")
        if not profiles and not tables:
            return None
        lines: list[str] = []
        for path in tables:
            lines += [path.name, *path.read_text(encoding="utf-8").splitlines()]
        return {
            "processes": max(len(profiles), len(tables)),
            "files": [path.name for path in (*profiles, *tables)][:32],
            "functions": Calls.read(*profiles).top() if profiles else [],
            "lines": lines[:_LINES],
        }

    def _files(self, *patterns: str) -> list[Path]:
        return [path for name in patterns for path in sorted(self._template.folder.glob(name))]
