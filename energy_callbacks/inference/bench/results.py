"""The results folder of a benchmark, which can be continued after a crash.

::

    bench.json                           settings and tasks; written before the first run
    profiles/GPU_MODEL_DATASET_MODE.csv  windows from which predictors are fitted
    GPU_ALGORITHM/TASK.csv               rows of a finished run
    GPU_ALGORITHM/TASK.csv.part          rows of a run that has not finished
    interrupted/                         rows of runs that were interrupted, and have started again

A file gets its name when it is complete, by a rename, which is atomic. So a crash at any moment
leaves every run either finished or not. A run that has not finished starts again, because the
state of its controller and of its GPU is lost.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.inference.bench.tasks import Task

VERSION: Final = 1
SETTINGS: Final = "bench.json"
_PART: Final = ".part"
_LOCK: Final = ".lock"
_INTERRUPTED: Final = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What all runs in a results folder have in common.

    Attributes:
        gpu: name of the GPU.
        window_s: length of a window, s.
        points: number of windows of a profile.
    """

    gpu: str
    window_s: float
    points: int


class Results:
    """The results folder.

    Args:
        folder: its path.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextmanager
    def opened(self, settings: Settings, tasks: Sequence[Task], *, resume: bool) -> Iterator[None]:
        """Reserve the folder for this process, and store settings and tasks in it.

        Raises:
            FileExistsError: if the folder has results, and ``resume`` is ``False``.
            ValueError: if the settings or a task differ from those of the results.
            BlockingIOError: if another process writes to the folder.
        """
        path = self.folder / SETTINGS
        if path.exists() and not resume:
            raise FileExistsError(
                f"{self.folder} has the results of a benchmark; add --resume to continue it, or "
                "name another folder with --out"
            )
        descriptor = atomic_files.open_to_append(self.folder / _LOCK)
        try:
            self._lock(descriptor)
            self._store(path, settings, tasks)
            yield
        finally:
            os.close(descriptor)

    def is_finished(self, file: Path) -> bool:
        """Return whether a file, relative to the folder, is complete."""
        return (self.folder / file).exists()

    @contextmanager
    def part_of(self, file: Path) -> Iterator[Path]:
        """Provide the path at which a file is written; it gets its name at the end of the block.

        An earlier part is moved to the folder ``interrupted``.
        """
        final = self.folder / file
        part = final.with_name(final.name + _PART)
        if part.exists():
            self._keep(part)
        atomic_files.make_folder(part.parent)
        yield part
        part.replace(final)

    def _keep(self, part: Path) -> None:
        folder = self.folder / _INTERRUPTED
        atomic_files.make_folder(folder)
        name = f"{part.parent.name}_{part.name.removesuffix(_PART)}"
        number = sum(1 for _ in folder.glob(f"*_{name}")) + 1
        part.replace(folder / f"{number}_{name}")

    def _lock(self, descriptor: int) -> None:
        try:
            atomic_files.lock(descriptor)
        except BlockingIOError as error:
            raise BlockingIOError(
                f"another process writes to {self.folder}; wait for its end, or name another "
                "folder with --out"
            ) from error

    def _store(self, path: Path, settings: Settings, tasks: Sequence[Task]) -> None:
        now = {str(one.number): one.as_json() for one in tasks}
        known: dict[str, Any] = {}
        if path.exists():
            stored = _read(path)
            known = stored.get("tasks", {})
            self._check(stored, {"version": VERSION, **asdict(settings)}, now)
        every = {**known, **now}
        content = {
            "version": VERSION,
            **asdict(settings),
            "tasks": {number: every[number] for number in sorted(every, key=int)},
        }
        atomic_files.write(path, json.dumps(content, indent=1) + "\n")

    def _check(
        self, stored: Mapping[str, Any], settings: Mapping[str, Any], tasks: Mapping[str, Any]
    ) -> None:
        for name, value in settings.items():
            if stored.get(name) != value:
                raise ValueError(
                    f"{self.folder} has results with {name} {stored.get(name)!r}, and this command "
                    f"has {value!r}; name another folder with --out"
                )
        for number, task in tasks.items():
            before = stored["tasks"].get(number, task)
            for key, value in task.items():
                if before.get(key) != value:
                    raise ValueError(
                        f"{self.folder} has results of task {number} with {key} {before.get(key)}, "
                        f"and this command has {value}; name another folder with --out"
                    )


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = {**json.loads(path.read_text(encoding="utf-8"))}
    except (ValueError, TypeError) as error:  # TypeError: it is not an object
        raise ValueError(f"{path} is damaged ({error}); name another folder with --out") from error
    return found
