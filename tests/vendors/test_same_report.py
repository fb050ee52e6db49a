"""The same training has the same report, whatever measures it.

Sensors differ in what they offer. What an H200 has in addition is listed by name; nothing else may
be missing.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import pytest
from jsonschema import Draft202012Validator

from energy_callbacks.core.records import Scope
from energy_callbacks.report import EnergyReport
from energy_callbacks.report.model.figures import Figure
from energy_callbacks.report.model.schema import json_schema, to_json
from tests.vendors.machines import MACHINES, Machine, machine
from tests.vendors.training import Spans, Trained, known, train

REFERENCE: Final = "NVIDIA"
# Names that a quantity has among the metrics and in the report; a final dot stands for all fields.
QUANTITIES: Final[Mapping[str, Sequence[str]]] = {
    "activity": (
        *(f"gpu/{name}" for name in ("sm_active", "sm_occupancy", "tensor_active", "dram_active")),
        "devices.activity.",
        "phases.activity.",
    ),
    "utilisation": ("gpu/utilisation", "devices.utilisation_mean", "series.utilisation"),
    "memory_used": (
        "memory/device_used_gib",
        "memory.device_used_mean_bytes",
        "memory.device_used_peak_bytes",
    ),
    "memory_utilisation": ("gpu/memory_utilisation", "devices.memory_utilisation_mean"),
    "memory_clock": ("gpu/memory_clock_mhz",),
    "clock": ("gpu/sm_clock_mhz",),
    "temperature": ("gpu/temperature_c", "devices.temperature_max_c", "series.temperature_c"),
    "throttled": ("gpu/throttled_fraction", "devices.throttled_s", "series.throttled_s"),
    "power_limit": ("gpu/power_limit_w", "devices.limit_w"),
    "uuid": ("devices.uuid",),
    "gpu energy": (
        *(f"efficiency/gpu_j_per_{unit}" for unit in ("step", "sample", "token")),
        *(
            f"efficiency/gpu_j_per_{unit}_{end}"
            for unit in ("step", "sample", "token")
            for end in ("lo", "hi")
        ),
        "energy/gpu_wh",
        "power/gpu_w",
        *(f"{part}.energy_j" for part in ("energy.gpu", "phases.gpu")),
        *(f"{part}.origin" for part in ("energy.gpu", "phases.gpu")),
        "efficiency.gpu.",
    ),
}
# A machine without libraries of the vendor; ``amdsmi`` would add throttling.
_INTEL: Final = (
    "activity", "utilisation", "memory_used", "memory_utilisation", "memory_clock", "temperature",
    "throttled",
)  # fmt: skip
LACKS: Final[Mapping[str, Sequence[str]]] = {
    "NVIDIA": (),
    "AMD card": ("activity", "memory_utilisation", "memory_clock", "throttled"),
    "AMD accelerator": ("activity", "throttled"),
    "Intel i915": _INTEL,
    "Intel xe": _INTEL,
    "Jetson": (*_INTEL, "clock", "power_limit", "uuid"),
    "Apple": (*(set(_INTEL) - {"utilisation"}), "clock", "power_limit", "uuid"),
    "RAPL": (*_INTEL, "clock", "power_limit", "uuid", "gpu energy"),
}
# Parts of a report that depend on the values, not on what is measured.
_BY_VALUE: Final = ("advice.", "warnings.", "unavailable.", "devices.counted_in")
Trainings = Callable[[str], tuple[Machine, Trained]]


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> Trainings:
    """Return the training on a machine by name; each is run once."""
    done: dict[str, tuple[Machine, Trained]] = {}

    def trained(name: str) -> tuple[Machine, Trained]:
        if name not in done:
            folder = tmp_path_factory.mktemp("machine")
            with machine(name, folder) as one:
                done[name] = one, train(one.clock, folder / "energy", one.devices)
        return done[name]

    return trained


@pytest.fixture(params=MACHINES)
def name(request: pytest.FixtureRequest) -> str:
    """Return the name of a machine."""
    return str(request.param)


def names(one: Trained) -> set[str]:
    """Return the names of all metrics and of all known values of the report."""
    values = {path for path in known(one.report.to_dict()) if not path.startswith(_BY_VALUE)}
    return values | one.tags


def test_the_report_has_what_the_sensors_offer(name: str, trainings: Trainings) -> None:
    """Metrics and values of the report are those of an H200, except the quantities listed above."""
    found, reference = names(trainings(name)[1]), names(trainings(REFERENCE)[1])
    listed = tuple(path for quantity in LACKS[name] for path in QUANTITIES[quantity])
    lacking = {
        path
        for path in reference
        if any(path == one or (one.endswith(".") and path.startswith(one)) for one in listed)
    }
    assert reference - found == lacking
    assert found <= reference


def test_the_schema_is_the_same(name: str, trainings: Trainings) -> None:
    """The report is valid by the published schema, has the same phases, and no further warning."""
    report = trainings(name)[1].report
    reference = trainings(REFERENCE)[1].report
    value = json.loads(to_json(report))
    assert list(Draft202012Validator(json_schema()).iter_errors(value)) == []
    assert value.keys() == json.loads(to_json(reference)).keys()
    assert [phase.name for phase in report.phases] == [phase.name for phase in reference.phases]
    assert report.run.status == "finished"
    without_gpu = {"sensor_unavailable"} if name == "RAPL" else set()
    assert {one.code for one in report.warnings} <= {"host_estimated"} | without_gpu


def measured(report: EnergyReport, scope: Scope) -> list[Figure]:
    """Return the energies of the devices of a scope that sensors measure."""
    devices = [one for one in report.devices if one.scope == scope and one.origin == "measured"]
    return [one.energy for one in devices if one.energy.energy_j is not None]


def truth_j(one: Machine, scope: Scope, spans: Spans, part: str) -> float:
    """Return the energy of all time spans of a part of the training."""
    return math.fsum(one.truths_j[scope](*span) for span in spans[part])


def test_energies_are_right(name: str, trainings: Trainings) -> None:
    """The truth of each scope lies in the stated interval, which is as narrow as the sensor's."""
    one, trained = trainings(name)
    scopes = {device.scope for device in trained.report.devices if device.origin == "measured"}
    assert scopes - {None} == set(one.truths_j)
    for scope in one.truths_j:
        figures = measured(trained.report, scope)
        found_j = math.fsum(figure.energy_j or 0.0 for figure in figures)
        error_j = math.fsum(figure.error_j for figure in figures)
        expected_j = truth_j(one, scope, trained.spans, "run")
        assert abs(found_j - expected_j) <= error_j <= 0.25 * expected_j
        # Documents of powermetrics end up to half a second before the training.
        assert found_j == pytest.approx(expected_j, rel=0.02)
        assert min(figure.coverage for figure in figures) > 0.98


def test_phases_are_right(name: str, trainings: Trainings) -> None:
    """The truth of training and validation lies in the stated interval of GPU energy."""
    one, trained = trainings(name)
    if "gpu" not in one.truths_j:
        assert all(phase.gpu.energy_j is None for phase in trained.report.phases)
        return
    phases = {phase.name: phase.gpu for phase in trained.report.phases}
    for part in ("train", "validation"):
        expected_j = truth_j(one, "gpu", trained.spans, part)
        found_j = phases[part].energy_j
        assert found_j is not None
        assert abs(found_j - expected_j) <= phases[part].error_j, part


def test_the_total_of_a_jetson_is_that_of_the_board(trainings: Trainings) -> None:
    """It has a sensor of the whole machine, and its rails are not added to it."""
    one, trained = trainings("Jetson")
    expected_j = truth_j(one, "machine", trained.spans, "run")
    assert trained.report.energy.total.energy_j == pytest.approx(expected_j, rel=0.01)
