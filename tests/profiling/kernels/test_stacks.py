"""Tests of flame graphs in the formats of other programs."""

import json
import re
from pathlib import Path

import pytest

from energy_callbacks.profiling.kernels.stacks import folded, speedscope, write
from energy_callbacks.report.model.profile_kernels import KernelRow

ROWS = (
    KernelRow(
        name="gemm<1; 2>\nx", class_name="matrix product", calls=2, time_s=3, share=0.6, energy_j=3
    ),
    KernelRow(name="add", class_name="elementwise", calls=9, time_s=1, share=0.2, energy_j=1),
    KernelRow(name="never", class_name="elementwise", calls=1, time_s=0, share=0, energy_j=0),
    KernelRow(name="idle", class_name="idle", calls=0, time_s=1, share=0.2, energy_j=1),
)
STEPS = 7
LINE = re.compile(r"^[^;]+;[^;]+ \d+$")  # what flamegraph.pl takes: stack, a space, a number


def test_folded_stacks() -> None:
    """A line has class, kernel and microjoules of all steps; separators in names are replaced."""
    text = folded(ROWS, STEPS)
    lines = text.splitlines()
    assert all(LINE.match(line) for line in lines)
    assert lines[0] == "matrix product;gemm<1, 2> x 21000000"
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == 5 * STEPS * 1_000_000


def test_speedscope() -> None:
    """The document has the fields of the schema, and weights, samples and frames fit together."""
    document = json.loads(speedscope(ROWS, STEPS, "run"))
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(set(frame) == {"name"} and frame["name"] for frame in frames)
    (profile,) = document["profiles"]
    assert set(profile) == {
        "type",
        "name",
        "unit",
        "startValue",
        "endValue",
        "samples",
        "weights",
    }
    assert profile["type"] == "sampled"
    assert profile["unit"] in {
        "bytes",
        "microseconds",
        "milliseconds",
        "nanoseconds",
        "none",
        "seconds",
    }
    assert len(profile["samples"]) == len(profile["weights"]) == 3
    assert all(0 <= index < len(frames) for stack in profile["samples"] for index in stack)
    assert profile["endValue"] - profile["startValue"] == sum(profile["weights"]) == 35_000_000
    stacks = [[frames[index]["name"] for index in stack] for stack in profile["samples"]]
    assert stacks == [["matrix product", "gemm<1; 2>\nx"], ["elementwise", "add"], ["idle"]]


def test_no_file_where_no_energy_is_known(tmp_path: Path) -> None:
    """No file is written if the energy is unknown."""
    unknown = [KernelRow(name="a", class_name="b", calls=1, time_s=1, share=1, energy_j=None)]
    assert write(unknown, STEPS, tmp_path) == {}
    assert list(tmp_path.iterdir()) == []
    assert set(write(ROWS, STEPS, tmp_path)) == {"folded", "speedscope"}
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("steps", [1, 1000])
def test_small_energies_are_not_lost(steps: int) -> None:
    """Energies from one microjoule on are written."""
    tiny = KernelRow(name="a", class_name="b", calls=1, time_s=1, share=1, energy_j=2e-6)
    assert folded([tiny], steps) == f"b;a {2 * steps}\n"
