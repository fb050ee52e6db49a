"""Measures one attempt of a run, from ``EnergyMeter.start`` to ``stop``."""

import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from energy_callbacks.accounting.grid.grid import Grid, grid_or_unknown
from energy_callbacks.accounting.grid.intensity_log import IntensityLog, intensity_in
from energy_callbacks.accounting.journal import disk_sync, journal, redaction
from energy_callbacks.accounting.journal.batch_job import identity
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.journal.launch import TrainingProcess, launch_id
from energy_callbacks.accounting.journal.previous_attempts import PreviousAttempts, usage_before
from energy_callbacks.accounting.journal.raw_readings import RawReadings
from energy_callbacks.accounting.journal.stale_sensors import StaleSensors
from energy_callbacks.accounting.journal.wall_clock import WallClock
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
from energy_callbacks.sensing.clock import Clock, Latch
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.schedule import BEAT_S, next_multiple_s
from energy_callbacks.sensing.sources.protocol import DiscoveredSources
from energy_callbacks.sensing.timeline import Timeline

# Maximum time that the journal's thread waits for the last readings of all sources together, s.
_STOP_TIMEOUT_S: Final = 3.0
# Maximum time to wait for the end of an attempt, s: for the sources, and for writing the journal.
_OVER_S: Final = 2 * _STOP_TIMEOUT_S
# Maximum wait for the last readings before the figures of the last row are computed, s. Reading a
# GPU's newest values takes about 1 ms.
_LAST_READINGS_S: Final = 0.015
# If the training takes longer than this to log its last row, the journal is closed meanwhile, s.
_LOG_S: Final = 1.0
# Maximum time that the journal's thread waits at the end until the journal is on the disk, s.
_DISK_S: Final = 1.0
# Maximum time that the journal's thread waits at the end until settings of GPUs are restored, s.
_RESTORE_S: Final = 2.0
_HEAL: Final = "run energy-callbacks powercap restore"
# A call of a source that takes longer than this causes a warning, s.
_HUNG_S: Final = 5.0
# Interval between two checks in ``wait_until_seen``, s.
_POLL_S: Final = 0.02
# Longest wait for the newest values of sensors, and the time until they are asked again, s. The
# samples of an H200 follow each other every 20 ms, and reading them takes 0.2 ms.
_ASK_S: Final = 0.05
_ASK_AGAIN_S: Final = 0.005
# Text for the journal if ``stop`` was not called and the exception is unknown.
_LEFT: Final = (
    "the run stopped unexpectedly: by Ctrl-C, SIGTERM or a caught exception, or because stop() "
    "was not called"
)
# Settings that are copied to the header of the journal unchanged.
_SETTINGS: Final = (
    "pue", "price_per_kwh", "currency", "sample_interval_s", "raw_readings", "step_events",
    "max_energy_wh", "max_emissions_g",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class _End:
    """How an attempt ended.

    Attributes:
        t_s: monotonic time of the end.
        status: ``finished``, ``failed`` or ``interrupted``.
        error: why it ended early; ``None`` if it finished.
        left_s: last moment at which the training was known to run, if nobody called ``stop``;
            otherwise ``None``.
    """

    t_s: float
    status: str
    error: str | None
    left_s: float | None = None


class PowerControlRun(Protocol):
    """Changes power limits of GPUs during one attempt, on a thread of its own."""

    def ask_to_stop(self) -> None:
        """Restore what was changed, on its own thread; do not wait."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Wait until everything is restored, and return whether it is."""
        ...


class ActiveAttempt:
    """Sensors, timeline, journal and figures of one attempt.

    The training thread never waits for a lock of an attempt, so that a signal handler may call any
    method. An attempt ends in steps, of which the journal's thread does all work::

        training thread                     journal's thread
        ask_to_end (takes the time)
        wait_for_last_row                   figures of the last row
        [the caller logs this row]
        let_go                              last readings, totals, end of the journal
        [wait_until_over]                   calls the function that was passed to let_go

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

    Attributes:
        host: name of this machine.
        folder: folder of the journals of all ranks of this attempt.
        process: framework and rank of this process.
        power: control of the GPUs' power, which restores it when the attempt ends; ``None`` if
            there is none.
        is_let_go: whether ``let_go`` was called.
        on_report: called after the report of the run was made, with its last figures by tag and the
            run folder; ``None`` if nobody waits for it.
    """

    on_report: Callable[[Mapping[str, float], Path], None] | None = None

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
    ) -> None:
        self.run_folder = run_folder
        self.call = call
        self.clock = clock
        self._end: _End | None = None
        self._has_last_row, self._over = Latch(), Latch()
        self.is_let_go = self._is_broken = self._is_over_budget = False
        self._then: Callable[[], None] | None = None
        self._on_left = on_left
        self._was_left = False
        self._config = config
        self.process = process
        self._on_failure = on_failure
        self.host = socket.gethostname()
        self._number, self.run_id = journal.claim_attempt(
            run_folder, self.host, process.rank, state.get("run_id"), launch_id(process)
        )
        earlier = usage_before(run_folder, self._number, self.run_id, process, state)
        path = journal.path_for(run_folder, self._number, self.host, process.rank)
        self.folder = path.parent
        self.power: PowerControlRun | None = None
        # Slow work is done before the start time is taken. CodeCarbon's tables are read without
        # importing CodeCarbon, which takes 0.3 s or more.
        from energy_callbacks.accounting.journal import environment

        surroundings = environment.describe(with_command=config.writes_command)
        grid, problem = grid_or_unknown(config)
        self._writer = journal.JournalWriter(path)
        self._start_s, unix_s = clock.monotonic_s(), clock.unix_s()
        self._alive_s = self._start_s
        self.timeline = Timeline()
        header = self._header(unix_s, grid, surroundings, earlier)
        self._writer.write(redaction.record(header))
        self._writer.flush()
        ends = None
        if config.step_events:
            from energy_callbacks.sensing.frameworks.step_ends import StepEnds

            ends = StepEnds(clock)
        self.recorder = JournalRecorder(self.timeline, self._writer, clock, self._start_s, ends)
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
        self._raw = RawReadings(path, self._start_s, unix_s) if config.raw_readings else None
        keep = self._raw.keep if self._raw else None
        self._disk = disk_sync.start(clock, path, *((self._raw.path,) if self._raw else ()))
        self._sampler = Sampler(found.sources, self.timeline, clock, self.recorder.note, keep)
        self._known_hung: set[str] = set()
        # Checks that run at every update, by the code of the warning that the check may cause.
        self._checks: dict[str, StaleSensors | WallClock] = {
            "quantity_silent": StaleSensors(self.timeline, self._start_s),
            "wall_clock_set": WallClock(clock, self._start_s),
        }
        self._sampler.start()
        self._periodic = clock.every(
            config.sample_interval_s, self._update, name="energy_callbacks journal"
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

    def now_s(self) -> float:
        """Return the monotonic time of the attempt's clock, s."""
        return self.clock.monotonic_s()

    def note_alive(self) -> float:
        """Record that the training is running now; return the monotonic time, s."""
        self._alive_s = self.clock.monotonic_s()
        return self._alive_s

    def energy(
        self, start_s: float, end_s: float, scope: str = "total", *, wait: bool = False
    ) -> Energy:
        """Return the energy of a scope between two moments; see ``EnergyMeter.energy``."""
        keys = self.timeline.keys(scope)
        if wait:
            self._ask_sensors(keys, end_s)
        now_s = self.now_s()
        if self._over.is_set:
            return total(self.timeline.energy(key, start_s, end_s) for key in keys)
        return total(newest_energy(self.timeline, key, start_s, end_s, now_s) for key in keys)

    def _ask_sensors(self, keys: Sequence[str], end_s: float) -> None:
        """Ask the sensors for their newest values until they reach ``end_s``, at most 50 ms."""
        now_s = self.now_s()
        until_s, deadline_s = min(end_s, now_s), now_s + _ASK_S
        while not self._over.is_set and any(
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
        while not self._over.is_set:
            now_s = self.now_s()
            seen_s = self.timeline.seen_s(now_s)
            if seen_s is not None and seen_s >= t_s:
                return True
            if now_s >= deadline_s or not self.timeline.metered:
                break
            self.clock.sleep(min(_POLL_S, deadline_s - now_s))
        return False

    def write_phases(self, timeout_s: float) -> None:
        """Write the energies of phases up to now to the journal, on its thread, for a report."""
        self.recorder.is_asked = True
        deadline_s = self.now_s() + timeout_s
        self._periodic.run_soon()
        while self.recorder.is_asked and self.now_s() < deadline_s:
            if self._over.is_set or self._is_broken:
                break
            self.clock.sleep(_POLL_S)

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

    @property
    def is_ending(self) -> bool:
        """Whether the attempt was asked to end."""
        return self._end is not None

    def ask_to_end(self, error: BaseException | None) -> None:
        """End the attempt now, and read every source once more, on its own thread.

        If the attempt has already ended, nothing happens.

        Args:
            error: the exception that ended the training; ``None`` if it ended without one.
        """
        self._ask_to_end(*_status_and_text(error))

    def ask_to_end_left(self) -> None:
        """End an attempt for which ``stop`` was not called.

        The open phases end at the last moment at which the training was known to run.
        """
        error = self.call.error() if self.call else None
        status, text = ("failed", _LEFT) if error is None else _status_and_text(error)
        self._ask_to_end(status, text, left_s=max(self._alive_s, self.steps.marked_s))

    def _ask_to_end(self, status: str, error: str | None, left_s: float | None = None) -> None:
        if self._end is None:
            self._end = _End(t_s=self.now_s(), status=status, error=error, left_s=left_s)
            self._stop_measuring()

    def wait_for_last_row(self, timeout_s: float) -> None:
        """Let the journal's thread compute the figures of the last row; wait for at most this time.

        If they are not ready in time, ``board`` has the figures before them.
        """
        self._periodic.run_soon()
        self._has_last_row.wait(timeout_s)

    def let_go(self, then: Callable[[], None] | None = None) -> None:
        """Close the journal on its thread, then call a function there; do not wait for this.

        Args:
            then: function that must not raise.
        """
        self._then = then
        self.is_let_go = True
        self._periodic.ask_to_stop()
        self._periodic.wait(0.0)  # in virtual time, the job runs only if it is waited for

    def wait_until_over(self) -> bool:
        """Wait a few seconds for the end of the journal, and return whether it has ended."""
        return self._over.wait(_OVER_S)

    def _wind_up(self, end: _End) -> float:
        """Do the next part of the end; return the time to the next call, s."""
        if not self.is_let_go and not self._has_last_row.is_set:
            self._prepare_last_row(end)
            return _LOG_S
        if not self._over.is_set:
            self._finish(end)
        if self.is_let_go and (then := self._then) is not None:
            self._then = None
            then()
        return _LOG_S

    def _prepare_last_row(self, end: _End) -> None:
        try:
            is_late = bool(self._sampler.stop(_LAST_READINGS_S))
            if not is_late:
                self.timeline.finish()
            self.recorder.see_until(end.t_s)
            self.board.update(is_final=True, extrapolates=is_late)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            self._fail()
        finally:
            self._has_last_row.set()

    def _finish(self, end: _End) -> None:
        try:
            if not self._is_broken:
                self._write_end(end)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            self._fail()
        finally:
            self._writer.close()
            self._over.set()
            self._disk.ask_to_stop()
            self._disk.wait(_DISK_S)

    def _write_end(self, end: _End) -> None:
        if self.power is not None and not self.power.wait(_RESTORE_S):
            self.recorder.warn(
                "power_limit", "The power limit was not restored within two seconds.", _HEAL
            )
        for name in self._sampler.stop(_STOP_TIMEOUT_S):
            self.recorder.warn("source_hangs", f"{name} did not respond at the end of the run.")
        self.recorder.see_until(end.t_s)
        self._keep_books()
        if self._raw is not None:
            self._raw.close()
        self.timeline.finish()
        if end.left_s is not None:
            self.recorder.leave_all(end.left_s)
        if self.rank == 0 and (found := self.board.short_span()):
            self.recorder.warn("short_span", *found)
        self.recorder.finish(
            end.status,
            end.error,
            end_s=end.t_s,
            sampler_cpu_s=self._sampler.cpu_s + self._periodic.cpu_s,
            missed_readings=self._sampler.missed,
        )
        if self.call is not None:
            self.call.let_go()
        self.board.update(is_final=True)

    def wait_for_ranks(self, timeout_s: float) -> None:
        """Wait until all journals of this attempt are complete, for at most ``timeout_s``.

        The journal of a killed process never becomes complete. If the process ran on this host, its
        journal is not waited for.
        """
        # A single process must not wait for its own journal: if the disk is full, the journal never
        # gets its last line, and the wait would last for ``timeout_s``.
        if self.process.world_size == 1:
            return
        folder = journal.path_for(self.run_folder, self._number, self.host, 0).parent
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            journals = list(folder.glob("*.jsonl"))
            unfinished = [path for path in journals if not journal.has_ended(path)]
            if len(journals) >= self.process.world_size and all(
                map(journal.has_lost_its_writer, unfinished)
            ):
                return
            time.sleep(0.05)

    def _stop_measuring(self) -> None:
        self.steps.refuse()
        if self.power is not None:
            self.power.ask_to_stop()
        self._sampler.ask_to_stop()

    def abandon(self) -> None:
        """Ask all threads of the attempt to stop; return without waiting."""
        self._stop_measuring()
        self._periodic.ask_to_stop()
        self._disk.ask_to_stop()

    def wait_for_journal(self, timeout_s: float) -> None:
        """Wait until the journal's thread has stopped, for at most ``timeout_s``."""
        self._periodic.wait(timeout_s)

    def _update(self) -> float:
        """Do the periodic work of the journal's thread; return the time to the next call, s."""
        start_s = self.now_s()
        if self._is_broken:
            self._writer.close()
        elif self._end is None:
            self._keep_books()
            self._look_after_call()
        if self._end is not None:
            return self._wind_up(self._end)
        wanted_s = next_multiple_s(start_s, self._config.sample_interval_s)
        return min(wanted_s, next_multiple_s(start_s, BEAT_S)) - start_s

    def _keep_books(self) -> None:
        try:
            self.recorder.update()
            self._emissions_kg.update()
            self.board.update()
            self.forecaster.update()
            if self._raw is not None:
                self._raw.update()
            self._warn_of_hung()
            for code, check in self._checks.items():
                for message in check.news():
                    self.recorder.warn(code, message)
        except Exception:  # noqa: BLE001 - a bug here must not stop the training
            self._fail()

    def _fail(self) -> None:
        self._is_broken = True
        self._on_failure("writing the energy journal failed; energy is no longer measured")

    def _look_after_call(self) -> None:
        """End the attempt if two checks in a row find that the user's call has ended.

        The time between the checks lets an interactive shell store the exception that ended the
        call.
        """
        if self.call is None:
            return
        is_left = not self.call.is_under_way()
        if not is_left:
            self.note_alive()
        elif self._was_left:
            self._on_left()
        self._was_left = is_left

    def _warn_of_hung(self) -> None:
        for name, waited_s in self._sampler.hung_s(_HUNG_S).items():
            if name not in self._known_hung:
                self._known_hung.add(name)
                self.recorder.warn(
                    "source_hangs", f"{name} has not responded for {waited_s:.0f} s."
                )

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


def _status_and_text(error: BaseException | None) -> tuple[str, str | None]:
    if error is None:
        return "finished", None
    status = "failed" if isinstance(error, Exception) else "interrupted"
    return status, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
