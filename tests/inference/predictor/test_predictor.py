"""Fits of windows of a known law."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.inference.predictor import Predictor, rows
from energy_callbacks.inference.predictor.physics import OF_MODEL, estimate, jacobian
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from tests.inference.predictor.law import HIGHEST_MHZ, STATIC_W, equal, grid, measured


@pytest.fixture(scope="module")
def fitted() -> Predictor:
    """Provide a predictor of one model over batches, tenants and three clocks."""
    clocks = [one for mhz in (600.0, 1050.0, 1500.0) for one in grid(sm_mhz=mhz)]
    return Predictor.fit_only(clocks)


def errors(predictor: Predictor, windows: list[MeasuredWindow]) -> tuple[float, float]:
    """Return the largest relative errors of throughput and power."""
    found = predictor.predict_many([one.configuration for one in windows])
    pairs = list(zip(found, windows, strict=True))
    return (
        max(abs(one.throughput_per_s.value / (w.throughput_per_s or 0) - 1) for one, w in pairs),
        max(abs(one.power_w.value / (w.power_mean_w or 0) - 1) for one, w in pairs),
    )


def test_what_was_not_measured_is_predicted(fitted: Predictor) -> None:
    """Batches, shares and clocks between those measured are within a few percent."""
    others = [
        measured(equal("small", count, 100 / count, batch, sm_mhz=mhz))
        for count in (1, 3)
        for batch in (2, 32)
        for mhz in (800.0, 1500.0)
    ]
    throughput, power = errors(fitted, others)
    assert throughput < 0.06
    assert power < 0.06


def test_the_highest_clock_is_the_reference(fitted: Predictor) -> None:
    """At it, the prediction is that without a clock; below it, nothing jumps."""
    free = fitted.predict(equal("small", 2, 50.0, 16))
    highest = fitted.predict(equal("small", 2, 50.0, 16, sm_mhz=HIGHEST_MHZ))
    assert highest == free
    ladder = [equal("small", 2, 50.0, 16, sm_mhz=mhz) for mhz in np.arange(600.0, 1501.0, 15.0)]
    rates = [one.throughput_per_s.value for one in fitted.predict_many(ladder)]
    steps = np.diff(np.log(rates))
    assert (steps > -1e-3).all()
    assert steps.max() < 0.03


def test_derivatives_are_those_of_each_parameter(fitted: Predictor) -> None:
    """They are central differences of the form, for configurations of different sizes."""
    slow = equal("small", 1, 50.0, 16, sm_mhz=900.0)
    which = [equal("small", 3, 30.0, 8), Configuration(tenants=()), slow]
    made = rows.of(which, fitted.models, fitted.reference_mhz)
    center, slopes = jacobian(fitted.theta, fitted.scales, made)
    alone = estimate(fitted.theta, fitted.scales, made)
    assert all(map(np.array_equal, center, alone))
    for at, step in enumerate(np.eye(len(fitted.theta)) * 1e-4):
        after = estimate(fitted.theta + step, fitted.scales, made)
        before = estimate(fitted.theta - step, fitted.scales, made)
        for slope, high, low in zip(slopes, after, before, strict=True):
            assert slope[:, at] == pytest.approx((high - low) / 2e-4, rel=1e-3, abs=1e-3)


def test_a_higher_limit_than_the_power_changes_nothing() -> None:
    """The throughput at such a limit is that without a limit."""
    limited = [
        replace(one, configuration=replace(one.configuration, power_limit_w=900.0))
        for one in grid()
    ]
    predictor = Predictor.fit_only(limited)
    at_900, at_800 = (
        predictor.predict(equal("small", 2, 50.0, 16, power_limit_w=limit)).throughput_per_s
        for limit in (900.0, 800.0)
    )
    assert at_800.value == pytest.approx(at_900.value, rel=0.02)


def test_models_have_their_own_parameters() -> None:
    """Windows of another model change the rates of a model very little, and none is shared."""
    alone = Predictor.fit_only(grid("small"))
    both = Predictor.fit_only([*grid("small"), *grid("large")])
    assert both.models == ("large", "small")
    of_models = both.theta[: 2 * len(OF_MODEL)].reshape(2, -1)
    assert not np.isclose(of_models[0], of_models[1]).all()
    one = equal("small", 2, 50.0, 32)
    rates = [each.predict(one).throughput_per_s.value for each in (alone, both)]
    assert rates[1] == pytest.approx(rates[0], rel=0.02)
    throughput, power = errors(both, [*grid("small"), *grid("large")])
    assert throughput < 0.05
    assert power < 0.05


def test_a_model_that_was_not_measured_is_an_error(fitted: Predictor) -> None:
    """The message has the models that were measured."""
    with pytest.raises(ValueError, match="no window of vgg19 was measured; measured models: small"):
        fitted.predict(equal("vgg19", 1, 100.0, 8))


@pytest.mark.parametrize(("share", "batch"), [(0.0, 8), (150.0, 8), (float("nan"), 8), (50.0, 0)])
def test_tenants_that_are_impossible_are_an_error(
    fitted: Predictor, share: float, batch: int
) -> None:
    """The message has share and batch."""
    with pytest.raises(ValueError, match=f"has the share {share:g} % and the batch {batch};"):
        fitted.predict(equal("small", 1, share, batch))


def test_different_tenants_are_fitted() -> None:
    """Windows of a small and a large model, with unequal shares, are predicted after such fits."""
    mixtures = [
        measured(
            Configuration(
                tenants=(
                    Tenant(model="small", share_pct=share, batch=batch),
                    Tenant(model="large", share_pct=100 - share, batch=8),
                )
            )
        )
        for share in (25.0, 50.0, 75.0)
        for batch in (4, 16, 64)
    ]
    left_out = mixtures.pop(4)
    predictor = Predictor.fit_only([*grid("small"), *grid("large"), *mixtures])
    throughput, power = errors(predictor, [left_out])
    assert throughput < 0.05
    assert power < 0.05
    each = predictor.predict(left_out.configuration)
    assert [one.value for one in each.tenant_throughputs_per_s] == pytest.approx(
        left_out.tenant_throughputs_per_s, rel=0.08
    )
    assert each.tenant_latencies_ms[0].value == pytest.approx(
        1e3 * 16 / each.tenant_throughputs_per_s[0].value
    )


@pytest.mark.parametrize(
    ("change", "name"),
    [({"dataset": "caltech256"}, "dataset"), ({"gpu_name": "A100"}, "gpu_name")],
)
def test_windows_that_do_not_belong_together_are_an_error(
    change: dict[str, str], name: str
) -> None:
    """Datasets and GPUs are never fitted together."""
    windows = [*grid(), replace(grid()[0], **change)]  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"several values of {name}: .*fit one predictor to each"):
        Predictor.fit(windows)


def test_another_dataset_is_refused(fitted: Predictor) -> None:
    """A predictor is not used silently for a dataset that it was not fitted to."""
    fitted.require(dataset="imagenet", gpu_name=None)
    with pytest.raises(ValueError, match="with dataset 'imagenet', not 'caltech256'; fit another"):
        fitted.require(dataset="caltech256")


def test_failed_windows_do_not_count() -> None:
    """A window that ran out of memory changes nothing, even if it has zeros."""
    oom = replace(grid()[0], status="oom", throughput_per_s=0.0, power_mean_w=0.0)
    without, with_oom = (Predictor.fit_only(one) for one in (grid(), [*grid(), oom, oom]))
    assert np.array_equal(without.theta, with_oom.theta)


def test_too_few_windows_are_an_error() -> None:
    """Failed windows and idle ones do not count."""
    idle = replace(grid()[0], phase="idle")
    with pytest.raises(ValueError, match=r"a fit needs at least 3 windows .* got 2"):
        Predictor.fit([*grid()[:2], idle, replace(grid()[2], status="timeout")])


@pytest.mark.parametrize("value", [-1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["throughput_per_s", "power_mean_w"])
def test_figures_that_are_impossible_are_an_error(name: str, value: float) -> None:
    """The message names the figure."""
    with pytest.raises(ValueError, match=f"{name} must be finite and not negative"):
        Predictor.fit_only([*grid(), replace(grid()[0], **{name: value})])  # type: ignore[arg-type]


def test_the_power_of_processes_that_wait() -> None:
    """It is predicted for a configuration without tenants."""
    static = replace(measured(equal("small", 1, 100.0, 1)), phase="static", power_mean_w=STATIC_W)
    found = Predictor.fit_only([*grid(), static]).predict(Configuration(tenants=()))
    assert found.power_w.value == pytest.approx(STATIC_W, rel=0.05)
    assert found.throughput_per_s == (0.0, 0.0, 0.0)


def test_files_keep_everything(tmp_path: Path) -> None:
    """A predictor that was read predicts the same, and has the errors of the fit."""
    clocks = [one for mhz in (600.0, 1500.0) for one in grid(batches=(4, 64), sm_mhz=mhz)]
    fitted = Predictor.fit(clocks)
    fitted.save(tmp_path / "predictor.json")
    loaded = Predictor.load(tmp_path / "predictor.json")
    one = equal("small", 3, 30.0, 8, sm_mhz=900.0)
    assert loaded.predict(one) == fitted.predict(one)
    assert loaded.held_out == fitted.held_out
    assert {one.setting for one in loaded.held_out} == {"batch", "share", "tenants", "clock"}
    assert loaded.predict(one).source == "simulated"


class Trap:
    """Fails the test if it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return pytest.fail, ("the file was unpickled",)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    """Code in a file is not run."""
    path = tmp_path / "predictor.pkl"
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="is not a predictor of version 1"):
        Predictor.load(path)


