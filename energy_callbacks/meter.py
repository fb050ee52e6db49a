"""EnergyMeter: the object that adapters and plain loops drive."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.journal.launch import COMMAND, TrainingProcess, default_folder
from energy_callbacks.accounting.lifecycle import Lifecycle
from energy_callbacks.accounting.metrics.budget_allreduce import BudgetAllreduce
from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.accounting.metrics.scalars import Scalars
from energy_callbacks.accounting.profilers import Kind, Profiler, Profilers, joined
from energy_callbacks.core import forks
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.core.config import EnergyConfig, is_disabled
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.guard import give_up, harmless
from energy_callbacks.core.records import Device, Energy
from energy_callbacks.outputs.fault_tolerant import FaultTolerantOutput
from energy_callbacks.outputs.protocol import Output
from energy_callbacks.sensing.clock import Clock, SystemClock
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.timeline import Timeline

if TYPE_CHECKING:
    from energy_callbacks.report.model.schema import EnergyReport

logger = logging.getLogger("energy_callbacks")

# Ranks end at about the same time; a rank that died must not delay the report for long.
_RANKS_S = 5.0
_LOOK_S = 0.02
_NEVER_STARTED = "there is nothing yet: the meter was never started; train first, or call start()"


class EnergyMeter:
    """Measures what happens between ``start`` and ``stop``.

    ::

        with EnergyMeter() as meter:
            with meter.phase("train"):
                for batch in loader:
                    ...
                    meter.step(samples=len(batch))
        report = meter.report()

    Nothing is opened before ``start``: a meter can be pickled and copied until then. After
    ``start`` no method raises because of measuring, and only ``stop`` waits for a sensor,
    for some seconds at most. In a forked child every method does nothing, until that child
    starts an attempt of its own.

    Args:
        config: settings; defaults to ``EnergyConfig()``.
        sources: sensors to read; ``None`` finds those of this machine.
        clock: time; ``None`` is the system's.
        outputs: where ``log`` writes.
        profilers: called for every event, such as ``KernelProfiler()``.

    Raises:
        ValueError: for a country that is not known.
        TypeError: for a profiler that is none.
    """

    def __init__(
        self,
        *,
        config: EnergyConfig | None = None,
        sources: Sequence[Source] | None = None,
        clock: Clock | None = None,
        outputs: Sequence[Output] = (),
        profilers: Sequence[Profiler] = (),
    ) -> None:
        self.config = config or EnergyConfig()
        if self.config.country is not None:
            from energy_callbacks.accounting.metrics.carbon import place

            place(self.config.country, self.config.region)
        self._sources = sources
        self._clock = clock or SystemClock()
        self._outputs = tuple(FaultTolerantOutput(output) for output in outputs)
        self._profilers = Profilers(profilers)
        self._lifecycle = Lifecycle()
        self._cannot_vote = False
        self._vote = BudgetAllreduce()
        self._say: Callable[[str], None] = logger.info

    @classmethod
    def from_settings(
        cls,
        config: EnergyConfig,
        meter: "EnergyMeter | None",
        profilers: Sequence[Profiler] = (),
    ) -> "EnergyMeter":
        """The meter of a callback: the one handed in, else a new one with these settings.

        Raises:
            ValueError: if both are given; the meter has settings of its own.
        """
        if meter is None:
            return cls(config=config, profilers=profilers)
        if config != EnergyConfig():
            raise ValueError(
                f"meter= brings its own settings, but others were given too: {config}; "
                "pass them to EnergyMeter(config=EnergyConfig(...))"
            )
        if profilers:
            raise ValueError(
                f"meter= brings its own profilers, but others were given too: {profilers}; "
                "pass them to EnergyMeter(profilers=[...])"
            )
        return meter

    def now_s(self) -> float:
        """The time, by ``time.monotonic`` or the clock that was passed in."""
        return self._clock.monotonic_s()

    @property
    def is_running(self) -> bool:
        """Whether this process measures at the moment."""
        return self._lifecycle.running is not None

    @property
    def run_folder(self) -> Path | None:
        """Where journals and report lie; ``None`` before the first start."""
        newest = self._lifecycle.newest
        return newest.folder if newest else None

    @property
    def run_id(self) -> str | None:
        """The run, over all its attempts; ``None`` before the first start."""
        newest = self._lifecycle.newest
        return newest.run_id if newest else None

    @property
    def clock(self) -> Clock:
        """The clock of this meter."""
        return self._clock

    @property
    def timeline(self) -> Timeline:
        """Everything that sensors have reported in the last attempt.

        Raises:
            JournalError: before the first start.
        """
        return self._newest().timeline

    @property
    def rank(self) -> int:
        """Number of this process among all; 0 before the first start."""
        newest = self._lifecycle.newest
        return newest.rank if newest else 0

    @property
    def devices(self) -> tuple[Device, ...]:
        """The measured devices of this host, once their sensors have opened."""
        newest = self._lifecycle.newest
        return newest.timeline.devices if newest else ()

    def state(self) -> dict[str, Any]:
        """The state for a checkpoint, as JSON: the run, its folder and its usage so far.

        Empty before the first start. ``start(state=...)`` goes on from it.
        """
        last = self._lifecycle.own
        if last is None:
            return {}
        self._ask(last)
        return last.state()

    @harmless
    def _ask(self, attempt: ActiveAttempt) -> None:
        attempt.board.ask()

    def start(
        self,
        run_folder: str | os.PathLike[str] | None = None,
        *,
        state: Mapping[str, Any] | None = None,
        process: TrainingProcess | None = None,
        used_gpus: Sequence[int] | None = None,
        call: ActiveCall | None = None,
        say: Callable[[str], None] = logger.info,
    ) -> Self:
        """Begin an attempt; does nothing while one is running or if switched off.

        An attempt that is not stopped ends with ``call``, with the interpreter, or if a report
        or a new start is asked for after ``call`` has ended; the report is then written too.

        Args:
            run_folder: where journal and report go, unless ``config`` names a folder;
                ``None`` is ``./energy_runs/<stamp>``.
            state: of the run that this attempt continues, from ``state()`` in its checkpoint;
                without one this meter's last run goes on if it is in the same folder, else a new
                one begins.
            process: which process this is.
            used_gpus: ordinals of the GPUs that the framework uses; ``()`` for none, ``None``
                if unknown.
            call: the user's call that trains, for frameworks that have no hook for its failure.
            say: called with a forecast, and with the report's summary if the attempt ends so.

        Raises:
            PermissionError: if the folder cannot be written.
            ValueError: if a device was asked for that is not there.
        """
        self._lifecycle.end_if_left()
        if self.is_running or is_disabled():
            return self
        self._profilers = joined(self._profilers)
        process = process or TrainingProcess.from_environment()
        chosen = self.config.run_folder or run_folder or self.run_folder or default_folder(process)
        folder = Path(chosen).expanduser().absolute()
        journal.check_writable(folder)
        sources, missing = self._find_sources(process, used_gpus)
        attempt = ActiveAttempt(
            config=self.config,
            sources=sources,
            clock=self._clock,
            folder=folder,
            state=state if state and state.get("run_id") else self._state_in(folder),
            process=process,
            on_failure=self.abandon,
            call=call,
            on_left=lambda: self._lifecycle.end_left(on_own_thread=True),
        )
        attempt.note_unavailable(missing)
        self._cannot_vote = False
        self._vote.begin(process.world_size)
        self._say = say
        self._lifecycle.begin(attempt, self._profilers, self._on_left)
        self._profilers.start(self)
        return self

    def _state_in(self, folder: Path) -> dict[str, Any]:
        """Of this meter's last run, unless that was in another folder: then a new one begins."""
        return self.state() if self.run_folder == folder else {}

    def _find_sources(
        self, process: TrainingProcess, used_gpus: Sequence[int] | None
    ) -> tuple[Sequence[Source], Sequence[tuple[str, str, str]]]:
        if self._sources is not None:
            return self._sources, ()
        from energy_callbacks.sensing.sources import discover

        found = discover(
            self._clock,
            devices=self.config.devices,
            used_ordinals=used_gpus,
            host=process.local_rank == 0,
            other_program=process.framework == COMMAND,
        )
        return found.sources, found.unavailable

    def abandon(self, message: str) -> None:
        """Measure no more and say why, with the exception that is being handled."""
        self._lifecycle.abandon(message)

    @harmless
    def enter(self, phase: str) -> None:
        """The process enters a phase; the one before is paused until ``leave``."""
        if attempt := self._lifecycle.running:
            now_s = attempt.now_s()
            attempt.recorder.enter(phase, now_s)
            self._profilers.mark(f"phase:{attempt.recorder.phases.name}", now_s)

    @harmless
    def leave(self, phase: str) -> None:
        """The process leaves a phase and every phase inside it; harmless if it is in none."""
        if attempt := self._lifecycle.running:
            now_s = attempt.now_s()
            attempt.recorder.leave(phase, now_s)
            self._profilers.mark(f"phase:{attempt.recorder.phases.name}", now_s)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Everything inside the block belongs to a phase, such as ``train``."""
        self.enter(name)
        try:
            yield
        finally:
            self.leave(name)

    def step(self, samples: float | None = None, tokens: float | None = None) -> None:
        """An optimizer step ended now.

        Args:
            samples: how many samples it consumed, over all its micro-batches; ``None`` if
                unknown, or if ``count`` follows later.
            tokens: how many tokens.
        """
        # Called most, so nothing is called on the way: a call takes 1 to 3 us in cold caches.
        life = self._lifecycle
        attempt = life.attempt
        if attempt is None or life.generation != forks.generation:
            return
        try:
            now_s = self._clock.monotonic_s()
            attempt.steps.step(now_s, samples, tokens)
            if self._profilers:
                self._profilers.step(now_s)
        except Exception:  # noqa: BLE001 - our bug must not become the training's
            give_up(self, "step")

    @harmless
    def count(self, samples: float | None = None, tokens: float | None = None) -> None:
        """Report samples and tokens of steps that could not report them when they ended.

        Args:
            samples: of all steps that gave ``None``; a correction, even a negative one, if
                every step gave a number.
            tokens: tokens, with the same meaning.
        """
        if attempt := self._lifecycle.running:
            attempt.steps.tell(attempt.now_s(), samples, tokens)

    def mark(self, name: str, t_s: float | None = None) -> None:
        """Something happened.

        ``data_ready`` and ``batch_done`` separate waiting for data from work; any other name is
        kept in the journal.

        Args:
            name: what happened.
            t_s: when, by ``time.monotonic()``; ``None`` is now.
        """
        life = self._lifecycle  # as flat as ``step``
        attempt = life.attempt
        if attempt is None or life.generation != forks.generation:
            return
        try:
            at_s = self._clock.monotonic_s() if t_s is None else t_s
            if name == "data_ready":
                attempt.steps.mark_ready(at_s)
            elif name == "batch_done":
                attempt.steps.mark_done(at_s)
            else:
                attempt.recorder.event("mark", at_s, name=name)
            if self._profilers:
                self._profilers.mark(name, at_s)
        except Exception:  # noqa: BLE001 - our bug must not become the training's
            give_up(self, "mark")

    def is_over_budget(self, add: Callable[[float], float] | None = None) -> bool:
        """Whether the run, over all its attempts, has used up what its settings allow.

        If several processes train, all of them must ask after the same steps.

        Args:
            add: sums a number over all processes; ``None`` leaves that to PyTorch.
        """
        if not self.config.has_budget or is_disabled() or self._cannot_vote:
            return False
        share = self._budget_share() or 0.0  # a process that measures no more must still vote
        try:
            is_over = (add or self._vote)(share) >= 1.0
        except Exception as error:  # noqa: BLE001 - a training must not end on account of its budget
            self._cannot_vote = True
            logger.warning("the budget cannot be kept, training goes on without: %s", error)
            return False
        if is_over:
            self._note_over_budget()
        return is_over

    @harmless
    def _budget_share(self) -> float:
        attempt = self._lifecycle.running
        return attempt.budget_share() if attempt else 0.0

    @harmless
    def _note_over_budget(self) -> None:
        if attempt := self._lifecycle.running:
            attempt.note_over_budget()

    @harmless
    def plan(self, steps: int) -> None:
        """This attempt is to make this many optimizer steps; forecasts need it."""
        if attempt := self._lifecycle.running:
            attempt.forecaster.planned_steps = steps

    @harmless
    def epoch(self, number: int) -> None:
        """An epoch of training ended now."""
        if attempt := self._lifecycle.running:
            now_s = attempt.now_s()
            attempt.recorder.event("epoch", now_s, epoch=number)
            attempt.forecaster.end_epoch(now_s)

    @harmless
    def resumed(self, step: int) -> None:
        """Training goes on from a checkpoint that was written after this many optimizer steps."""
        if attempt := self._lifecycle.running:
            attempt.recorder.event("resume", attempt.now_s(), step=step)
            attempt.forecaster.resume()

    @harmless
    def window(self, name: str, start_s: float, end_s: float) -> None:
        """Name a span of time afterwards; its energy moves to the phase ``name``.

        Args:
            name: phase, such as ``validation``.
            start_s: by ``time.monotonic()``.
            end_s: by ``time.monotonic()``, too; an empty span is ignored.
        """
        attempt = self._lifecycle.running
        if attempt is not None and end_s > start_s:
            attempt.recorder.window(name, start_s, end_s)

    def scalars(self) -> Scalars:
        """Figures of the newest span that was fully seen since the last call, by tag.

        After ``stop`` they reach to the very end. Empty before anything was seen.
        """
        return self._take() or {}

    @harmless
    def _take(self) -> Scalars:
        last = self._lifecycle.own
        return last.board.take() if last is not None and self._lifecycle.state != "failed" else {}

    def totals(self) -> Scalars:
        """The same figures over the whole attempt, after ``stop``; empty before."""
        return self._whole() or {}

    @harmless
    def _whole(self) -> Scalars:
        last = self._lifecycle.own
        is_known = self._lifecycle.state == "ended"
        return last.board.whole() if last is not None and is_known else {}

    def log(self, step: int) -> Scalars:
        """Write ``scalars`` to all outputs at a step, and return them."""
        scalars = self.scalars()
        for output in self._outputs if scalars else ():
            output.write(scalars, step, self._clock.unix_s())
        self._say_news()
        return scalars

    def _say_news(self) -> None:
        """A forecast is printed on the training thread, so that a progress bar can handle it."""
        attempt = self._lifecycle.running
        forecast = attempt.forecaster.news if attempt else None
        if attempt is None or forecast is None:
            return
        attempt.forecaster.news = None
        with contextlib.suppress(Exception):  # as when the standard output is closed
            if attempt.rank == 0:
                self._say(str(forecast))

    @harmless
    def record_batch_sizes(self, curve: Mapping[str, Any]) -> None:
        """Keep what a search for a batch size has found, for the report.

        Args:
            curve: the fields of a ``report.batch_sizes.BatchSizeCurve``.
        """
        if attempt := self._lifecycle.running:
            attempt.recorder.event("batch_sizes", attempt.now_s(), **curve)

    @harmless
    def record_metrics(
        self, values: Mapping[str, Any], *, step: int | None = None, epoch: float | None = None
    ) -> None:
        """Keep metrics of the training, such as its loss, for the report.

        At most 20 names; what is no finite number, tensors too, is left out, and so are figures of
        ours. Of thousands of records with the same names a part is kept.

        Args:
            values: by name; one with ``val``, ``eval`` or the like in it is of a validation.
            step: optimizer steps done so far.
            epoch: that they belong to.
        """
        if attempt := self._lifecycle.running:
            attempt.metrics.record(values, attempt.now_s(), step, epoch)

    @harmless
    def record_profile(self, kind: Kind, record: Mapping[str, Any]) -> None:
        """Keep a profile for the report.

        Args:
            kind: what it is of.
            record: the fields of the section in ``report.profile.Profile``.
        """
        if attempt := self._lifecycle.running:
            attempt.recorder.event("profile", attempt.now_s(), of=kind, record=record)

    @harmless
    def record_used(self, devices: Iterable[str]) -> None:
        """Keep on which devices the measured program was seen.

        Args:
            devices: keys of ``devices``.
        """
        if attempt := self._lifecycle.running:
            attempt.recorder.event("used", attempt.now_s(), devices=list(devices))

    def energy(self, start_s: float, end_s: float, scope: str = "total") -> Energy:
        """Energy between two moments of ``time.monotonic()`` of the last attempt.

        Full resolution for the last ten minutes, one second before that. A window too short for
        its sensors says so: ``is_resolved`` is false then, and printed it is ``< 1.2 J``.

        Args:
            start_s: start of the window.
            end_s: its end.
            scope: ``gpu``, ``host``, ``total`` or the key of a device.

        Raises:
            ValueError: if the window is empty or the scope unknown.
        """
        last = self._lifecycle.own
        if last is None:
            return Energy(energy_j=None)
        timeline = last.timeline
        return total(timeline.energy(key, start_s, end_s) for key in timeline.keys(scope))

    def wait_until_seen(self, t_s: float, timeout_s: float) -> bool:
        """Wait until the sensors have reported up to a moment; not for hooks of a training.

        Args:
            t_s: by ``time.monotonic()``.
            timeout_s: at most this long.

        Returns:
            Whether they have.
        """
        deadline_s = self._clock.monotonic_s() + timeout_s
        while (attempt := self._lifecycle.running) is not None:
            now_s = self._clock.monotonic_s()
            seen_s = attempt.timeline.seen_s(now_s)
            if seen_s is not None and seen_s >= t_s:
                return True
            if now_s >= deadline_s or not attempt.timeline.metered:
                return False
            self._clock.sleep(min(_LOOK_S, deadline_s - now_s))
        return False

    @harmless
    def stop(self, error: BaseException | None = None) -> None:
        """End the attempt: a last look at every sensor, totals, journal closed.

        Args:
            error: the exception that ended the training, if any.
        """
        self._lifecycle.stop(error)

    def _on_left(self, attempt: ActiveAttempt) -> None:
        summary = self._save(attempt) if attempt.rank == 0 else None
        if summary:
            self._say(summary)

    def close(self) -> None:
        """Close the outputs; the meter can be started again."""
        for output in self._outputs:
            output.close()

    def report(self) -> "EnergyReport":
        """The report so far, at any time, from the journals of this run.

        Raises:
            JournalError: before the first start.
        """
        from energy_callbacks.report import build

        self._lifecycle.end_if_left()
        return build(self._newest().folder)

    def _newest(self) -> ActiveAttempt:
        if (newest := self._lifecycle.newest) is None:
            raise JournalError(_NEVER_STARTED)
        return newest

    @harmless
    def save_report(self) -> str | None:
        """Write ``energy_report.*`` into the run folder.

        Returns:
            A summary in one line; ``None`` if this process has measured nothing.
        """
        last = self._lifecycle.own
        return None if last is None else self._save(last)

    def _save(self, last: ActiveAttempt) -> str | None:
        from energy_callbacks.report import build, save
        from energy_callbacks.report.render.text import summary_line

        self._lifecycle.end_if_left()
        if not self.is_running:
            last.wait_for_ranks(_RANKS_S)
        try:
            report = build(last.folder)
            paths = save(report, last.folder)
        except (OSError, JournalError) as error:
            logger.warning(
                "no energy report in %s: %s; what is left can be read with: "
                "energy-callbacks report %s --out ELSEWHERE",
                last.folder,
                error,
                last.folder,
            )
            return None
        return summary_line(report, paths[0])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(error)
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """A copy never runs: threads and files stay with the original."""
        state = self.__dict__.copy()
        state.update(_lifecycle=Lifecycle(), _say=logger.info)
        return state
