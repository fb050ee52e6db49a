"""Pages of TensorBoard for a training in virtual time."""

import copy
import logging
import signal
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tensorboard.plugins.hparams import api_pb2

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.core.active_call import ActiveCall
from energy_callbacks.dashboard import Dashboard
from energy_callbacks.outputs.summary_writer import WriterBoard
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.report import load
from energy_callbacks.report_process.pages import FINAL
from energy_callbacks.testing import FakeClock
from energy_callbacks.version import __version__
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.integrations.contract.lab import HOST_W, POWER_W, constant
from tests.outputs.tensorboard_view import TensorBoardView, parameters, values


class Loop:
    """A training of 20 steps of 0.1 s, with a row every five steps."""

    def __init__(
        self, folder: Path, board: Any, *, facts: Any = dict, runs: Any = tuple, **settings: Any
    ) -> None:
        clock = FakeClock()
        sources = [constant(clock, POWER_W, "gpu"), constant(clock, HOST_W, "host")]
        self.clock = clock
        self.meter = EnergyMeter(
            sources=sources,
            clock=clock,
            config=EnergyConfig(report_dir=folder / "energy", **settings),
        )
        self.tokens = 100 if settings else None
        boards = [] if board is None else [board]
        self.dashboard = Dashboard(self.meter, lambda: boards, facts, runs)

    def train(self, error: Exception | None = None, **metrics: float) -> None:
        """Train, from the start to the report."""
        self.meter.start()
        self.meter.enter("train")
        for step in range(20):
            self.clock.advance(0.1)
            self.meter.step(samples=4, tokens=self.tokens)
            if step % 5 == 4:
                self.dashboard.row(self.meter.scalars(), step)
        with self.meter.ending(error) as ending:
            self.dashboard.row(self.meter.scalars(), 19)
            ending.pages = self.dashboard.pages(lambda: metrics, 19)


def test_a_loop_has_its_pages(tmp_path: Path) -> None:
    """There are charts, and a session with hyperparameters and the user's last metric."""
    facts = {"batch_size": 4, "precision": None}
    Loop(tmp_path, TensorBoardOutput(tmp_path / "run"), facts=lambda: facts).train(val_loss=0.5)
    view = TensorBoardView(tmp_path)
    assert ["^power/gpu_w$", "^power/host_w$"] in view.charts().values()
    group = view.sessions()["run"]
    assert parameters(group) == {"batch_size": 4, "device": "scripted gpu"}
    joules = (POWER_W + HOST_W) * 2.0
    assert values(group) == pytest.approx(
        {
            "final/total_wh": joules / 3600,
            "final/gpu_j_per_sample": POWER_W * 0.1 / 4,
            "final/total_j_per_sample": joules / 80,
            "final/val_loss": 0.5,
        },
        rel=1e-6,
    )


def test_every_final_figure_is_one_of_the_reference(tmp_path: Path) -> None:
    """With a place and tokens all of them exist."""
    loop = Loop(tmp_path, TensorBoardOutput(tmp_path / "run"), country="DEU")
    loop.train()
    assert set(values(TensorBoardView(tmp_path).sessions()["run"])) == set(FINAL)


def test_a_training_that_failed_is_a_failed_session(tmp_path: Path) -> None:
    """It has its energy nevertheless."""
    Loop(tmp_path, TensorBoardOutput(tmp_path / "run")).train(RuntimeError("out of memory"))
    group = TensorBoardView(tmp_path).sessions()["run"]
    assert [session.status for session in group.sessions] == [api_pb2.STATUS_FAILURE]
    assert values(group)["final/total_wh"] > 0.0


def test_figures_of_ours_and_what_is_no_number_are_no_metrics_of_the_user(tmp_path: Path) -> None:
    """Figures of this package and NaN are not metrics of the user."""
    loop = Loop(tmp_path, TensorBoardOutput(tmp_path / "run"))
    loop.train(**{"energy/gpu_wh": 1.0, "loss": float("nan"), "accuracy": 0.9})
    found = values(TensorBoardView(tmp_path).sessions()["run"])
    assert [tag for tag in found if "gpu_wh" in tag or "loss" in tag] == []
    assert found["final/accuracy"] == pytest.approx(0.9)


def test_what_the_user_has_written_stays(tmp_path: Path) -> None:
    """If the run has a layout and hyperparameters, only the report is added."""
    torch_writer = pytest.importorskip("torch.utils.tensorboard")
    writer = torch_writer.SummaryWriter(tmp_path / "run")
    writer.add_custom_scalars({"mine": {"loss": ["Multiline", ["loss"]]}})
    writer.add_hparams({"lr": 0.1}, {"accuracy": 0.9}, run_name=str(tmp_path / "run"))
    Loop(tmp_path, WriterBoard(writer)).train()
    writer.close()
    view = TensorBoardView(tmp_path)
    assert view.charts() == {"loss": ["loss"]}
    assert view.hparams() == ["lr"]
    assert view.metrics() == ["accuracy"]
    assert len(view.texts("run", "energy_report")) == 1


def test_an_evaluation_has_no_pages(tmp_path: Path) -> None:
    """Without a step there is no chart, and no file is created."""
    loop = Loop(tmp_path, TensorBoardOutput(tmp_path / "run"))
    loop.meter.start()
    loop.meter.enter("validation")
    loop.clock.advance(2.0)
    with loop.meter.ending() as ending:
        loop.dashboard.row(loop.meter.scalars(), 0)
        ending.pages = loop.dashboard.pages(dict, 0)
    assert ending.pages is None
    assert not (tmp_path / "run").exists()


