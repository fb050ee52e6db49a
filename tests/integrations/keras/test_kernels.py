"""Kernels of a training on TensorFlow and JAX, on a processor."""

import math
from pathlib import Path

import pytest

from energy_callbacks.keras import GpuEnergyCallback
from energy_callbacks.profiling.kernels import KernelProfiler
from tests.integrations.keras.training import BACKEND, data, model


@pytest.mark.every_backend
@pytest.mark.skipif(BACKEND == "torch", reason="see tests/profiling/frameworks/test_profilers.py")
def test_windows_of_a_training(tmp_path: Path) -> None:
    """Traces are where TensorBoard's plugin looks; without a GPU the report says so."""
    profiler = KernelProfiler(windows_after=(10, 30), max_overhead=1.0)
    profiler.max_overhead = math.inf  # a window takes longer than all of these steps
    ours = GpuEnergyCallback(report_dir=tmp_path, profilers=[profiler])
    model().fit(*data(160), batch_size=4, epochs=2, verbose=0, callbacks=[ours])
    profile = ours.report().profile
    assert profile is not None
    found = profile.kernels
    assert found is not None
    assert found.framework == BACKEND
    assert found.windows == 2
    assert found.steps == 80
    assert len(found.classes) == 0
    assert "not the table of kernels" in found.notes[0]
    written = sorted(tmp_path.glob("profile/*/plugins/profile/*/*.xplane.pb"))
    assert [str(path.relative_to(tmp_path)) for path in written] == sorted(found.traces)
    assert all(path.stat().st_size > 1000 for path in written)
