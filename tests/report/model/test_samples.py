"""Stored journals and reports of all versions stay readable, with the same figures."""

import re
from pathlib import Path

import pytest

from energy_callbacks.accounting.journal import journal
from energy_callbacks.report import EnergyReport, load
from energy_callbacks.report.model import schema
from energy_callbacks.report.render import html, text
from tests.report import write_samples
from tests.report.write_samples import (
    GPU_W,
    HOST_W,
    IDLE_S,
    SAMPLES,
    SAMPLES_A_STEP,
    STEP_S,
    STEPS,
)

TRAIN_S = STEPS * STEP_S


@pytest.mark.parametrize(
    ("kind", "version"),
    [("journal", journal.VERSION), ("report", schema.SCHEMA_VERSION)],
)
def test_every_version_has_a_sample(kind: str, version: int) -> None:
    """Where this fails, a version has grown: python -m tests.report.write_samples."""
    found = [re.fullmatch(rf"{kind}_(\d+)(_\w+)?", path.stem) for path in SAMPLES.iterdir()]
    assert {int(match[1]) for match in found if match} == set(range(1, version + 1))


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.stem)
def test_a_sample_is_read(path: Path) -> None:
    """Joules, phases, samples and curves are those of the training; it is shown and saved again."""
    report = load(path)
    _look(report)
    _look(schema.from_json(schema.to_json(report)))
    assert "a sample" in html.render(report)
    assert "a sample" in text.render(report)


def test_what_this_version_writes_is_as_it_should_be(tmp_path: Path) -> None:
    """The same training, measured now: what the samples are compared with."""
    _look(load(write_samples.measured(tmp_path)))


def _look(report: EnergyReport) -> None:
    assert report.run.name == "a sample"
    assert report.run.status == "finished"
    assert report.run.tags == {"of": "it"}
    length_s = IDLE_S + TRAIN_S
    assert report.energy.gpu.energy_j == pytest.approx(GPU_W * length_s, rel=1e-3)
    assert report.energy.host.energy_j == pytest.approx(HOST_W * length_s, rel=1e-3)
    assert (report.energy.gpu.origin, report.energy.host.origin) == ("measured", "estimated")
    in_phases = {phase.name: phase.total.energy_j for phase in report.phases}
    assert in_phases["train"] == pytest.approx((GPU_W + HOST_W) * TRAIN_S, rel=0.01)
    assert (report.throughput.steps, report.throughput.samples) == (STEPS, STEPS * SAMPLES_A_STEP)
    gpu = next(curve for curve in report.series if curve.key == "gpu0")
    area_j = sum(
        seen_s * (power_w or 0.0) for seen_s, power_w in zip(gpu.seen_s, gpu.power_w, strict=True)
    )
    assert area_j == pytest.approx(GPU_W * length_s, rel=0.1)
    assert report.emissions is not None
