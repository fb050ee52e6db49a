"""Tests of the sums of samples, in bounded memory."""

import sys

import pytest

from energy_callbacks.profiling.lines import tally as tallies
from energy_callbacks.profiling.lines.stack_sampler import StackSample
from energy_callbacks.profiling.lines.tally import LineTally


def look(since_s, asked_s, until_s, cpu=1.0, others=0.0):
    """Return a sample, by default with one busy core."""
    return StackSample(since_s, asked_s, until_s, cpu, others, is_before=False)


def here():
    """Return the calling frame."""
    return sys._getframe(1)


def spent(tally):
    """Return the sums over all spans and places."""
    ones = [one for _, _, bin_ in tally.spans() for one in bin_.values()]
    return tuple(sum(getattr(one, name) for one in ones) for name in ("wall_s", "cpu_s", "wait_s"))


def test_time_goes_to_the_spans_in_which_it_passed():
    """A call of 3 s on half a core is 1.5 s of CPU time and 1.5 s of waiting, in four spans."""
    tally = LineTally(100.0)
    tally.take(here(), look(100.5, 100.5, 103.5, cpu=0.5))
    assert spent(tally) == pytest.approx((3.0, 1.5, 1.5))
    widths = [sum(one.wall_s for one in bin_.values()) for _, _, bin_ in tally.spans()]
    assert widths == pytest.approx([0.5, 1.0, 1.0, 0.5])


def test_other_threads_of_a_call_are_no_waiting():
    """If other threads use four cores during a call, the main thread does not count as waiting."""
    tally = LineTally(0.0)
    tally.take(here(), look(0.0, 0.0, 1.0, cpu=0.0, others=4.0))
    ((_, _, bin_),) = tally.spans()
    (one,) = bin_.values()
    assert (one.cpu_s, one.others_s, one.wait_s) == (0.0, 4.0, 0.0)


def test_a_week_is_six_hundred_spans():
    """Spans double their width, and no time is lost."""
    tally = LineTally(0.0)
    frame, t_s = here(), 0.0
    while t_s < 7 * 86400.0:
        tally.take(frame, look(t_s, t_s, t_s + 977.0))
        t_s += 977.0
    assert len(tally.bins) <= tallies.MOST_BINS + 1
    assert spent(tally)[0] == pytest.approx(t_s)


def test_places_and_stacks_are_bounded_and_time_is_kept(monkeypatch):
    """Places and stacks beyond the limits are pooled."""
    monkeypatch.setattr(tallies, "MOST_SITES", 5)
    monkeypatch.setattr(tallies, "MOST_STACKS", 5)
    monkeypatch.setattr(tallies, "MOST_CODES", 40)
    tally = LineTally(0.0)
    for number in range(100):
        names = {"here": here, "tally": tally, "look": look, "n": float(number)}
        source = f"def f{number}():\n    tally.take(here(), look(n, n, n + 1.0))\nf{number}()"
        exec(compile(source, f"/x/made{number}.py", "exec"), names)
    assert len(tally._sites) <= 5
    assert len(tally.stacks) <= 2 * 5 + 1
    assert len(tally._codes) <= 40
    assert spent(tally)[0] == pytest.approx(100.0)
    assert sum(tally.stacks.values()) == pytest.approx(100.0)


def test_the_line_is_the_innermost_of_the_users():
    """Frames of libraries count for the line that called them."""
    tally = LineTally(0.0)
    names = {"tally": tally, "look": look, "sys": sys}
    library = "def call(f):\n    return f()\n"
    exec(compile(library, f"{sys.prefix}/lib/python3/site-packages/lib.py", "exec"), names)
    inner = "def inner():\n    tally.take(sys._getframe(), look(0.0, 0.0, 1.0))\n"
    exec(compile(inner, f"{sys.prefix}/lib/python3/site-packages/in.py", "exec"), names)
    exec(compile("def mine():\n    x = 1\n    call(inner)\nmine()", "/x/mine.py", "exec"), names)
    ((_, _, bin_),) = tally.spans()
    (site,) = bin_
    assert tally.line(site) == ("/x/mine.py", 3, "mine")
    ((_, frames),) = tally.stacks
    told = [tally.frame_line(*one) for one in frames][-4:]
    assert [(one.function, one.line) for one in told] == [
        ("<module>", 4), ("mine", 3), ("call", 0), ("inner", 0),
    ]  # fmt: skip
