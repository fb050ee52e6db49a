"""Requests arrive when they should: in a closed loop, at random, and at recorded times."""

import math
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.inference.serve.arrivals import ClosedLoop, Poisson, Recorded, read
from energy_callbacks.inference.serve.steps_over_time import StepsOverTime, caps


def test_a_closed_loop_of_clients() -> None:
    """Each client sends a request when its previous one was answered."""
    loop = ClosedLoop(3)
    assert loop.until(0.0) == [0.0, 0.0, 0.0]
    assert loop.until(5.0) == []
    loop.answered(2, 6.0)
    assert loop.next_s() == 6.0
    assert loop.until(5.9) == []
    assert loop.until(6.0) == [6.0, 6.0]
    loop.offered(100, 7.0)  # the number of clients is fixed
    assert loop.until(7.0) == []


def test_a_closed_loop_that_keeps_tenants_busy() -> None:
    """There are as many clients as the tenants need; fewer after they need fewer."""
    loop = ClosedLoop()
    assert loop.next_s() == math.inf
    loop.offered(8, 1.0)
    assert len(loop.until(1.0)) == 8
    loop.offered(2, 2.0)
    loop.answered(5, 2.0)
    assert loop.until(2.0) == []
    loop.answered(3, 3.0)
    assert loop.until(3.0) == [3.0, 3.0]


def test_random_requests() -> None:
    """Their numbers have the mean and the variance of a Poisson process, also after a change.

    The tolerance is four standard errors.
    """
    arrivals = Poisson(StepsOverTime.parse("0:50,400:200"), seed=1)
    times = np.array(arrivals.until(800.0))
    counts = np.histogram(times, bins=800, range=(0.0, 800.0))[0]
    for part, rate in ((counts[:400], 50.0), (counts[400:], 200.0)):
        assert abs(part.mean() - rate) < 4.0 * math.sqrt(rate / 400)
        assert abs(part.var() / rate - 1.0) < 4.0 * math.sqrt(2.0 / 400)
    assert arrivals.next_s() > 800.0
    assert arrivals.rate_per_s(399.0) == 50.0
    assert arrivals.rate_per_s(400.0) == 200.0


def test_no_requests_for_some_time() -> None:
    """A rate of 0 is a pause, and a last rate of 0 is the end."""
    arrivals = Poisson(StepsOverTime.parse("0:0,10:5,20:0"), seed=1)
    times = arrivals.until(100.0)
    assert 20 < len(times) < 90
    assert 10.0 <= min(times) <= max(times) < 20.0
    assert arrivals.next_s() == math.inf


def test_recorded_requests() -> None:
    """They arrive at their times, each once, and their rate is a mean."""
    arrivals = Recorded([0.0, 1.0, 1.0, 30.0])
    assert arrivals.until(0.5) == [0.0]
    assert arrivals.next_s() == 1.0
    assert arrivals.until(1.0) == [1.0, 1.0]
    assert arrivals.rate_per_s(0.0) == 0.3
    assert arrivals.rate_per_s(25.0) == 0.05
    assert arrivals.until(40.0) == [30.0]
    assert arrivals.next_s() == math.inf


def test_a_file_of_requests(tmp_path: Path) -> None:
    """Times begin at the first of the file; a number of requests may have the same time."""
    path = tmp_path / "trace.csv"
    path.write_text("time_s,model,requests\n100,a,2\n101.5,b,\n100.5,a,1\n")
    found = read(path, ["a", "b"])
    assert found["a"].until(9.0) == [0.0, 0.0, 0.5]
    assert found["b"].until(9.0) == [1.5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("when\n1\n", "has no column time_s, got when"),
        ("time_s\n1\n", "has no column model, which several models need"),
        ("time_s,model\n1,c\n", "line 2: 'c' is none of a, b"),
        ("time_s,model\nx,a\n", "line 2: a time in seconds"),
        ("time_s,model,requests\n1,a,1.5\n", "line 2: a time in seconds"),
        ("time_s,model\nnan,a\n", "line 2: a time must be finite"),
    ],
)
def test_wrong_files_of_requests(text: str, message: str, tmp_path: Path) -> None:
    """The message has the line, and what it must contain."""
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read(path, ["a", "b"])


def test_caps(tmp_path: Path) -> None:
    """A number, numbers with their starts, and a file are caps over time."""
    assert caps("300", None).steps == ((0.0, 300.0),)
    assert caps("0:300,180:240", None).steps == ((0.0, 300.0), (180.0, 240.0))
    path = tmp_path / "caps.csv"
    path.write_text("time,cap_w\n2026-01-31T08:00Z,300\n2026-01-31T08:10Z,240\n")
    assert caps(str(path), None).steps == ((0.0, 300.0), (600.0, 240.0))
    begin_s = 1769846400.0  # 2026-01-31T08:00Z
    assert caps(str(path), begin_s + 60.0).steps == ((0.0, 300.0), (540.0, 240.0))
    assert caps(str(path), begin_s + 900.0).steps == ((0.0, 240.0),)
    with pytest.raises(ValueError, match="has no cap 0 s after the start"):
        caps(str(path), begin_s - 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "'x' is neither a number nor values with their start"),
        ("5:300", "the first time must be 0"),
        ("0:300,9:200,9:100", "times must ascend"),
        ("0:300,9:0", "positive"),
        ("-5", "at least 0"),
        ("inf", "finite"),
        ("0:300,inf:200", "times must be finite"),
    ],
)
def test_wrong_caps(text: str, message: str) -> None:
    """The message says what a cap must be."""
    with pytest.raises(ValueError, match=message):
        caps(text, None)


def test_wrong_clients() -> None:
    """A closed loop has at least one client."""
    with pytest.raises(ValueError, match="clients must be at least 1, got 0"):
        ClosedLoop(0)
    with pytest.raises(ValueError, match=r"must ascend, got 0 s after 1 s"):
        Recorded([1.0, 1.0, 0.0])
