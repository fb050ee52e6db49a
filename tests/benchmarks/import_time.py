"""How long `from energy_callbacks import EnergyMeter` takes beyond `import numpy`.

Fresh interpreters (ours, CodeCarbon, and other peers from an environment of their own), in
processor time and on the wall. The bar, for the least of several, to which a busy machine only ever
adds: 60 ms of processor time for ours.

``python -m tests.benchmarks.import_time [--quick] [--json FILE] [--peers PYTHON]``
"""

import os
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import Final

from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.repeats import repeated

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
# As pip leaves a package behind: compiled. A checkout is compiled by its first import alone, and
# never where this variable forbids it.
COMPILING: Final = {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
CODE: Final = """
import time
start_s = time.thread_time()
import numpy
numpy_s, wall_s = time.thread_time(), time.perf_counter()
{statement}
print(numpy_s - start_s, time.thread_time() - numpy_s, time.perf_counter() - wall_s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import in a fresh interpreter, beyond numpy's, and numpy's before it."""

    numpy_ms: float
    cpu_ms: float
    wall_ms: float


def once(python: str, statement: str) -> Import:
    """Numpy is imported first and not counted."""
    answer = subprocess.run(
        [python, "-c", CODE.format(statement=statement)],
        capture_output=True,
        text=True,
        check=True,
        env=COMPILING,
    )
    numpy_ms, cpu_ms, wall_ms = (1e3 * float(word) for word in answer.stdout.split()[-3:])
    return Import(numpy_ms=numpy_ms, cpu_ms=cpu_ms, wall_ms=wall_ms)


def measured(python: str, statement: str, times: int) -> list[Import]:
    """Several, the quickest first; one before them compiles and fills the file cache."""
    once(python, statement)
    return repeated(lambda: once(python, statement), lambda one: one.cpu_ms, BAR_MS, times)


def main() -> int:
    """Print the table and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--peers", metavar="PYTHON", help="interpreter of the peers' environment")
    arguments = parser.parse_args()
    times = 5 if arguments.quick else 21
    cases = [(sys.executable, name, text) for name, text in STATEMENTS.items()]
    if arguments.peers:
        cases += [(arguments.peers, name, text) for name, text in PEERS.items()]
    found = {name: measured(python, text, times) for python, name, text in cases}
    print(f"{'ms beyond numpy':<20}{'processor, least':>18}{'wall, median':>14}")
    for name, ones in found.items():
        wall_ms = statistics.median(one.wall_ms for one in ones)
        print(f"{name:<20}{ones[0].cpu_ms:>18.1f}{wall_ms:>14.1f}")
    numpy_ms = min(one.numpy_ms for one in found[OURS])
    print(f"{'(numpy)':<20}{numpy_ms:>18.1f}")
    bar = Bar(name="ms of energy_callbacks", value=found[OURS][0].cpu_ms, at_most=BAR_MS)
    figures = {name: [asdict(one) for one in ones] for name, ones in found.items()}
    return bars.finish("import_time", arguments, [bar], imports=figures)


if __name__ == "__main__":
    sys.exit(main())
