"""The contract: our callback does not change other callbacks, workers, streams or checkpoints."""

import pytest

from tests.integrations.contract.lab import (
    POWER_W,
    STEP_S,
    Bench,
    Plan,
    Stock,
    Training,
)

SMALL = Plan(samples=20, validation_samples=8, checkpoint_s=0.0)
SIZES = (1, 4, 3, 8, 4, 3, 8, 4, 1, 3)  # few sizes, because JAX compiles its functions for each


class BesideContract:
    """Everything else in a training works as without the callback."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run the tests for each callback that comes with the framework."""
        if "stock" in metafunc.fixturenames:
            found = metafunc.cls.lab.stock
            metafunc.parametrize("stock", found, ids=[one.name for one in found])

    def test_other_callbacks_before_and_after_this_one(self, bench: Bench, stock: Stock) -> None:
        """With every callback of the framework, rows, metrics, weights and steps stay the same."""
        plan = Plan(samples=20, validation_samples=8, settings=stock.settings)
        without = bench.training(plan, *stock.made(bench.folder / "0"), folder="without")
        without.fit()
        before, after = bench.callback(), bench.callback()
        orders = {
            "before": (before, *stock.made(bench.folder / "1")),
            "after": (*stock.made(bench.folder / "2"), after),
        }
        for name, callbacks in orders.items():
            _assert_same(bench.fit(plan, *callbacks, folder=name), without)
        for ours in (before, after):
            assert ours.report().run.status == "finished"
            assert ours.report().throughput.steps == without.steps()

    def test_checkpoints_are_the_same_except_for_one_key(self, bench: Bench) -> None:
        """All values of all files are bit-identical; only the callback's key and rows are new."""
        without, with_us = bench.without_us(SMALL), bench.with_us(SMALL).training
        wanted, found = without.checkpoint(), with_us.checkpoint()
        assert len(wanted) > 5
        assert {place: found.get(place) for place in wanted} == wanted
        ours = tuple(with_us.rows().keys() - without.rows().keys())
        new = [place for place in found.keys() - wanted.keys() if not place.endswith(ours)]
        assert [place for place in new if "energy" not in place.lower()] == []

    def test_metrics_are_the_same_except_for_energy_metrics(self, bench: Bench) -> None:
        """The framework returns the same metrics, apart from the keys of the callback."""
        _assert_same(bench.with_us(SMALL).training, bench.without_us(SMALL))

    def test_loader_workers_may_fork(self, bench: Bench) -> None:
        """Two processes load data while the callback's threads run; the training is the same."""
        # One epoch: with several loader processes, Keras begins the second one at a random batch.
        plan = Plan(epochs=1, workers=2, validation_samples=20)
        without = bench.fit(plan, folder="without")
        ours = bench.lab.callback()
        _assert_same(bench.fit(plan, ours, folder="with"), without)
        assert ours.report().run.status == "finished"
        assert ours.report().throughput.samples == plan.samples

    def test_a_stream_of_unequal_batches(self, bench: Bench) -> None:
        """All samples of a generator without length, in batches of 1 to 8 samples, are counted."""
        plan = Plan(epochs=1, stream=SIZES)
        without = bench.fit(plan, folder="without")
        ours = bench.callback()
        _assert_same(bench.fit(plan, ours, folder="with"), without)
        throughput = ours.report().throughput
        # The optimizer of Keras on TensorFlow also counts a last step that gets no data.
        assert throughput.steps == without.steps()
        assert throughput.samples == sum(SIZES)
        per_sample_j = POWER_W * STEP_S * len(SIZES) / sum(SIZES)
        found_j = ours.report().efficiency.gpu.j_per_sample.value_j
        assert found_j == pytest.approx(per_sample_j, rel=1e-6)


def _assert_same(found: Training, without: Training) -> None:
    for said in ("rows", "metrics"):
        mine, wanted = getattr(found, said)(), getattr(without, said)()
        assert wanted
        assert {key: mine.get(key) for key in wanted} == wanted, said
    assert found.weights() == without.weights()
