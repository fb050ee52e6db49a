"""The contract: rows in the user's own TensorBoard run."""

import math

import pytest

from energy_callbacks.accounting.metrics.row_schedule import ROW_S
from energy_callbacks.accounting.metrics.tags import OWN_TAGS
from tests.integrations.contract.lab import HOST_W, J_PER_SAMPLE, POWER_W, STEP_S, Bench, Plan
from tests.integrations.reading import steps

PLANS = {
    "plain": Plan(),
    "validation": Plan(validation_samples=20),
    "accumulation": Plan(accumulate=3),
    "short last batch": Plan(samples=38),
    "checkpoints": Plan(checkpoint_s=0.0),
    "log every step": Plan(log_every=1),
}
# Shortest time between two rows by default, by a tag of the loss.
DISTANCE_S = {"train_loss_step": ROW_S}


class RowsContract:
    """Rows in the user's TensorBoard run, and the energy rows that the callback adds."""

    @pytest.mark.parametrize("name", PLANS)
    def test_every_row_stays_bit_for_bit(self, bench: Bench, name: str) -> None:
        """Rows written without the callback are identical with it; energy rows have new tags."""
        without = bench.without_us(PLANS[name]).rows()
        with_us = bench.with_us(PLANS[name]).training.rows()
        assert set(bench.lab.loss_tags) <= set(without)
        assert {tag: with_us[tag] for tag in without} == without
        assert "energy/gpu_wh" in set(with_us) - set(without)

    @pytest.mark.parametrize("name", PLANS)
    def test_energy_rows_are_at_steps_of_the_loss(self, bench: Bench, name: str) -> None:
        """Energy rows are in the run of the loss, in order, at its steps up to the last one.

        Steps before the first figures have no row, nor have steps within 1 s after a row.
        """
        found = bench.with_us(PLANS[name]).training.rows()
        loss = {step for tag in bench.lab.loss_tags for step in steps(found[tag])}
        ours = steps(found["energy/gpu_wh"])
        assert set(ours) <= loss
        assert max(ours) == max(loss)
        assert ours == sorted(ours)
        row_s = max(DISTANCE_S.get(tag, 0.0) for tag in bench.lab.loss_tags)
        step_s = STEP_S * PLANS[name].accumulate
        soon = {step for step in loss for row in ours if 0.0 < (step - row) * step_s < row_s}
        missing = sorted(loss - set(ours) - soon)
        assert missing == sorted(loss)[: len(missing)], "only what came before the first figures"
        assert len(missing) * STEP_S <= 2.0

    def test_a_prefix_comes_before_every_energy_tag(self, bench: Bench) -> None:
        """Values are the same as without it; the report lists no energy metric as the user's."""
        plan = PLANS["validation"]
        plain = bench.with_us(plan)
        ours = bench.callback(tag_prefix="ours/")
        found = bench.fit(plan, ours, folder="prefixed").rows()
        own = OWN_TAGS.intersection(plain.training.rows())
        assert {f"ours/{tag}" for tag in own} == {tag for tag in found if tag.startswith("ours/")}
        assert not OWN_TAGS.intersection(found)
        tag = "energy/total_wh"
        assert found[f"ours/{tag}"] == plain.training.rows()[tag]
        names = {metric.name for metric in ours.report().metrics}
        assert names == {metric.name for metric in plain.callback.report().metrics}

    def test_joules_per_sample_are_watts_times_seconds_over_samples(self, bench: Bench) -> None:
        """200 W for 0.4 s per batch of 4 is 20 J per sample, in all rows and in the report."""
        trained = bench.with_us(PLANS["validation"])
        found = trained.training.rows()
        total = J_PER_SAMPLE * (POWER_W + HOST_W) / POWER_W
        for tag, expected in (
            ("efficiency/gpu_j_per_sample", J_PER_SAMPLE),
            ("efficiency/total_j_per_sample", total),
        ):
            values = [value for _, value in found[tag] if not math.isnan(value)]
            assert values
            assert values == pytest.approx([expected] * len(values), rel=1e-6), tag
            assert found[f"{tag}_lo"][-1][1] <= expected * (1 + 1e-6)
            assert found[f"{tag}_hi"][-1][1] >= expected * (1 - 1e-6)
        efficiency = trained.callback.report().efficiency
        assert efficiency.gpu.j_per_sample.value_j == pytest.approx(J_PER_SAMPLE, rel=1e-9)
        assert efficiency.total.j_per_sample.value_j == pytest.approx(total, rel=1e-9)

    def test_energy_so_far_ends_at_the_total(self, bench: Bench) -> None:
        """The last row of the cumulative energy equals the report's total."""
        trained = bench.with_us(PLANS["validation"])
        found, report = trained.training.rows(), trained.callback.report()
        for tag, figure in (
            ("energy/gpu_wh", report.energy.gpu),
            ("energy/total_wh", report.energy.total),
        ):
            assert found[tag][-1][1] * 3600 == pytest.approx(figure.energy_j, rel=1e-6)

    def test_without_a_gpu_its_tags_are_absent(self, bench: Bench) -> None:
        """Without a GPU there are no GPU tags, not even with the value zero."""
        found = bench.fit(Plan(), bench.callback(gpu=False)).rows()
        assert found["energy/host_wh"][-1][1] > 0.0
        assert [tag for tag in found if "gpu" in tag] == []

    def test_without_a_logger_an_event_file_has_the_loss(self, bench: Bench) -> None:
        """If the user logs nothing, an event file in the run folder has the loss and the energy."""
        ours = bench.callback()
        logged = bench.without_us(Plan()).rows()
        bench.fit(Plan(logs=False), ours, folder="silent")
        found = bench.lab.read(ours._meter.run_folder)
        for tag in bench.lab.loss_tags:
            assert found[tag] == logged[tag]
        assert max(steps(found["energy/gpu_wh"])) == max(steps(found[bench.lab.loss_tags[0]]))
