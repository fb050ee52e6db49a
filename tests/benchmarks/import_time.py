"""How long `from energy_callbacks import EnergyMeter` takes beyond `import numpy`.

Fresh interpreters in turn (numpy alone, ours, and the peers that are installed), medians of
their differences to numpy. The bar: under 60 ms for ours.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

BAR_MS = 60.0
BASE = "import numpy"
STATEMENTS = {
    "energy_callbacks": "from energy_callbacks import EnergyMeter",
    "codecarbon": "from codecarbon import EmissionsTracker",
    "zeus": "from zeus.monitor import ZeusMonitor",
    "nvitop": "from nvitop import ResourceMetricCollector",
}
# As pip leaves a package behind: compiled. A checkout is compiled by its first import alone, and
# never where this variable forbids it.
COMPILING = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
CLOCK = "import time; start = time.perf_counter(); {body}; print(time.perf_counter() - start)"


def seconds(statement: str) -> float:
    """One fresh interpreter: numpy is imported first and not counted."""
    code = f"{BASE}; {CLOCK.format(body=statement)}"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=COMPILING
    )
    return float(answer.stdout.split()[-1])


def measure(rounds: int) -> dict[str, float]:
    """Median milliseconds beyond numpy, interleaved so that a busy machine hits all alike."""
    present = {name: s for name, s in STATEMENTS.items() if importlib.util.find_spec(name)}
    times: dict[str, list[float]] = {name: [] for name in present}
    for statement in present.values():
        seconds(statement)  # compiles, and fills the file cache
    for _ in range(rounds):
        for name, statement in present.items():
            times[name].append(seconds(statement))
    return {name: 1e3 * statistics.median(values) for name, values in times.items()}


def main() -> int:
    """Print the table; 1 where ours misses the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    medians_ms = measure(rounds=7 if arguments.quick else 21)
    print(f"{'import':<20}{'ms beyond numpy':>18}")
    for name, value in medians_ms.items():
        print(f"{name:<20}{value:>18.1f}")
    is_met = medians_ms["energy_callbacks"] < BAR_MS
    print(f"bar: energy_callbacks under {BAR_MS:g} ms: {'met' if is_met else 'MISSED'}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"median_ms": medians_ms, "bar_ms": BAR_MS}))
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
