"""Measures one attempt of a run, from ``EnergyMeter.start`` to ``stop``."""

import math
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting.device_edges import DeviceEdges
from energy_callbacks.accounting.grid.grid import Grid, grid_or_unknown
from energy_callbacks.accounting.grid.intensity_log import IntensityLog, intensity_in
from energy_callbacks.accounting.journal import disk_sync, journal, redaction
from energy_callbacks.accounting.journal.batch_job import identity
from energy_callbacks.accounting.journal.claim import claim_attempt
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.journal.launch import TrainingProcess, launch_id
from energy_callbacks.accounting.journal.previous_attempts import PreviousAttempts, usage_before
from energy_callbacks.accounting.journal.raw_readings import RawReadings
from energy_callbacks.accounting.journal_thread import JournalThread
from energy_callbacks.accounting.metrics.budget import Budget
from energy_callbacks.accounting.metrics.carbon import Place
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.accounting.metrics.forecast import Forecaster
from energy_callbacks.accounting.metrics.newest_energy import newest_energy, seen_until_s
from energy_callbacks.accounting.metrics.scalars import ScalarBoard
from energy_callbacks.accounting.metrics.user_metrics import MetricLog
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.guard import logger
from energy_callbacks.core.records import Device, Energy
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.timeline import Timeline

# Interval between two checks in ``wait_until_seen``, s.
_POLL_S: Final = 0.02
# Longest wait for the newest values of sensors, and the time until they are asked again, s. The
# samples of an H200 follow each other every 20 ms, and reading them takes 0.2 ms.
_ASK_S: Final = 0.05
_ASK_AGAIN_S: Final = 0.005
# Settings that are copied to the header of the journal unchanged.
_SETTINGS: Final = (
    "pue", "price_per_kwh", "currency", "sample_interval_s", "raw_readings", "step_events",
    "phase_events", "max_energy_wh", "max_emissions_g",
)  # fmt: skip


