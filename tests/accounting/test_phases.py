"""Phases as a partition of time."""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.accounting.phases import PhaseSpan, PhaseStack, without

NAMES = st.sampled_from(["train", "validation", "checkpoint", "setup"])
MOVES = st.lists(st.tuples(st.sampled_from(["enter", "leave"]), NAMES, st.floats(-1.0, 5.0)))


@given(moves=MOVES)
def test_spans_are_a_partition_from_start_to_end(moves: list[tuple[str, str, float]]) -> None:
    """For any order of entering and leaving, spans are adjacent and never overlap."""
    phases, t_s = PhaseStack(10.0), 10.0
    spans: list[PhaseSpan] = []
    for number, (move, name, later_s) in enumerate(moves):
        t_s += later_s
        phases.enter(name, t_s) if move == "enter" else phases.leave(name, t_s)
        spans += phases.take() if number % 3 == 0 else []
    phases.end(t_s + 1.0)
    spans += phases.take()
    assert spans[0].start_s == 10.0
    assert all(a.end_s == b.start_s for a, b in pairwise(spans))
    assert all(span.end_s >= span.start_s for span in spans)
    assert spans[-1].end_s == max(t_s + 1.0, spans[-1].start_s)
    assert phases.open == (phases.name, spans[-1].end_s)


@given(moves=MOVES)
def test_the_phase_is_the_last_one_entered_and_not_left(
    moves: list[tuple[str, str, float]],
) -> None:
    """The stack agrees with an independent list of open phases."""
    phases, open_phases = PhaseStack(0.0), ["idle"]
    for move, name, _ in moves:
        if move == "enter":
            phases.enter(name, 0.0)
            open_phases.append(name)
        else:
            phases.leave(name, 0.0)
            if name in open_phases[1:]:
                newest = len(open_phases) - 1 - open_phases[::-1].index(name)
                open_phases = open_phases[:newest]
        assert phases.name == open_phases[-1]
        assert phases.names == open_phases


def test_a_paused_phase_goes_on_after_the_one_inside_it() -> None:
    """Training, validation, training are three spans, and validation is not part of training."""
    phases = PhaseStack(0.0)
    phases.enter("train", 1.0)
    phases.enter("validation", 5.0)
    phases.leave("validation", 7.0)
    phases.leave("train", 9.0)
    phases.end(10.0)
    assert [(span.name, span.start_s, span.end_s) for span in phases.take()] == [
        ("idle", 0.0, 1.0),
        ("train", 1.0, 5.0),
        ("validation", 5.0, 7.0),
        ("train", 7.0, 9.0),
        ("idle", 9.0, 10.0),
    ]


def test_leaving_what_was_never_entered_is_ignored() -> None:
    """An unknown phase, and the phase at the bottom, cannot be left."""
    phases = PhaseStack(0.0)
    phases.enter("train", 1.0)
    assert not phases.leave("validation", 2.0)
    assert not phases.leave("idle", 2.0)
    assert phases.name == "train"
    assert len(list(phases.take())) == 1
    assert phases.open == ("train", 1.0)


def test_leaving_takes_along_what_was_left_open_inside() -> None:
    """A validation that an exception interrupted ends with the training around it."""
    phases = PhaseStack(0.0)
    phases.enter("train", 1.0)
    phases.enter("validation", 2.0)
    assert phases.leave("train", 3.0)
    assert list(phases.take())[-1] == PhaseSpan(name="validation", start_s=2.0, end_s=3.0)
    assert phases.name == "idle"


def test_the_same_phase_may_be_entered_inside_itself() -> None:
    """A nested phase of the same name must be left as often as it was entered."""
    phases = PhaseStack(0.0)
    phases.enter("train", 1.0)
    phases.enter("train", 2.0)
    phases.leave("train", 3.0)
    assert phases.name == "train"
    phases.leave("train", 4.0)
    assert phases.name == "idle"


@given(before=MOVES, inside=MOVES)
def test_what_happens_in_a_call_leaves_no_phase_below_it(
    before: list[tuple[str, str, float]], inside: list[tuple[str, str, float]]
) -> None:
    """After the call, the stack is as it was before, whatever the call has entered and left."""
    phases = PhaseStack(0.0)
    for move, name, _ in before:
        getattr(phases, move)(name, 1.0)
    names = phases.names.copy()
    assert phases.hold("call")
    for move, name, _ in inside:
        getattr(phases, move)(name, 2.0)
        assert phases.names[: len(names)] == names
    assert phases.release("call", 3.0)
    assert phases.names == names
    list(phases.take())
    assert phases.open == (names[-1], 3.0)


def test_a_second_call_takes_the_place_of_one_that_has_not_been_released() -> None:
    """The first one can no longer be released, and the phases of both end with the second."""
    phases = PhaseStack(0.0)
    phases.enter("mine", 1.0)
    assert phases.hold("first")
    phases.enter("train", 2.0)
    assert not phases.hold("second")
    phases.enter("validation", 3.0)
    assert not phases.release("first", 4.0)
    assert phases.name == "validation"
    assert phases.release("second", 5.0)
    assert not phases.release("second", 6.0)
    assert phases.names == ["idle", "mine"]
    assert phases.leave("mine", 7.0)


def test_a_release_by_another_thread_leaves_what_is_entered_meanwhile() -> None:
    """The training thread may enter a phase while the journal's thread releases those of a call."""

    class Held(dict[object, int]):
        """At ``pop``, another thread enters a phase."""

        def pop(self, *args: Any) -> Any:
            found = super().pop(*args)
            phases.enter("export", 3.0)
            return found

    phases = PhaseStack(0.0)
    phases.hold("call")
    phases.enter("train", 1.0)
    phases._held = Held(phases._held)
    assert phases.release("call", 2.0)
    assert phases.names == ["idle", "export"]


def test_while_a_span_is_stored_its_phase_is_still_open() -> None:
    """Who reads the open phase first, and the stored spans then, misses no time."""
    phases = PhaseStack(0.0)
    phases.enter("train", 1.0)
    phases.leave("train", 2.0)
    seen = [(phases.open[0], span.name) for span in phases.take()]
    assert seen == [("idle", "idle"), ("train", "train")]


INTERVALS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 20)).map(
        lambda at: PhaseSpan(name="train", start_s=at[0], end_s=at[0] + at[1])
    ),
    max_size=5,
)


@given(spans=INTERVALS, holes=INTERVALS)
def test_what_is_left_of_spans_is_every_second_that_no_hole_covers(
    spans: list[PhaseSpan], holes: list[PhaseSpan]
) -> None:
    """Checked second by second, holes are removed from spans."""
    left = without(spans, holes)
    for second in range(80):
        middle_s = second + 0.5
        in_spans = sum(span.start_s < middle_s < span.end_s for span in spans)
        in_holes = any(hole.start_s < middle_s < hole.end_s for hole in holes)
        in_left = sum(span.start_s < middle_s < span.end_s for span in left)
        assert in_left == (0 if in_holes else in_spans)


def test_leaving_everything_is_idle_from_then_on() -> None:
    """For any depth of the stack, the current phase is the one at the bottom."""
    phases = PhaseStack(0.0)
    phases.enter("train", 1.0)
    phases.enter("validation", 2.0)
    phases.leave_all(5.0)
    *_, span = phases.take()
    assert (span.name, span.start_s, span.end_s) == ("validation", 2.0, 5.0)
    assert phases.name == "idle"
    assert "train" not in phases.names
