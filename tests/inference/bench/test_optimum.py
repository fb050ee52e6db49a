"""The best operating point of simulated GPUs, compared with the GPUs themselves."""

from dataclasses import replace
from random import Random

import pytest

from energy_callbacks.inference.bench.optimum import Optimum, optimum, task_problem
from energy_callbacks.inference.planner.local_search import random_packings
from energy_callbacks.inference.planner.problem import GpuSetting
from energy_callbacks.inference.records import Mode
from energy_callbacks.inference.simulated import presets
from energy_callbacks.inference.simulated.gpu import OutOfMemory
from energy_callbacks.powercap.settings import Setting

CASES: list[tuple[str, str, Mode, float]] = [
    ("sim:a100", "resnet50", "infer", 150.0),
    ("sim:rtx3080ti", "mobilenet_v2", "infer", 120.0),
    ("sim:v100", "shufflenetv2", "train", 175.0),
    ("sim:h200", "vgg19", "infer", 500.0),
]


def best(gpu: str, model: str, mode: Mode, cap_w: float) -> Optimum:
    """Return the optimum, which exists."""
    found = optimum(gpu, model, mode, cap_w)
    assert found is not None
    return found


@pytest.mark.parametrize(("gpu", "model", "mode", "cap_w"), CASES)
def test_the_gpu_does_what_was_computed(gpu: str, model: str, mode: Mode, cap_w: float) -> None:
    """A warm simulated GPU at this point has this throughput, and its power is below the cap."""
    found = best(gpu, model, mode, cap_w)
    one = presets.simulated_gpu(gpu, mode=mode)
    one.change(Setting(knob="clock", value=found.configuration.sm_mhz))
    one.change(Setting(knob="memory_clock", value=found.configuration.mem_mhz))
    one.run(found.configuration.tenants)
    one.advance(8.0 * one.card.thermal_s)
    passed = one.advance(30.0)
    assert found.power_w <= cap_w
    assert passed.power_w == pytest.approx(found.power_w, rel=0.003)
    rate = sum(passed.samples) / passed.duration_s
    assert rate == pytest.approx(found.throughput_per_s, rel=0.001)


@pytest.mark.parametrize(("gpu", "model", "mode", "cap_w"), CASES)
def test_no_random_configuration_is_better(gpu: str, model: str, mode: Mode, cap_w: float) -> None:
    """Of 60 random ones, none has more throughput without exceeding the cap."""
    found = best(gpu, model, mode, cap_w)
    one = presets.simulated_gpu(gpu, mode=mode)
    chance, clocks = Random(1), one.card.ladder_mhz.tolist()
    some = replace(
        task_problem(gpu, model, mode),
        settings=tuple(GpuSetting(sm_mhz=chance.choice(clocks)) for _ in range(60)),
    )
    allowed = 0
    for configuration in random_packings(some, 60):
        one.change(Setting(knob="clock", value=configuration.sm_mhz))
        try:
            one.run(configuration.tenants)
        except OutOfMemory:
            continue
        passed = one.advance(1.0)
        if passed.power_w <= cap_w:
            allowed += 1
            assert sum(passed.samples) <= found.throughput_per_s * 1.001
    assert allowed > 5


def test_more_power_is_more_throughput() -> None:
    """A higher cap is never worse."""
    rates = [best("sim:a100", "vgg19", "infer", cap_w).throughput_per_s for cap_w in (90, 130, 250)]
    assert rates == sorted(rates)
    assert rates[0] < rates[2]


def test_a_cap_below_the_static_power() -> None:
    """No operating point exists, instead of one above the cap."""
    assert optimum("sim:a100", "resnet50", "infer", 20.0) is None


def test_an_unknown_model() -> None:
    """The message lists the models."""
    with pytest.raises(ValueError, match="has no model 'bert'; it has densenet201"):
        optimum("sim:a100", "bert", "infer", 100.0)


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_memory_of_a_task_is_that_of_the_gpu(mode: Mode) -> None:
    """As many tenants run as the footprint allows, and one more does not."""
    problem = task_problem("sim:rtx3080ti", "resnet50", mode)
    tenant = next(one for one in problem.tenants() if (one.share_pct, one.batch) == (5, 192))
    assert problem.memory_gib is not None
    count = int(problem.memory_gib / problem.memory_of(tenant))
    gpu = presets.simulated_gpu("sim:rtx3080ti", mode=mode)
    gpu.run([tenant] * count)
    with pytest.raises(OutOfMemory):
        gpu.run([tenant] * (count + 1))
