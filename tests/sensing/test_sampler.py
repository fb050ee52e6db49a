"""Sources that work, fail in every way, hang, and end."""

import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.core.records import Channel, Device, Reading
from energy_callbacks.sensing.clock import SystemClock
from energy_callbacks.sensing.sampler import Notice, Sampler
from energy_callbacks.sensing.schedule import BEAT_S, until_reading_s
from energy_callbacks.sensing.timeline import Timeline
from energy_callbacks.testing import FakeClock, ScriptedSource
from tests.sensing.loads import channel

POWER = channel("power", "gauge", period_s=0.5)
AT_MOST_S = 30.0


class Faulty:
    """A source that raises a given exception, or none, per call of ``read``."""

    name = "faulty"
    interval_s = 1.0

    def __init__(
        self,
        clock: FakeClock | SystemClock,
        reads: Callable[[int], BaseException | None] = lambda _: None,
        opens: BaseException | None = None,
        closes: BaseException | None = None,
    ) -> None:
        self.clock, self.reads, self.opens, self.closes = clock, reads, opens, closes
        self.read_s: list[float] = []
        self.opened = self.closed = 0

    def open(self) -> Sequence[Channel]:
        self.opened += 1
        if self.opens is not None:
            raise self.opens
        return [POWER]

    def read(self) -> Sequence[Reading]:
        self.read_s.append(self.clock.monotonic_s())
        error = self.reads(len(self.read_s))
        if error is not None:
            raise error
        return [Reading(POWER, self.clock.monotonic_s(), 100.0)]

    def close(self) -> None:
        self.closed += 1
        if self.closes is not None:
            raise self.closes


class Panic(BaseException):
    """An error that is not an ``Exception``, as libraries in other languages raise."""


def sampled(source: object, clock: FakeClock) -> tuple[Sampler, Timeline, list[Notice]]:
    """A running sampler with one source."""
    timeline, notices = Timeline(), []
    sampler = Sampler([source], timeline, clock, notices.append)  # type: ignore[list-item]
    sampler.start()
    return sampler, timeline, notices


def test_readings_reach_the_timeline_and_the_last_one_comes_at_the_stop() -> None:
    """200 W from start to stop are 200 J a second, the last reading taken while stopping."""
    clock = FakeClock(start_s=0.0)
    source = ScriptedSource(clock, power_w=lambda _: 200.0, interval_s=0.4)
    sampler, timeline, notices = sampled(source, clock)
    clock.advance(3.0)
    assert timeline.newest_s("gpu0") == pytest.approx(2.8)
    assert sampler.stop(1.0) == ()
    assert timeline.energy("gpu0", 0.0, 3.0).energy_j == pytest.approx(600.0, rel=1e-12)
    assert [notice.kind for notice in notices] == ["opened"]
    assert [offered.quantity for offered in notices[0].channels] == ["power"]


@pytest.mark.parametrize(
    "error",
    [ValueError("bad"), ReadingMissed("busy"), OSError(5, "I/O"), KeyError("x"), SystemExit(1),
     MemoryError(), Panic("rust"), RecursionError()],
    ids=repr,
)  # fmt: skip
def test_whatever_a_read_raises_is_a_miss(error: BaseException) -> None:
    """A failing read never raises; it is counted, noted once, and tried again."""
    clock = FakeClock(start_s=0.0)
    source = Faulty(clock, reads=lambda call: error if call in (2, 3, 5) else None)
    sampler, timeline, notices = sampled(source, clock)
    clock.advance(30.0)
    assert sampler.missed == {"faulty": 3}
    assert [notice.kind for notice in notices] == ["opened", "missed"]
    assert type(error).__name__ in notices[1].message
    newest_s = timeline.newest_s("gpu0")
    assert newest_s is not None
    assert newest_s > 29.0


