"""The ``phases`` line of the journal, and the report with and without it."""

import gc
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.metrics import phase_energy
from energy_callbacks.report.collect.merge import energy_of
from energy_callbacks.report.collect.phases import energies
from energy_callbacks.report.collect.process import ProcessJournal, load
from energy_callbacks.testing import FakeClock
from tests.accounting.books import CPU, START_S, Books, train, wave


@pytest.fixture
def clock() -> FakeClock:
    """Virtual time."""
    return FakeClock(start_s=START_S)


@pytest.fixture
def books(tmp_path: Path, clock: FakeClock) -> Books:
    """A training that has begun."""
    return Books(tmp_path, wave(clock), wave(clock, CPU, 0.25), clock=clock)


def process_of(path: Path) -> ProcessJournal:
    """What the report reads from a journal."""
    return load(path)


def test_it_has_all_phases_of_all_devices(books: Books) -> None:
    """It is written just before the totals, and its energies sum to them."""
    train(books)
    books.finish()
    kinds = [line["type"] for line in books.lines]
    assert kinds[-2:] == ["phases", "totals"]
    (line,), (totals,) = books.of("phases"), books.of("totals")
    assert line["t_s"] == totals["t_s"]
    assert set(line["energy"]) == {"gpu0", "cpu0"}
    for key, by_phase in line["energy"].items():
        assert {"setup", "train", "validation", "checkpoint"} <= set(by_phase)
        known_j = math.fsum(energy["energy_j"] for energy in by_phase.values())
        assert known_j == pytest.approx(totals["energy"][key]["energy_j"], rel=1e-2)


def test_an_ended_attempt_keeps_no_sums(books: Books) -> None:
    """A meter keeps its last attempt, so that its sums would take 0.2 MB for each phase."""
    train(books)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        books.finish()
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000


def test_the_report_has_its_energies_scaled_to_the_total(books: Books) -> None:
    """The energies of the fit, times a factor close to 1, so that they sum to the total."""
    train(books)
    books.finish()
    process = process_of(books.path)
    whole = energy_of(process, "gpu0")
    found = energies(process, "gpu0", whole)
    assert math.fsum(one.energy_j or 0.0 for one in found.values()) == pytest.approx(whole.energy_j)
    for name, energy in process.phases["gpu0"].items():
        assert found[name].energy_j == pytest.approx(energy.energy_j, rel=1e-2)
        assert found[name].edge_j == energy.edge_j


def test_energies_that_lack_a_part_are_scaled(books: Books) -> None:
    """A tenth of the energy was in no interval: each phase gets its share of it."""
    train(books)
    books.finish()
    process = process_of(books.path)
    whole = energy_of(process, "gpu0")
    expected = energies(process, "gpu0", whole)
    for name, energy in process.phases["gpu0"].items():
        process.phases["gpu0"][name] = replace(energy, energy_j=0.9 * (energy.energy_j or 0.0))
    found = energies(process, "gpu0", whole)
    for name, energy in expected.items():
        assert found[name].energy_j == pytest.approx(energy.energy_j)


def spans_only(books: Books) -> dict[str, float | None]:
    """Energies of the report if the journal has no line ``phases``."""
    process = process_of(books.path)
    process.phases = {}
    whole = energy_of(process, "gpu0")
    return {name: one.energy_j for name, one in energies(process, "gpu0", whole).items()}


def test_a_killed_run_reports_sums_over_spans(books: Books) -> None:
    """The journal ends before the line is written."""
    train(books)
    size = books.sizes[-1][0]
    books.finish()
    books.path.write_bytes(books.path.read_bytes()[:size])
    assert not books.of("phases")
    process = process_of(books.path)
    whole = energy_of(process, "gpu0")
    found = energies(process, "gpu0", whole)
    assert found["validation"].energy_j
    assert math.fsum(one.energy_j or 0.0 for one in found.values()) == pytest.approx(whole.energy_j)
    assert {name: one.energy_j for name, one in found.items()} == spans_only(books)


def late_window(books: Books) -> None:
    """A window that is known more than a minute after its start."""
    train(books, epochs=2)
    books.clock.advance(70.0)
    now_s = books.clock.monotonic_s()
    books.recorder.window("checkpoint", now_s - 65.0, now_s)
    books.clock.advance(5.0)


def many_phases(books: Books) -> None:
    """Each epoch is a phase."""
    for number in range(10):
        books.enter(f"epoch {number}")
        books.clock.advance(3.0)
        books.leave(f"epoch {number}")


@pytest.mark.parametrize("course", [late_window, many_phases])
def test_no_line_if_the_phases_are_not_complete(
    books: Books, course: Callable[[Books], None]
) -> None:
    """The report sums spans then."""
    course(books)
    books.finish()
    assert not books.of("phases")
    process = process_of(books.path)
    whole = energy_of(process, "gpu0")
    found = energies(process, "gpu0", whole)
    assert all(one.energy_j is not None for name, one in found.items() if name != "idle")


def test_a_failure_of_the_fit_leaves_the_totals(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning says that the report sums spans."""

    def fail(_: object) -> None:
        raise np.linalg.LinAlgError("Singular matrix")

    train(books)
    monkeypatch.setattr(phase_energy, "phase_energies", fail)
    books.finish()
    assert books.of("totals")
    assert not books.of("phases")
    (warning,) = (line for line in books.of("warning") if line["code"] == "phases")
    assert "Singular matrix" in warning["message"]


def test_a_phase_that_ends_while_windows_are_taken(
    books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training thread goes on between two lines of the journal's thread; edges stay in order.

    A validation and a checkpoint inside it end just after the spans were taken.
    """
    books.enter("train")
    books.clock.advance(5.0)
    recorder = books.recorder
    phases = recorder._by_phase
    begin = phases.begin

    def interrupted(name: str, t_s: float) -> None:
        begin(name, t_s)
        monkeypatch.setattr(phases, "begin", begin)
        now_s = books.clock.monotonic_s()
        books.recorder.enter("validation", now_s - 2.0)
        books.recorder.leave("validation", now_s)
        books.recorder.window("w", now_s - 1.0, now_s)

    monkeypatch.setattr(phases, "begin", interrupted)
    recorder._take_changes()
    names = [phases._names[label] for label in phases._labels]
    assert "w" not in names  # it is taken next time, after the span
    assert phases._edges_s == sorted(phases._edges_s)


def test_old_journals_have_no_line(books: Books) -> None:
    """Lines of this type are optional, and ``edge_j`` inside them is too."""
    train(books)
    books.finish()
    (line,) = books.of("phases")
    for by_phase in line["energy"].values():
        for energy in by_phase.values():
            energy.pop("edge_j", None)
            assert journal.energy_from_json(energy).edge_j == 0.0
