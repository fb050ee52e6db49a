"""Many short trainings in one process: do they leave threads, files, objects or memory behind?

``python -m tests.benchmarks.many_fits [--quick] [--json FILE]``

* *Lightning*: fits of 3 steps with the callback, each in a folder of its own; every 20th writes its
  report, because drawing it takes most of the time. 100 fits, or 1000 without ``--quick``.
* *meter* (not in ``--quick``): 10,000 attempts of a plain ``EnergyMeter``. As many fits of
  Lightning would take an hour.

A card is played, so that all threads and NVML are used. The first half of the fits is not judged:
caches may still grow. Of threads and file descriptors, the fewest at three looks at the end are
compared with the fewest at three looks after half of the fits. Objects and memory that a fit leaves
are slopes, each the median of the slopes between all pairs of looks (Theil and Sen), so that single
jumps do not count. Before each look, garbage is collected.

*Allocated* memory is in use by objects and libraries. *Resident* memory is what the system counts.
It includes free memory that the C library keeps for later allocations, in one heap for each thread
that runs at the same time; the sizes of these heaps depend on other programs that are running.
Before each look, the main heap returns its free memory to the system.
"""

import ctypes
import gc
import itertools
import json
import logging
import math
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.open_attempts import wait_for_reports
from energy_callbacks.outputs import hparams
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.overhead_parts.played_card import played_card
from tests.benchmarks.overhead_parts.trainings import TRAININGS, Ticks

FITS, QUICK_FITS, ATTEMPTS = 1_000, 100, 10_000
OBJECTS_BAR: Final = 0.1
BYTES_BAR, QUICK_BYTES_BAR = 1_000.0, 4_000.0
_REPORT_EVERY: Final = 20
# Quantile of the slopes between measurements: objects that appear between two of five measurements
# change at most 6 of the 10 slopes.
_SURE: Final = 0.3
_FEWEST_OF: Final = 3
_LOOKS: Final = 20  # a look takes 0.4 s in a process with Lightning: it collects garbage
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def held_now() -> tuple[int, int, int, float, int]:
    """Return the numbers of threads, file descriptors and Python objects, and bytes of memory.

    The last two values are allocated and resident memory.
    """
    gc.collect()
    allocated = _allocated()
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    threads, files = (len(list(Path(f"/proc/self/{of}").iterdir())) for of in ("task", "fd"))
    return threads, files, len(gc.get_objects()), allocated, int(pages) * _PAGE


