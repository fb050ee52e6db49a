"""Tests of ``run_quick_profile`` and ``demo --model`` with real trainings."""

import csv
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from energy_callbacks.cli import main
from energy_callbacks.profiling import run_quick_profile
from energy_callbacks.profiling.zoo import table
from energy_callbacks.report import load

SOME = ["--max-steps", "3", "--batch-size", "4"]


@pytest.mark.parametrize(("model", "count"), [("simple_cnn", 1), ("all", 4)])
def test_demo_of_models(
    model: str,
    count: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each model has a row and a report of 3 steps of 4 samples; all tables agree."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert main(["demo", "--model", model, *SOME]) == 0
    told = capsys.readouterr().out
    folder = tmp_path / "energy_runs" / "demo" / "models"
    assert told.endswith("Tables and reports: energy_runs/demo/models\n")
    rows = json.loads((folder / "table.json").read_text())
    assert len(rows) == count
    for row in rows:
        assert row["model"] in told
        report = load(folder / f"{row['model']}-synthetic" / "energy_report.json")
        assert report.throughput.samples == 3 * 4
        assert row["samples_per_s"] == report.throughput.samples_per_s
        assert row["peak_bytes"] > 0
    with (folder / "table.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [one["model"] for one in read] == [row["model"] for row in rows]
    assert [one["steps"] for one in read] == ["3"] * count
    lines = (folder / "table.md").read_text().splitlines()
    assert len(lines) == count + 2
    assert len({line.count("|") for line in lines}) == 1


def test_a_row_has_the_shares_of_kernels() -> None:
    """A row has the busy share and the largest classes of kernels; unknown energy stays unknown."""
    kernels = SimpleNamespace(
        busy_share=0.8,
        classes=[
            SimpleNamespace(name=n, share=s)
            for n, s in (("copy", 0.1), ("idle", 0.2), ("gemm", 0.7))
        ],
    )
    nothing = SimpleNamespace(j_per_sample=None)
    report = SimpleNamespace(
        efficiency=SimpleNamespace(gpu=nothing, total=nothing),
        profile=SimpleNamespace(kernels=kernels),
        memory=SimpleNamespace(peak_allocated_bytes=2**30, host_rss_peak_bytes=5),
        throughput=SimpleNamespace(steps=3, samples_per_s=12.5),
    )
    row = table.row("m", "d", 1000, report)
    assert row.j_per_sample is None
    assert table.cells(row)[2:] == ("12.5", "1.00 GiB", "-", "80.0 %", "gemm 70.0 %, copy 10.0 %")
    report.profile = None
    assert table.cells(table.row("m", "d", 1, report))[5:] == ("-", "-")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"model_name": "resnet19"}, "no model 'resnet19'"),
        ({"dataset": "cifar11"}, "no data 'cifar11'"),
        ({"epochs": 0}, "epochs must be at least 1, got 0"),
        ({"max_steps": 0}, "max_steps must be at least 1, got 0"),
    ],
)
def test_wrong_words_are_refused(wrong: dict, said: str, tmp_path: Path) -> None:
    """Invalid arguments raise an error before anything is written."""
    with pytest.raises(ValueError, match=said):
        run_quick_profile(**wrong, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_model_is_not_a_framework(capsys: pytest.CaptureFixture[str]) -> None:
    """``--model`` and ``--framework`` together are refused."""
    with pytest.raises(SystemExit):
        main(["demo", "--model", "all", "--framework", "keras"])
    assert "not allowed with" in capsys.readouterr().err


def test_importing_profilers_imports_no_framework() -> None:
    """``import energy_callbacks.profiling`` imports neither PyTorch nor matplotlib."""
    code = (
        "import sys, energy_callbacks.profiling, energy_callbacks.profiling.host;"
        "print({'torch', 'matplotlib', 'pydantic'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
