"""Activity of the parts of a GPU, computed from rows with known values."""

from pathlib import Path

import numpy as np
import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.report import build, save
from energy_callbacks.report.collect import activity
from energy_callbacks.report.collect.merge import merge
from energy_callbacks.report.collect.process import ProcessJournal, TimedEnergy, Training
from energy_callbacks.report.collect.rows import DeviceColumns
from energy_callbacks.report.render import html, text
from energy_callbacks.report.render.tables import energy_tables
from tests.fake_nvml import Constant, Recorded, Scenario, a100, fixtures, h200
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
HEADER = {"run_id": "r", "attempt": 1, "host": "h", "rank": 0, "unix_s": 0.0}
GPU = {
    "device": {
        "key": "gpu0",
        "scope": "gpu",
        "uuid": "u",
        "parent": None,
        "origin": "measured",
        "notes": [],
    },
    "sensors": {},
}


def process(values: list[float | None], *spans: TimedEnergy, **settings) -> ProcessJournal:
    """Half-second rows; a ``None`` is a row without activity."""
    rows = [((number + 1) / 2.0, value) for number, value in enumerate(values)]
    columns = DeviceColumns(("t_s", "sm_active"), np.array(rows, dtype=float))
    return ProcessJournal(
        path=Path("j"),
        header=HEADER,
        end_s=len(values) / 2.0,
        devices={"gpu0": GPU},
        columns={"gpu0": columns},
        spans=list(spans),
        **settings,
    )


def span(name: str, start_s: float, end_s: float) -> TimedEnergy:
    """A span or window without energy."""
    return TimedEnergy(name=name, start_s=start_s, end_s=end_s, energy={})


def sm_active(one: ProcessJournal) -> dict[str, float | None]:
    """By phase."""
    found = activity.by_phase(merge([one]))
    return {name: busy.sm_active for name, busy in found.items()}


def seconds(*shares: float) -> list[float | None]:
    """A reading a second, in every other row."""
    return [value for share in shares for value in (None, share)]


def test_phases_have_the_values_that_lie_in_them() -> None:
    """Six seconds at 0.2, six at 0.8: each phase has its own, what lies on the edge has neither."""
    values = seconds(*[0.2] * 6, 0.5, *[0.8] * 6)
    one = process(values, span("a", 0.0, 6.5), span("b", 6.5, 13.0))
    assert sm_active(one) == {"a": pytest.approx(0.2), "b": pytest.approx(0.8)}


def test_a_value_weighs_as_long_as_it_was_seen() -> None:
    """Three seconds at 0.9 in one reading and one at 0.1 are 0.7."""
    values = [None, 0.0, None, None, None, None, None, 0.9, None, 0.1]
    assert sm_active(process(values, span("a", 0.0, 5.0))) == {"a": pytest.approx(0.7)}


def test_a_window_takes_its_values_out_of_its_span() -> None:
    """Validation that was named afterwards, in any order, has its own share."""
    values = seconds(*[0.8] * 5, *[0.1] * 5, *[0.8] * 5, *[0.3] * 5)
    windows = [span("late", 15.0, 20.0), span("early", 5.0, 10.0)]
    one = process(values, span("train", 0.0, 20.0), windows=windows)
    assert sm_active(one) == {
        "train": pytest.approx(0.8),
        "early": pytest.approx(0.1),
        "late": pytest.approx(0.3),
    }


def test_a_phase_too_short_has_none() -> None:
    """A phase of 1.2 s holds no whole reading, and says nothing."""
    one = process(seconds(*[0.5] * 10), span("a", 0.0, 4.1), span("b", 4.1, 5.3))
    assert set(sm_active(one)) == {"a", "idle"}


def test_an_open_phase_has_what_follows_the_spans() -> None:
    """A process that was cut off: the open phase has the rows behind the last span."""
    values = seconds(*[0.2] * 5, *[0.6] * 5)
    one = process(values, span("idle", 0.0, 5.0), open_phase="train")
    assert sm_active(one) == {"idle": pytest.approx(0.2), "train": pytest.approx(0.6)}


def test_rows_without_activity_have_none() -> None:
    """An older card, and a device without rows."""
    assert activity.by_phase(merge([process([None] * 20)])) == {}
    assert activity.whole([DeviceColumns()]) is None


PHASES = {"setup": (5.0, 12.0), "train": (90.0, 60.0), "validation": (30.0, 45.0)}
LENGTH_S = 10.3