def test_files_of_other_versions_are_refused(fitted: Predictor, tmp_path: Path) -> None:
    """The message has the version."""
    path = tmp_path / "predictor.json"
    fitted.save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 2}))
    with pytest.raises(ValueError, match=r"version 2\); write it with energy-callbacks powercap"):
        Predictor.load(path)


def test_parameters_of_another_model_are_refused(fitted: Predictor, tmp_path: Path) -> None:
    """A file whose parameters do not match its models is found when it is read."""
    path = tmp_path / "predictor.json"
    fitted.save(path)
    fields = json.loads(path.read_text())
    fields["parameters"].popitem()
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="the parameters are not those of the models"):
        Predictor.load(path)


def test_the_next_configuration_is_far_from_those_measured() -> None:
    """Of candidates, the one at a batch that was never measured is proposed."""
    predictor = Predictor.fit_only(grid(batches=(1, 2, 4)))
    candidates = [equal("small", count, 100 / count, batch) for count in (1, 4) for batch in (1, 4)]
    far = equal("small", 2, 50.0, 256)
    assert predictor.next_configuration([*candidates, far]) == far


def test_a_new_card_starts_from_the_old_fit() -> None:
    """With three windows at small batches of a faster card, large batches are predicted."""
    old = Predictor.fit_only(grid())
    faster = [
        replace(
            one,
            gpu_name="new",
            throughput_per_s=2 * (one.throughput_per_s or 0),
            tenant_throughputs_per_s=(),
            power_mean_w=1.5 * (one.power_mean_w or 0),
        )
        for one in grid()
    ]
    few = [faster[at] for at in (0, 1, 5)]
    new, fresh = (Predictor.fit_only(few, prior=prior) for prior in (old, None))
    assert max(errors(new, faster)) < 0.15
    assert max(errors(new, faster)) < max(errors(fresh, faster)) / 2


def test_intervals_contain_noisy_windows() -> None:
    """From 12 windows with 3 % of noise, intervals of 90 % contain most of 60 others."""
    made = [
        measured(equal("small", count, 100 / count, batch), noise=0.03, seed=100 * count + batch)
        for count in (1, 2, 4, 5, 8, 10)
        for batch in (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 224, 256)
    ]
    held = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(made))
        predictor = Predictor.fit_only([made[at] for at in order[:12]])
        others = [made[at] for at in order[12:]]
        found = predictor.predict_many([one.configuration for one in others])
        for one, window in zip(found, others, strict=True):
            held.append(one.power_w.low <= (window.power_mean_w or 0) <= one.power_w.high)
            rate = one.throughput_per_s
            held.append(rate.low <= (window.throughput_per_s or 0) <= rate.high)
    assert 0.85 < np.mean(held) < 0.99
