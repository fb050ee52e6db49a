"""The contract: all frameworks give the same report, with the same energy for the same work."""

import json
import shutil
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.metrics.tags import TAGS
from energy_callbacks.cli import main
from tests.fake_nvml import Constant, Scenario, h200
from tests.fake_nvml.test_fake_card import CardClock
from tests.integrations.contract.beside import SMALL
from tests.integrations.contract.lab import J_PER_SAMPLE, POWER_W, Bench, Plan

SCHEMA = Path(__file__).parents[3] / "docs" / "reference" / "report.schema.json"


FIVE_EPOCHS = Plan(epochs=5, validation_samples=20)


class ReportsContract:
    """Reports after a training."""

    def test_the_report_keeps_the_schema(self, bench: Bench) -> None:
        """The JSON report is valid according to the documented schema and names the framework."""
        ours = bench.with_us(SMALL).callback
        report = json.loads((ours._meter.run_folder / "energy_report.json").read_text())
        validator = Draft202012Validator(json.loads(SCHEMA.read_text()))
        assert list(validator.iter_errors(report)) == []
        assert report["run"]["framework"] == bench.lab.framework
        assert report["run"]["framework_version"]

    def test_the_command_renders_the_report(
        self, bench: Bench, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """``energy-callbacks report`` writes HTML, text and JSON from the journals alone."""
        folder = bench.folder / "copy"
        shutil.copytree(bench.with_us(Plan()).callback._meter.run_folder, folder)
        written = sorted(folder.glob("energy_report.*"))
        for path in written:
            path.unlink()
        capsys.readouterr()
        assert main(["report", str(folder)]) == 0
        assert "train" in capsys.readouterr().out
        assert sorted(folder.glob("energy_report.*")) == written
        assert {path.suffix for path in written} == {".html", ".json", ".txt"}

    def test_a_forecast_is_made(self, bench: Bench) -> None:
        """After some epochs of 4 s, the report forecasts the energy and duration of all five."""
        report = bench.with_us(FIVE_EPOCHS).callback.report()
        found = report.forecast
        assert found.planned_steps == FIVE_EPOCHS.batches
        assert found.after.endswith("epochs")
        assert found.energy_j == pytest.approx(report.energy.total.energy_j, rel=0.02)
        assert found.duration_s == pytest.approx(report.run.duration_s, rel=0.02)

    def test_the_report_has_the_users_metrics(self, bench: Bench) -> None:
        """The report has training and validation losses as logged, and no energy metrics."""
        trained = bench.with_us(FIVE_EPOCHS)
        rows, report = trained.training.rows(), trained.callback.report()
        found = [metric for metric in report.metrics if metric.stem == "loss"]
        assert {metric.is_validation for metric in found} == {False, True}
        logged = [value for values in rows.values() for _, value in values]
        for metric in found:
            assert len(metric.value) >= FIVE_EPOCHS.epochs
            assert len(metric.value) == FIVE_EPOCHS.epochs or not metric.is_validation
            for value in metric.value:
                assert value in [pytest.approx(one, rel=1e-5) for one in logged], metric.name
            assert sorted(metric.energy_j) == list(metric.energy_j)
            assert metric.energy_j[0] > 0.0
            assert metric.epoch[-1] is not None
            assert metric.step[-1] == FIVE_EPOCHS.batches
        assert not {metric.name for metric in report.metrics} & set(TAGS)

    def test_the_run_folder_is_next_to_the_logs(self, bench: Bench) -> None:
        """The run folder is called energy and is in the user's own folder."""
        trained = bench.with_us(Plan())
        folder = trained.callback._meter.run_folder
        assert folder.name == "energy"
        assert folder.is_relative_to(trained.training.folder)

    def test_a_card_of_known_power_reads_the_same_everywhere(
        self, bench: Bench, fake_nvml, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """For a 200 W GPU that is read through NVML, P x t / n is in every stated interval."""
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        nvml = fake_nvml(Scenario(cards=(h200(Constant(POWER_W)),)))
        clock = CardClock(nvml.time)
        meter = EnergyMeter(config=EnergyConfig(devices=[0]), clock=clock)
        ours = bench.lab.callback(meter=meter)
        found = Bench(bench.lab, bench.folder, clock).fit(Plan(epochs=5), ours).rows()
        speeds = dict(found["throughput/samples_per_s"])
        lows, highs = (dict(found[f"efficiency/gpu_j_per_sample_{end}"]) for end in ("lo", "hi"))
        for step, samples_per_s in speeds.items():
            assert lows[step] <= POWER_W / samples_per_s <= highs[step], step
        report = ours.report()
        # Driver calls also take time, so some batches take a little more than 0.4 s.
        expected_j = POWER_W * report.throughput.train_s / 200
        stated = report.efficiency.gpu.j_per_sample
        assert expected_j == pytest.approx(J_PER_SAMPLE, rel=0.1)
        assert stated.low_j <= expected_j <= stated.high_j
        assert stated.value_j == pytest.approx(expected_j, rel=0.01)
        assert report.energy.gpu.method == "counter+samples"
