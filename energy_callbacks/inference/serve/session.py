"""Lets a controller hold a power cap while a server answers requests."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from energy_callbacks.core.guard import logger
from energy_callbacks.inference.control import loop
from energy_callbacks.inference.control.loop import CapSchedule
from energy_callbacks.inference.control.protocols import (
    Abilities,
    Controller,
    OperatingPoint,
    Window,
)
from energy_callbacks.inference.serve.report import Requests, ServeReport
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.inference.serve.shadow import ShadowTuner

Rates = Mapping[str, float | None]
# A rate that differs by more than this part from the planned one needs a new plan, and so does a
# model that begins or ends. The rate of a recording is a mean over 20 s: at 10 requests per second,
# it varies by 7 % by chance.
_CHANGED: Final = 0.25


def serve(
    server: Server,
    controller: Callable[[Rates], Controller],
    schedule: CapSchedule,
    *,
    seconds: int,
    on_window: Callable[[Window, float], None] = lambda _window, _cap_w: None,
) -> ServeReport:
    """Serve for ``seconds`` windows, or until Ctrl-C, and return what it has shown.

    After Ctrl-C, the present window is completed; with a second Ctrl-C, nothing is returned.

    Args:
        server: the server, before its first window.
        controller: returns a controller for the rates that must be served. It is called at the
            start, and when the rates have changed.
        schedule: the cap over time.
        seconds: number of windows of one second.
        on_window: called after each window with the window and its cap in W.

    Raises:
        ValueError: if ``seconds`` is less than 1, or if the first controller cannot work.
        PowerCapError: if a setting cannot be changed.
        TenantFailed: if tenants cannot be kept running.
        KeyboardInterrupt: if Ctrl-C comes before the end of the first window, or twice.
    """
    if seconds < 1:
        raise ValueError(f"seconds must be at least 1, got {seconds}")
    planner = Replanning(server, controller)
    windows: list[tuple[Window, float]] = []
    is_interrupted = False
    try:
        for window, cap_w in loop.run(planner, server, schedule, windows=seconds):
            windows.append((window, cap_w))
            on_window(window, cap_w)
    except KeyboardInterrupt:
        if not windows:
            raise
        is_interrupted = True
        windows.append((server.window(loop.WINDOW_S), server.cap_w))
    return _report(server, planner.present, windows, is_interrupted=is_interrupted)


class Replanning:
    """A controller that is replaced when the rates of the requests have changed.

    It also tells the server the cap, below which the server keeps while tenants load.

    Args:
        server: the server.
        make: returns a controller for the rates that must be served.

    Attributes:
        present: the controller for the present rates.
    """

    def __init__(self, server: Server, make: Callable[[Rates], Controller]) -> None:
        self._server, self._make = server, make
        self._rates: Rates = server.dispatcher.rates_per_s()
        self.present: Controller = make(self._rates)
        self.name, self.needs = self.present.name, self.present.needs
        self.degraded = self.present.degraded
        self._abilities = server.abilities
        self._unserved: set[str] = set()

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        """See ``Controller``."""
        self._server.cap_w, self._abilities = cap_w, abilities
        return self._followed(self.present.start(cap_w, abilities))

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``."""
        self._server.cap_w = cap_w
        return self._followed(self.present.cap_changed(cap_w))

    def step(self, window: Window) -> OperatingPoint:
        """See ``Controller``."""
        rates = self._server.dispatcher.rates_per_s()
        if not have_changed(self._rates, rates):
            return self._followed(self.present.step(window))
        logger.info("the rates of the requests have changed: %s", _text(rates))
        self._rates = rates
        try:
            other = self._make(rates)
            point = other.start(self._server.cap_w, self._abilities)
        except ValueError as error:
            logger.warning("there is no plan for these rates, the present one stays: %s", error)
            return self._followed(self.present.step(window))
        self.present = other
        return self._followed(point)

    def _followed(self, point: OperatingPoint) -> OperatingPoint:
        self.degraded = self.present.degraded
        served = {one.model for one in point.configuration.tenants}
        # A model whose rate is 0 at present needs no tenant.
        unserved = {model for model, rate in self._rates.items() if rate is None} - served
        if unserved - self._unserved:
            logger.warning(
                "the best tenants under the cap leave out %s, whose requests wait; give rates "
                "(--rate) or a plan with minimum rates (--plan), or serve it alone",
                ", ".join(sorted(unserved)),
            )
        self._unserved = unserved
        return point


def have_changed(before: Rates, now: Rates) -> bool:
    """Return whether rates differ so much that a new plan is needed.

    >>> have_changed({"a": 100.0}, {"a": 110.0}), have_changed({"a": 100.0}, {"a": 200.0})
    (False, True)
    """
    for model, rate in now.items():
        old = before[model]
        if rate is None or old is None:
            if rate is not old:
                return True
        elif abs(rate - old) > _CHANGED * max(rate, old):
            return True
    return False


def _text(rates: Rates) -> str:
    return ", ".join(f"{model} {rate or 0.0:.4g}/s" for model, rate in rates.items())


def _report(
    server: Server,
    controller: Controller,
    windows: Sequence[tuple[Window, float]],
    *,
    is_interrupted: bool,
) -> ServeReport:
    dispatcher = server.dispatcher
    counts = dispatcher.counts()
    requests = {
        model: Requests(**one, latencies_ms=dispatcher.latencies_ms(model))
        for model, one in counts.items()
    }
    sums = {
        name: sum(one[name] for one in counts.values())
        for name in ("arrived", "answered", "waiting")
    }
    return ServeReport(
        algorithm=controller.name,
        degraded=controller.degraded,
        source=server.row.source,
        device=server.row.gpu_name,
        windows=windows,
        requests=requests,
        total=Requests(
            **sums,
            latencies_ms=dispatcher.latencies_ms(),
        ),
        returned=dispatcher.returned,
        changes=max(dispatcher.switches - 1, 0),
        refused=list(dispatcher.refused.values()),
        notes=dispatcher.notes,
        energies=server.energies.found,
        tuned=controller.tried if isinstance(controller, ShadowTuner) else (),
        is_interrupted=is_interrupted,
    )
