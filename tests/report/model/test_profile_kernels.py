"""Kernel profiles in reports: tables, sentences, pictures, and advice where there is a fault."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from energy_callbacks.core.records import Energy
from energy_callbacks.profiling.frameworks.kineto import Trace
from energy_callbacks.profiling.kernels.bound import verdict
from energy_callbacks.profiling.kernels.tally import split, tally
from energy_callbacks.report import EnergyReport, build
from energy_callbacks.report.analysis.advice import kernel_advice
from energy_callbacks.report.charts.catalogue import pictures
from energy_callbacks.report.model.profile_kernels import KernelProfile, class_rows, kernel_rows
from energy_callbacks.report.model.schema import from_json, from_record, to_json
from energy_callbacks.report.render.html import from_html, render
from energy_callbacks.report.render.terminal import print_rich
from energy_callbacks.report.render.text import render as as_text
from tests.profiling.kernels.cuda_trace import ADD, GEMM, UPLOAD, Work, trace
from tests.report import journals

STEPS, J_PER_STEP = 600, 50.0
GOOD = (
    Work(name=GEMM, asked_us=0.0, start_us=0.0, duration_us=8_000.0),
    Work(name=ADD, asked_us=10.0, start_us=8_000.0, duration_us=1_800.0),
    Work(
        name=UPLOAD,
        asked_us=20.0,
        start_us=1_000.0,
        duration_us=2_000.0,
        category="gpu_memcpy",
        stream=9,
    ),
)
LATE = (Work(name=GEMM, asked_us=4_000.0, start_us=4_000.0, duration_us=6_000.0),)
LAUNCHED = tuple(
    Work(name=ADD, asked_us=2_000.0 * i + 10.0, start_us=2_000.0 * i + 20.0, duration_us=1_500.0)
    for i in range(5)
)
STREAMING = (Work(name=ADD, asked_us=0.0, start_us=0.0, duration_us=9_900.0),)
COPIED = (
    Work(name=UPLOAD, asked_us=0.0, start_us=0.0, duration_us=2_000.0, category="gpu_memcpy"),
    Work(name=GEMM, asked_us=10.0, start_us=2_000.0, duration_us=7_900.0),
)


def record(*work: Work, j_per_step: float | None = J_PER_STEP, **given: Any) -> dict[str, Any]:
    """What a profiler records of a training with these kernels."""
    found = tally(Trace(trace(work, **given)))
    parts = split(found, None, j_per_step)
    limit = verdict(parts, has_device=True, activity={}, roof=None)
    kernels = [
        {
            "name": row.name,
            "class_name": row.class_name,
            "calls": row.calls,
            "time_s": row.time_s,
            "share": row.share,
            "energy_j": row.energy_j,
        }
        for row in parts.rows
    ]
    by_class = [{**row, "name": row["class_name"]} for row in kernels]
    return {
        "framework": "torch",
        "has_device": True,
        "windows": 4,
        "measured_steps": 8,
        "steps": STEPS,
        "step_s": 0.010,
        "overhead": 0.012,
        "scope": "gpu",
        "j_per_step": j_per_step,
        "j_per_step_error": None if j_per_step is None else 0.5,
        "kernels_per_step": 3.0,
        "busy_share": parts.busy_share,
        "classes": by_class,
        "kernels": [row for row in kernels if row["class_name"] != "idle"],
        "parts": {"forward": 0.5, "backward": 0.4, "optimizer": 0.1},
        "idle_s": parts.idle_s,
        "cudnn_share": 0.0,
        "copy_s": found.copy_s / found.steps,
        "copy_overlap": found.hidden_copy_s / found.copy_s if found.copy_s else None,
        "activity": None,
        "roofline": None,
        "bound": limit.bound,
        "sentence": limit.sentence,
        "evidence": list(limit.evidence),
        "traces": ["profile/kernels-0-1.json.gz"],
        "folded": "profile/kernels.folded",
        "speedscope": "profile/kernels.speedscope.json",
        "notes": [],
    }


def report(folder: Path, found: dict[str, Any], **attempt: Any) -> EnergyReport:
    """Of a minute of training, with the record in its journal."""
    given = {"stretches": (journals.TRAIN,), "wait_s": None} | attempt
    path = journals.write(folder, journals.Attempt(**given))
    lines = path.read_text().splitlines()
    event = {"type": "event", "kind": "profile", "t_s": 79.0, "of": "kernels", "record": found}
    lines.insert(-1, json.dumps(event))
    path.write_text("\n".join(lines) + "\n")
    return build(folder)


def test_tables_add_up() -> None:
    """The kinds of work have the joules of a step between them, idle with them."""
    found = from_record(KernelProfile, record(*GOOD))
    assert sum(row.energy_j or 0.0 for row in found.classes) == pytest.approx(J_PER_STEP)
    assert sum(row.share for row in found.classes) == pytest.approx(1.0)
    assert found.energy_j == STEPS * J_PER_STEP
    rows = class_rows(found)
    assert rows[0][0] == "matrix product"
    assert rows[-1][0] == "idle"
    assert kernel_rows(found)[0][1:] == (
        "7.00 ms",
        "70.0 %",
        "35.0 J",
    )  # it shares 2 ms with a copy


@pytest.mark.charts
def test_text_page_and_terminal(tmp_path: Path) -> None:
    """All three have the sentences and all kinds of work, and say that energy is attributed."""
    found = report(tmp_path, record(*GOOD))
    console = Console(file=io.StringIO(), width=140, force_terminal=True, color_system=None)
    print_rich(found, console)
    page, text, terminal = render(found), as_text(found), console.file.getvalue()  # type: ignore[attr-defined]
    for shown in (page, text, terminal):
        flat = " ".join(shown.split())
        for words in ("attributed J/step", "matrix product", "idle", "the training by 1.2 %"):
            assert words in flat
    assert "as if all of them had the same power" in " ".join(text.split())
    # Only the drawing for wide windows has the second panel.
    assert page.count("energy per step (J), attributed by time") == 1
    assert max(map(len, text.splitlines())) <= 80
    assert "kernels" in dict(pictures(found))


def test_the_report_reads_itself_again(tmp_path: Path) -> None:
    """From its JSON and from its page."""
    found = report(tmp_path, record(*GOOD))
    assert from_json(to_json(found)) == found
    assert from_html(render(found)) == found


def test_unknown_joules_are_said(tmp_path: Path) -> None:
    """Times are told, joules are unknown."""
    text = as_text(report(tmp_path, record(*GOOD, j_per_step=None)))
    assert "The energy of a step is not known." in text


def test_nothing_recorded_is_said(tmp_path: Path) -> None:
    """A note stands in the place of the tables."""
    empty = record(*GOOD) | {
        "classes": [],
        "kernels": [],
        "traces": [],
        "folded": None,
        "speedscope": None,
        "notes": ["no window was recorded in 5 steps"],
    }
    text = as_text(report(tmp_path, empty))
    assert "No window was recorded in 5 steps." in text
    assert "time/step" not in text
    assert not [one for one in report(tmp_path, empty).advice if one.code != "data_wait"]


@pytest.mark.parametrize(
    ("found", "codes"),
    [
        (record(*GOOD), {}),
        (record(*LATE, data=(0.0, 4_000.0)), {"input_bound": 0.4}),
        (record(*LAUNCHED, busy_host=[(0.0, 10_000.0)]), {"launch_bound": 0.25}),
        (record(*STREAMING), {"memory_bound": 0.99}),
        (record(*COPIED), {"copies": 0.2}),
    ],
    ids=["good", "input", "launch", "memory", "copies"],
)
def test_advice(tmp_path: Path, found: dict[str, Any], codes: dict[str, float]) -> None:
    """Each fault is told, that one alone, with its share of the training's energy."""
    told = {one.code: one for one in report(tmp_path, found).advice}
    assert set(told) == set(codes)
    for code, share in codes.items():
        assert told[code].saves_j == pytest.approx(share * STEPS * J_PER_STEP, rel=0.01)
        assert told[code].fix
        assert "%" in told[code].message


def test_waiting_for_data_is_told_once(tmp_path: Path) -> None:
    """What the whole run measured goes before what windows saw."""
    kernels = record(*LATE, data=(0.0, 4_000.0))
    waits = {
        key: Energy(energy_j=joules, stderr_j=1.0, method="power", coverage=1.0)
        for key, joules in (("gpu0", 2000.0), ("cpu0", 400.0))
    }
    found = report(tmp_path, kernels, wait_s=0.04, wait_energy=waits, wait_known_s=24.0)
    assert [one.code for one in kernel_advice(found.profile)] == ["input_bound"]
    assert [one.code for one in found.advice] == ["data_wait"]


def test_advice_without_joules(tmp_path: Path) -> None:
    """The fault is told, without a saving."""
    found = report(tmp_path, record(*COPIED, j_per_step=None))
    assert [(one.code, one.saves_j) for one in found.advice] == [("copies", None)]
