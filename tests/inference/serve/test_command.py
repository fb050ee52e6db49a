"""``powercap serve`` on simulated GPUs, and its errors."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from energy_callbacks.cli import main
from energy_callbacks.cli.powercap import open_bench, serve
from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.inference.control.controllers import create
from energy_callbacks.inference.control.protocols import Controller, Window
from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.predictor.predictor import Predictor
from energy_callbacks.inference.profile.open_device import LocalDevice
from energy_callbacks.inference.profile.sweeps import anchor, designed
from energy_callbacks.inference.records import Tenant
from energy_callbacks.inference.serve.server import Server
from energy_callbacks.inference.simulated.presets import simulated_gpu
from energy_callbacks.inference.traces import read
from energy_callbacks.powercap.settings import KnobRange

SERVE = ["powercap", "serve", "--gpu", "sim:h200"]
RESNET = ["--model", "resnet50", "--cap", "400"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a folder with a predictor and a plan."""
    found = tmp_path_factory.mktemp("serve")
    gpu = simulated_gpu("sim:h200")
    models = ["resnet50", "mobilenet_v2"]
    candidates = designed(anchor(models, share_step=25.0), 8)
    rows = [gpu.measure(one, window_s=1.0, warmup_s=1.0) for one in candidates]
    Predictor.fit_only(rows).save(found / "predictor.json")
    words = ["--predictor", str(found / "predictor.json"), "--model", "resnet50", "--share", "25"]
    words += ["50", "--batch", "4", "16", "--cap-w", "450", "--out", str(found / "plan.json")]
    assert main(["powercap", "plan", *words]) == 0
    return found


@pytest.fixture
def params(folder: Path) -> list[str]:
    """Provide the option that names the predictor."""
    return ["--params", str(folder / "predictor.json")]