class ActiveAttempt:
    """Sensors, timeline, journal and figures of one attempt.

    Args:
        config: settings of the meter.
        found: sources to read, and the reasons why the other sources are unavailable.
        clock: tells the time and runs periodic jobs on threads.
        run_folder: folder of the run; the journal is written in it.
        state: result of the method ``state`` in the run that this attempt continues; empty for a
            new run.
        process: framework and rank of this process.
        on_failure: called with a message on the journal's thread if an error in this package stops
            the journal.
        call: the user's call of the training function, such as ``fit``; ``None`` if unknown.
        on_left: called on the journal's thread when ``call`` has ended and the attempt has not.
        ends_with_call: whether the attempt ends with the framework's call in which it began;
            ``False`` if the user ends it.

    Attributes:
        ends_with_call: as above.
        calls: number of calls of frameworks that have begun in an attempt of the user.
        has_earlier_steps: whether the newest of them began after steps of the same attempt.
        host: name of this machine.
        folder: folder of the journals of all ranks of this attempt.
        process: framework and rank of this process.
        thread: the journal's thread, which also ends the attempt.
        on_report: functions that are called after the report of the run was made, with its last
            figures by tag and the run folder; at most one for each of the ``calls``.
        pages: what is written together with the report; the type is that of ``report_process``.
    """

    def __init__(
        self,
        *,
        config: EnergyConfig,
        found: DiscoveredSources,
        clock: Clock,
        run_folder: Path,
        state: Mapping[str, Any],
        process: TrainingProcess,
        on_failure: Callable[[str], None],
        call: ActiveCall | None,
        on_left: Callable[[], object],
        ends_with_call: bool,
    ) -> None:
        self.run_folder = run_folder
        self.ends_with_call = ends_with_call
        self.calls = 0
        self.has_earlier_steps = False
        self.on_report: dict[int, Callable[[Mapping[str, float], Path], None]] = {}
        self.pages: list[Any] = []
        self.clock = clock
        self._is_over_budget = False
        self._config = config
        self.process = process
        self.host = socket.gethostname()
        self._number, self.run_id = claim_attempt(
            run_folder, self.host, process.rank, state.get("run_id"), launch_id(process)
        )
        earlier = usage_before(run_folder, self._number, self.run_id, process, state)
        path = journal.path_for(run_folder, self._number, self.host, process.rank)
        self.folder = path.parent
        # Slow work is done before the start time is taken. CodeCarbon's tables are read without
        # importing CodeCarbon, which takes 0.3 s or more.
        from energy_callbacks.accounting.journal import environment

        surroundings = environment.describe(with_command=config.writes_command)
        grid, problem = grid_or_unknown(config)
        writer = journal.JournalWriter(path)
        self._start_s, unix_s = clock.monotonic_s(), clock.unix_s()
        self.timeline = Timeline()
        header = self._header(unix_s, grid, surroundings, earlier)
        writer.write(redaction.record(header))
        writer.flush()
        ends = device_edges = None
        if config.step_events or config.phase_events:
            from energy_callbacks.sensing.frameworks.work_ends import WorkEnds

            ends = WorkEnds(clock) if config.step_events else None
            device_edges = DeviceEdges(WorkEnds(clock)) if config.phase_events else None
        self.recorder = JournalRecorder(
            self.timeline, writer, clock, self._start_s, ends=ends, device_edges=device_edges
        )
        self.steps = self.recorder.steps
        self.metrics = MetricLog(self.recorder, config.tag_prefix)
        if problem:
            self.recorder.warn("place", problem)
        self._emissions_kg = IntensityLog(
            grid,
            self.recorder,
            unix_s,
            config.pue,
            clock.monotonic_s,
            earlier=(earlier.of("total"), intensity_in(state)),
        )
        self.board = ScalarBoard(
            self.recorder,
            earlier=earlier,
            samples_scale=process.local_world_size,
            emissions_kg=self._emissions_kg,
        )
        self.forecaster = Forecaster(self.board, process.world_size / process.local_world_size)
        self._budget = Budget(config, self._emissions_kg)
        raw = RawReadings(path, self._start_s, unix_s) if config.raw_readings else None
        disk = disk_sync.start(clock, path, *((raw.path,) if raw else ()))
        keep = raw.keep if raw else None
        self._sampler = Sampler(found.sources, self.timeline, clock, self.recorder.note, keep)
        self.thread = JournalThread(
            clock=clock,
            interval_s=config.sample_interval_s,
            sampler=self._sampler,
            recorder=self.recorder,
            writer=writer,
            raw=raw,
            disk=disk,
            emissions_kg=self._emissions_kg,
            board=self.board,
            forecaster=self.forecaster,
            is_first_rank=process.rank == 0,
            on_failure=on_failure,
            call=call,
            on_left=on_left,
        )
        for name, reason, fix in found.unavailable:
            self.recorder.note(
                Notice(source=name, kind="unavailable", t_s=self._start_s, message=reason, fix=fix)
            )

    @property
    def rank(self) -> int:
        """Number of this process among all processes of the run, from 0."""
        return self.process.rank

    @property
    def devices(self) -> tuple[Device, ...]:
        """Devices of this host whose sources have been opened."""
        return self.timeline.devices

    @property
    def call(self) -> ActiveCall | None:
        """The newest call of a training function; ``None`` if unknown."""
        return self.thread.call

    def begin_call(self, call: ActiveCall | None) -> None:
        """Begin a framework's call; do nothing if the attempt ends with it.

        Args:
            call: the call, whose end the journal's thread looks for; ``None`` if unknown.
        """
        if self.ends_with_call:
            return
        if self.recorder.phases.hold(call):
            self.calls += 1
            self.board.begin_span()
            if self.steps.marked_s > self._start_s:
                self.has_earlier_steps = True
                self.forecaster.planned_steps = None
        self.thread.call = call

    def end_call(self) -> bool:
        """End the phases of a framework's call now; return whether a call was running."""
        return self.recorder.release(self.call, self.now_s())

    def end_call_if_left(self) -> None:
        """End the phases of a framework's call that has ended without its last hook.

        They end at the last moment at which the call was known to run. Any thread may call this.
        """
        call = self.call
        if call is not None and not call.is_under_way():
            self.recorder.release(call, self.thread.left_s)
            call.let_go()

    def catch_up(self, timeout_s: float) -> None:
        """Ask the sensors for their newest values, then update the figures.

        Args:
            timeout_s: maximum wait for the sensors, and for the figures.
        """
        self._ask_sensors(self.timeline.keys("total"), self.now_s(), timeout_s)
        self.thread.update(timeout_s)

    def now_s(self) -> float:
        """Return the monotonic time of the attempt's clock, s."""
        return self.clock.monotonic_s()

    def note_alive(self) -> float:
        """Record that the training is running now; return the monotonic time, s."""
        self.thread.alive_s = now_s = self.clock.monotonic_s()
        return now_s

    def energy(
        self, start_s: float, end_s: float, scope: str = "total", *, wait: bool = False
    ) -> Energy:
        """Return the energy of a scope between two moments; see ``EnergyMeter.energy``."""
        keys = self.timeline.keys(scope)
        if wait:
            self._ask_sensors(keys, end_s)
        now_s = self.now_s()
        if self.thread.over.is_set:
            return total(self.timeline.energy(key, start_s, end_s) for key in keys)
        return total(newest_energy(self.timeline, key, start_s, end_s, now_s) for key in keys)

    def _ask_sensors(self, keys: Sequence[str], end_s: float, timeout_s: float = _ASK_S) -> None:
        """Ask the sensors for their newest values until they reach ``end_s`` or time is up."""
        now_s = self.now_s()
        until_s, deadline_s = min(end_s, now_s), now_s + timeout_s
        while not self.thread.over.is_set and any(
            (seen_until_s(self.timeline, key) or -math.inf) < until_s for key in keys
        ):
            self._sampler.ask()
            if self.now_s() + _ASK_AGAIN_S > deadline_s:
                break
            self.clock.sleep(_ASK_AGAIN_S)

    def wait_until_seen(self, t_s: float, timeout_s: float) -> bool:
        """Wait for readings up to ``t_s``, and return whether they have arrived.

        See ``EnergyMeter.wait_until_seen``.

        Profilers may call this method only in their own ``stop``.
        """
        deadline_s = self.now_s() + timeout_s
        while not self.thread.over.is_set:
            now_s = self.now_s()
            seen_s = self.timeline.seen_s(now_s)
            if seen_s is not None and seen_s >= t_s:
                return True
            if now_s >= deadline_s or not self.timeline.metered:
                break
            self.clock.sleep(min(_POLL_S, deadline_s - now_s))
        return False

    def record_profile(self, kind: str, record: Mapping[str, Any]) -> None:
        """Write a profile to the journal, for the report.

        Args:
            kind: name of a field of ``report.model.schema.Profile``.
            record: value of that field as JSON types; at most 200 kB of JSON.
        """
        self.recorder.event("profile", self.now_s(), of=kind, record=record)

    def state(self) -> Record:
        """Return the state for a checkpoint.

        Run id, run folder, joules so far by scope, and their mean carbon intensity.
        """
        mean = self._emissions_kg.mean
        return {
            "run_id": self.run_id,
            "folder": str(self.run_folder),
            "energy_j": dict(self.board.used_j),
            "intensity": None if mean is None else asdict(mean),
        }

    def budget_share(self) -> float:
        """Return the share of the run's budget that this host has used.

        Only the first process of a host returns this share. The other processes return 0. Before
        the first readings, the first process also returns 0.
        """
        if self.process.local_rank:
            return 0.0
        self.board.ask()
        used = self.board.used
        return 0.0 if used is None else self._budget.share(used, self.now_s())

    def note_over_budget(self) -> None:
        """Record that the budget is used up, and log it on rank 0; later calls do nothing."""
        if self._is_over_budget:
            return
        self._is_over_budget = True
        message = f"The budget is used up ({self._budget}): the training was asked to stop."
        self.recorder.warn("budget_used_up", message, "set a larger budget to resume the run")
        if self.rank == 0:
            logger.warning("%s", message)

    def _header(
        self, unix_s: float, grid: Grid | None, surroundings: Record, earlier: PreviousAttempts
    ) -> Record:
        config, job, linked_j = self._config, identity(os.environ), dict(earlier.linked_j)
        devices = config.devices if isinstance(config.devices, str) else list(config.devices)
        settings = {name: getattr(config, name) for name in _SETTINGS}
        given = config.carbon_intensity
        # A file of intensities has lines of its own.
        place = asdict(grid.place if grid else Place())
        place |= {"intensity": asdict(grid.intensity)} if grid else {}
        return {
            "type": "header",
            "format": journal.FORMAT,
            "version": journal.VERSION,
            "columns": list(journal.COLUMNS),
            "run_id": self.run_id,
            "attempt": self._number,
            "host": self.host,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "launch": launch_id(self.process),
            "unix_s": unix_s,
            "run_name": config.run_name,
            "tags": dict(config.tags),
            **asdict(self.process),
            "job": job and asdict(job),
            "config": {
                "place": place,
                "carbon_intensity": str(given) if isinstance(given, str | os.PathLike) else given,
                **settings,
                "devices": devices,
            },
            "environment": surroundings,
            # If the run began in another folder: that folder (``None`` if its journals are gone),
            # and the energy that the run used before this attempt, J by scope.
            **({"before": {"folder": earlier.folder, "energy_j": linked_j}} if linked_j else {}),
        }
