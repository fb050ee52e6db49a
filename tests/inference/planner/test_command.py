"""``energy-callbacks powercap plan`` with a predictor that is fitted to a simulated GPU."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli import main
from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.planner.search import METHODS
from energy_callbacks.inference.predictor.predictor import Predictor
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from energy_callbacks.inference.simulated.presets import simulated_gpu
from energy_callbacks.inference.traces import append

CHOICES = ["--model", "resnet50", "--share", "10", "25", "50", "100", "--batch", "4", "16", "64"]


@pytest.fixture(scope="module")
def predictor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the file of a predictor of ResNet-50 on a simulated H200."""
    gpu = simulated_gpu("sim:h200")
    windows = [
        gpu.measure(
            Configuration(
                tenants=(Tenant(model="resnet50", share_pct=share, batch=batch),) * count
            ),
            window_s=1.0,
            warmup_s=0.2,
        )
        for share in (10, 25, 100)
        for batch in (4, 16, 64)
        for count in {1, 100 // share}
    ]
    path = tmp_path_factory.mktemp("fit") / "predictor.json"
    Predictor.fit_only(windows).save(path)
    return path


def run(predictor: Path, *words: str) -> int:
    """Run the command."""
    return main(["powercap", "plan", "--predictor", str(predictor), *CHOICES, *words])


def test_a_plan_is_printed_and_written(
    predictor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan is printed, labelled as simulated, and written with its picture."""
    out, picture = tmp_path / "plan.json", tmp_path / "new" / "plan.svg"
    words = ["--cap-w", "300", "--out", str(out), "--picture", str(picture)]
    assert run(predictor, *words) == 0
    text = capsys.readouterr().out
    assert "predicted from simulated data" in text
    assert f"powercap verify {out}" in text
    found = Plan.read(out)
    assert found.prediction.power_w.high + found.problem.sensor_error_w <= 300.0
    assert found.prediction.gpu_name == "NVIDIA H200 (simulated)"
    assert found.prediction.mode == "infer"
    assert found.prediction.dataset == "synthetic"
    assert "simulated" in picture.read_text()


def test_a_picture_that_cannot_be_drawn_hides_no_plan(
    predictor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan is printed before the error about the format of the picture."""
    words = ["--cap-w", "300", "--out", str(tmp_path / "plan.json")]
    assert run(predictor, *words, "--picture", str(tmp_path / "plan.foo")) == 2
    told = capsys.readouterr()
    assert "predicted from simulated data" in told.out
    assert "Format 'foo' is not supported" in told.err


def test_the_plan_holds_on_the_simulated_gpu(predictor: Path, tmp_path: Path) -> None:
    """The simulated GPU stays below the cap with the plan, near the predicted throughput."""
    out = tmp_path / "plan.json"
    assert run(predictor, "--cap-w", "350", "--out", str(out)) == 0
    found = Plan.read(out)
    window = simulated_gpu("sim:h200", seed=1).measure(
        found.configuration, window_s=2.0, warmup_s=1.0
    )
    assert window.power_mean_w is not None
    assert window.power_mean_w <= 350.0
    assert window.throughput_per_s == pytest.approx(found.value, rel=0.1)


def test_a_refusal_is_json_with_exit_code_1(
    predictor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a plan, the command returns 1, names the limit, and writes no file."""
    out = tmp_path / "plan.json"
    assert run(predictor, "--cap-w", "70", "--out", str(out), "--json") == 1
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer["limit"], answer["allowed"]) == ("power cap", 70.0)
    assert answer["needed"] > 100.0
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--min-rate", "resnet50=x"], "--min-rate must be a value for all models"),
        (["--latency-ms", "vgg19=3"], "not among the models"),
        (["--min-rate", "100", "200"], "--min-rate has several values without a model"),
        (["--memory-gib", "80"], "footprint"),
    ],
)
def test_wrong_options_are_errors(
    predictor: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Values that cannot be read, unknown models and missing footprints are errors."""
    assert run(predictor, *words) == 2
    assert message in capsys.readouterr().err


def test_limits_of_each_model_are_read(predictor: Path, tmp_path: Path) -> None:
    """Limits for all models and for one are part of the problem; that for one comes first."""
    out = tmp_path / "plan.json"
    words = ["--min-rate", "500", "--latency-ms", "resnet50=80", "20", "--memory-gib", "80"]
    assert run(predictor, *words, "--footprint", "1.5+0.02", "--out", str(out)) == 0
    problem = Plan.read(out).problem
    assert problem.min_rates_per_s == {"resnet50": 500.0}
    assert problem.max_latencies_ms == {"resnet50": 80.0}
    assert problem.footprints == {"resnet50": (1.5, 0.02)}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_from_the_command_line(
    predictor: Path, tmp_path: Path, method: str
) -> None:
    """Every name that --method accepts gives a plan below the cap."""
    out = tmp_path / "plan.json"
    assert run(predictor, "--cap-w", "300", "--method", method, "--out", str(out)) == 0
    assert Plan.read(out).prediction.power_w.value < 300.0


def test_a_plan_that_was_measured_is_chosen_from_a_trace(
    predictor: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Failed windows of the trace are no choice; a method beside a trace is an error."""
    gpu = simulated_gpu("sim:h200")
    few = Configuration(tenants=(Tenant(model="resnet50", share_pct=50, batch=4),))
    many = Configuration(tenants=(Tenant(model="resnet50", share_pct=50, batch=64),) * 2)
    window = gpu.measure(few, window_s=1.0, warmup_s=0.2)
    trace, out = tmp_path / "trace.csv", tmp_path / "plan.json"
    for row in (window, MeasuredWindow(configuration=many, source="simulated", status="oom")):
        append(trace, row)
    words = ["--measured", str(trace), "--out", str(out)]
    assert run(predictor, *words) == 0
    assert Plan.read(out).configuration == few
    assert "found by measurement" in capsys.readouterr().out
    assert run(predictor, *words, "--method", "greedy") == 2
    assert "without a method, got 'greedy'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "change", [{"gpu_name": "NVIDIA H100"}, {"mode": "train"}, {"dataset": "caltech256"}]
)
def test_a_trace_of_something_else_than_the_predictor_is_refused(
    predictor: Path, tmp_path: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """If a trace also has windows of the predictor's GPU, data and mode, only these are used."""
    few, more = (
        Configuration(tenants=(Tenant(model="resnet50", share_pct=50, batch=4),) * count)
        for count in (1, 2)
    )
    window = simulated_gpu("sim:h200").measure(few, window_s=1.0, warmup_s=0.2)
    trace, out = tmp_path / "trace.csv", tmp_path / "plan.json"
    words = ["--measured", str(trace), "--out", str(out)]
    append(trace, replace(window, configuration=more, **change))
    assert run(predictor, *words) == 2
    told = capsys.readouterr().err
    assert f"{trace} has no window of what the predictor is for" in told
    [(name, value)] = change.items()
    assert f"{name} {value!r}" in told.partition("the first window has")[2]
    assert not out.exists()
    append(trace, replace(window, gpu_name="", dataset=""))
    assert run(predictor, *words) == 0
    assert Plan.read(out).configuration == few
