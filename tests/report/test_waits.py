"""Energy of waiting for data in a report."""

import json
import math
from dataclasses import replace

import pytest

from energy_callbacks.core.records import Energy
from energy_callbacks.report.build import build
from energy_callbacks.report.model.amounts import DataWait, WaitEnergy
from energy_callbacks.report.model.schema import from_json, to_json
from energy_callbacks.report.render.html import render as page
from energy_callbacks.report.render.text import render
from tests.report.journals import Attempt, data_wait, write


def waited(
    energy_j: float, stderr_j: float = 0.0, systematic_j: float = 0.0, edge_j: float = 0.0
) -> Energy:
    """A wait that was fully seen."""
    return Energy(
        energy_j=energy_j,
        stderr_j=stderr_j,
        edge_j=edge_j,
        systematic_j=systematic_j,
        method="counter+samples",
        coverage=1.0,
    )


WAITS = {"gpu0": waited(720.0, 10.0, 30.0), "cpu0": waited(360.0, 0.0, 90.0)}


def told(tmp_path, *attempts: Attempt) -> DataWait | None:
    """Of the report of these attempts."""
    for attempt in attempts:
        write(tmp_path, attempt)
    return build(tmp_path).throughput.data_wait


def test_devices_add_up_with_their_errors(tmp_path):
    """720 and 360 J; random errors in quadrature, bounds linearly, and both in the interval."""
    half_j = math.hypot(19.6, 30.0)
    found = told(tmp_path, Attempt(wait_energy=WAITS))
    assert found.gpu == WaitEnergy(
        value_j=720.0, low_j=720 - half_j, high_j=720 + half_j, stderr_j=10.0, systematic_j=30.0
    )
    assert (found.host.value_j, found.total.value_j) == (360.0, 1080.0)
    assert (found.total.stderr_j, found.total.systematic_j) == (10.0, 120.0)


def test_attempts_add_up(tmp_path):
    """Bounds of waits that were too short may all point the same way: they add linearly."""
    first = Attempt(wait_energy=WAITS)
    second = replace(first, attempt=2, unix_s=first.unix_s + 100.0)
    found = told(tmp_path, first, second)
    assert (found.total.value_j, found.total.systematic_j) == (2160.0, 240.0)


def test_errors_from_edges_add_up_over_devices_and_attempts(tmp_path):
    """40 J and 90 J from edges in two attempts are 260 J; 1.96 * 10 J at random in each attempt."""
    waits = {"gpu0": waited(720.0, 10.0, edge_j=40.0), "cpu0": waited(360.0, edge_j=90.0)}
    first = Attempt(wait_energy=waits)
    second = replace(first, attempt=2, unix_s=first.unix_s + 100.0)
    found = told(tmp_path, first, second).total
    assert (found.edge_j, found.systematic_j) == (260.0, 0.0)
    assert found.high_j - found.value_j == pytest.approx(math.hypot(260.0, 1.96 * 200.0**0.5))


def test_an_attempt_without_training_takes_nothing_away(tmp_path):
    """``evaluate`` by itself waits for nothing that was to be told."""
    first = Attempt(wait_energy=WAITS)
    alone = replace(first, attempt=2, unix_s=first.unix_s + 100.0, stretches=(), wait_energy=None)
    assert told(tmp_path, first, alone).total.value_j == 1080.0


def test_where_the_seconds_are_unknown_so_are_the_joules(tmp_path):
    """One attempt that did not tell: no figure of the whole run."""
    first = Attempt(wait_energy=WAITS)
    silent = replace(first, attempt=2, unix_s=first.unix_s + 100.0, wait_s=None, wait_energy=None)
    assert told(tmp_path, first, silent) is None
    assert "Energy while waiting" not in page(build(tmp_path))


def test_a_run_that_was_cut_off_may_have_waited_otherwise_at_its_end(tmp_path):
    """Joules of 3 of 4 s: the fourth is taken to be like the rest, and in the error whole."""
    attempt = Attempt(wait_energy=WAITS, wait_known_s=3.0, cut_off_at_s=60.0)
    path = write(tmp_path, attempt)
    with path.open("a", encoding="utf-8") as file:
        line = {"type": "so_far", "t_s": 50.0, "energy": {}} | data_wait(attempt)
        file.write(json.dumps(line) + "\n")
    found = build(tmp_path).throughput
    assert found.data_wait_s == pytest.approx(4.0)
    gpu = found.data_wait.gpu
    assert gpu.value_j == pytest.approx(960.0)
    assert gpu.high_j - gpu.value_j == pytest.approx(240.0 + math.hypot(19.6, 30.0) / 0.75)


def test_page_text_and_json_tell_it(tmp_path):
    """Joules with their interval beside the seconds; the JSON holds it as it is."""
    told(tmp_path, Attempt(wait_energy=WAITS))
    report = build(tmp_path)
    assert "waiting for data; energy while waiting (GPU): 0.200 Wh (0.190 to 0.210 Wh)" in " ".join(
        render(report).split()
    )
    assert "Energy while waiting, GPU</dt><dd>0.200 Wh (0.190 to 0.210 Wh)" in page(report)
    assert "Energy while waiting, in total</dt><dd>0.300 Wh" in page(report)
    assert from_json(to_json(report)) == report


def test_waits_that_were_too_short_have_an_upper_end_only(tmp_path):
    """720 J and a bound of as much: less than 0.4 Wh, and no figure that was not found."""
    told(tmp_path, Attempt(wait_energy={"gpu0": waited(720.0, 0.0, 720.0)}))
    report = build(tmp_path)
    assert not report.throughput.data_wait.gpu.is_resolved
    assert "(GPU): < 0.400 Wh, waiting times too short to measure" in " ".join(
        render(report).split()
    )
    assert "<dd>&lt; 0.400 Wh, waiting times too short to measure" in page(report)


def test_a_report_from_before_can_be_read(tmp_path):
    """Its JSON knows nothing of the energy of waiting."""
    told(tmp_path, Attempt(wait_energy=WAITS))
    value = json.loads(to_json(build(tmp_path)))
    del value["throughput"]["data_wait"]
    assert from_json(json.dumps(value)).throughput.data_wait is None
