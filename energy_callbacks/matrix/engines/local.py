"""Jobs on this machine: one for each GPU at a time, or one at a time if there is none."""

import os
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.engines.protocol import JobListener
from energy_callbacks.matrix.job_process import JobProcess
from energy_callbacks.matrix.naming import counted
from energy_callbacks.matrix.plan import MatrixJob
from energy_callbacks.matrix.signals import SignalHold
from energy_callbacks.sensing.devices import MASK_VARIABLE, GpuInfo, resolve
from energy_callbacks.sensing.sources.nvidia.source import inventory

_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """``[local]`` of the file.

    Args:
        gpus: ``"all"`` that are visible, how many of them, or which, as CUDA counts them.
        gpus_per_job: for trainings that use several.
    """

    gpus: Literal["all"] | int | Sequence[int] = "all"
    gpus_per_job: int = 1

    def __post_init__(self) -> None:
        numbers = self.gpus if isinstance(self.gpus, list | tuple) else [self.gpus]
        if self.gpus != "all" and (not numbers or not all(_is_number(one, 0) for one in numbers)):
            raise ValueError(
                f'gpus must be "all", a number of GPUs or a list of their numbers, got '
                f"{self.gpus!r}; write gpus = 2 or gpus = [0, 1]"
            )
        if len(set(numbers)) < len(numbers):
            raise ValueError(f"gpus = {self.gpus!r} names a GPU twice; each takes a job at a time")
        if not _is_number(self.gpus_per_job, 1):
            raise ValueError(
                f"gpus_per_job must be a whole number of at least 1, got {self.gpus_per_job!r}"
            )


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(slots=True, kw_only=True)
class _Place:
    """Where one job runs at a time."""

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    free_from_s: float = 0.0
    running: JobProcess | None = None


class LocalEngine:
    """See ``protocol.Engine``.

    Args:
        options: which GPUs; ``None`` leaves that to the parent process, such as Slurm.
        results: where jobs leave what they have measured.
    """

    def __init__(self, options: LocalOptions | None, results: Results) -> None:
        self._results = results
        self._options = options

    def preview(self, jobs: Sequence[MatrixJob]) -> str:
        """The places that jobs run in."""
        places = [place.name for place in self._places()]
        return f"{counted(len(jobs))} here, {len(places)} at a time: {', '.join(places)}\n"

    def queued(self, jobs: Sequence[MatrixJob]) -> list[MatrixJob]:
        """None: jobs live no longer than the call."""
        del jobs
        return []

    def run(self, jobs: Sequence[MatrixJob], told: JobListener) -> int | None:
        """Run them all, or until a signal comes; then those that run are ended by it."""
        queue, places, stopping = deque(jobs), self._places(), SignalHold()
        with stopping.held():
            while queue or any(place.running for place in places):
                for place in places:
                    self._look_at(place, queue, stopping, told)
                if not queue and not any(place.running for place in places):
                    break
                for number in stopping.wait(_LOOK_S):
                    for place in places:
                        if place.running is not None:
                            place.running.signal(number)
                if stopping.first is not None:
                    queue.clear()
                told.waiting()
        return stopping.first

    def _look_at(
        self, place: _Place, queue: deque[MatrixJob], stopping: SignalHold, told: JobListener
    ) -> None:
        """Serve one slot: a job that has ended, and the next."""
        if place.running is not None and place.running.ended():
            told.ended(place.running.job, place.running.outcome)
            place.running = None
            place.free_from_s = time.monotonic() + self._results.cool_down_s
        if place.running is None and queue and time.monotonic() >= place.free_from_s:
            job = queue.popleft()
            with stopping.as_before():
                place.running = JobProcess(job, self._results, place.environment)
            told.started(job, place.name)

    def _places(self) -> list[_Place]:
        if self._options is None:
            return [_Place(name="this machine")]
        gpus = _gpus(self._options)
        if not gpus:
            return [_Place(name="this machine, without a GPU")]
        each = self._options.gpus_per_job
        groups = [gpus[i : i + each] for i in range(0, len(gpus) - each + 1, each)]
        if not groups:
            raise ValueError(f"gpus_per_job = {each}, but there are {len(gpus)} GPUs; give fewer")
        return [
            _Place(name="+".join(group), environment={MASK_VARIABLE: ",".join(group)})
            for group in groups
        ]


def _gpus(options: LocalOptions) -> list[str]:
    """The UUIDs of those that jobs may use.

    Raises:
        ValueError: if there are fewer.
        SourceUnavailable: if the masks leave open which they are.
    """
    visible = [one.uuid for one in resolve(os.environ, _inventory())]
    if options.gpus == "all":
        return visible
    wanted = range(options.gpus) if isinstance(options.gpus, int) else options.gpus
    if missing := [number for number in wanted if number >= len(visible)]:
        raise ValueError(
            f"gpus = {options.gpus!r} asks for GPU {missing[0]}, but {len(visible)} are visible, "
            'counted from 0; write gpus = "all" for what there is'
        )
    return [visible[number] for number in wanted]


def _inventory() -> tuple[GpuInfo, ...]:
    try:
        return inventory()
    except SourceUnavailable:
        return ()
