"""Reports of machines with a sensor of the whole machine, beside those of its parts."""

from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.compare.quantities import estimated_share, systematic_errors
from energy_callbacks.projection.from_report import job_of
from energy_callbacks.report.build import build
from energy_callbacks.report.charts import plots
from energy_callbacks.report.charts.bands import bands
from energy_callbacks.report.model.runs import devices_in_sum
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.text import render, summary_line
from tests.report.journals import CPU, GPU, GPU1, MACHINE, TRAIN, Attempt, write

# One minute of training at 4 W, 3 W and, for the whole machine, 10 W.
RAILS = replace(TRAIN, power_w={"gpu0": 4.0, "cpu0": 3.0, "machine": 10.0})
JETSON = Attempt(devices=(GPU, CPU, MACHINE), stretches=(RAILS,))
# The same without readings of the sensor of the machine.
SILENT = replace(JETSON, stretches=(replace(RAILS, power_w={"gpu0": 4.0, "cpu0": 3.0}),))


def powers_w(report: EnergyReport) -> tuple[float, float, float]:
    """Mean power of GPUs, host and total in the minute of training."""
    energy = report.energy
    joules = (energy.gpu.energy_j, energy.host.energy_j, energy.total.energy_j)
    return tuple((energy_j or 0.0) / 60.0 for energy_j in joules)  # type: ignore[return-value]


@pytest.fixture
def board(tmp_path: Path) -> EnergyReport:
    """The report of the board."""
    write(tmp_path, JETSON)
    return build(tmp_path)


def test_the_total_is_the_machine_and_rails_stay_in_their_scopes(board: EnergyReport) -> None:
    """10 W in total, of which 4 W of GPU and 3 W of CPU are listed as parts of the machine."""
    assert powers_w(board) == pytest.approx((4.0, 3.0, 10.0))
    inside = {device.key: device.counted_in for device in board.devices}
    assert inside == {"machine": None, "gpu0": "machine", "cpu0": "machine"}
    assert board.measured_fraction == 1.0
    assert board.energy.total.origin == "measured"


def test_phases_attempts_efficiency_and_curves_use_the_same_total(board: EnergyReport) -> None:
    """600 J and 600 steps: every part of the report has 10 W or 1 J per step."""
    [phase] = board.phases
    [attempt] = board.attempts
    assert (phase.total.energy_j, phase.share) == (pytest.approx(600.0), pytest.approx(1.0))
    assert attempt.energy.energy_j == pytest.approx(600.0)
    assert board.efficiency.total.j_per_step.value_j == pytest.approx(1.0)
    assert board.efficiency.gpu.j_per_step.value_j == pytest.approx(0.4)
    assert board.progress.energy_j[-1] == pytest.approx(600.0)
    assert sum(band.power_w[0] for band in bands(board, 10)) == pytest.approx(10.0)


def test_the_bar_of_a_phase_is_as_long_as_its_total(board: EnergyReport) -> None:
    """4 W and 3 W are drawn, and the other 3 W as the rest of the machine."""
    canvas = plots.power_by_phase(board)
    bars = {bar.get_label(): bar.datavalues[0] for bar in canvas.axes[0].containers}
    expected_w = {"gpu, measured": 4.0, "host, estimated": 3.0, "rest of the machine": 3.0}
    assert bars == pytest.approx(expected_w)


def test_texts_say_that_the_total_is_the_machine(board: EnergyReport, tmp_path: Path) -> None:
    """The line after a training and the notes name it; a report without it does not."""
    assert "(whole machine, gpu " in summary_line(board)
    assert "whole machine" in render(board)
    write(tmp_path / "silent", SILENT)
    assert "whole machine" not in summary_line(build(tmp_path / "silent"))


