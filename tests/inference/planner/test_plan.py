"""Plans and problems as JSON and text."""

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.planner.problem import Footprint, GpuSetting, Problem
from energy_callbacks.inference.planner.search import plan
from tests.inference.planner.synthetic import random_gpu


@pytest.fixture
def found() -> Plan:
    """Provide a plan for two models with all limits."""
    gpu = random_gpu(Random(1), 2, (1000.0, 1410.0))
    problem = Problem(
        models=("a", "b"),
        cap_w=200.0,
        settings=(GpuSetting(sm_mhz=1000.0), GpuSetting(sm_mhz=1410.0)),
        batches=(4, 16),
        weights={"a": 2.0},
        min_rates_per_s={"b": 10.0},
        max_latencies_ms={"a": 1000.0},
        memory_gib=40.0,
        footprints={"a": Footprint(1.0, 0.01), "b": Footprint(2.0)},
    )
    made = plan(problem, gpu, additive=gpu)
    assert isinstance(made, Plan)
    return made


def test_a_plan_survives_json(found: Plan, tmp_path: Path) -> None:
    """A plan that is written and read is the same plan."""
    found.write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json") == found
    made = replace(found.prediction, gpu_name="NVIDIA H200", mode="train")
    replace(found, prediction=made).write(tmp_path / "plan.json")
    assert Plan.read(tmp_path / "plan.json").prediction == made


def test_a_plan_of_an_earlier_version_is_read(found: Plan, tmp_path: Path) -> None:
    """It has neither GPU nor mode, and earlier versions read a plan that has both."""
    values = json.loads(json.dumps(found.as_json()))
    assert not {"gpu_name", "mode"} & values["prediction"].keys()
    del values["gpu_name"], values["mode"]
    (tmp_path / "plan.json").write_text(json.dumps(values))
    assert Plan.read(tmp_path / "plan.json") == found
    assert (found.prediction.gpu_name, found.prediction.mode) == ("", None)


def test_other_files_are_no_plans(found: Plan, tmp_path: Path) -> None:
    """A file of another version, or without a plan, is an error that names the file."""
    path = tmp_path / "plan.json"
    for text in ("[]", "{}", json.dumps({**found.as_json(), "version": 0}), '{"version": 1'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"plan\.json: (this is no plan of version 1|Expect)"):
            Plan.read(path)


def test_the_margin_follows_the_prediction(found: Plan) -> None:
    """The margin is 1.645 sigma plus the sensor's error, and the plan keeps it."""
    power_w, cap_w = found.prediction.power_w, found.problem.cap_w
    assert cap_w is not None
    expected_w = (power_w.high - power_w.value) + 0.007 * cap_w
    assert found.margin.total_w == pytest.approx(expected_w)
    assert power_w.value + found.margin.total_w <= cap_w * (1 + 1e-9)


def test_the_text_has_what_a_user_needs(found: Plan) -> None:
    """Tenants, clock, intervals, bound, margin, greedy's value and the command to verify."""
    text = found.text(Path("my plan.json"))
    assert "simulated" in text
    assert f"SM clock {found.configuration.sm_mhz:g} MHz" in text
    for words in ("90 % interval", "gap 0.00 %", "HiGHS", "sensor", "greedy", "cap 200 W"):
        assert words in text
    assert "energy-callbacks powercap verify 'my plan.json'" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": ()}, "models must not be empty"),
        ({"shares_pct": (7,)}, "multiples of 5"),
        ({"cap_w": 0.0}, "cap_w must be positive"),
        ({"weights": {"z": 1.0}}, "weights names"),
        ({"memory_gib": 10.0}, "footprint of each model"),
        ({"batches": (0, 4)}, "batches must be at least 1"),
        ({"cap_w": float("inf")}, "cap_w must be positive and finite, got inf"),
        ({"weights": {"a": 0.0}}, "weights must be positive"),
        ({"max_latencies_ms": {"a": float("nan")}}, "max_latencies_ms must be positive"),
        ({"min_rates_per_s": {"a": -5.0}}, "must be finite and not negative, got -5"),
        ({"sensor_error_pct": 100.0}, "at least 0 and below 100"),
    ],
)
def test_wrong_problems_are_errors(changes: dict[str, object], message: str) -> None:
    """Values out of range and unknown models are errors at construction."""
    with pytest.raises(ValueError, match=message):
        Problem(**{"models": ("a",), **changes})  # type: ignore[arg-type]
