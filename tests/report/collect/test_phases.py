"""Errors of phases: those from edges add up over repetitions and devices, others do not."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.model.runs import Phase
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from tests.report.journals import GPU, GPU1, IDLE, Attempt, Stretch, Window, write

POWER_W = {"gpu0": 400.0, "gpu1": 400.0}
TRAIN = Stretch(phase="train", duration_s=2.0, power_w=POWER_W)
VALIDATION = Stretch(phase="validation", duration_s=1.0, power_w=dict.fromkeys(POWER_W, 100.0))
ALTERNATING = (TRAIN, VALIDATION) * 20
LATER_S = 1_790_000_000.0 + 1000.0


def phase(report: EnergyReport, name: str) -> Phase:
    """The phase of this name."""
    return next(one for one in report.phases if one.name == name)


def test_edges_of_repeated_phases_add_up(tmp_path: Path) -> None:
    """20 validations with 8 J from edges each are 160 J; 1 J at random each is the root of 20."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=ALTERNATING, edge_j=8.0))
    report = build(tmp_path)
    found = phase(report, "validation").gpu
    assert found.edge_j == pytest.approx(160.0)
    assert found.stderr_j == pytest.approx(math.sqrt(20.0))
    assert report.energy.gpu.edge_j == 8.0


def test_edges_of_cards_in_lockstep_add_up(tmp_path: Path) -> None:
    """Two cards that change their power at the same moments have the error of one card, twice."""
    write(tmp_path, Attempt(devices=(GPU, GPU1), stretches=ALTERNATING, edge_j=8.0))
    report = build(tmp_path)
    assert phase(report, "validation").gpu.edge_j == pytest.approx(2 * 160.0)
    assert report.energy.gpu.edge_j == pytest.approx(2 * 8.0)


def test_a_phase_is_not_resolved_by_repetition(tmp_path: Path) -> None:
    """60 J from edges of each 100 J: not resolved, however often the phase is repeated."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=ALTERNATING, edge_j=60.0))
    report = build(tmp_path)
    assert not phase(report, "validation").gpu.is_resolved
    assert phase(report, "train").gpu.is_resolved


def test_ratios_have_the_error_from_edges(tmp_path: Path) -> None:
    """400 steps of the phase ``train``: its error from edges over 400, in the interval as well."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=ALTERNATING, edge_j=8.0))
    report = build(tmp_path)
    ratio = from_json(to_json(report)).efficiency.gpu.j_per_step
    assert ratio is not None
    assert ratio.steps == 400
    assert ratio.edge_j == pytest.approx(160.0 / 400)
    half_j = math.hypot(1.96 * math.sqrt(20.0), 160.0, 0.01 * 16_000.0)
    assert ratio.high_j - ratio.value_j == pytest.approx(half_j / 400)
    assert ratio.is_resolved
    assert not replace(ratio, edge_j=0.6 * ratio.value_j).is_resolved


def test_neighbours_of_the_same_phase_are_one_span(tmp_path: Path) -> None:
    """Ten spans of training that follow each other have two edges: the root of 2 times 8 J."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=(IDLE, *[TRAIN] * 10), edge_j=8.0))
    found = phase(build(tmp_path), "train")
    assert found.gpu.edge_j == pytest.approx(math.sqrt(2.0) * 8.0)
    assert (found.duration_s, found.gpu.energy_j) == (20.0, pytest.approx(8_000.0))


def test_the_edges_of_a_window_are_edges_of_its_span(tmp_path: Path) -> None:
    """A checkpoint inside training: 8 J for it, 16 J for the training around it."""
    window = Window(name="checkpoint", start_s=0.5, end_s=1.0, energy_j={"gpu0": 50.0})
    write(tmp_path, Attempt(devices=(GPU,), stretches=(TRAIN,), windows=(window,), edge_j=8.0))
    report = build(tmp_path)
    assert phase(report, "checkpoint").gpu.edge_j == pytest.approx(8.0)
    assert phase(report, "train").gpu.edge_j == pytest.approx(16.0)


def test_the_open_phase_has_two_edges(tmp_path: Path) -> None:
    """It begins where the last span ends: the edges of that span and of the attempt."""
    whole = Attempt(devices=(GPU,), stretches=ALTERNATING, edge_j=8.0, cut_off_at_s=58.0)
    write(tmp_path, whole)
    report = build(tmp_path, now_unix_s=LATER_S)
    # All spans follow each other, so the energy of the attempt has the edges of its ends.
    whole_j = math.sqrt(2.0) * 8.0
    assert report.energy.gpu.edge_j == pytest.approx(whole_j)
    assert phase(report, "train").gpu.edge_j == pytest.approx(19 * 8.0 + math.hypot(whole_j, 8.0))


def test_a_report_from_before_has_no_error_from_edges(tmp_path: Path) -> None:
    """There, the standard error contains it."""
    write(tmp_path, Attempt(devices=(GPU,), stretches=ALTERNATING))
    report = build(tmp_path)
    old = to_json(report)
    for text in ('"edge_j":0.0,', '"edge_j": 0.0,'):
        old = old.replace(text, "")
    assert "edge_j" not in old
    assert from_json(json.dumps(json.loads(old))) == report
