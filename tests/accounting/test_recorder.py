"""The journal of one attempt, from scripted sensors on virtual time."""

import math
import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.accounting.journal import journal
from energy_callbacks.accounting.metrics.phase_energy import PhaseEnergy
from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.sampler import Notice
from energy_callbacks.testing import FakeClock, ReplaySource, ScriptedSource
from tests.accounting import step_events
from tests.accounting.books import (
    CPU,
    HEADER,
    START_S,
    Books,
    energy_j,
    train,
    wave,
    wave_j,
    wave_w,
)
from tests.sensing.loads import Card, Staircase, channel


def test_spans_are_a_partition_whose_energies_sum_to_the_totals(trained: Books) -> None:
    """Phases are adjacent from start to end, and their joules sum to the totals to 1e-9."""
    spans, totals = trained.of("span"), trained.of("totals")[0]
    assert spans[0]["start_s"] == 0.0
    assert all(a["end_s"] == b["start_s"] for a, b in pairwise(spans))
    assert spans[-1]["end_s"] == totals["t_s"]
    for key in ("gpu0", "cpu0"):
        parts_j = math.fsum(energy_j(span, key) for span in spans if span["energy"])
        assert parts_j == pytest.approx(energy_j(totals, key), rel=1e-9)


def test_each_span_has_the_energy_of_its_own_time(trained: Books) -> None:
    """Joules of each phase agree with the closed form, within the stated error."""
    for span in trained.of("span"):
        if not span["energy"]:
            continue
        truth_j = wave_j(START_S + span["end_s"]) - wave_j(START_S + span["start_s"])
        found = journal.energy_from_json(span["energy"]["gpu0"])
        assert energy_j(span) == pytest.approx(truth_j, abs=found.error_j + 1e-6)
        assert found.coverage == 1.0
        assert found.method == "power"


def test_phases_come_in_the_order_in_which_they_were_entered(trained: Books) -> None:
    """Training continues after each validation; empty spans keep their place."""
    inside = [("validation"), ("checkpoint"), ("validation"), ("train")]
    names = ["idle", "setup", "idle", "train", *(inside * 3), "idle"]
    assert [span["phase"] for span in trained.of("span")] == names


def test_nothing_is_written_before_it_is_settled(tmp_path: Path, clock: FakeClock) -> None:
    """Energies in a journal agree with those of the finished timeline to 1e-9."""
    card = Card.under(Staircase.random(1, mean_s=0.3, until_s=90.0), until_s=90.0, seed=1)
    replay = ReplaySource(clock, [card.power, card.counter], later(card.readings()))
    books = Books(tmp_path, replay, wave(clock, CPU, 0.25), clock=clock)
    train(books)
    size, _ = books.sizes[-1]
    books.finish()
    lines = books.until(size)
    written = [line for line in lines if line.get("energy")]
    assert {line.get("kind", line["type"]) for line in written} == {"span", "so_far"}
    assert len(written) > 10
    for line in written:
        for key in line["energy"]:
            end_s = line["end_s"] if "end_s" in line else line["t_s"]
            window = (START_S + line.get("start_s", 0.0), START_S + end_s)
            assert energy_j(line, key) == pytest.approx(
                books.timeline.energy(key, *window).energy_j, rel=1e-9
            )
    for size, at_s in books.sizes[::20]:
        assert all(line.get("end_s", 0.0) <= at_s - START_S for line in books.until(size))


def later(readings: Sequence[Reading]) -> list[Reading]:
    """Readings shifted to the virtual clock."""
    return [Reading(r.channel, START_S + r.t_s, r.value, r.t_error_s) for r in readings]


def test_spans_of_anchored_samples_sum_to_the_totals(tmp_path: Path, clock: FakeClock) -> None:
    """With samples and a counter reading every second, phases sum to the totals to 1e-9."""
    card = Card.under(Staircase.random(2, mean_s=0.3, until_s=90.0), until_s=90.0, seed=2)
    books = Books(
        tmp_path,
        ReplaySource(clock, [card.power, card.counter], later(card.readings())),
        clock=clock,
    )
    train(books)
    books.finish()
    parts_j = math.fsum(energy_j(span) for span in books.of("span") if span["energy"])
    assert parts_j == pytest.approx(energy_j(books.of("totals")[0]), rel=1e-9)