def test_a_source_that_keeps_failing_is_asked_less_and_less_often() -> None:
    """Pauses double from the interval up to 10 s, and are reset by a successful reading."""
    clock = FakeClock(start_s=0.0)
    source = Faulty(clock, reads=lambda call: None if call in (1, 8) else ReadingMissed("busy"))
    sampled(source, clock)
    clock.advance(60.0)
    pauses = [b - a for a, b in zip(source.read_s, source.read_s[1:], strict=False)]
    assert pauses[:9] == pytest.approx([1.0, 2.0, 4.0, 8.0, 10.0, 10.0, 10.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("error", "reason", "fix"),
    [
        (SourceUnavailable("no driver", "install it"), "no driver", "install it"),
        (ImportError("no pynvml"), "ImportError: no pynvml", ""),
        (Panic("rust"), "Panic: rust", ""),
    ],
)
def test_a_source_that_cannot_open_is_noted_once_with_reason_and_fix(
    error: BaseException, reason: str, fix: str
) -> None:
    """It is closed, never asked again, and counts no missed readings."""
    clock = FakeClock()
    source = Faulty(clock, opens=error)
    sampler, timeline, notices = sampled(source, clock)
    clock.advance(300.0)
    sampler.stop(1.0)
    assert [(n.kind, n.message, n.fix) for n in notices] == [("unavailable", reason, fix)]
    assert (source.opened, source.closed, source.read_s) == (1, 1, [])
    assert sampler.missed == {}
    assert timeline.devices == ()


def test_opening_is_tried_again_where_only_a_reading_was_missed() -> None:
    """A source that says "not now" while it opens is opened at a later turn."""
    clock = FakeClock()
    source = Faulty(clock, opens=ReadingMissed("driver is busy"))
    sampler, timeline, _ = sampled(source, clock)
    clock.advance(1.0)
    source.opens = None
    clock.advance(10.0)
    assert [device.key for device in timeline.devices] == ["gpu0"]
    assert sampler.missed == {"faulty": 1}


def lost_at_the_fourth_reading(call: int) -> SourceLost | None:
    """What the call raises: the source is lost 3 s after it was opened."""
    return SourceLost("off the bus") if call == 4 else None


def test_a_lost_source_is_closed_and_opened_again() -> None:
    """A source that is lost at 3 s and back at 13.2 s is read again within 2 s."""
    clock = FakeClock(start_s=0.0)
    source = Faulty(clock, reads=lost_at_the_fourth_reading)
    sampler, timeline, notices = sampled(source, clock)
    clock.advance(2.5)
    source.opens = SourceUnavailable("off the bus")
    clock.advance(10.7)
    source.opens = None
    clock.advance(20.0)
    sampler.stop(1.0)

    assert [(n.kind, n.message) for n in notices[1:2]] == [("lost", "off the bus")]
    assert [n.kind for n in notices] == ["opened", "lost", "back"]
    assert sampler.missed == {}
    assert 13.2 < source.read_s[4] <= 15.2
    assert timeline.energy("gpu0", 0.0, 2.0).energy_j == pytest.approx(200.0, rel=1e-12)
    assert timeline.energy("gpu0", 2.0, 30.0).coverage == pytest.approx(16.0 / 28.0)
    assert timeline.energy("gpu0", 20.0, 30.0).energy_j == pytest.approx(1000.0, rel=1e-12)


def test_a_source_that_stays_lost_is_noted_once() -> None:
    """A source that never comes back is tried every second, closed, and noted once."""
    clock = FakeClock(start_s=0.0)
    source = Faulty(clock, reads=lost_at_the_fourth_reading)
    sampler, timeline, notices = sampled(source, clock)
    clock.advance(2.5)
    source.opens = SourceUnavailable("off the bus")
    clock.advance(57.5)
    assert sampler.stop(1.0) == ()

    assert [n.kind for n in notices] == ["opened", "lost"]
    assert 55 <= source.opened <= 60
    assert (len(source.read_s), source.closed) == (4, 2)
    assert timeline.complete_s(clock.monotonic_s()) is None


@pytest.mark.parametrize("error", [OSError("gone"), Panic("rust")], ids=repr)
def test_closing_never_raises(error: BaseException) -> None:
    """A source that fails while it is closed does not disturb the end."""
    clock = FakeClock()
    source = Faulty(clock, closes=error)
    sampler, _, _ = sampled(source, clock)
    clock.advance(1.0)
    assert sampler.stop(1.0) == ()
    assert source.closed == 1


def test_one_bad_source_does_not_disturb_another() -> None:
    """A source that always fails does not affect another one."""
    clock, timeline = FakeClock(start_s=0.0), Timeline()
    good = ScriptedSource(clock, power_w=lambda _: 50.0)
    bad = Faulty(clock, reads=lambda _: RuntimeError("always"), opens=RuntimeError("never"))
    sampler = Sampler([bad, good], timeline, clock, lambda _: None)
    sampler.start()
    clock.advance(4.0)
    sampler.stop(1.0)
    assert timeline.energy("gpu0", 0.0, 4.0).energy_j == pytest.approx(200.0, rel=1e-12)


def test_two_sources_for_one_energy_leave_the_first() -> None:
    """The second is noted as unavailable with the reason, and closed."""
    clock, timeline, notices = FakeClock(start_s=0.0), Timeline(), []
    first = ScriptedSource(clock, power_w=lambda _: 50.0)
    second = Faulty(clock)
    sampler = Sampler([first, second], timeline, clock, notices.append)
    sampler.start()
    clock.advance(4.0)
    sampler.stop(1.0)
    assert [notice.kind for notice in notices] == ["opened", "unavailable"]
    assert "measured already" in notices[1].message
    assert second.closed == 1
    assert timeline.energy("gpu0", 0.0, 4.0).energy_j == pytest.approx(200.0, rel=1e-12)


class Hanging(Faulty):
    """Answers once, then hangs until it is released."""

    name = "hanging"
    interval_s = 0.001

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.hangs, self.release = threading.Event(), threading.Event()

    def read(self) -> Sequence[Reading]:
        if self.read_s:
            self.hangs.set()
            self.release.wait()
        return super().read()


class Idle(Faulty):
    """A source without readings, which is read only at the start and at the end."""

    name = "idle"
    interval_s = 600.0

    def open(self) -> Sequence[Channel]:
        return []

    def read(self) -> Sequence[Reading]:
        super().read()
        return []


def test_a_hanging_source_is_named_and_left_to_itself() -> None:
    """``stop`` returns after its time limit and names the source; the others are read."""
    clock, timeline = SystemClock(), Timeline()
    hanging, good = Hanging(), Idle(clock)
    sampler = Sampler([hanging, good], timeline, clock, lambda _: None)
    sampler.start()
    assert hanging.hangs.wait(AT_MOST_S)
    _, worker = sampler._workers
    while not good.read_s or worker.started_s is not None:
        threading.Event().wait(0.001)
    hung_s = sampler.hung_s(0.0)
    assert list(hung_s) == ["hanging"]
    assert 0.0 < hung_s["hanging"] < AT_MOST_S
    assert sampler.hung_s(1000.0) == {}
    reads = len(good.read_s)
    before_s = clock.monotonic_s()
    sampler.ask_to_stop()
    assert worker.periodic.wait(AT_MOST_S)
    assert sampler.stop(0.2) == ("hanging",)
    assert clock.monotonic_s() - before_s < AT_MOST_S
    assert len(good.read_s) > reads
    assert good.closed == 1
    hanging.release.set()
    assert sampler._workers[0].periodic is not None
    assert sampler._workers[0].periodic.wait(AT_MOST_S)
    assert hanging.closed == 1


def test_a_turn_under_way_at_the_stop_is_not_the_last() -> None:
    """A read that started before ``stop`` is followed by a last one."""
    source = Hanging()
    timeline = Timeline()
    sampler = Sampler([source], timeline, SystemClock(), lambda _: None)
    sampler.start()
    assert source.hangs.wait(AT_MOST_S)
    stopper = threading.Thread(target=sampler.stop, args=(AT_MOST_S,))
    stopper.start()
    worker = sampler._workers[0]
    while not worker.is_last_turn:
        threading.Event().wait(0.001)
    stop_s = SystemClock().monotonic_s()
    source.release.set()
    stopper.join(AT_MOST_S)
    assert source.read_s[-1] >= stop_s
    assert len(source.read_s) >= 3
    assert source.closed == 1


def test_reading_takes_processor_time_that_is_counted() -> None:
    """The cost of measuring is the sum over the threads, known once they have ended."""
    clock = SystemClock()
    sources = [Faulty(clock), Faulty(clock)]
    sampler = Sampler(sources, Timeline(), clock, lambda _: None)
    sampler.start()
    assert sampler.stop(AT_MOST_S) == ()
    each_s = [worker.periodic.cpu_s for worker in sampler._workers]
    assert min(each_s) > 0.0
    assert sampler.cpu_s == sum(each_s)


def test_a_source_may_change_its_interval() -> None:
    """A source that changes its interval to 2 s is read every 2 s."""
    clock = FakeClock(start_s=0.0)
    source = Faulty(clock)
    sampled(source, clock)
    clock.advance(2.5)
    source.interval_s = 2.0
    clock.advance(5.0)
    assert source.read_s == [0.0, 1.0, 2.0, 3.0, 5.0, 7.0]


@pytest.mark.parametrize("ends", [None, SourceUnavailable("no driver")])
def test_nothing_is_settled_before_every_source_has_opened_or_ended(
    ends: SourceUnavailable | None,
) -> None:
    """A source that is busy at first is waited for until it opens or is unavailable."""
    clock, timeline = FakeClock(start_s=0.0), Timeline()
    slow = Faulty(clock, opens=ReadingMissed("driver is busy"))
    other = Device(key="cpu0", kind="cpu", scope="host", name="CPU")
    quick = ScriptedSource(clock, power_w=lambda _: 50.0, device=other)
    sampler = Sampler([slow, quick], timeline, clock, lambda _: None)
    sampler.start()
    clock.advance(0.5)
    assert timeline.settled_s(clock.monotonic_s()) is None
    slow.opens = ends
    clock.advance(2.5)
    settled_s = timeline.settled_s(clock.monotonic_s())
    assert settled_s is not None
    assert settled_s > 1.9


class Quick(Faulty):
    """A source that may be read every 50 ms, and is otherwise read at the common moments."""

    quick_interval_s = 0.05

    @property
    def interval_s(self) -> float:  # type: ignore[override]
        return until_reading_s(self.read_s[-1] if self.read_s else 0.0)


def spacings_s(source: Faulty, start_s: float, end_s: float) -> list[float]:
    """Times between the readings in a span."""
    inside = [t_s for t_s in source.read_s if start_s <= t_s <= end_s]
    return [after - before for before, after in pairwise(inside)]


def test_a_cheap_source_is_read_often_after_a_change_of_phase() -> None:
    """Every 50 ms for 8 s, from the next common moment on; before and afterwards every 0.8 s."""
    clock = FakeClock(start_s=100.0)
    source = Quick(clock)
    sampler, timeline, _ = sampled(source, clock)
    clock.advance(20.0)
    timeline.pin(clock.monotonic_s())
    clock.advance(20.0)
    sampler.stop(AT_MOST_S)

    before = spacings_s(source, 101.0, 120.0)
    assert before == pytest.approx([BEAT_S] * len(before), abs=1e-6)
    quick = spacings_s(source, 120.0 + BEAT_S, 128.0)
    assert quick == pytest.approx([0.05] * len(quick), abs=1e-6)
    assert len(quick) > 140
    after = spacings_s(source, 129.0, 139.9)
    assert after == pytest.approx([BEAT_S] * len(after), abs=1e-6)


def test_short_phases_keep_a_cheap_source_quick() -> None:
    """With a change of phase every second, readings stay 50 ms apart."""
    clock = FakeClock(start_s=100.0)
    source = Quick(clock)
    sampler, timeline, _ = sampled(source, clock)
    for _ in range(30):
        timeline.pin(clock.monotonic_s())
        clock.advance(1.0)
    sampler.stop(AT_MOST_S)

    assert max(spacings_s(source, 101.0, 129.9)) == pytest.approx(0.05, abs=1e-6)


def test_other_sources_do_not_follow_phases() -> None:
    """A source without a quick interval is read at its own interval after a change of phase."""
    clock = FakeClock()
    source = Faulty(clock)
    sampler, timeline, _ = sampled(source, clock)
    timeline.pin(clock.monotonic_s())
    clock.advance(10.5)
    sampler.stop(AT_MOST_S)

    assert len(source.read_s) == 12


def test_a_failed_reading_of_a_cheap_source_is_not_repeated_quickly() -> None:
    """Failures double the source's own interval, however recent the change of phase."""
    clock = FakeClock(start_s=100.0)
    source = Quick(clock, reads=lambda _: ReadingMissed("never"))
    sampler, timeline, _ = sampled(source, clock)
    timeline.pin(clock.monotonic_s())
    clock.advance(8.0)
    sampler.stop(AT_MOST_S)

    assert len(source.read_s) < 6


class Prompt(Faulty):
    """A source whose ``read_now`` differs from ``read``."""

    kind = "gauge"

    def open(self) -> Sequence[Channel]:
        return [channel("power", self.kind, period_s=0.5)]  # type: ignore[arg-type]

    def read(self) -> Sequence[Reading]:
        return []

    def read_now(self) -> Sequence[Reading]:
        return super().read()


class PromptMean(Prompt):
    """The same for means since the last reading."""

    kind = "mean"


def test_a_source_that_is_asked_is_read_now() -> None:
    """``ask`` reads power at once, by ``read_now`` if there is one; later reads are as before."""
    clock = FakeClock(start_s=0.0)
    prompt, plain = Prompt(clock), Faulty(clock)
    timeline = Timeline()
    sampler = Sampler([prompt], timeline, clock, lambda _: None)
    sampler.start()
    other = Sampler([plain], Timeline(), clock, lambda _: None)
    other.start()
    clock.advance(0.3)
    sampler.ask()
    other.ask()
    assert (prompt.read_s, plain.read_s) == ([0.3], [0.0, 0.3])
    clock.advance(3.0)
    assert prompt.read_s == [0.3]
    assert plain.read_s == [0.0, 0.3, 1.0, 2.0, 3.0]


def test_means_and_sources_that_are_not_open_are_not_asked() -> None:
    """A mean over a few milliseconds is inaccurate; before it is open, a source has no channels."""
    clock = FakeClock(start_s=0.0)
    mean, closed = PromptMean(clock), Faulty(clock)
    for source in (mean, closed):
        sampler, _, _ = sampled(source, clock)
        if source is mean:
            clock.advance(0.3)
        sampler.ask()
    assert (mean.read_s, closed.opened) == ([], 0)