def test_a_cap_is_held(
    params: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without privilege, our controller holds caps by pauses; every window is a row."""
    out = tmp_path / "rows.csv"
    words = ["--model", "resnet50", "--cap", "0:400,20:300", "--seconds", "40", "--no-privilege"]
    assert main([*SERVE, *words, *params, "--out", str(out), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["source"] == "simulated"
    assert found["algorithm"] == "model"
    assert found["degraded"]
    assert found["above_cap_s"] <= 2.0
    settled = found["windows"][15:20] + found["windows"][35:]
    assert all(one["power_mean_w"] > 0.7 * one["cap_w"] for one in settled)
    rows = read(out)
    assert len(rows) == 40
    assert {(row.phase, row.source) for row in rows} == {("online", "simulated")}
    assert "cap 300 W" in rows[-1].note


@pytest.mark.parametrize(
    "algorithm", ["model", "pctodl", "morak", "batchdvfs", "directcap", "powercap"]
)
def test_every_algorithm(
    algorithm: str, params: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It serves with all that it needs."""
    words = [*RESNET, "--algorithm", algorithm, "--seconds", "5", "--json"]
    assert main([*SERVE, *words, *params]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["algorithm"], found["degraded"]) == (algorithm, "")
    assert found["total"]["answered"] > 1000


def test_ctrl_c(
    params: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The present window is completed, so that the report is that of four windows."""
    words = [*SERVE, *RESNET, *params, "--json", "--seconds"]
    assert main([*words, "4"]) == 0
    expected = json.loads(capsys.readouterr().out)
    window, left = Server.window, iter([3, 2, 1])

    def interrupted(server: Server, duration_s: float) -> Window:
        if next(left, 0):
            return window(server, duration_s)
        monkeypatch.setattr(Server, "window", window)
        server._machine.pass_until(server._machine.pool.now_s() + duration_s / 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "window", interrupted)
    assert main([*words, "40"]) == 130
    shown = capsys.readouterr()
    assert "powercap: interrupted" in shown.err
    assert json.loads(shown.out) == expected | {"interrupted": True}


def test_ctrl_c_before_the_first_window(
    params: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to report."""
    window = Server.window

    def interrupted(*_: object) -> Window:
        monkeypatch.setattr(Server, "window", window)
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "window", interrupted)
    assert main([*SERVE, *RESNET, *params, "--json"]) == 130
    assert capsys.readouterr().out == ""


def test_requests_at_random(params: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Rates may differ between models and change; the report counts the requests of each."""
    words = ["--model", "resnet50", "mobilenet_v2", "--cap", "500", "--seconds", "8"]
    words += ["--rate", "250", "resnet50=0:100,4:300", "--share", "50", "--batch", "16", "--json"]
    assert main([*SERVE, *words, *params]) == 0
    found = json.loads(capsys.readouterr().out)["requests"]
    assert found["mobilenet_v2"]["arrived"] == pytest.approx(2_000, rel=0.05)
    assert found["resnet50"]["arrived"] == pytest.approx(1_600, rel=0.05)
    for one in found.values():
        assert one["answered"] + one["waiting"] == one["arrived"]
        assert one["answered"] > 0.5 * one["arrived"]
        assert one["latencies_ms"]["p50"] < 1000.0


def test_recorded_requests(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All requests of a file are answered, with a plan that stays as it is."""
    trace = tmp_path / "trace.csv"
    trace.write_text("time_s,requests\n" + "".join(f"{at / 10},7\n" for at in range(40)))
    words = ["--algorithm", "fixed", "--plan", str(folder / "plan.json"), "--cap", "400"]
    assert main([*SERVE, *words, "--arrivals", str(trace), "--seconds", "5"]) == 0
    text = capsys.readouterr().out
    assert "fixed on NVIDIA H200 (simulated), 5.0 s" in text
    row = next(line for line in text.splitlines() if line.startswith("resnet50"))
    assert row.split()[:4] == ["resnet50", "280", "280", "0"]


def test_a_plan_without_a_model(
    folder: Path, params: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A model without a tenant could answer no request."""
    words = ["--plan", str(folder / "plan.json"), "--model", "mobilenet_v2", "--cap", "400"]
    assert main([*SERVE, *words, *params]) in (1, 2)
    assert "the plan has no tenant for mobilenet_v2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gpu_name": "NVIDIA H200"}, "is for NVIDIA H200, but --gpu sim:h200 is NVIDIA H200 (sim"),
        ({"mode": "train"}, "is for training, not for inference"),
        ({"dataset": "caltech256"}, "is for caltech256 data, but this command uses synthetic data"),
    ],
)
def test_what_was_made_for_something_else_is_refused(
    change: dict[str, Any],
    message: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A predictor and a plan for another GPU, for training, or for other data are not used."""
    one, fitted = Plan.read(folder / "plan.json"), Predictor.load(folder / "predictor.json")
    replace(one, prediction=replace(one.prediction, **change)).write(tmp_path / "plan.json")
    replace(fitted, identity={**fitted.identity, **change}).save(tmp_path / "predictor.json")
    for file, words in (
        ("plan.json", ["--algorithm", "fixed", "--plan"]),
        ("predictor.json", ["--model", "resnet50", "--params"]),
    ):
        path = str(tmp_path / file)
        assert main([*SERVE, "--cap", "400", *words, path, "--seconds", "1"]) == 2
        assert f"{path} {message}" in capsys.readouterr().err


def test_the_shadow(params: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It is a part of the report."""
    words = [*RESNET, "--enable-shadow", "--seconds", "30", "--no-privilege", "--json"]
    assert main([*SERVE, *words, *params]) == 0
    assert json.loads(capsys.readouterr().out)["algorithm"] == "model+shadow"


def test_a_dry_run(params: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the operating point of each cap, and each privileged change; nothing is served."""
    words = ["--model", "resnet50", "--cap", "0:400,60:300", "--dry-run"]
    assert main([*SERVE, *words, *params]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *("from 0 s, cap 400 W", "privileged", "from 60 s, cap 300 W", "privileged"),
        "60 s; nothing was served",
    ]
    assert main([*SERVE, *words, *params, "--json", "--no-privilege"]) == 0
    points = json.loads(capsys.readouterr().out)
    assert [one["cap_w"] for one in points] == [400.0, 300.0]
    assert points[0]["point"]["configuration"]["sm_mhz"] is None


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """Provide the problems of all controllers that the command makes."""
    found: list[Problem] = []

    def recorded(name: str, problem: Problem, *given: Any, **options: Any) -> Controller:
        found.append(problem)
        return create(name, problem, *given, **options)

    monkeypatch.setattr(serve, "create", recorded)
    return found


def test_tenants_must_answer_more_than_the_rate(params: list[str], problems: list[Problem]) -> None:
    """Random requests of 1000/s need 1250/s."""
    assert main([*SERVE, *RESNET, *params, "--rate", "1000", "--dry-run"]) == 0
    assert problems[-1].min_rates_per_s == {"resnet50": 1250.0}


def test_a_plan_with_a_controller(
    folder: Path, params: list[str], problems: list[Problem], capsys: pytest.CaptureFixture[str]
) -> None:
    """Its tenants are kept under each cap, and its limits hold that no option replaces."""
    words = ["--plan", str(folder / "plan.json"), "--cap", "0:450,9:300", "--share", "25"]
    assert main([*SERVE, *words, *params, "--dry-run", "--json"]) == 0
    points = json.loads(capsys.readouterr().out)
    kept = Plan.read(folder / "plan.json").configuration.tenants
    for one in points:
        tenants = [Tenant(**each) for each in one["point"]["configuration"]["tenants"]]
        assert tenants == list(kept)
    assert (problems[-1].shares_pct, problems[-1].batches) == ((25,), (4, 16))


def test_a_gpu_whose_clocks_cannot_be_changed(
    params: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With consent, our controller uses the power limit instead, and says that."""
    limit = KnobRange(knob="limit", lowest=200.0, highest=700.0, present=700.0, default=700.0)
    actuator = SimpleNamespace(
        probe=lambda _: SimpleNamespace(knobs=("limit",)), range=lambda _uuid, _knob: limit
    )

    def chosen(_uuid: str, knobs: Sequence[str]) -> object:
        if "clock" in knobs:
            raise ActuatorError("no actuator can change 'clock'")
        return actuator

    device = LocalDevice(uuid="GPU-1", name="NVIDIA H200 (simulated)")
    monkeypatch.setattr(open_bench, "device", lambda _: device)
    monkeypatch.setattr(open_bench, "actuator", chosen)
    words = ["powercap", "serve", "--gpu", "0", *RESNET, *params, "--yes", "--dry-run"]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "degraded: clocks cannot be changed: the power limit follows the cap" in text
    assert "privileged: set limit" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--cap", "400"], "serve needs --model, or --plan with the models"),
        ([*RESNET], "this algorithm needs a predictor: name one with --params"),
        ([*RESNET, "--algorithm", "fixed"], "--algorithm fixed needs --plan"),
        ([*RESNET, "--algorithm", "powercap", "--enable-shadow"], "needs --params"),
        (["--model", "resnet50", "--cap", "5:400"], "the first time must be 0"),
        (["--model", "resnet50", "--cap", "0:400,9:inf"], "values must be at least 0 and finite"),
        (["--model", "resnet50", "--cap", "caps.csv"], "caps.csv"),
        (["--model", "unknown", "--cap", "400", "--algorithm", "powercap"], "no model 'unknown'"),
        ([*RESNET, "--algorithm", "powercap", "--seconds", "0"], "seconds must be at least 1"),
        ([*RESNET, "--algorithm", "powercap", "--rate", "x"], "--rate must be"),
        (
            [*RESNET, "--algorithm", "powercap", "--rate", "5:100"],
            "got '5:100': the first time must be 0",
        ),
        ([*RESNET, "--algorithm", "powercap", "--clients", "0"], "clients must be at least 1"),
        ([*RESNET, "--algorithm", "powercap", "--arrivals", "none.csv"], "none.csv"),
        (
            [
                *RESNET,
                "--model",
                "resnet50",
                "vgg19",
                "--algorithm",
                "powercap",
                "--rate",
                "vgg19=5",
            ],
            "--rate has no value for resnet50",
        ),
        (
            [*RESNET, "--algorithm", "powercap", "--rate", "5", "vgg19=5"],
            "--rate names vgg19; the models are resnet50",
        ),
    ],
)
def test_wrong_arguments(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is served, and the message says what to change."""
    assert main([*SERVE, *words]) in (1, 2)
    assert message in capsys.readouterr().err
