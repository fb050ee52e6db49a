"""Runs jobs as tasks of Ray, on all machines of a cluster."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from energy_callbacks.core.extras import requires
from energy_callbacks.core.signals import ENDING, SignalHold
from energy_callbacks.matrix.attempts import Outcome, Results, read_jobs, write_jobs
from energy_callbacks.matrix.engines.engine import Engine
from energy_callbacks.matrix.engines.local import launch
from energy_callbacks.matrix.plan import MatrixJob, check_whole, counted
from energy_callbacks.matrix.progress import JobProgress

_POLL_S: Final = 0.5
# Maximum wait in seconds for cancelled commands to end; they may need time to save their state.
_END_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngine(Engine):
    """Runs jobs as Ray tasks; its fields are the keys of ``[ray]`` in the TOML file.

    Args:
        address: address of a cluster; ``None`` uses the environment variable RAY_ADDRESS. If this
            variable is not set, Ray uses or starts a cluster on this machine.
        gpus: number of GPUs per job; ``None`` is 1 if the cluster has GPUs, otherwise 0.
        cpus: number of CPUs per job; ``None`` is 1 if jobs use GPUs, otherwise the number of CPUs
            of the smallest machine (1 if no running machine has CPUs). A machine of that size then
            runs one job at a time, and the energy of the machine is the energy of the job.
        resources: amounts of Ray's custom resources that each job needs, such as ``{big = 1}``.
    """

    address: str | None = None
    gpus: int | None = None
    cpus: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value, least in (("gpus", self.gpus, 0), ("cpus", self.cpus, 1)):
            if value is not None:
                check_whole(f"{name} in [ray]", value, least)
        if self.address is not None and not isinstance(self.address, str):
            raise TypeError(f"address in [ray] must be a string, got {self.address!r}")

    def preview(self, jobs: Sequence[MatrixJob], results: Results) -> str:
        """Return a text that says where jobs would run, without connecting to a cluster."""
        del results
        address = self.address or os.environ.get("RAY_ADDRESS") or "this machine"
        return f"{counted(len(jobs))} as tasks of Ray at {address}\n"

    def run(self, jobs: Sequence[MatrixJob], results: Results, progress: JobProgress) -> int | None:
        """Run jobs until all have ended.

        A signal that ends a program, such as SIGINT, cancels all jobs that have not ended.

        Raises:
            MissingExtraError: if Ray is not installed.
            ValueError: if a command or an environment variable contains a secret.
        """
        with requires("ray", extra="ray"):
            import ray
        file = results.folder / "ray_jobs.json"
        write_jobs(file, results, jobs)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no network traffic by default
        ray.init(
            address=self.address,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.WARNING,
            ignore_reinit_error=True,
        )
        # Ray replaces exceptions that signal handlers raise, so the handlers only record signals.
        hold = SignalHold(ENDING)
        earlier = {one.folder for job in jobs if (one := results.newest(job)) is not None}
        with hold.recorded():
            try:
                tasks = self._submit(ray, file, jobs, progress)
                _wait(ray, tasks, _NewResults(results, earlier), progress, hold)
                if hold.first is not None:
                    for task in tasks:
                        ray.cancel(task)
                    ray.wait(list(tasks), num_returns=len(tasks), timeout=_END_TIMEOUT_S)
            finally:
                ray.shutdown()
        return hold.first

    def _submit(
        self, ray: Any, file: Path, jobs: Sequence[MatrixJob], progress: JobProgress
    ) -> dict[Any, MatrixJob]:
        nodes = ray.nodes()
        needed = needs(self, nodes)
        task = ray.remote(max_retries=0, **needed)(run_task)
        progress.say(
            f"{len(jobs)} tasks of Ray, each with {needed['num_gpus']} GPUs and "
            f"{needed['num_cpus']} CPUs"
        )
        if not fits(needed, nodes):
            progress.say("no running machine of the cluster has these resources; waiting for one")
        return {task.remote(str(file), number): job for number, job in enumerate(jobs)}


class _NewResults(NamedTuple):
    """The results of this call.

    Attributes:
        results: results of all calls.
        earlier: folders of the newest attempts before this call.
    """

    results: Results
    earlier: Collection[Path]

    def newest(self, job: MatrixJob) -> Outcome | None:
        """Return the outcome of the attempt of this call; ``None`` if it has not begun."""
        found = self.results.newest(job)
        return None if found is None or found.folder in self.earlier else found


def _wait(
    ray: Any,
    tasks: dict[Any, MatrixJob],
    new: _NewResults,
    progress: JobProgress,
    hold: SignalHold,
) -> None:
    """Wait until all tasks have ended or a signal arrives; remove ended tasks from ``tasks``."""
    begun: set[Path] = set()
    while tasks and hold.first is None:
        ended, _ = ray.wait(list(tasks), timeout=_POLL_S)
        for job in tasks.values():
            newest = None if job.folder in begun else new.newest(job)
            if newest is not None and newest.is_running:
                begun.add(job.folder)
                progress.started(job, newest.host)
        for task in ended:
            job = tasks.pop(task)
            _report_error(ray, task, progress)
            newest = new.newest(job)
            if newest is not None and newest.ended_unix_s is not None:
                progress.ended(job, newest)
            else:
                progress.say(f"{job}: did not finish; see {new.results.folder}/ray_*.txt")
        progress.waiting()


def run_task(file: str, number: int) -> int:
    """Run one job, on the machine and with the GPUs that Ray has assigned to this task.

    Args:
        file: path of a file that ``write_jobs`` wrote.
        number: index of the job in the file.

    Returns:
        The exit code of the job.
    """
    read_jobs(Path(file))  # raises a clear error if the folder is not shared
    words = [sys.executable, "-P", "-m", "energy_callbacks", "matrix", file, "--task", str(number)]
    process = launch(words, output=Path(file).with_name(f"ray_{number}.txt"))
    try:
        while process.poll() is None:  # Ray cannot interrupt a long ``wait``
            time.sleep(_POLL_S)
    except BaseException:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):  # a command that needs longer goes on
            process.wait(_END_TIMEOUT_S)
        raise
    return process.returncode


def needs(engine: RayEngine, nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the resources that each task requests, as arguments of ``ray.remote``.

    Args:
        engine: the engine with its settings.
        nodes: machines of the cluster, as ``ray.nodes()`` returns them.
    """
    alive = [node["Resources"] for node in nodes if node["Alive"]]
    gpus = engine.gpus
    if gpus is None:
        gpus = int(any(node.get("GPU") for node in alive))
    cpus = engine.cpus
    if cpus is None:
        machines = [node["CPU"] for node in alive if node.get("CPU")]
        cpus = 1 if gpus else max(1, int(min(machines, default=1)))
    return {"num_gpus": gpus, "num_cpus": cpus, "resources": dict(engine.resources)}


def fits(needed: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether any running machine of the cluster has all resources that a task needs.

    Args:
        needed: resources of a task, as returned by ``needs``.
        nodes: machines of the cluster, as ``ray.nodes()`` returns them.
    """
    wanted = {"GPU": needed["num_gpus"], "CPU": needed["num_cpus"], **needed["resources"]}
    return any(
        all(node["Resources"].get(name, 0.0) >= amount for name, amount in wanted.items())
        for node in nodes
        if node["Alive"]
    )


def _report_error(ray: Any, task: Any, progress: JobProgress) -> None:
    """Print the error if Ray could not run a task or ``run_task`` raised an exception.

    If the command of the job fails, there is no such error: ``run_task`` returns the exit code.
    """
    try:
        ray.get(task)
    except ray.exceptions.RayError as error:
        progress.say(f"Ray: {str(error).strip().splitlines()[-1]}")