def test_a_run_that_breaks_is_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With a full disk nothing is raised, and measuring continues."""

    class Full(TensorBoardOutput):
        def add(self, summary: Any, step: int) -> None:
            raise OSError("no space left on device")

    with caplog.at_level(logging.WARNING):
        loop = Loop(tmp_path, Full(tmp_path / "run"))
        loop.train()
    assert [record.getMessage() for record in caplog.records] == [
        "no layout, hyperparameters or report in TensorBoard"
    ]
    assert loop.meter.report().run.status == "finished"


def test_a_handler_of_a_signal_may_raise_while_a_row_is_written(tmp_path: Path) -> None:
    """An exception of the user's signal handler is passed on."""

    def preempt(number: int, frame: Any) -> NoReturn:
        raise RuntimeError("preempted")

    class Interrupted(TensorBoardOutput):
        def add(self, summary: Any, step: int) -> None:
            signal.raise_signal(signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, preempt)
    try:
        with pytest.raises(RuntimeError, match="preempted"):
            Loop(tmp_path, Interrupted(tmp_path / "run")).train()
    finally:
        signal.signal(signal.SIGTERM, before)


TOTAL_WH = (POWER_W + HOST_W) * 2.0 / 3600


class Tracked:
    """A run of an experiment tracker that records its calls."""

    name = "tracked"

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    def begin(self, config: Any, tag_prefix: str) -> None:
        self.calls.append(("begin", (config, tag_prefix)))

    def end(self, figures: Any) -> None:
        self.calls.append(("end", figures))

    def report(self, figures: Any, files: Any) -> None:
        assert all(path.is_file() for path in files)
        self.calls.append(("report", (figures, files)))


def test_a_run_of_a_tracker_gets_configuration_figures_and_report(tmp_path: Path) -> None:
    """There need not be a run in TensorBoard; settings with their default are left out."""
    run, facts = Tracked(), {"batch_size": 4, "precision": None}
    loop = Loop(
        tmp_path, None, runs=lambda: [run], facts=lambda: facts, country="DEU", tag_prefix="a/"
    )
    loop.train()
    begin, end, report = run.calls
    config, tag_prefix = begin[1]
    assert tag_prefix == "a/"
    assert config == {
        "version": __version__,
        "run_id": loop.meter.run_id,
        "run_folder": str(tmp_path / "energy"),
        "device": "scripted gpu",
        "country": "DEU",
        "tag_prefix": "a/",
        "batch_size": 4,
    }
    figures, files = report[1]
    assert [path.name for path in files] == ["energy_report.html", "energy_report.json"]
    assert figures["final/total_wh"] == pytest.approx(TOTAL_WH)
    assert set(figures) == set(FINAL)
    assert end[1] == pytest.approx({k: v for k, v in figures.items() if k in end[1]})
    assert set(figures) - set(end[1]) == {"final/total_j_per_token"}, "no row has it"


def test_a_training_without_a_row_has_its_report_in_the_tracker(tmp_path: Path) -> None:
    """The run is then found at the end."""
    run = Tracked()
    loop = Loop(tmp_path, None, runs=lambda: [run])
    loop.meter.start()
    with loop.meter.ending() as ending:
        ending.pages = loop.dashboard.pages(dict, 0)
    assert [name for name, _ in run.calls] == ["begin", "end", "report"]


def test_a_training_that_failed_without_a_hook_has_its_report_in_the_tracker(
    tmp_path: Path,
) -> None:
    """The journal's thread notices that the call has ended; no hook calls the dashboard."""
    run = Tracked()
    loop = Loop(tmp_path, None, runs=lambda: [run])

    def fit() -> None:
        loop.meter._start(call=ActiveCall.find("fit", package=__name__.partition(".")[0]))
        loop.clock.advance(1.0)
        loop.dashboard.row(loop.meter.scalars(), 0)

    fit()
    loop.clock.advance(60.0)
    assert [name for name, _ in run.calls] == ["begin", "report"]


def test_the_report_is_that_of_its_own_training(tmp_path: Path) -> None:
    """Another training has begun in the same folder before the report of the first one is made.

    Loggers such as ``WandbLogger`` have the same folder for all trainings.
    """
    first, run = Loop(tmp_path, None), Tracked()
    first.dashboard = Dashboard(first.meter, runs=lambda: [run])
    second = EnergyMeter(
        sources=[constant(first.clock, 7.0, "gpu")], clock=first.clock, config=first.meter.config
    )

    def begin(*_: object) -> None:
        first.clock.advance(0.1)
        second.start()
        first.clock.advance(5.0)

    run.end = begin  # type: ignore[method-assign]
    first.train()
    second.stop()
    [_, (_, (figures, files))] = run.calls
    assert figures["final/total_wh"] == pytest.approx(TOTAL_WH, rel=1e-3)
    assert load(files[0]).run.run_id == first.meter.run_id


def test_runs_that_are_not_found_are_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The pages of TensorBoard are there nevertheless."""

    def fail() -> NoReturn:
        raise AttributeError("another version of the tracker")

    Loop(tmp_path, TensorBoardOutput(tmp_path / "run"), runs=fail).train()
    [record] = caplog.records
    assert record.getMessage() == "the run of a tracker was not found"
    assert TensorBoardView(tmp_path).charts()


def test_a_copy_is_in_no_training(tmp_path: Path) -> None:
    """A copied dashboard does not write, because callbacks may be copied during a training."""
    loop = Loop(tmp_path, TensorBoardOutput(tmp_path / "run"))
    loop.train()
    twin = copy.deepcopy(loop.dashboard)
    content = min((tmp_path / "run").glob("*tfevents*")).read_bytes()
    twin.row({"efficiency/gpu_j_per_sample": 1.0}, 20)
    assert twin.pages(dict, 20) is None
    assert min((tmp_path / "run").glob("*tfevents*")).read_bytes() == content
