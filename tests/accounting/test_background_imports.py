"""Our threads import nothing: a data loader may fork a worker at any time (see ``discovery``)."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from pathlib import Path
from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.sensing.discovery import discover
from energy_callbacks.testing import FakeClock, ScriptedSource

LATE_S, PERIOD_S, TRAIN_S, LOW_W, HIGH_W = 0.08, 0.5, 0.35, 100.0, 400.0
BOTH_J = TRAIN_S * HIGH_W + (PERIOD_S - TRAIN_S) * LOW_W

def power_w(t_s):
    return HIGH_W if (t_s - LATE_S) % PERIOD_S < TRAIN_S else LOW_W

def energy_j(t_s):
    periods, rest_s = divmod(t_s - LATE_S, PERIOD_S)
    return periods * BOTH_J + min(rest_s, TRAIN_S) * HIGH_W + max(rest_s - TRAIN_S, 0.0) * LOW_W

clock = FakeClock()
gpu = ScriptedSource(clock, power_w=power_w, energy_j=energy_j, interval_s=0.05)
sources = (*discover(clock).sources, gpu)
config = EnergyConfig(report_dir=Path(sys.argv[1]), country="DEU", region=None)
meter = EnergyMeter(config=config, sources=sources, clock=clock)
meter.start()
before = set(sys.modules)
for _ in range(160):
    with meter.phase("train"):
        for _ in range(7):
            meter.data_ready()
            clock.advance(TRAIN_S / 7)
            meter.step(samples=8, tokens=100)
    with meter.phase("validation"):
        clock.advance(PERIOD_S - TRAIN_S)
    meter.scalars()
meter._lifecycle.running.recorder.is_asked = True  # as a report of the running meter does
clock.advance(5.0)
print(sorted(set(sys.modules) - before))
meter.stop()
"""


def test_nothing_is_imported_after_the_start(tmp_path: Path) -> None:
    """Phases that repeat are fitted, with a device that is late, and waits for data are counted."""
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "[]"
