"""The same training has the same report, whatever measures it.

Sensors differ in what they offer. What an H200 has in addition is listed in ``quantities``; nothing
else may be missing.
"""

import json
import math
from collections.abc import Callable

import pytest
from jsonschema import Draft202012Validator

from energy_callbacks.core.records import Scope
from energy_callbacks.report import EnergyReport
from energy_callbacks.report.model.amounts import Figure
from energy_callbacks.report.model.schema import json_schema, to_json
from tests.vendors.machines import MACHINES, Machine, machine
from tests.vendors.quantities import REFERENCE, assert_offers
from tests.vendors.training import Spans, Trained, train

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


def test_the_report_has_what_the_sensors_offer(name: str, trainings: Trainings) -> None:
    """Metrics and values of the report are those of an H200, except those that are listed."""
    found, reference = trainings(name)[1], trainings(REFERENCE)[1]
    assert_offers(name, found.names, reference.names)


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