def test_a_silent_sensor_of_the_machine_leaves_the_sum_of_parts(tmp_path: Path) -> None:
    """The total is 7 W, with a warning that does not invalidate it."""
    write(tmp_path, SILENT)
    report = build(tmp_path)
    assert powers_w(report) == pytest.approx((4.0, 3.0, 7.0))
    [warning] = [one for one in report.warnings if one.code == "machine_unknown"]
    assert "the total is the sum of gpu and host" in warning.message
    assert not warning.invalidates_total
    assert report.energy.total.coverage == 1.0


def test_a_silent_part_of_a_measured_machine_leaves_the_total_complete(tmp_path: Path) -> None:
    """The card's sensor failed: the sum of GPUs is unknown, and the total is not affected."""
    stretch = replace(RAILS, power_w={"cpu0": 3.0, "machine": 10.0})
    write(tmp_path, replace(JETSON, stretches=(stretch,)))
    report = build(tmp_path)
    assert powers_w(report) == pytest.approx((0.0, 3.0, 10.0))
    assert report.energy.total.coverage == 1.0
    codes = {one.code: one.invalidates_total for one in report.warnings}
    assert codes["part_unknown"] is False
    assert "energy_unknown" not in codes


def test_ranks_of_a_host_count_its_machine_once(tmp_path: Path) -> None:
    """Rank 1 reads its own card only; the machine of rank 0 contains it."""
    write(tmp_path, replace(JETSON, world_size=2))
    other = replace(RAILS, power_w={"gpu1": 2.0})
    write(tmp_path, replace(JETSON, world_size=2, rank=1, devices=(GPU1,), stretches=(other,)))
    report = build(tmp_path)
    assert powers_w(report) == pytest.approx((6.0, 3.0, 10.0))
    assert [one.energy.energy_j for one in report.attempts] == [pytest.approx(600.0), None]


def test_hosts_without_such_a_sensor_add_their_parts(tmp_path: Path) -> None:
    """A machine of 10 W and a host whose card and CPU use 7 W are 17 W."""
    write(tmp_path, replace(JETSON, world_size=2))
    there = replace(GPU, uuid="GPU-there")
    write(tmp_path, replace(SILENT, world_size=2, rank=1, host="node2", devices=(there, CPU)))
    assert powers_w(build(tmp_path)) == pytest.approx((8.0, 6.0, 17.0))


def test_attempts_may_differ_in_their_sensors(tmp_path: Path) -> None:
    """An attempt at 10 W with the sensor, and one at 7 W without it."""
    write(tmp_path, JETSON)
    write(tmp_path, replace(SILENT, attempt=2, unix_s=JETSON.unix_s + 600.0, devices=(GPU, CPU)))
    assert powers_w(build(tmp_path)) == pytest.approx((8.0, 6.0, 17.0))


def test_comparisons_and_projections_know_the_devices_of_a_sum(board: EnergyReport) -> None:
    """The total is one measured sensor; the GPU still counts as a GPU."""
    keys = {scope: [one.key for one in devices_in_sum(board.devices, scope)] for scope in _SUMS}
    assert keys == {"gpu": ["gpu0"], "host": ["cpu0"], "total": ["machine"]}
    assert estimated_share([board], "total") == 0.0
    assert systematic_errors([board], [board], "gpu") == (0.0, 0.0)
    assert job_of(board).gpu_s.value == pytest.approx(60.0)


def test_cards_with_the_same_number_are_two_cards(tmp_path: Path) -> None:
    """Ranks that are confined to one card each know their card as gpu0."""
    write(tmp_path, replace(SILENT, world_size=2, devices=(GPU, CPU)))
    card = replace(GPU, uuid="GPU-other")
    write(tmp_path, replace(SILENT, world_size=2, rank=1, devices=(card,)))
    report = build(tmp_path)
    for scope, uuids in (("gpu", {GPU.uuid, card.uuid}), ("total", {GPU.uuid, card.uuid, None})):
        assert {one.uuid for one in devices_in_sum(report.devices, scope)} == uuids
    assert job_of(report).gpu_s.value == pytest.approx(120.0)


_SUMS = ("gpu", "host", "total")
