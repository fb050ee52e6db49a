"""Programs with lines whose shares are known."""

import time


def count(loops):
    """Work for about 10 ms per 300,000 loops; the amount of work does not depend on time."""
    for _ in range(loops):
        pass


def seventy_thirty(turns):
    """Run two lines with 30 % and 70 % of the loops, about 3 and 7 ms."""
    for _ in range(turns):
        for _ in range(90_000): pass  # SHORT  # fmt: skip  # noqa: E701
        for _ in range(210_000): pass  # LONG  # fmt: skip  # noqa: E701


def work_sleep_and_read(turns, read):
    """Run a CPU-heavy line, a sleep and a blocking call; returns the seconds of each."""
    took_s = [0.0, 0.0, 0.0]
    for _ in range(turns):
        moments = [time.monotonic()]
        count(1_500_000)  # WORK
        moments.append(time.monotonic())
        time.sleep(0.03)  # SLEEP
        moments.append(time.monotonic())
        read()  # READ
        moments.append(time.monotonic())
        took_s = [s + b - a for s, a, b in zip(took_s, moments, moments[1:], strict=False)]
    return took_s


def line_with(function, comment):
    """Return the number of the line of a function that has a comment."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    (number,) = [first + i for i, line in enumerate(lines) if f"# {comment}" in line]
    return number