class _HeapFigures(ctypes.Structure):
    """The structure ``mallinfo2`` of glibc (man page mallinfo(3))."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks",
            "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _allocated() -> float:
    """Return the allocated memory in bytes, and return free memory to the system.

    Small objects of Python are counted as 512 bytes, the most that they may have. Without glibc,
    the memory is not known, and the result is NaN.
    """
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return math.nan
    library.malloc_trim(0)
    library.mallinfo2.restype = _HeapFigures
    figures = library.mallinfo2()
    return float(figures.uordblks + figures.hblkhd + 512 * sys.getallocatedblocks())


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """What a fit leaves behind, on average over the second half, and what all of them leave.

    Attributes:
        fits: number of fits.
        threads: fewest threads at the end less the fewest after half of the fits.
        files: the same for file descriptors.
        objects: objects of Python that each fit leaves.
        allocated: allocated bytes that each fit leaves.
        resident: resident bytes that each fit leaves.
    """

    fits: int
    threads: int
    files: int
    objects: float
    allocated: float
    resident: float


def left(held: NDArray[np.float64], fits: int) -> Left:
    """Return what fits leave behind.

    Args:
        held: (n, 5) results of ``held_now``, after fits at regular distances.
        fits: number of fits.
    """
    half = held[len(held) // 2 :]
    per_look = fits / len(held)
    first, second = np.triu_indices(len(half), 1)
    all_slopes = (half[second] - half[first]).T / (second - first) / per_look
    slopes = np.median(all_slopes, axis=1)
    # Objects that appear once, such as those of a module that is imported late, are no leak.
    objects = float(np.quantile(all_slopes[2], _SURE))
    threads, files = (half[-_FEWEST_OF:].min(axis=0) - half[:_FEWEST_OF].min(axis=0))[:2]
    return Left(
        fits=fits,
        threads=int(threads),
        files=int(files),
        objects=objects,
        allocated=float(slopes[3]),
        resident=float(slopes[4]),
    )


def lightning_fits(folder: Path) -> Iterator[Callable[[], object]]:
    """Yield fits without end."""
    # Few of these short fits write a row with hyperparameters; the first one imports modules.
    hparams.session_end(0.0, is_success=True)
    training = TRAININGS["Lightning"]
    for number in itertools.count():
        callback = training.callback(folder / str(number))
        if number % _REPORT_EVERY:
            callback._meter._endings._reports.make = lambda *_: None
        yield training.fit(1, 3, Ticks(), [callback], folder)


def attempts(folder: Path) -> Iterator[Callable[[], object]]:
    """Yield attempts of new meters without end."""

    def attempt(number: int) -> None:
        config = EnergyConfig(report_dir=folder / str(number), devices="all")
        with EnergyMeter(config=config) as meter, meter.phase("train"):
            for _ in range(3):
                meter.step(samples=1)

    for number in itertools.count():
        yield lambda number=number: attempt(number)  # type: ignore[misc]


KINDS: Final[dict[str, Callable[[Path], Iterator[Callable[[], object]]]]] = {
    "Lightning": lightning_fits,
    "meter": attempts,
}


def measured(kind: str, count: int) -> Left:
    """Run fits in this process, and return what they leave behind."""
    every = max(count // _LOOKS, 1)
    held = np.zeros((count // every, 5))  # made before, as a list of them would be objects as well
    with tempfile.TemporaryDirectory() as folder:
        for number, fit in enumerate(itertools.islice(KINDS[kind](Path(folder)), count)):
            fit()
            if number % every == every - 1:
                wait_for_reports(Path(folder))  # attempts end after the fit, on their own threads
                held[number // every] = held_now()
    return left(held, count)


def in_child(kind: str, count: int) -> Left:
    """Run fits in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "left.json"
        command = [sys.executable, "-m", "tests.benchmarks.many_fits", "--child", kind]
        options = ["--fits", str(count), "--json", str(file)]
        subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
        return Left(**json.loads(file.read_text(encoding="utf-8")))


def judged(kind: str, found: Left, *, bytes_bar: float) -> list[Bar]:
    """Return the bars of one kind of fits."""
    return [
        Bar(name=f"{kind}: threads left by all fits", value=found.threads, at_most=0),
        Bar(name=f"{kind}: file descriptors left by all fits", value=found.files, at_most=0),
        Bar(name=f"{kind}: objects left by a fit", value=found.objects, at_most=OBJECTS_BAR),
        Bar(
            name=f"{kind}: allocated bytes left by a fit", value=found.allocated, at_most=bytes_bar
        ),
        Bar(name=f"{kind}: bytes left by a fit", value=found.resident, at_most=bytes_bar),
    ]


def main() -> int:
    """Print the table, and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--fits", type=int, help="number of fits of Lightning")
    parser.add_argument("--child", choices=KINDS, help="internal: run fits in this process")
    arguments = parser.parse_args()
    if arguments.child:
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        found: Any = asdict(measured(arguments.child, arguments.fits))
        arguments.json.write_text(json.dumps(found), encoding="utf-8")
        return 0
    counts = {"Lightning": arguments.fits or (QUICK_FITS if arguments.quick else FITS)}
    if not arguments.quick:
        counts["meter"] = ATTEMPTS
    with played_card():
        kinds = {kind: in_child(kind, count) for kind, count in counts.items()}
    print(
        f"{'':<12}{'fits':>8}{'threads':>9}{'files':>8}{'objects':>10}{'allocated':>11}{'resident':>10}"
    )
    for kind, one in kinds.items():
        cells = "{:>8}{:>9}{:>8}{:>10.2f}{:>11.0f}{:>10.0f}".format(*astuple(one))
        print(f"{kind:<12}{cells}")
    bytes_bar = QUICK_BYTES_BAR if arguments.quick else BYTES_BAR
    all_bars = [
        bar for kind, one in kinds.items() for bar in judged(kind, one, bytes_bar=bytes_bar)
    ]
    figures = {kind: asdict(one) for kind, one in kinds.items()}
    return bars.finish("many_fits", arguments, all_bars, fits=figures)


if __name__ == "__main__":
    sys.exit(main())
