"""Measures the time of `from energy_callbacks import EnergyMeter` beyond `import numpy`.

New interpreters (ours, CodeCarbon, and other tools in their own environment) run in turn; the
figures are medians of the time beyond numpy. The bar is 60 ms for ours.

``python -m tests.benchmarks.import_time [--quick] [--json FILE] [--peers PYTHON]``
"""

import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar

BAR_MS: Final = 60.0
OURS: Final = "energy_callbacks"
STATEMENTS: Final = {
    OURS: "from energy_callbacks import EnergyMeter",
    "codecarbon": "from codecarbon import EmissionsTracker",
}
PEERS: Final = {
    "zeus": "from zeus.monitor import ZeusMonitor",
    "nvitop": "from nvitop import ResourceMetricCollector",
}
# Packages are compiled, as pip installs them. A checkout is compiled by its first import only,
# and never if this variable forbids it.
COMPILING: Final = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
CODE: Final = """
import numpy, time
start_s = time.perf_counter()
{statement}
print(time.perf_counter() - start_s)
"""


def once_ms(python: str, statement: str) -> float:
    """Time one new interpreter; numpy is imported first and not counted."""
    answer = subprocess.run(
        [python, "-c", CODE.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
        env=COMPILING,
    )
    return 1e3 * float(answer.stdout.split()[-1])


def medians_ms(cases: Mapping[str, tuple[str, str]], rounds: int) -> dict[str, float]:
    """Return the median of each statement, run in turn, so that load of the machine affects all."""
    for case in cases.values():
        once_ms(*case)  # compiles, and fills the file cache
    turns = [{name: once_ms(*case) for name, case in cases.items()} for _ in range(rounds)]
    return {name: statistics.median(turn[name] for turn in turns) for name in cases}


def main() -> int:
    """Print the table and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of the peers' environment")
    arguments = parser.parse_args()
    cases = {name: (sys.executable, text) for name, text in STATEMENTS.items()}
    if arguments.peers:
        cases |= {name: (arguments.peers, text) for name, text in PEERS.items()}
    found = medians_ms(cases, rounds=7 if arguments.quick else 21)
    print(f"{'import':<20}{'ms beyond numpy':>18}")
    for name, value in found.items():
        print(f"{name:<20}{value:>18.1f}")
    bar = Bar(name="ms of energy_callbacks", value=found[OURS], at_most=BAR_MS)
    return bars.finish("import_time", arguments, [bar], median_ms=found)


if __name__ == "__main__":
    sys.exit(main())
