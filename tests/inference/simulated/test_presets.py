"""Tests of the presets of simulated GPUs."""

import tomllib
from importlib.resources import files

import pytest

from energy_callbacks.inference.records import Configuration, Tenant
from energy_callbacks.inference.simulated import presets
from energy_callbacks.inference.simulated.presets import simulated_gpu

MODELS = (
    "mnasnet",
    "densenet201",
    "efficientnet_v2_m",
    "maxvit_t",
    "mobilenet_v2",
    "resnet50",
    "vgg19",
)


def four(model: str, batch: int = 32) -> Configuration:
    """Four tenants that run the same model."""
    return Configuration(tenants=(Tenant(model=model, share_pct=25.0, batch=batch),) * 4)


@pytest.mark.parametrize("name", presets.names())
def test_every_preset_runs_all_models(name: str) -> None:
    """Each model has its own speed, and its power is between static power and the limit."""
    one = simulated_gpu(name)
    assert "simulated" in one.card.name
    rows = [one.measure(four(model), window_s=1.0, warmup_s=1.0) for model in MODELS]
    assert {(row.status, row.source) for row in rows} == {("ok", "simulated")}
    assert len({row.throughput_per_s for row in rows}) == len(MODELS)
    static_w, (_, highest_w, _) = one.card.static_w[-1][1], one.card.limits_w
    for row in rows:
        assert row.power_mean_w is not None
        assert 0.9 * static_w < row.power_mean_w < 1.03 * highest_w


def test_the_origin_of_each_preset_is_stated() -> None:
    """The comment before each GPU says what is measured, published or assumed."""
    text = files(presets.__package__).joinpath("presets.toml").read_text(encoding="utf-8")
    for name in presets.names():
        before = text.split(f"[{name.removeprefix(presets.PREFIX)}]\n")[0]
        comment = before.rsplit("\n\n", 1)[-1]
        assert any(word in comment for word in ("measured:", "published:", "As for the V100"))
    assert tomllib.loads(text)["models"]["resnet50"]["gflops"] == 4.09


@pytest.mark.parametrize(
    ("model", "batch", "rate", "power_w"),
    [("resnet50", 32, 13959.0, 604.0), ("mobilenet_v2", 128, 33345.0, 359.0)],
)
def test_windows_that_were_measured_on_an_h200(
    model: str, batch: int, rate: float, power_w: float
) -> None:
    """Four tenants of 25 % are within 10 % of what an H200 did."""
    row = simulated_gpu("sim:h200").measure(four(model, batch), window_s=2.0, warmup_s=2.0)
    assert row.throughput_per_s == pytest.approx(rate, rel=0.1)
    assert row.power_mean_w == pytest.approx(power_w, rel=0.1)


def test_a_training_that_was_measured_on_a_v100() -> None:
    """ResNet-50 with a batch of 128 at 150 W: 302 images per second at 145 W (Zeus's trace)."""
    tenants = (Tenant(model="resnet50", share_pct=100.0, batch=128),)
    row = simulated_gpu("sim:v100").measure(
        Configuration(tenants=tenants, power_limit_w=150.0),
        window_s=5.0,
        warmup_s=2.0,
        mode="train",
    )
    assert row.throughput_per_s == pytest.approx(302.0, rel=0.05)
    assert row.power_mean_w == pytest.approx(145.0, rel=0.05)


def test_twenty_tenants_do_not_fit_into_12_gib() -> None:
    """The memory of the RTX 3080 Ti limits their number."""
    tenants = (Tenant(model="resnet50", share_pct=5.0, batch=64),) * 20
    row = simulated_gpu("sim:rtx3080ti").measure(
        Configuration(tenants=tenants), window_s=1.0, warmup_s=1.0
    )
    assert row.status == "oom"


def test_models_that_were_not_measured() -> None:
    """They are derived from resnet50 by their GFLOPs and layers; a training needs more memory."""
    inference, training = presets.workloads("h200"), presets.workloads("v100")
    base, derived = inference["resnet50"], inference["vgg19"]
    assert derived.k2 / base.k2 == pytest.approx((19.63 + 3.3) / (4.09 + 3.3))
    assert derived.sample_mj / base.sample_mj == pytest.approx((19.63 + 0.68) / (4.09 + 0.68))
    assert derived.host_ms / base.host_ms == pytest.approx(19 / 54)
    assert derived.memory_gib == pytest.approx(0.35 + 2 * 143_667_240 / 2**30)
    assert training["vgg19"].mode == "train"
    assert training["vgg19"].sample_mib == 3.0 * derived.sample_mib


def test_variation() -> None:
    """A GPU may differ from its preset; the seed says how."""
    plain, other, same, third = (
        simulated_gpu("sim:a100", seed=seed, variation=variation)
        .measure(four("vgg19"), window_s=1.0, warmup_s=1.0)
        .throughput_per_s
        for seed, variation in ((1, 0.0), (1, 0.1), (1, 0.1), (2, 0.1))
    )
    assert other == same
    assert len({plain, other, third}) == 3


def test_an_unknown_name() -> None:
    """The error lists all names."""
    with pytest.raises(ValueError, match="no simulated GPU 'sim:b200'; choose from sim:h200, "):
        simulated_gpu("sim:b200")
