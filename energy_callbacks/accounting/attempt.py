"""One attempt of a run: everything between ``EnergyMeter.start`` and ``stop``."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.accounting.journal import journal, previous_attempts
from energy_callbacks.accounting.journal.batch_job import identity
from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.journal.launch import TrainingProcess, launch_id
from energy_callbacks.accounting.journal.raw_readings import RawReadings
from energy_callbacks.accounting.journal.stale_sensors import StaleSensors
from energy_callbacks.accounting.journal.wall_clock import WallClock
from energy_callbacks.accounting.metrics.budget import Budget, EmissionsKg
from energy_callbacks.accounting.metrics.forecast import Forecaster
from energy_callbacks.accounting.metrics.scalars import ScalarBoard
from energy_callbacks.accounting.metrics.user_metrics import MetricLog
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.records import Energy
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.recording import RecordedSource
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.schedule import BEAT_S, next_multiple_s
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.timeline import Timeline
from energy_callbacks.version import __version__

if TYPE_CHECKING:
    from energy_callbacks.accounting.metrics.carbon import Place
    from energy_callbacks.sensing.frameworks.step_ends import StepEnds

logger = logging.getLogger("energy_callbacks")

# A driver that hangs must not hold up the end of a training for longer than this.
_STOP_TIMEOUT_S: Final = 3.0
_HUNG_S: Final = 5.0
_LEFT: Final = (
    "it ended without a word: by Ctrl-C, by an exit as after SIGTERM, by an exception that was "
    "caught, or without stop()"
)


class ActiveAttempt:
    """Sensors, timeline, journal and figures of one attempt.

    Args:
        config: settings.
        sources: sensors to read.
        clock: time and threads.
        folder: run folder.
        state: of the meter, from a checkpoint of the run that this attempt continues; empty for a
            new one.
        process: which process this is.
        on_failure: called on our own thread if the journal cannot be written any more.
        call: the user's call that trains; ``None`` if unknown.
        on_left: called on our own thread when that call has ended without ``stop``.
    """

    def __init__(
        self,
        *,
        config: EnergyConfig,
        sources: Sequence[Source],
        clock: Clock,
        folder: Path,
        state: Mapping[str, Any],
        process: TrainingProcess,
        on_failure: Callable[[str], None],
        call: ActiveCall | None = None,
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        self.folder = folder
        self.call = call
        self._ending = threading.Lock()
        self._is_over = False
        self._on_left = on_left
        self._was_left = False
        self._config = config
        self._process = process
        self._on_failure = on_failure
        self._host = os.uname().nodename
        self._number, self.run_id = journal.claim_attempt(
            folder, self._host, process.rank, state.get("run_id"), launch_id(process)
        )
        self.earlier = _earlier(folder, self._number, self.run_id, process, state)
        path = journal.path_for(folder, self._number, self._host, process.rank)
        # Import CodeCarbon before a loader forks its workers: a lock that another
        # thread holds at a fork stays locked in the child. This comes before the start time.
        from energy_callbacks.accounting.journal import environment

        place, problem = _place(config)
        emissions_kg = _emissions(place, config.pue)
        surroundings = environment.describe(__version__)
        self._writer = journal.JournalWriter(path)
        self._start_s, unix_s = clock.monotonic_s(), clock.unix_s()
        self._seen_s = self._start_s
        self._clock = clock
        self.timeline = Timeline()
        self._writer.write(self._header(unix_s, place, surroundings))
        self._writer.flush()
        ends = _step_ends(clock) if config.step_events else None
        self.recorder = JournalRecorder(self.timeline, self._writer, clock, self._start_s, ends)
        self.steps = self.recorder.steps
        self.metrics = MetricLog(self.recorder)
        if problem:
            self.recorder.warn("place", problem)
        self.board = ScalarBoard(
            self.timeline,
            self.recorder,
            self._start_s,
            earlier=self.earlier,
            samples_scale=process.local_world_size,
            emissions_kg=emissions_kg,
        )
        self.forecaster = Forecaster(
            self.recorder,
            self.board,
            self._start_s,
            earlier_j=self.earlier.of("total"),
            hosts=process.world_size / process.local_world_size,
        )
        self._budget = Budget(
            max_energy_wh=config.max_energy_wh,
            max_emissions_g=config.max_emissions_g,
            emissions_kg=emissions_kg,
        )
        self._is_over_budget = False
        self._raw: RawReadings | None = None
        if config.raw_readings:
            self._raw = RawReadings(path, self._start_s, unix_s)
            sources = [RecordedSource(source, self._raw.keep) for source in sources]
        self._sampler = Sampler(sources, self.timeline, clock, self.recorder.note)
        self._known_hung: set[str] = set()
        self._silences = StaleSensors(self.timeline, self._start_s)
        self._wall_clock = WallClock(clock, self._start_s)
        self._is_broken = False
        self._sampler.start()
        self._periodic = clock.every(
            config.sample_interval_s, self._update, name="energy_callbacks journal"
        )

    def note_unavailable(self, missing: Iterable[tuple[str, str, str]]) -> None:
        """Record sensors that this machine does not have: (source, reason, fix)."""
        for source, reason, fix in missing:
            self.recorder.note(
                Notice(
                    source=source, kind="unavailable", t_s=self._start_s, message=reason, fix=fix
                )
            )

    @property
    def rank(self) -> int:
        """Number of this process among all."""
        return self._process.rank

    def state(self) -> Record:
        """The run, its folder, and what it has used so far, for a checkpoint."""
        used_j = dict(self.board.used_j)
        return {"run_id": self.run_id, "folder": str(self.folder), "energy_j": used_j}

    def budget_share(self) -> float:
        """How much of its budget the run has used on this host; the first process answers."""
        if self._process.local_rank:
            return 0.0
        self.board.ask()
        used = self.board.used
        if used is None:
            return 0.0
        return self._budget.share(used, self._clock.monotonic_s())

    def note_over_budget(self) -> None:
        """Record and log, once, that the budget is used up."""
        if self._is_over_budget:
            return
        self._is_over_budget = True
        message = f"the budget is used up ({self._budget}): training was asked to stop"
        self.recorder.warn("budget_used_up", message, "a resumed run needs a larger budget")
        if self.rank == 0:
            logger.warning("%s", message)

    def now_s(self) -> float:
        """The time; the training is known to be running at this moment."""
        self._seen_s = self._clock.monotonic_s()
        return self._seen_s

    def end(self, error: BaseException | None) -> None:
        """Read every sensor once more, write totals, close the journal; in a few seconds.

        Args:
            error: the exception that ended the training, if any.
        """
        with self._ending:
            if not self._is_over:
                self._stop(*_status_and_text(error))

    def end_left(self, *, on_own_thread: bool) -> bool:
        """End an attempt that was not stopped, at the last moment it was known to run.

        Args:
            on_own_thread: whether the journal's thread calls: it must not wait for a caller that
                waits for it.

        Returns:
            Whether it was this call that ended it.
        """
        if not self._ending.acquire(blocking=not on_own_thread):
            return False
        try:
            if self._is_over:
                return False
            error = self.call.error() if self.call else None
            self.recorder.leave_all(max(self._seen_s, self.steps.marked_s))
            status, text = ("failed", _LEFT) if error is None else _status_and_text(error)
            self._stop(status, text, on_own_thread=on_own_thread)
            return True
        finally:
            self._ending.release()

    def _stop(self, status: str, error: str | None, *, on_own_thread: bool = False) -> None:
        for name in self._sampler.stop(_STOP_TIMEOUT_S):
            self.recorder.warn("source_hangs", f"{name} did not answer at the end of the run")
        self.abandon()
        if not on_own_thread and not self._periodic.wait(_STOP_TIMEOUT_S):
            logger.warning("the energy journal in %s cannot be written; it ends here", self.folder)
            return
        if self._raw is not None:
            self._raw.close()
        self.timeline.finish()
        if self.rank == 0 and (found := self.board.short_span()):
            self.recorder.warn("short_span", *found)
        own_cpu_s = time.thread_time() if on_own_thread else self._periodic.cpu_s
        self.recorder.finish(
            status,
            error,
            sampler_cpu_s=self._sampler.cpu_s + own_cpu_s,
            missed_readings=self._sampler.missed,
        )
        self._is_over = True  # not before: Ctrl-C may come in between
        if self.call is not None:
            self.call.let_go()
        self.board.update(is_final=True)

    def wait_for_ranks(self, timeout_s: float) -> None:
        """Wait until the other processes of this attempt have ended too, as far as files show.

        If one has died, a launcher such as Lightning's may be about to kill this one.
        """
        if self._process.world_size == 1:
            return  # its own last line may be missing if the disk is full
        folder = journal.path_for(self.folder, self._number, self._host, 0).parent
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s:
            journals = list(folder.glob("*.jsonl"))
            going_on = [path for path in journals if not journal.has_ended(path)]
            if len(journals) >= self._process.world_size and all(
                map(journal.has_lost_its_writer, going_on)
            ):
                return
            time.sleep(0.05)

    def abandon(self) -> None:
        """Stop reading sensors and writing the journal; does not wait."""
        self._sampler.ask_to_stop()
        self._periodic.ask_to_stop()

    def wait_for_journal(self, timeout_s: float) -> None:
        """Wait until the journal's thread has stopped."""
        self._periodic.wait(timeout_s)

    def _update(self) -> float:
        """One period of the journal's thread; returns the time until the next."""
        start_s = self._clock.monotonic_s()
        if self._is_broken:
            self._writer.close()
        elif not self._is_over:
            self._keep_books()
        wanted_s = next_multiple_s(start_s, self._config.sample_interval_s)
        return min(wanted_s, next_multiple_s(start_s, BEAT_S)) - start_s

    def _keep_books(self) -> None:
        try:
            self.recorder.update()
            self.board.update()
            self.forecaster.update()
            if self._raw is not None:
                self._raw.update()
            self._warn_of_hung()
            for message in self._silences.news():
                self.recorder.warn("quantity_silent", message)
            for message in self._wall_clock.news():
                self.recorder.warn("wall_clock_set", message)
            self._look_after_call()
        except Exception:  # noqa: BLE001 - our bug must not become the training's
            self._is_broken = True
            self._on_failure("keeping the energy journal failed; measuring ends here")

    def _look_after_call(self) -> None:
        """Notice, at a second check, that the call that trains has ended without ``stop``.

        Between the two checks an interactive shell has recorded the exception.
        """
        if self.call is None:
            return
        is_left = not self.call.is_under_way()
        if not is_left:
            self.now_s()
        elif self._was_left:
            self._on_left()
        self._was_left = is_left

    def _warn_of_hung(self) -> None:
        for name, waited_s in self._sampler.hung_s(_HUNG_S).items():
            if name not in self._known_hung:
                self._known_hung.add(name)
                self.recorder.warn("source_hangs", f"{name} has not answered for {waited_s:.0f} s")

    def _header(self, unix_s: float, place: "Place", surroundings: Record) -> Record:
        config, job = self._config, identity(os.environ)
        is_word = isinstance(config.devices, str)
        settings: dict[str, Any] = {
            "place": asdict(place),
            "pue": config.pue,
            "price_per_kwh": config.price_per_kwh,
            "sample_interval_s": config.sample_interval_s,
            "raw_readings": config.raw_readings,
            "step_events": config.step_events,
            "max_energy_wh": config.max_energy_wh,
            "max_emissions_g": config.max_emissions_g,
            "devices": config.devices if is_word else list(config.devices),
        }
        return {
            "type": "header",
            "format": journal.FORMAT,
            "version": journal.VERSION,
            "columns": list(journal.COLUMNS),
            "run_id": self.run_id,
            "attempt": self._number,
            "host": self._host,
            "pid": os.getpid(),
            "ppid": os.getppid(),
            "launch": launch_id(self._process),
            "unix_s": unix_s,
            "run_name": config.run_name,
            "tags": dict(config.tags),
            **asdict(self._process),
            "job": job and asdict(job),
            "config": settings,
            "environment": surroundings,
            **self._link(),
        }

    def _link(self) -> Record:
        """Where the run was before it came to this folder, and what it had used there."""
        linked_j, folder = self.earlier.linked_j, self.earlier.folder
        return {"before": {"folder": folder, "energy_j": dict(linked_j)}} if linked_j else {}


