"""A card that is played in real time, for benchmarks of real trainings without a GPU."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fake_nvml import Scenario, Square, env, h200


@contextmanager
def played_card() -> Iterator[None]:
    """Let child processes of this process see one H200 through NVML; CUDA has no device."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        card = h200(Square(low_w=100.0, high_w=400.0, period_s=1.03))
        scenario = Scenario(cards=(card,)).write(Path(folder) / "scenario.txt")
        os.environ.update(env(scenario), CUDA_VISIBLE_DEVICES="")
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
