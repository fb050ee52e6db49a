"""Controllers hold a cap while requests are served; plans follow caps and rates."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.inference.control.loop import CapSchedule
from energy_callbacks.inference.control.protocols import Abilities, Need, OperatingPoint, Window
from energy_callbacks.inference.planner.problem import Footprint, Problem
from energy_callbacks.inference.profile.sweeps import equal
from energy_callbacks.inference.records import Configuration, Interval, Prediction
from energy_callbacks.inference.serve.arrivals import Arrivals, ClosedLoop, Poisson
from energy_callbacks.inference.serve.fixed import Fixed
from energy_callbacks.inference.serve.machine import SimulatedMachine
from energy_callbacks.inference.serve.report import ServeReport
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.inference.serve.session import serve
from energy_callbacks.inference.serve.shadow import ShadowTuner, neighbours
from energy_callbacks.inference.serve.steps_over_time import StepsOverTime
from energy_callbacks.inference.simulated.presets import simulated_gpu
from tests.gpu import serve_picture

FOUR = equal("resnet50", 25.0, 16, 4)


class Proportional:
    """A controller for tests: pauses so much that the power of the last window would be the cap."""

    def __init__(self, configuration: Configuration = FOUR) -> None:
        self.name, self.degraded = "proportional", ""
        self.needs: frozenset[Need] = frozenset({"duty"})
        self.caps: list[float] = []
        self._configuration = configuration
        self._duty = 0.5

    def start(self, cap_w: float, abilities: Abilities) -> OperatingPoint:
        assert "duty" in abilities.can
        return self.cap_changed(cap_w)

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        self.caps.append(cap_w)
        return self._point

    def step(self, window: Window) -> OperatingPoint:
        wanted = 0.97 * self.caps[-1] / window.power_mean_w
        self._duty = min(max(self._duty * wanted, 0.05), 1.0)
        return self._point

    @property
    def _point(self) -> OperatingPoint:
        return OperatingPoint(configuration=self._configuration, duty=self._duty)


def server(arrivals: Mapping[str, Arrivals] | None = None) -> Server:
    """Return a server with a simulated H200."""
    machine = SimulatedMachine(simulated_gpu("sim:h200"))
    return Server(machine, arrivals or {"resnet50": ClosedLoop()})


def run(controller: Proportional, schedule: CapSchedule, seconds: int) -> ServeReport:
    """Serve with a controller."""
    return serve(server(), lambda _: controller, schedule, seconds=seconds)


def test_a_cap_that_changes() -> None:
    """The controller is told the caps, and the report has the time above each."""
    controller = Proportional()
    schedule = CapSchedule(((0.0, 400.0), (20.0, 300.0)))
    report = run(controller, schedule, 40)
    assert controller.caps == [400.0, 300.0]
    assert [cap_w for _, cap_w in report.windows] == [400.0] * 20 + [300.0] * 20
    above = [one for one, cap_w in report.windows if one.power_mean_w > cap_w]
    assert report.above_cap_s == pytest.approx(len(above))
    assert 1 <= len(above) <= 10
    settled = [one.power_mean_w for one, _ in report.windows[32:]]
    assert max(settled) <= 300.0
    assert min(settled) > 270.0


def test_the_report() -> None:
    """Requests, energy and latencies are those of the windows; JSON and text have them."""
    report = run(Proportional(), CapSchedule.fixed(400.0), 10)
    assert report.duration_s == pytest.approx(10.0)
    energy_j = math.fsum(one.power_mean_w for one, _ in report.windows)
    assert report.energy_j == pytest.approx(energy_j)
    rate = math.fsum(one.throughput_per_s for one, _ in report.windows) / 10
    assert report.throughput_per_s == pytest.approx(rate, rel=0.01)
    assert report.request_j == pytest.approx(energy_j / report.total.answered)
    assert report.energies.total_j == pytest.approx(energy_j)
    values = json.loads(json.dumps(report.as_json()))
    assert values["source"] == "simulated"
    assert values["total"]["answered"] == report.total.answered
    assert values["tenant_energy"]["label"] == "attributed"
    assert len(values["windows"]) == 10
    text = report.text()
    assert "proportional on NVIDIA H200 (simulated), 10.0 s" in text
    assert "J (simulated)" in text
    assert "attributed by the activity of multiprocessors" in text


def test_a_report_without_attribution() -> None:
    """It has the reason, and does not state a method."""
    machine = SimulatedMachine(simulated_gpu("sim:h200"))
    machine.not_attributed = "other processes use the GPU: 7"
    one = Server(machine, {"resnet50": ClosedLoop()})
    report = serve(one, lambda _: Fixed(FOUR), CapSchedule.fixed(650.0), seconds=3)
    lines = report.text().splitlines()
    assert "energy by tenant" in lines
    assert any(line.startswith("not attributed: other processes use the GPU: 7") for line in lines)


def test_an_estimated_energy_is_labelled() -> None:
    """The energy of a CPU without a sensor is that of a model, which JSON and text state."""
    machine = SimulatedMachine(simulated_gpu("sim:h200"))
    measured = machine.sensors.energy
    machine.sensors.energy = lambda *span: replace(measured(*span), method="model")
    one = Server(machine, {"resnet50": ClosedLoop()})
    report = serve(one, lambda _: Fixed(FOUR), CapSchedule.fixed(650.0), seconds=2)
    found = replace(report, source="measured")
    assert found.as_json()["tenant_energy"]["is_estimate"] is True
    assert " J (estimate of a model), " in found.text()
    assert "estimated total" in found.text()
    assert "measured" not in found.text()


def test_a_picture(tmp_path: Path) -> None:
    """It has the power, the cap and the throughput of all windows."""
    report = run(Proportional(), CapSchedule(((0.0, 400.0), (5.0, 300.0))), 10)
    power, throughput = serve_picture.power_figure(report).axes
    values = [patch.get_data().values.tolist() for patch in power.patches]
    assert values == [
        [one.power_mean_w for one, _ in report.windows],
        [cap_w for _, cap_w in report.windows],
    ]
    assert len(throughput.patches) == 1
    serve_picture.write_power(tmp_path / "power.png", report)
    assert (tmp_path / "power.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize("has_plan", [True, False])
def test_other_rates_need_another_plan(has_plan: bool, caplog: pytest.LogCaptureFixture) -> None:
    """A new controller is made for them; the present one stays if there is no plan."""
    asked: list[Mapping[str, float | None]] = []

    def make(rates: Mapping[str, float | None]) -> Proportional:
        asked.append(dict(rates))
        if len(asked) > 1 and not has_plan:
            raise ValueError("no plan for so many requests")
        return Proportional(FOUR if len(asked) == 1 else equal("resnet50", 50.0, 16, 2))

    rates = Poisson(StepsOverTime.parse("0:100,3:110,6:300"))
    report = serve(server({"resnet50": rates}), make, CapSchedule.fixed(400.0), seconds=16)
    assert asked == [{"resnet50": 100.0}, {"resnet50": 300.0}]
    tenants = report.windows[-1][0].point.configuration.tenants
    assert len(tenants) == (2 if has_plan else 4)
    assert report.total.answered + report.total.waiting == report.total.arrived
    assert ("the present one stays" in caplog.text) is not has_plan


def test_models_without_tenants_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    """A closed loop does not demand a tenant; the warning names the model that has none."""
    report = serve(
        server({"resnet50": ClosedLoop(), "mobilenet_v2": ClosedLoop(5)}),
        lambda _: Proportional(),
        CapSchedule(((0.0, 400.0), (2.0, 300.0))),
        seconds=4,
    )
    assert report.requests["mobilenet_v2"].waiting == 5
    assert caplog.text.count("leave out mobilenet_v2, whose requests wait") == 1
    assert "leave out resnet50" not in caplog.text


def test_fixed() -> None:
    """It changes nothing, and needs what its configuration sets."""
    report = serve(server(), lambda _: Fixed(FOUR), CapSchedule.fixed(300.0), seconds=3)
    assert report.above_cap_s == pytest.approx(3.0)
    assert report.algorithm == "fixed"
    locked = Fixed(Configuration(tenants=FOUR.tenants, sm_mhz=1200.0))
    with pytest.raises(ValueError, match="the plan sets clock, which cannot be changed"):
        locked.start(300.0, Abilities(can=frozenset({"partition"})))


def test_no_time() -> None:
    """There must be a window."""
    with pytest.raises(ValueError, match="seconds must be at least 1, got 0"):
        run(Proportional(), CapSchedule.fixed(400.0), 0)


class Bench:
    """Predicts what the simulated GPU does, with a wrong factor for throughput."""

    def __init__(self, wrong: Callable[[Configuration], float] = lambda _: 1.0) -> None:
        self._gpu = simulated_gpu("sim:h200")
        self._wrong = wrong

    def predict(self, configuration: Configuration) -> Prediction:
        self._gpu.run(configuration.tenants)
        power_w = self._gpu.advance(0.2).power_w
        factor = self._wrong(configuration)
        rates = [factor * rate for rate in self._gpu.rates_per_s]

        def interval(value: float) -> Interval:
            return Interval(value, 0.9 * value, 1.1 * value)

        return Prediction(
            throughput_per_s=interval(math.fsum(rates)),
            power_w=interval(power_w),
            tenant_throughputs_per_s=tuple(map(interval, rates)),
        )

    def predict_many(self, configurations: object) -> list[Prediction]:
        return [self.predict(one) for one in configurations]  # type: ignore[attr-defined]


def resnet(*batches: int, **limits: Any) -> Problem:
    """Return a problem with these batches."""
    return Problem(models=("resnet50",), batches=batches, **limits)


def test_the_shadow_finds_better_tenants() -> None:
    """It begins with a bad batch, tries neighbours, and keeps those that are better."""
    start = equal("resnet50", 50.0, 4, 2)
    report = serve(
        server(),
        lambda _: ShadowTuner(Fixed(start), resnet(4, 8, 16, 32), Bench()),
        CapSchedule.fixed(500.0),
        seconds=40,
    )
    before, after = report.windows[1][0], report.windows[-1][0]
    assert after.throughput_per_s > 1.3 * before.throughput_per_s
    assert report.above_cap_s <= 1.0
    assert any("kept" in line and "not kept" not in line for line in report.tuned)
    assert report.algorithm == "fixed+shadow"
    assert report.total.answered + report.total.waiting == report.total.arrived


def test_the_shadow_gives_up_worse_tenants() -> None:
    """A neighbour that is only predicted to be better is tried once, and not kept."""
    tenants = equal("resnet50", 25.0, 32, 4)

    def wrong(configuration: Configuration) -> float:
        return 1.0 if configuration == tenants else 1.0 + 0.01 * configuration.tenants[0].batch

    report = serve(
        server(),
        lambda _: ShadowTuner(Fixed(tenants), resnet(4, 8, 32), Bench(wrong)),
        CapSchedule.fixed(650.0),
        seconds=40,
    )
    assert report.tuned
    assert all("not kept" in line for line in report.tuned)
    assert len(set(report.tuned)) == len(report.tuned)


def test_the_shadow_stops_at_the_cap() -> None:
    """A neighbour above the cap is left after one window."""
    tenants = equal("resnet50", 50.0, 4, 2)
    bench = Bench()

    class Blind(Bench):
        def predict(self, configuration: Configuration) -> Prediction:
            found = bench.predict(configuration)
            return Prediction(
                throughput_per_s=found.throughput_per_s,
                power_w=Interval(100.0, 90.0, 110.0),
                tenant_throughputs_per_s=found.tenant_throughputs_per_s,
            )

    report = serve(
        server(),
        lambda _: ShadowTuner(Fixed(tenants), resnet(4, 32), Blind()),
        CapSchedule.fixed(350.0),
        seconds=40,
    )
    assert any("a window was above the cap" in line for line in report.tuned)
    count = sum("a window was above the cap" in line for line in report.tuned)
    assert report.above_cap_s <= 3 * count  # one to see it, and those in which tenants change


def test_the_shadow_without_the_ability_to_change_tenants() -> None:
    """It tries nothing, and says that."""
    start = equal("resnet50", 50.0, 4, 2)
    shadow = ShadowTuner(Fixed(start), resnet(4, 8, 16, 32), Bench())
    point = shadow.start(650.0, Abilities(can=frozenset({"batch", "duty"})))
    assert shadow.degraded == "tenants cannot be changed: the shadow tries nothing"
    for at in range(20):
        assert shadow.step(steady(at, point)) == point
    assert shadow.tried == []


def test_the_shadow_keeps_the_other_limits() -> None:
    """Larger batches would be faster, and three tenants too, but they need too much memory."""
    limited = resnet(
        4, 8, 16, 32, memory_gib=6.0, footprints={"resnet50": Footprint(1.0, per_sample_gib=0.5)}
    )
    shadow = ShadowTuner(Fixed(equal("resnet50", 50.0, 4, 2)), limited, Bench())
    point = shadow.start(650.0, Abilities(can=frozenset({"partition", "batch"})))
    for at in range(40):
        point = shadow.step(steady(at, point))
        assert sum(map(limited.memory_of, point.configuration.tenants)) <= 6.0


def test_the_shadow_leaves_tenants_that_cannot_be_loaded() -> None:
    """The window after the refusal has the inner controller's tenants again."""
    start = equal("resnet50", 50.0, 4, 2)
    shadow = ShadowTuner(Fixed(start), resnet(4, 8), Bench())
    present = point = shadow.start(650.0, Abilities(can=frozenset({"partition", "batch"})))
    for at in range(5):
        point = shadow.step(steady(at, point))
    assert point != present
    refused = replace(steady(5, present), refused=point.configuration.tenants)
    assert shadow.step(refused) == present
    assert "it cannot be loaded, not kept" in shadow.tried[0]


def steady(at: int, point: OperatingPoint) -> Window:
    """Return a steady window of one second with 300 W."""
    return Window(
        start_s=float(at),
        end_s=at + 1.0,
        point=point,
        is_steady=True,
        power_mean_w=300.0,
        power_max_w=300.0,
        throughput_per_s=5000.0,
    )


def test_neighbours() -> None:
    """Shares never exceed those before, and batches are those that may be used."""
    tenants = equal("a", 25.0, 16, 2).tenants
    found = list(neighbours(tenants, (4, 8, 16, 32)))
    assert tenants not in found
    assert len(found) == len(set(found))
    assert {sum(one.share_pct for one in each) for each in found} == {50.0}
    assert {one.batch for each in found for one in each} == {4, 8, 16, 32}
    assert {len(each) for each in found} == {1, 2, 3}
    assert all(one.share_pct % 5.0 == 0.0 for each in found for one in each)