def _status_and_text(error: BaseException | None) -> tuple[str, str | None]:
    if error is None:
        return "finished", None
    status = "failed" if isinstance(error, Exception) else "interrupted"
    return status, f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _earlier(
    folder: Path, number: int, run_id: str, process: TrainingProcess, state: Mapping[str, Any]
) -> previous_attempts.PreviousAttempts:
    """What was used before; nothing if files or checkpoint cannot be read."""
    try:
        return previous_attempts.look(folder, number, run_id, process, state)
    except Exception as error:  # noqa: BLE001 - a curve that begins at 0 does no harm
        logger.warning("what earlier attempts have used cannot be read: %r", error)
        return previous_attempts.PreviousAttempts()


def _place(config: EnergyConfig) -> "tuple[Place, str]":
    """The location of the machine, and what is wrong with CodeCarbon's configuration of it."""
    from energy_callbacks.accounting.metrics.carbon import Place, place

    try:
        return place(config.country, config.region), ""
    except Exception as error:  # noqa: BLE001 - what only emissions need must not end the energy
        return Place(), f"the place is taken as unknown: {error}"


def _step_ends(clock: Clock) -> "StepEnds":
    from energy_callbacks.sensing.frameworks.step_ends import StepEnds

    return StepEnds(clock)


def _emissions(place: "Place", pue: float) -> EmissionsKg | None:
    """From energy to kg CO2e with its interval, at this run's place; ``None`` if it fails."""
    from energy_callbacks.accounting.metrics import carbon

    try:
        intensity = carbon.intensity(place)
    except Exception as error:  # noqa: BLE001 - see _place
        logger.warning("emissions cannot be found: %s", error)
        return None

    def emissions_kg(energy: Energy) -> tuple[float | None, float | None, float | None]:
        found = carbon.emissions(energy, intensity, pue)
        return found.kg, found.low_kg, found.high_kg

    return emissions_kg
