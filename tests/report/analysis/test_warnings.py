"""Warnings hold what invalidates the total, notes the rest, and each cause appears once."""

from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import answer, html, text
from tests.report.journals import CPU, GPU, PROCESS, TRAIN, Attempt, write

NO_GPU = ("NVIDIA GPU", "the NVIDIA driver does not respond", "restart it")
NO_RAPL = ("RAPL", "no permission", "sudo chmod o+r energy_uj")


def report_of(folder: Path, **attempt) -> EnergyReport:
    """The report of one attempt."""
    write(folder, Attempt(**attempt))
    return build(folder)


@pytest.mark.parametrize(
    ("attempt", "warnings", "notes"),
    [
        ({"devices": (GPU,)}, [], ["place_unknown"]),
        ({"devices": (GPU,), "coverage": 0.9}, ["low_coverage"], ["place_unknown"]),
        ({"devices": ()}, ["nothing_measured"], []),
        (
            {"devices": (GPU,), "cut_off_at_s": 70.0, "missed": {"NVML": 3}},
            [],
            ["cut_off", "place_unknown"],
        ),
        ({"devices": (GPU,), "world_size": 2}, ["rank_missing"], ["place_unknown"]),
        (
            {"devices": (GPU,), "stretches": (replace(TRAIN, duration_s=3.0),)},
            [],
            ["place_unknown", "short_run"],
        ),
    ],
)
def test_only_what_invalidates_the_total_is_a_warning(
    tmp_path: Path, attempt: dict, warnings: list[str], notes: list[str]
) -> None:
    """Missing or unknown energy is a warning; everything else is a note."""
    report = report_of(tmp_path, **attempt)
    assert [one.code for one in answer.warnings(report)] == warnings
    assert [one.code for one in answer.notes(report)] == notes
    page, plain = html.render(report), text.render(report)
    assert ("The total is incomplete" in page) == bool(warnings)
    assert ("\n! " in plain) == bool(warnings)


def test_an_estimate_and_its_missing_sensor_are_one_note(tmp_path: Path) -> None:
    """RAPL's reason and fix are part of the note on the estimate."""
    report = report_of(tmp_path, unavailable=[NO_RAPL])
    assert [one.code for one in report.warnings] == ["host_estimated", "place_unknown"]
    note = report.warnings[0]
    assert note.message == (
        "The energy of the CPU is estimated by a model, not measured, because RAPL was not read: "
        "no permission."
    )
    assert note.fix == "sudo chmod o+r energy_uj"
    assert html.render(report).partition("<script")[0].count("sudo chmod") == 1


def test_a_gpu_that_was_used_but_not_measured_is_a_warning(tmp_path: Path) -> None:
    """The framework allocated memory on a GPU, and no GPU was measured: the total lacks it."""
    report = report_of(tmp_path, devices=(CPU, PROCESS), unavailable=[NO_GPU])
    [warning] = answer.warnings(report)
    assert warning.code == "gpu_not_measured"
    assert "the NVIDIA driver does not respond" in warning.message
    other = report_of(tmp_path / "measured", unavailable=[NO_GPU])
    assert answer.warnings(other) == []
    assert "sensor_unavailable" in [one.code for one in answer.notes(other)]


def test_devices_with_the_same_coverage_share_a_warning(tmp_path: Path) -> None:
    """A GPU and a CPU with readings for 80 % of the time."""
    [warning] = answer.warnings(report_of(tmp_path, coverage=0.8))
    assert warning.message == (
        "Readings cover only 80.0 % of the time of gpu0 (NVIDIA H200, host node1), cpu0 (Xeon, "
        "host node1). The rest is not included."
    )


@pytest.mark.parametrize(
    ("code", "message", "left_out"),
    [
        ("gaps", "gpu0: 3 s in one gap are not included.", "low_coverage"),
        ("gaps", "gpu10: 3 s in one gap are not included.", None),
        ("place_unknown", "The country of the log is not known.", "place_unknown"),
    ],
)
def test_a_cause_in_the_journal_replaces_its_effect(
    tmp_path: Path, code: str, message: str, left_out: str | None
) -> None:
    """The journal's own warning names the cause; the effect is not repeated."""
    faulty = {"devices": (GPU,), "coverage": 0.9, "missed": {"NVML": 3}}
    without = report_of(tmp_path / "without", **faulty)
    found = report_of(tmp_path / "with", **faulty, warnings=[(code, message)])
    expected = [one.message for one in without.warnings if one.code != left_out]
    assert [one.message for one in found.warnings] == [*expected, message]


def test_failed_readings_have_their_number_and_the_first_reason(tmp_path: Path) -> None:
    """The journal has a warning about the first one, and the number at its end."""
    faulty = {"devices": (GPU,), "warnings": [("source_missed", "NVML: no answer.")]}
    report = report_of(tmp_path / "ended", **faulty, missed={"NVML": 3})
    assert "NVML: 3 readings failed (no answer)." in [one.message for one in report.warnings]
    assert "source_missed" not in [one.code for one in report.warnings]
    killed = report_of(tmp_path / "killed", **faulty, cut_off_at_s=30.0)
    assert "NVML: no answer." in [one.message for one in killed.warnings]