class SlowToOpen:
    """A card whose driver answers after 3 s, and then returns its buffered samples."""

    name, interval_s = "slow", 0.5

    def __init__(self, clock: FakeClock, of: Channel) -> None:
        self.clock, self.of, self.done_s = clock, of, clock.monotonic_s() - 2.0
        self.ready_s = clock.monotonic_s() + 3.0

    def open(self) -> Sequence[Channel]:
        if self.clock.monotonic_s() < self.ready_s:
            raise ReadingMissed("the driver is busy")
        return [self.of]

    def read(self) -> Sequence[Reading]:
        times_s = np.arange(self.done_s, self.clock.monotonic_s(), 0.02)
        self.done_s = float(times_s[-1]) + 0.02
        return [Reading(self.of, float(t_s), 200.0) for t_s in times_s]

    def close(self) -> None:
        pass


def test_a_slow_driver_does_not_hide_its_first_seconds_from_the_phases(
    tmp_path: Path, clock: FakeClock
) -> None:
    """Buffered samples from before the sensor was open are in the energy of their phases."""
    of = channel("power", "gauge", period_s=0.02, is_buffered=True)
    books = Books(tmp_path, SlowToOpen(clock, of), wave(clock, CPU), clock=clock)
    train(books, epochs=1)
    books.finish()
    totals = books.of("totals")[0]
    parts_j = math.fsum(energy_j(s) for s in books.of("span") if s["energy"].get("gpu0"))
    assert parts_j == pytest.approx(energy_j(totals), rel=1e-9)
    assert energy_j(totals) == pytest.approx(200.0 * totals["t_s"], rel=0.01)


def test_phases_sum_to_the_totals_of_a_long_run(tmp_path: Path, clock: FakeClock) -> None:
    """After twenty minutes, without full resolution, phases sum to the totals to 1e-9."""
    of = channel("power", "mean", period_s=0.3)
    times_s = np.arange(START_S - 1.95, START_S + 1300.0, 0.3)
    watts = np.random.default_rng(0).uniform(50.0, 650.0, len(times_s))
    readings = [Reading(of, float(t), float(w)) for t, w in zip(times_s, watts, strict=True)]
    books = Books(tmp_path, ReplaySource(clock, [of], readings), clock=clock)
    clock.advance(0.37)
    for _ in range(4):
        train(books, epochs=1, steps=300, step_s=1.013)
    books.finish()
    assert clock.monotonic_s() > START_S + 1200.0
    parts_j = math.fsum(energy_j(span) for span in books.of("span") if span["energy"])
    assert parts_j == pytest.approx(energy_j(books.of("totals")[0]), rel=1e-9)


def test_phases_sum_to_the_totals_after_a_driver_has_hung(tmp_path: Path, clock: FakeClock) -> None:
    """If a driver hangs for 9 s, the counter's later energy is in the phases."""
    card = Card.under(Staircase.random(2, mean_s=0.3, until_s=90.0), until_s=90.0, seed=2)
    readings = [r for r in later(card.readings()) if not 20.0 < r.t_s - START_S < 29.0]
    books = Books(
        tmp_path,
        ReplaySource(clock, [card.power, card.counter], readings),
        wave(clock, CPU),
        clock=clock,
    )
    train(books)
    books.finish()
    parts_j = math.fsum(energy_j(span) for span in books.of("span") if span["energy"])
    assert parts_j == pytest.approx(energy_j(books.of("totals")[0]), rel=1e-9)


def test_a_window_named_afterwards_has_its_energy(tmp_path: Path, clock: FakeClock) -> None:
    """Ten seconds of training that are renamed to validation afterwards count once."""
    books = Books(tmp_path, wave(clock), clock=clock)
    books.enter("train")
    clock.advance(30.0)
    books.recorder.window("validation", START_S + 12.0, START_S + 22.0)
    clock.advance(5.0)
    books.finish()
    window = books.of("window")[0]
    assert (window["name"], window["start_s"], window["end_s"]) == ("validation", 12.0, 22.0)
    truth_j = wave_j(START_S + 22.0) - wave_j(START_S + 12.0)
    assert energy_j(window) == pytest.approx(truth_j, rel=1e-9)
    span = next(span for span in books.of("span") if span["phase"] == "train")
    assert span["start_s"] <= 12.0
    assert span["end_s"] >= 22.0


def test_a_run_without_any_sensor_still_counts(tmp_path: Path, clock: FakeClock) -> None:
    """Unknown energy is absent, not zero; phases and steps are still written."""
    books = Books(tmp_path, clock=clock)
    train(books)
    books.finish()
    assert sum(pool["steps"] for pool in books.of("steps")) == 120
    assert all(span["energy"] == {} for span in books.of("span"))
    assert books.of("totals")[0]["energy"] == {}
    assert books.of("series") == []


