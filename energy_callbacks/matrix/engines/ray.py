"""Jobs as tasks of Ray, on all machines of a cluster."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from energy_callbacks.core.extras import requires
from energy_callbacks.matrix import job_manifest
from energy_callbacks.matrix.attempts import Results
from energy_callbacks.matrix.engines.protocol import JobListener
from energy_callbacks.matrix.naming import counted
from energy_callbacks.matrix.plan import MatrixJob
from energy_callbacks.matrix.signals import ENDING

_LOOK_S: Final = 0.5
# A command may save its state when it is asked to end.
_PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayOptions:
    """``[ray]`` of the file.

    Args:
        address: of a cluster; ``None`` takes RAY_ADDRESS, else a cluster of this machine, which is
            started if there is none.
        gpus: of a job; ``None`` is 1 if the cluster has any, else 0.
        cpus: of a job; ``None`` is 1 beside a GPU. Without GPUs it is all of a machine, so that a
            machine has one job at a time, whose energy is known by itself.
        resources: others of Ray's, such as ``{big = 1}``.
    """

    address: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, least in (("gpus", 0), ("cpus", 1)):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int) or value < least
            ):
                raise ValueError(
                    f"{name} in [ray] must be a whole number of at least {least}, got {value!r}"
                )
        if self.address is not None and not isinstance(self.address, str):
            raise TypeError(f"address in [ray] must be a text, got {self.address!r}")


class RayEngine:
    """See ``protocol.Engine``.

    Args:
        options: what a job needs.
        results: where jobs leave what they have measured; on a file system that machines share.
    """

    def __init__(self, options: RayOptions, results: Results) -> None:
        self._options = options
        self._results = results

    def preview(self, jobs: Sequence[MatrixJob]) -> str:
        """Where the jobs would go; asks no cluster."""
        address = self._options.address or os.environ.get("RAY_ADDRESS") or "this machine"
        return f"{counted(len(jobs))} as tasks of Ray at {address}\n"

    def queued(self, jobs: Sequence[MatrixJob]) -> list[MatrixJob]:
        """None: tasks end with the call."""
        del jobs
        return []

    def run(self, jobs: Sequence[MatrixJob], told: JobListener) -> int | None:
        """Run them all, or until a signal comes; then those that run are ended.

        Raises:
            MissingExtraError: if Ray is not installed.
        """
        with requires("ray", extra="ray"):
            import ray
        file = self._results.folder / "ray_jobs.json"
        job_manifest.write(file, self._results, jobs)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no network unless asked for
        ray.init(
            address=self._options.address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            ignore_reinit_error=True,
        )
        # Ray makes something else of what a handler raises, so this one only listens.
        heard: list[int] = []
        before = {
            number: signal.signal(number, lambda came, _: heard.append(came)) for number in ENDING
        }
        nodes = ray.nodes()
        asked = needs(self._options, nodes)
        task = ray.remote(max_retries=0, **asked)(run_task)
        told.said(
            f"{len(jobs)} tasks of Ray, each with {asked['num_gpus']} GPUs and "
            f"{asked['num_cpus']} CPUs"
        )
        if not fits(asked, nodes):
            told.said("no machine of the cluster has as much now; waiting for one that does")
        tasks = {task.remote(str(file), number): job for number, job in enumerate(jobs)}
        try:
            self._wait(ray, tasks, told, heard)
            if heard:
                _cancel(ray, tasks)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            ray.shutdown()
        return heard[0] if heard else None

    def _wait(
        self, ray: Any, tasks: dict[Any, MatrixJob], told: JobListener, heard: Sequence[int]
    ) -> None:
        """Wait until each has ended, or a signal has come."""
        begun: set[Path] = set()
        while tasks and not heard:
            ended, _ = ray.wait(list(tasks), timeout=_LOOK_S)
            for job in tasks.values():
                self._tell_begun(job, begun, told)
            for one in ended:
                job = tasks.pop(one)
                _say_error(ray, one, told)
                outcomes = self._results.outcomes(job)
                if outcomes and outcomes[-1].ended_unix_s is not None:
                    told.ended(job, outcomes[-1])
                else:
                    told.said(f"{job}: not run to its end; see {self._results.folder}/ray_*.txt")
            told.waiting()

    def _tell_begun(self, job: MatrixJob, begun: set[Path], told: JobListener) -> None:
        """A job begins on its machine when its newest try appears."""
        outcomes = [] if job.folder in begun else self._results.outcomes(job)
        if outcomes and outcomes[-1].is_running:
            begun.add(job.folder)
            told.started(job, outcomes[-1].host)


def run_task(file: str, number: int) -> int:
    """One job, on the machine that Ray has chosen, with the GPUs that it has given.

    Args:
        file: of jobs handed on.
        number: of the job in it.

    Returns:
        Its exit code.
    """
    job_manifest.read(Path(file))  # says what is the matter if the folder is not shared
    words = [sys.executable, "-P", "-m", "energy_callbacks", "matrix", file, "--task", str(number)]
    with Path(file).with_name(f"ray_{number}.txt").open("wb") as output:
        process = subprocess.Popen(  # noqa: S603 - this package itself
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        while process.poll() is None:  # in short sleeps, between which Ray can cancel
            time.sleep(_LOOK_S)
    except BaseException:
        process.terminate()
        process.wait(_PATIENCE_S)
        raise
    return process.returncode


def needs(options: RayOptions, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The resources of each task."""
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = options.gpus
    if gpus is None:
        gpus = int(any(node.get("GPU") for node in alive))
    cpus = options.cpus
    if cpus is None:
        cpus = 1 if gpus else max(1, int(min(node["CPU"] for node in alive if node.get("CPU"))))
    return {"num_gpus": gpus, "num_cpus": cpus, "resources": dict(options.resources)}


def fits(asked: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a machine of the cluster has what a task asks for, as it is now."""
    wanted = {"GPU": asked["num_gpus"], "CPU": asked["num_cpus"], **asked["resources"]}
    return any(
        all(node["Resources"].get(name, 0.0) >= amount for name, amount in wanted.items())
        for node in nodes
        if node["Alive"]
    )


def _say_error(ray: Any, task: Any, told: JobListener) -> None:
    """An exit code is in the job's folder as well; what Ray itself met is not."""
    try:
        ray.get(task)
    except ray.exceptions.RayError as error:
        told.said(f"Ray: {str(error).strip().splitlines()[-1]}")


def _cancel(ray: Any, tasks: Mapping[Any, MatrixJob]) -> None:
    for task in tasks:
        ray.cancel(task)
    ray.wait(list(tasks), num_returns=len(tasks), timeout=_PATIENCE_S)