def stairs(column: int) -> Recorded:
    """Percent over time, level in each phase of ``LENGTH_S``."""
    points: list[tuple[float, float]] = []
    for number, levels in enumerate(PHASES.values()):
        start_s = number * LENGTH_S
        points += [(start_s + 1e-6, levels[column]), (start_s + LENGTH_S, levels[column])]
    return Recorded(tuple(points))


def run(fake_nvml, card, folder: Path) -> None:
    """One phase after the other on a card, on virtual time."""
    nvml = fake_nvml(Scenario(cards=(card,)))
    clock = CardClock(nvml.time)
    config = EnergyConfig(report_dir=folder, devices=[0])
    with EnergyMeter(config=config, clock=clock) as meter:
        for name in PHASES:
            with meter.phase(name):
                clock.advance(LENGTH_S)
        scalars = meter.scalars()
    assert ("gpu/sm_active" in scalars) == (card.compute_capability >= (9, 0))


def test_the_whole_way_on_a_known_card(fake_nvml, tmp_path: Path) -> None:
    """Library, source, journal, report: each phase has the activity that was played in it."""
    card = h200(
        Constant(300.0),
        sm_active_percent=stairs(0),
        tensor_active_percent=stairs(1),
        dram_active_percent=25.0,
    )
    run(fake_nvml, card, tmp_path)
    report = build(tmp_path)
    found = {phase.name: phase.activity for phase in report.phases if phase.name in PHASES}
    for name, (sm_percent, tensor_percent) in PHASES.items():
        busy = found[name]
        assert busy is not None
        assert busy.sm_active == pytest.approx(sm_percent / 100.0, abs=1e-4)
        assert busy.tensor_active == pytest.approx(tensor_percent / 100.0, abs=1e-4)
        assert busy.dram_active == pytest.approx(0.25)
    whole = report.devices[0].activity
    assert whole is not None
    mean = sum(percent for percent, _ in PHASES.values()) / 300.0
    assert whole.sm_active == pytest.approx(mean, abs=0.03)

    save(report, tmp_path)
    shown = (tmp_path / "energy_report.txt").read_text(encoding="utf-8")
    assert "GPU activity" in shown
    assert "DRAM active" in (tmp_path / "energy_report.html").read_text(encoding="utf-8")
    assert ("train", "90.0 %", "15.0 %", "60.0 %", "25.0 %") in [
        tuple(cell.replace("\u00a0", " ").replace("\u202f", " ") for cell in row)
        for table in energy_tables(report)
        if table.title == "GPU activity"
        for row in table.rows
    ]


def test_an_older_card_has_no_such_table(fake_nvml, tmp_path: Path) -> None:
    """An A100 has no activity anywhere, and the report does not mention it."""
    run(fake_nvml, a100(Constant(300.0)), tmp_path)
    report = build(tmp_path)
    assert all(phase.activity is None for phase in report.phases)
    assert "activity" not in text.render(report)
    assert "GPU activity" not in html.render(report)


def test_phases_of_a_training_in_a_command_go_on_after_a_window() -> None:
    """What follows a checkpoint belongs to the training, and what follows the training does not."""
    values = seconds(*[0.2] * 5, *[0.9] * 5, *[0.2] * 5, *[0.6] * 5)
    inner = process([], span("train", 0.0, 15.0), windows=[span("checkpoint", 5.0, 10.0)])
    outer = process(values, span("command", 0.0, 20.0), trainings=(Training(inner, 0.0),))
    assert sm_active(outer) == {
        "train": pytest.approx(0.2),
        "checkpoint": pytest.approx(0.9),
        "command": pytest.approx(0.6),
    }


def test_values_without_a_duration_are_not_known() -> None:
    """Two rows at the same time: the mean of no time is no number."""
    rows = DeviceColumns(("t_s", "sm_active"), np.array([[1.0, 0.5], [1.0, 0.7]]))
    assert activity.whole([rows]) is None


def test_a_training_that_was_killed_in_a_command_has_its_open_phase() -> None:
    """The phase in which it was killed has no span."""
    values = seconds(*[0.2] * 5, *[0.9] * 5, *[0.6] * 5)
    inner = process([], span("idle", 0.0, 5.0), open_phase="train")
    inner.end_s = 10.0
    outer = process(values, span("command", 0.0, 15.0), trainings=(Training(inner, 0.0),))
    assert sm_active(outer) == {
        "idle": pytest.approx(0.2),
        "train": pytest.approx(0.9),
        "command": pytest.approx(0.6),
    }
