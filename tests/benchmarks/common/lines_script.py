"""A program with fixed work on known lines, run alone, with our profiler, or by Scalene.

``python tests/benchmarks/common/lines_script.py {alone,ours} FILE [turns]``: writes JSON with the
time of each line by its own clock, what our profiler reports, and the duration of each sample.
"""

import json
import sys
import tempfile
import time
import zlib
from pathlib import Path
from unittest import mock

MESSAGE = bytes(range(256)) * 2000


def python(loops):
    """Compute in Python."""
    total = 0
    for number in range(loops):
        total += number  # PYTHON
    return total


def program(turns):
    """Return the seconds in Python, in native code and in a sleep, by this program's own clock.

    Python before a call that releases the interpreter is attributed to the line before that call,
    so the lines that read the clock count for the work that they end.
    """
    took_s = {"python": 0.0, "native": 0.0, "sleep": 0.0}
    for _ in range(turns):
        a_s = time.perf_counter()
        python(150_000)
        b_s = time.perf_counter()  # PYTHON
        zlib.compress(MESSAGE, 9)  # NATIVE
        c_s = time.perf_counter()  # NATIVE
        time.sleep(0.01)  # SLEEP
        d_s = time.perf_counter()
        took_s["python"] += b_s - a_s
        took_s["native"] += c_s - b_s
        took_s["sleep"] += d_s - c_s
    return took_s


def ours(turns):
    """Run the program with our profiler.

    Returns:
        Seconds by the program's own clock, and by name: the profiler's seconds of each line
        (``by_line``), the share of the time that it took (``cost_share``), and the seconds that
        each sample stands for (``looks_s``).
    """
    from energy_callbacks import EnergyConfig, EnergyMeter
    from energy_callbacks.profiling.lines import LineProfiler
    from energy_callbacks.profiling.lines.tally import LineTally
    from energy_callbacks.report import build

    looks_s, take = [], LineTally.take

    def weighed(tally, frame, look):
        looks_s.append(look.until_s - look.since_s)
        take(tally, frame, look)

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(LineTally, "take", weighed):
        config = EnergyConfig(report_dir=folder)
        with EnergyMeter(config=config, profilers=[LineProfiler()]) as meter, meter.phase("train"):
            time.sleep(2.0)  # sensors are open
            looks_s.clear()
            took_s = program(turns)
        found = build(folder).profile.lines
    by_line = {f"{one.function} {one.source.strip()}": one.wall_s for one in found.lines}
    return took_s, {"by_line": by_line, "cost_share": found.cost_share, "looks_s": looks_s}


def main():
    """Write the results."""
    mode, path, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
    found = {"took_s": program(turns)} if mode == "alone" else {}
    if mode == "ours":
        took_s, told = ours(turns)
        found = {"took_s": took_s, **told}
    Path(path).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
