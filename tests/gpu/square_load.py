"""Compares samples with the counter of a real GPU under a square wave that beats with the samples.

``python -m tests.gpu.square_load --out DIR [--seconds 36] [--on-ms 50] [--off-ms 50]``: bf16 matrix
products on and off, read by a meter that keeps every reading. The integral of the power samples
alone is compared with the rise of the energy counter, over everything and over all spans of 20 to
24 s. Exits with 1 if the error of the whole is above 0.8 %. ``--readings FILE`` compares an
earlier recording and needs no GPU.
"""

import argparse
import sys
import time
from itertools import combinations
from pathlib import Path

import numpy as np

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.records import Reading
from energy_callbacks.sensing import recording
from energy_callbacks.sensing.estimation.energy_curve import EnergyCurve
from tests.gpu.products import products

BAR: float = 0.008
_SPANS_S = (20.0, 24.0)
# Ticks known more exactly change a span of 20 s by 0.04 % at most.
_SHARP_S = 0.007


def main() -> int:
    """Measure, unless a recording is given, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="run folder")
    parser.add_argument("--seconds", type=float, default=36.0)
    parser.add_argument("--on-ms", type=float, default=50.0)
    parser.add_argument("--off-ms", type=float, default=50.0)
    parser.add_argument("--readings", type=Path, help="a recording, instead of a measurement")
    arguments = parser.parse_args()
    if (arguments.out is None) == (arguments.readings is None):
        parser.error("give either --out DIR or --readings FILE")
    path = arguments.readings
    if path is None:
        measure(arguments.out, arguments.seconds, arguments.on_ms / 1e3, arguments.off_ms / 1e3)
        [path] = arguments.out.glob("attempts/*/*.readings")
    _, readings = recording.read(path)
    off, spans = compared([r for r in readings if r.channel.device.kind == "gpu"])
    print(f"samples over counter, whole recording: {off:+.2%}")
    if spans:
        print(f"spans of 20 to 24 s: {min(spans):+.2%} to {max(spans):+.2%} ({len(spans)} of them)")
    return 0 if abs(off) <= BAR else 1


def measure(out: Path, duration_s: float, on_s: float, off_s: float) -> None:
    """Run products for ``on_s``, pause, and repeat."""
    work = products(8192)
    work(20)
    count = max(round(on_s / (work(100) / 100)), 1)
    config = EnergyConfig(report_dir=out, raw_readings=True)
    with EnergyMeter(config=config) as meter, meter.phase("train"):
        end_s = time.monotonic() + duration_s
        while time.monotonic() < end_s:
            work(count)
            time.sleep(off_s)
            meter.step()


def compared(readings: list[Reading]) -> tuple[float, list[float]]:
    """Return the errors of the samples against the counter: of all, and of spans of 20 to 24 s."""
    power = [r for r in readings if r.channel.quantity == "power"]
    ticks = [r for r in readings if r.channel.quantity == "energy" and r.t_error_s < _SHARP_S]
    curve = EnergyCurve([power[0].channel], keep_s=np.inf)
    curve.add(power)
    curve.finish()

    def off(first: Reading, last: Reading) -> float:
        samples_j = curve.energy(first.t_s, last.t_s).energy_j
        assert samples_j is not None
        return samples_j / (last.value - first.value) - 1.0

    low_s, high_s = _SPANS_S
    spans = [
        pair for pair in combinations(ticks, 2) if low_s <= pair[1].t_s - pair[0].t_s <= high_s
    ]
    return off(ticks[0], ticks[-1]), [off(*pair) for pair in spans]


if __name__ == "__main__":
    sys.exit(main())