class Lost(ScriptedSource):
    """A source that is lost after 10 s."""

    def read(self) -> Sequence[Reading]:
        """Return the power, or raise ``SourceLost``."""
        if self._clock.monotonic_s() > START_S + 10.0:
            raise SourceLost("off the bus")
        return super().read()


@pytest.mark.parametrize("sources", [(), (Lost,)], ids=["without sensors", "all sensors are lost"])
def test_phases_are_written_while_nothing_is_measured(
    tmp_path: Path, clock: FakeClock, sources: tuple[type[Lost], ...]
) -> None:
    """A run that is killed has its phases, and a report of a running one does not end earlier."""
    books = Books(tmp_path, *(one(clock, power_w=wave_w) for one in sources), clock=clock)
    train(books)
    now_s = clock.monotonic_s() - START_S
    assert books.of("span")[-1]["end_s"] > now_s - 1.0
    assert books.of("so_far")[-1]["t_s"] > now_s - 10.0


def test_a_killed_run_has_lost_at_most_the_last_moments(tmp_path: Path, clock: FakeClock) -> None:
    """Without an end, the journal contains the header and all lines up to a second ago."""
    books = Books(tmp_path, wave(clock), clock=clock)
    train(books)
    lines = books.lines
    assert lines[0] == HEADER
    assert books.of("totals") == []
    assert books.of("steps")[-1]["end_s"] > clock.monotonic_s() - START_S - 7.0
    assert books.of("series")[-1]["t_s"] > clock.monotonic_s() - START_S - 0.6


