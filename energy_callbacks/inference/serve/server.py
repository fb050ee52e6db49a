"""Serves requests at an operating point: the plant of a controller."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from energy_callbacks.core.errors import SourceUnavailable
from energy_callbacks.core.guard import logger
from energy_callbacks.inference.control.levels import LEAST_DUTY
from energy_callbacks.inference.control.protocols import Abilities, OperatingPoint, Window
from energy_callbacks.inference.profile.tenant_process import TenantFailed
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from energy_callbacks.inference.serve import batch_log
from energy_callbacks.inference.serve.arrivals import Arrivals
from energy_callbacks.inference.serve.budget import Budget
from energy_callbacks.inference.serve.dispatcher import Dispatcher, Seen
from energy_callbacks.inference.serve.machine import Machine
from energy_callbacks.inference.serve.tenant_energy import TenantEnergyMeter

# Time in which the power of waiting tenants is measured at the start, s.
_IDLE_S: Final = 1.0
# How often the start looks whether all tenants have loaded, s.
_LOOK_S: Final = 0.05
# While new tenants load, the old ones pause so that the power is this part of the cap: the margin
# for the power of loading.
_WHILE_LOADING: Final = 0.95
# A window is steady if its point was set at the latest after this part of it: the controller needs
# some time to answer, and a change of the duty acts at once.
_LATE: Final = 0.1


class Server:
    """A GPU that serves requests: it changes tenants without dropping requests.

    New tenants load beside the old ones, which serve until all have loaded. If the memory does not
    suffice, the old ones end first. Requests wait meanwhile, and are answered later.

    Args:
        machine: what serves; it is open.
        arrivals: the requests for each model.
        write: called with a row for each window.

    Attributes:
        cap_w: present power cap, W. While other tenants serve than those of the point, because
            these load or cannot be loaded, the server keeps the power below it: the tenants pause
            more. Otherwise, this is the task of the controller.
        energies: energies of the tenants.
        dispatcher: queues and tenants.
    """

    def __init__(
        self,
        machine: Machine,
        arrivals: Mapping[str, Arrivals],
        *,
        write: Callable[[MeasuredWindow], None] = lambda _: None,
    ) -> None:
        self._machine, self._write = machine, write
        self.dispatcher: Final = Dispatcher(machine.pool, arrivals)
        self.cap_w = float("inf")
        self.energies = TenantEnergyMeter(machine.sensors.energy, 0.0, machine.not_attributed)
        self._idle_w = 0.0
        self._point = OperatingPoint(configuration=Configuration(tenants=()))
        self._points: list[tuple[float, OperatingPoint]] = []
        self._end_s: float | None = None
        self._full_w = 0.0  # power of the present tenants without pauses, W
        self._meanwhile = 1.0
        self._noted = 0  # notes of tenants that were reported
        self._reported: set[tuple[Tenant, ...]] = set()

    @property
    def abilities(self) -> Abilities:
        """See ``Plant``."""
        return self._machine.abilities

    @property
    def idle_w(self) -> float:
        """Power of the tenants while they wait, W, as measured at the start."""
        return self._idle_w

    @property
    def row(self) -> MeasuredWindow:
        """A row of a trace with what does not change."""
        return self._machine.row

    def apply(self, point: OperatingPoint) -> None:
        """See ``Plant``. The first call waits until the tenants have loaded.

        Raises:
            ValueError: if the point cannot be set on this machine.
            PowerCapError: if a setting cannot be changed.
            TenantFailed: if the first tenants cannot be loaded.
        """
        if point == self._point:
            if self._end_s is not None:
                self._guard()  # the cap may be another one
            return
        if not 0.0 < point.duty <= 1.0:
            raise ValueError(f"duty must be above 0 and at most 1, got {point.duty:g}")
        self._machine.apply(point.configuration)
        self._point = point
        self._points.append((self._machine.pool.now_s(), point))
        if self._end_s is None:
            self._start(point)
            return
        self._guard()

    def window(self, duration_s: float) -> Window:
        """See ``Plant``. Each window begins where the previous one has ended.

        If that is more than ``duration_s`` ago, as after a long planning, it returns at once.

        Raises:
            TenantFailed: if the tenants cannot be kept running.
            SourceUnavailable: if the power of the device is not known.
        """
        if self._end_s is None:
            raise ValueError("apply must be called before the first window")
        start_s, end_s = self._end_s, self._end_s + duration_s
        paused = self._pass_window(start_s, end_s)
        self._check()
        fields = self._machine.sensors.window(start_s, end_s)
        seen = self.dispatcher.seen(start_s, end_s)
        self._end_s = end_s
        if fields["power_mean_w"] is None:
            raise SourceUnavailable("the power of the device is not known; name a GPU with --gpu")
        self.energies.add(start_s, end_s, seen.batches)
        found = fields | batch_log.figures(seen.batches, seen.workers, start_s, end_s)
        window = replace(self._window(start_s, end_s, seen, found), paused=paused)
        self._write_row(window, found, duration_s)
        self._learn(window, seen)
        return window

    def _pass_window(self, start_s: float, end_s: float) -> float:
        """Let time pass, and return the part in which tenants paused because of the budget."""
        cap_w = self._point.budget_w
        if cap_w is None:
            self._machine.pass_until(end_s)
            return 0.0
        budget = Budget(self._machine, self.dispatcher, cap_w, self._idle_w)
        return budget.pass_window(start_s, end_s)

    def _start(self, point: OperatingPoint) -> None:
        """Load the first tenants, measure them while they wait, and let requests arrive."""
        pool = self._machine.pool
        self.dispatcher.request(point.configuration.tenants, point.duty)
        self._machine.serve(self.dispatcher)
        while self.dispatcher.is_changing:
            self._machine.pass_until(pool.now_s() + _LOOK_S)
            self._check()
        start_s = pool.now_s()
        self._machine.pass_until(start_s + _IDLE_S)
        idle = self._machine.sensors.window(start_s, start_s + _IDLE_S)
        self._idle_w = idle["power_mean_w"] or 0.0
        self.energies = TenantEnergyMeter(
            self._machine.sensors.energy, self._idle_w, self._machine.not_attributed
        )
        self._end_s = pool.now_s()
        self._points = [(self._end_s, point)]
        self.dispatcher.open()

    def _check(self) -> None:
        failure = self.dispatcher.failure
        if isinstance(failure, TenantFailed):
            raise TenantFailed(failure.status, failure.note) from failure
        if failure is not None:
            raise failure
        for note in self.dispatcher.notes[self._noted :]:
            self._noted += 1
            logger.warning("%s", note)
        for tenants, note in self.dispatcher.refused.items():
            if tenants not in self._reported:
                self._reported.add(tenants)
                logger.warning("tenants could not be loaded and others go on: %s", note)

    def _window(self, start_s: float, end_s: float, seen: Seen, found: dict[str, Any]) -> Window:
        set_before = [one for one in self._points if one[0] <= end_s + 1e-9]
        set_s, point = set_before[-1]
        del self._points[: len(set_before) - 1]  # earlier points are not those of later windows
        is_complete = seen.tenants == point.configuration.tenants and not seen.is_changing
        present = replace(point.configuration, tenants=seen.tenants)
        rates = found["tenant_throughputs_per_s"]
        return Window(
            start_s=start_s,
            end_s=end_s,
            point=replace(point, configuration=present),
            is_steady=is_complete
            and set_s <= start_s + _LATE * (end_s - start_s)
            and seen.changed_s <= start_s + 1e-9
            and seen.starved_s < start_s,
            power_mean_w=found["power_mean_w"],
            power_max_w=found["power_max_w"] or found["power_mean_w"],
            throughput_per_s=found["throughput_per_s"],
            tenant_throughputs_per_s=rates if len(rates) == len(seen.tenants) else (),
            latency_p95_ms=found.get("latency_p95_ms"),
            sm_mhz_measured=found.get("sm_mhz_measured"),
            temperature_c=found.get("temperature_c"),
            refused=asked if (asked := point.configuration.tenants) in seen.refused else None,
            sm_util_pct=found.get("sm_util_pct"),
            mem_util_pct=found.get("mem_util_pct"),
        )

    def _write_row(self, window: Window, found: dict[str, Any], duration_s: float) -> None:
        state = "steady" if window.is_steady else "not steady"
        own = f"duty {window.point.duty:g}, cap {self.cap_w:g} W, {state}"
        if window.paused:
            own += f", paused {window.paused:.0%} because of the budget"
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds")
        row = replace(
            self._machine.row,
            configuration=window.point.configuration,
            timestamp_utc=stamp,
            window_s=duration_s,
            warmup_s=0.0,
            **(found | {"tenant_throughputs_per_s": window.tenant_throughputs_per_s}),
        )
        self._write(replace(row, note="; ".join(filter(None, (row.note, own)))))

    def _learn(self, window: Window, seen: Seen) -> None:
        """Learn the power without pauses, and pause enough while other tenants serve."""
        is_other = seen.tenants != self._point.configuration.tenants
        duty = self._meanwhile if is_other else window.point.duty
        self._full_w = self._idle_w + max(window.power_mean_w - self._idle_w, 0.0) / duty
        self._guard()

    def _guard(self) -> None:
        """Tell the dispatcher tenants and duty, and the duty of the old tenants meanwhile."""
        allowed_w = _WHILE_LOADING * self.cap_w - self._idle_w
        needed_w = max(self._full_w - self._idle_w, 1e-9)
        self._meanwhile = min(max(allowed_w / needed_w, LEAST_DUTY), 1.0)
        self.dispatcher.request(
            self._point.configuration.tenants, self._point.duty, self._meanwhile
        )


def tenants_text(configuration: Configuration) -> str:
    """Return the tenants as a short text.

    >>> from energy_callbacks.inference.profile.sweeps import equal
    >>> tenants_text(equal("resnet50", 25.0, 16, 4))
    '4 x resnet50 25 % b=16'
    """
    counts = Counter(configuration.tenants)
    texts = [f"{n} x {one.model} {one.share_pct:g} % b={one.batch}" for one, n in counts.items()]
    return " + ".join(texts) or "no tenants"
