"""One attempt of a run: everything that lives from ``EnergyMeter.start`` to ``stop``."""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from energy_callbacks.accounting import journal
from energy_callbacks.accounting.recorder import Recorder
from energy_callbacks.accounting.scalars import EmissionsKg, ScalarBoard
from energy_callbacks.config import EnergyConfig
from energy_callbacks.records import Energy
from energy_callbacks.sensing.clock import Clock
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.sources.protocol import Source
from energy_callbacks.sensing.timeline import Timeline
from energy_callbacks.version import __version__

logger = logging.getLogger("energy_callbacks")

# A driver that hangs must not hold up the end of a training for longer than this.
_STOP_TIMEOUT_S: Final = 3.0
_HUNG_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """Which process of which framework this is.

    Attributes:
        framework: ``lightning``, ``keras``, ``huggingface`` or ``plain``.
        framework_version: of that framework.
        rank: number among all processes of the run.
        local_rank: number among those of this host; the first measures CPU and RAM.
        world_size: how many processes there are.
    """

    framework: str = "plain"
    framework_version: str = ""
    rank: int = 0
    local_rank: int = 0
    world_size: int = 1

    @classmethod
    def from_environment(cls) -> "Process":
        """A plain loop's process, as ``torchrun`` and its kin describe it."""
        return cls(
            rank=int(os.environ.get("RANK", "0")),
            local_rank=int(os.environ.get("LOCAL_RANK", "0")),
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
        )


class Attempt:
    """Sensors, timeline, books and figures of one attempt.

    Args:
        config: settings.
        sources: sensors to read.
        clock: time and threads.
        folder: run folder.
        run_id: of the run that this attempt continues, ``None`` for a new one.
        process: which process this is.
        on_failure: called on our own thread where the books cannot be kept any more.
    """

    def __init__(
        self,
        *,
        config: EnergyConfig,
        sources: Sequence[Source],
        clock: Clock,
        folder: Path,
        run_id: str | None,
        process: Process,
        on_failure: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self._config = config
        self._process = process
        self._on_failure = on_failure
        self._host = os.uname().nodename
        self._number, self.run_id = journal.claim_attempt(folder, self._host, process.rank, run_id)
        path = journal.path_for(folder, self._number, self._host, process.rank)
        self._start_s, self._unix_s = clock.monotonic_s(), clock.unix_s()
        self.timeline = Timeline()
        self.recorder = Recorder(
            self.timeline, journal.JournalWriter(path), clock, self._start_s, self._header
        )
        self.board = ScalarBoard(self.timeline, self.recorder, self._start_s)
        self._sampler = Sampler(sources, self.timeline, clock, self.recorder.note)
        self._known_hung: set[str] = set()
        self._is_broken = False
        self._sampler.start()
        self._periodic = clock.every(
            config.sample_interval_s, self._update, name="energy_callbacks journal"
        )

    def note_unavailable(self, missing: Iterable[tuple[str, str, str]]) -> None:
        """Write down sensors that this machine does not have: (source, reason, fix)."""
        for source, reason, fix in missing:
            self.recorder.note(
                Notice(
                    source=source, kind="unavailable", t_s=self._start_s, message=reason, fix=fix
                )
            )

    def stop(self, status: str, error: str | None) -> None:
        """A last look at every sensor, totals, journal closed; takes a few seconds at most."""
        for name in self._sampler.stop(_STOP_TIMEOUT_S):
            self.recorder.warn("source_hangs", f"{name} did not answer at the end of the run")
        self.abandon()
        if not self._periodic.wait(_STOP_TIMEOUT_S):
            logger.warning("the energy journal in %s cannot be written; it ends here", self.folder)
            return
        self.timeline.finish()
        self.recorder.finish(
            status,
            error,
            sampler_cpu_s=self._sampler.cpu_s,
            missed_readings=self._sampler.missed,
        )
        self.board.update()

    def abandon(self) -> None:
        """Read no sensor and keep no books any more; waits for nothing."""
        self._sampler.ask_to_stop()
        self._periodic.ask_to_stop()

    def _update(self) -> None:
        """One turn of the journal's thread."""
        if self._is_broken:
            return
        try:
            if self.board.emissions_kg is None:
                self.board.emissions_kg = _emissions(self._config)
            self.recorder.update()
            self.board.update()
            self._warn_of_hung()
        except Exception:  # noqa: BLE001 - our bug must not become the training's
            self._is_broken = True
            self._on_failure("keeping the energy journal failed; measuring ends here")

    def _warn_of_hung(self) -> None:
        for name, waited_s in self._sampler.hung_s(_HUNG_S).items():
            if name not in self._known_hung:
                self._known_hung.add(name)
                self.recorder.warn("source_hangs", f"{name} has not answered for {waited_s:.0f} s")

    def _header(self) -> journal.Record:
        from energy_callbacks.accounting import carbon, environment

        config = self._config
        place = carbon.place(config.country, config.region)
        is_word = isinstance(config.devices, str)
        settings: dict[str, Any] = {
            "place": asdict(place),
            "pue": config.pue,
            "price_per_kwh": config.price_per_kwh,
            "sample_interval_s": config.sample_interval_s,
            "devices": config.devices if is_word else list(config.devices),
        }
        return {
            "type": "header",
            "format": journal.FORMAT,
            "version": journal.VERSION,
            "run_id": self.run_id,
            "attempt": self._number,
            "host": self._host,
            "pid": os.getpid(),
            "unix_s": self._unix_s,
            "run_name": config.run_name,
            "tags": dict(config.tags),
            **asdict(self._process),
            "config": settings,
            "environment": environment.describe(__version__),
        }


def _emissions(config: EnergyConfig) -> EmissionsKg:
    """From energy to kg CO2e with its interval, at this run's place."""
    from energy_callbacks.accounting import carbon

    intensity = carbon.intensity(carbon.place(config.country, config.region))

    def emissions_kg(energy: Energy) -> tuple[float | None, float | None, float | None]:
        found = carbon.emissions(energy, intensity, config.pue)
        return found.kg, found.low_kg, found.high_kg

    return emissions_kg
