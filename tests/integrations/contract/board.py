"""The contract: what TensorBoard shows in addition to the curves of a training."""

import re
from pathlib import Path

import pytest
from tensorboard.plugins.hparams import api_pb2

from tests.integrations.contract.lab import BATCH_SIZE, Bench, Plan
from tests.outputs.tensorboard_view import TensorBoardView, parameters, values


class BoardContract:
    """TensorBoard's pages other than the curves, in the user's own run."""

    def test_custom_scalars_show_what_the_training_has(self, bench: Bench) -> None:
        """TensorBoard lists the energy charts; every line and every band of a chart has rows."""
        training = bench.with_us(Plan(), country="DEU").training
        run = training.run_folder()
        board = TensorBoardView(run.parent)
        charts = board.charts()
        sample = "efficiency/gpu_j_per_sample"
        assert [sample, f"{sample}_lo", f"{sample}_hi"] in charts.values()
        assert ["^power/gpu_w$", "^power/host_w$"] in charts.values()
        assert "token" not in " ".join(charts)
        tags = set(training.rows())
        gauges = ("memory/", "gpu/")  # which of these tags exist depends on the sensors
        for pattern in (one for found in charts.values() for one in found):
            tag = pattern.strip("^$")
            if not tag.startswith(gauges):
                assert tag in tags
                assert tag in board.matches(run.name, pattern)
        assert any(tag.startswith("emissions/") for found in charts.values() for tag in found)

    def test_trainings_can_be_compared_by_energy(self, bench: Bench) -> None:
        """HParams shows batch size, accumulation, device, Wh, J per sample and loss of two runs."""
        reports, losses = {}, {}
        for name, accumulate in (("one", 1), ("two", 5)):
            ours = bench.callback(country="DEU")
            training = bench.fit(Plan(accumulate=accumulate), ours, folder=name)
            run = training.run_folder()
            reports[str(run.relative_to(bench.folder))] = (ours.report(), accumulate)
            losses[run] = training.rows()
        board = TensorBoardView(bench.folder)
        groups = board.sessions()
        assert set(groups) == set(reports)
        for run, (report, accumulate) in reports.items():
            facts = parameters(groups[run])
            assert facts["batch_size"] == BATCH_SIZE
            assert facts["accumulation"] == accumulate
            assert facts["world_size"] == 1
            assert facts["device"] == "scripted gpu"
            assert facts["framework"].startswith(bench.lab.framework)
            assert "32" in facts["precision"]
            assert set(facts) == set(board.hparams())
            found = values(groups[run])
            assert set(found) == set(board.metrics())
            assert found["final/total_wh"] * 3600 == pytest.approx(report.energy.total.energy_j)
            assert found["final/total_j_per_sample"] == pytest.approx(
                report.efficiency.total.j_per_sample.value_j
            )
            assert found["final/emissions_g"] == pytest.approx(report.emissions.kg * 1000)
            assert any("loss" in tag for tag in found)
            [session] = groups[run].sessions
            assert session.status == api_pb2.STATUS_SUCCESS

    @pytest.mark.charts
    def test_the_report_is_in_tensorboard(self, bench: Bench) -> None:
        """The text report appears once and unchanged, and its charts appear as images."""
        ours = bench.callback()
        run = bench.fit(Plan(validation_samples=20), ours).run_folder()
        board = TensorBoardView(run.parent)
        [text] = board.texts(run.name, "energy_report")
        expected = (ours._meter.run_folder / "energy_report.txt").read_text(encoding="utf-8")
        assert re.sub("^ {4}", "", text, flags=re.MULTILINE) == expected.rstrip("\n")
        [picture] = board.images(run.name)["energy_report/phase_power"]
        assert picture.startswith(b"\x89PNG")

    def test_during_the_training_there_is_one_event_file(self, bench: Bench) -> None:
        """A second event file in the user's run would disturb TensorBoard's live view.

        The pages of the report are in a second file, which is created after the training.
        """
        without = bench.without_us(Plan()).run_folder()
        run = bench.with_us(Plan()).training.run_folder()
        assert len(list(without.rglob("*tfevents*"))) == 1
        files = {path: path.read_bytes() for path in run.rglob("*tfevents*")}
        [during] = [path for path, content in files.items() if b"energy/total_wh" in content]
        [after] = files.keys() - {during}
        assert b"energy_report" in files[after]
        assert b"energy_report" not in files[during]

    def test_a_second_fit_changes_no_chart(self, bench: Bench) -> None:
        """Layout and hyperparameters are written once; a report of both attempts is added."""
        ours = bench.callback()
        training = bench.fit(Plan(), ours)
        run = training.run_folder()
        before = TensorBoardView(run.parent)
        training.fit()
        _name_by_age(run)
        after = TensorBoardView(run.parent)
        assert after.charts() == before.charts()
        content = b"".join(path.read_bytes() for path in run.glob("*tfevents*"))
        assert content.count(b"custom_scalars__config__") == 1
        assert content.count(b"_hparams_/session_start_info") == 1
        assert len(after.texts(run.name, "energy_report")) == 2
        last = values(after.sessions()[run.name])
        assert last["final/total_wh"] * 3600 == pytest.approx(ours.report().energy.total.energy_j)

    def test_a_failing_layout_leaves_the_rows(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """An error in the layout causes one warning; rows and measurement continue to the end."""

        def broken(*_: object, **__: object) -> None:
            raise RuntimeError("our bug")

        monkeypatch.setattr("energy_callbacks.dashboard.layout", broken)
        ours = bench.callback()
        rows = bench.fit(Plan(), ours).rows()
        said = [one for one in caplog.records if "no layout" in one.message]
        assert len(said) == 1
        total_j = ours.report().energy.total.energy_j
        assert rows["energy/total_wh"][-1][1] * 3600 == pytest.approx(total_j, rel=1e-6)
        assert ours.report().run.status == "finished"


def _name_by_age(run: Path) -> None:
    """Rename event files such that their names are in the order in which they were written.

    TensorBoard reads event files in the order of their names, where file 100 comes before file 99.
    """
    files = sorted(run.glob("*tfevents*"), key=lambda path: path.stat().st_mtime_ns)
    for number, path in enumerate(files):
        path.rename(path.with_name(f"events.out.tfevents.{number}"))