def test_rows_are_in_the_file_before_phases_are_computed(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The computation may take long while the training runs Python code, and a kill may come."""
    books, behind_s = Books(tmp_path, wave(clock), clock=clock), []
    update = PhaseEnergy.update

    def watched(self: PhaseEnergy, until_s: float, *, is_final: bool = False) -> None:
        rows = [row["seen_s"] or 0.0 for row in books.rows("gpu0")]
        behind_s.append(clock.monotonic_s() - START_S - max(rows, default=0.0))
        update(self, until_s, is_final=is_final)

    monkeypatch.setattr(PhaseEnergy, "update", watched)
    clock.advance(10.0)
    assert max(behind_s[1:]) < 0.3


def test_what_happens_to_sources_is_written(tmp_path: Path, clock: FakeClock) -> None:
    """Devices with sensors, unavailable sources with advice, and missed readings as warnings."""
    books = Books(tmp_path, wave(clock), clock=clock)
    books.recorder.note(
        Notice(
            source="RAPL", kind="unavailable", t_s=START_S + 1.0, message="no access", fix="chmod"
        )
    )
    books.recorder.note(
        Notice(source="NVML", kind="lost", t_s=START_S + 2.0, message="off the bus")
    )
    clock.advance(1.0)
    books.finish()
    assert books.of("device")[0]["device"]["key"] == "gpu0"
    unavailable = books.of("unavailable")[0]
    assert (unavailable["t_s"], unavailable["reason"], unavailable["fix"]) == (
        1.0,
        "no access",
        "chmod",
    )
    warning = books.of("warning")[0]
    assert (warning["code"], warning["message"]) == ("source_lost", "NVML: off the bus")
    assert warning["t_s"] == 0.0


def test_an_unavailable_source_does_not_hold_up_the_books(tmp_path: Path, clock: FakeClock) -> None:
    """If one source cannot be opened, figures of the others are written without delay."""

    class Absent(SlowToOpen):
        def open(self) -> Sequence[Channel]:
            raise SourceUnavailable("no driver")

    absent = Absent(clock, channel("power", "gauge"))
    books = Books(tmp_path, absent, wave(clock), clock=clock)
    books.enter("train")
    for _ in range(20):
        clock.advance(0.1)
        books.step()
    clock.advance(0.5)
    assert sum(line["steps"] for line in books.of("steps")) >= 10


def test_the_totals_say_how_it_ended(tmp_path: Path, clock: FakeClock) -> None:
    """The last line has status, error and the caller's values."""
    books = Books(tmp_path, wave(clock), clock=clock)
    clock.advance(2.0)
    books.recorder.finish("failed", "ValueError: x", sampler_cpu_s=0.5, missed_readings={"a": 1})
    books.recorder.warn("late", "nobody reads this")
    books.recorder.update()
    last = books.lines[-1]
    assert last["type"] == "totals"
    assert {key: last[key] for key in ("status", "error", "sampler_cpu_s", "missed_readings")} == {
        "status": "failed",
        "error": "ValueError: x",
        "sampler_cpu_s": 0.5,
        "missed_readings": {"a": 1},
    }


def test_training_time_leaves_out_what_was_inside_it(tmp_path: Path, clock: FakeClock) -> None:
    """10 s with 4 s of validation in the middle have 6 s of training."""
    books = Books(tmp_path, clock=clock)
    books.enter("train")
    clock.advance(3.0)
    books.enter("validation")
    clock.advance(4.0)
    books.leave("validation")
    clock.advance(3.0)
    spans = books.recorder.trained(START_S, START_S + 10.0)
    assert [(s.start_s - START_S, s.end_s - START_S) for s in spans] == [(0.0, 3.0), (7.0, 10.0)]
    clipped = books.recorder.trained(START_S + 1.0, START_S + 8.0)
    assert [(s.start_s - START_S, s.end_s - START_S) for s in clipped] == [(1.0, 3.0), (7.0, 8.0)]
    assert books.recorder.trained(START_S + 4.0, START_S + 5.0) == ()


def test_a_change_of_phase_does_not_wait_for_the_timeline(tmp_path: Path, clock: FakeClock) -> None:
    """While another thread holds the timeline's lock, phases are entered, left and named."""
    books = Books(tmp_path, wave(clock), clock=clock)
    taken, free = threading.Event(), threading.Event()

    def hold() -> None:
        with books.timeline._lock:
            taken.set()
            free.wait()

    def change() -> None:
        books.recorder.enter("train", 1.0)
        books.recorder.leave("train", 2.0)
        books.recorder.window("validation", 1.2, 1.4)

    holder, training = (threading.Thread(target=one, daemon=True) for one in (hold, change))
    holder.start()
    taken.wait()
    training.start()
    training.join(timeout=60.0)
    was_waiting = training.is_alive()
    free.set()
    holder.join()
    training.join()
    assert not was_waiting


def stepped(books: Books, period_s: float, count: int) -> None:
    """A phase ``train`` of steps that take a fixed time."""
    books.recorder.enter("train", books.clock.monotonic_s())
    for _ in range(count):
        books.clock.advance(period_s)
        step_events.step(books.recorder.steps, books.clock.monotonic_s(), 8, None)
    books.recorder.leave("train", books.clock.monotonic_s())


@pytest.mark.parametrize(("period_s", "is_beat"), [(0.097, True), (0.35, False)])
def test_the_errors_of_energies_include_beats_with_the_steps(
    tmp_path: Path, clock: FakeClock, period_s: float, is_beat: bool
) -> None:
    """Steps of 97 ms beat with a counter that is read every 100 ms; steps of 350 ms do not."""
    counter = channel("energy", "counter")
    times_s = START_S + np.arange(0.0, 60.0, 0.1)
    readings = [Reading(counter, float(t_s), 250.0 * (float(t_s) - START_S)) for t_s in times_s]
    edges_j = []
    for name, count in (("steps", int(50.0 / period_s)), ("none", 0)):
        own_clock = FakeClock(start_s=START_S)
        folder = tmp_path / name
        folder.mkdir()
        books = Books(folder, ReplaySource(own_clock, [counter], readings), clock=own_clock)
        stepped(books, period_s, count)
        own_clock.advance(START_S + 55.0 - own_clock.monotonic_s())
        books.finish()
        edges_j.append(books.timeline.energy("gpu0", START_S + 30.0, START_S + 30.05).edge_j)
    assert (edges_j[0] > 1.5 * edges_j[1]) == is_beat
    assert is_beat or edges_j[0] == edges_j[1]


def test_small_changes_of_the_period_are_not_noted(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeline learns of steps that become slower by 3 %, not of those by 0.5 %."""
    books = Books(tmp_path, wave(clock), clock=clock)
    noted: list[float] = []
    monkeypatch.setattr(books.timeline, "note_period", noted.append)
    for period_s in (0.2, 0.201, 0.207):
        stepped(books, period_s, 100)
    books.finish()
    assert noted[0] == pytest.approx(0.2)
    assert noted[-1] == pytest.approx(0.207, rel=0.012)
    assert len(noted) <= 4
