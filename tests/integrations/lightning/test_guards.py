"""Code of the user that Lightning's hooks of ours call may fail, and a training ends as without us.

Loggers that fail in each framework are in ``tests/integrations/contract/loggers.py``.
"""

import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning")

import torch
from lightning.pytorch.loggers import CSVLogger, Logger
from torchmetrics import Metric

from energy_callbacks.core.guard import logger
from energy_callbacks.testing import FakeClock
from tests.integrations.contract.loggers import warnings as logger_warnings
from tests.integrations.lightning.training import STEP_S, TinyModule, callback, loader, trainer


class Remote(Logger):
    """A logger of the user.

    Attributes:
        write: called with each row.
        finalized: statuses with which Lightning has finished this logger.
    """

    name = "remote"
    version = 0

    def __init__(self, write: Callable[[dict], object] = lambda row: None) -> None:
        super().__init__()
        self.write = write
        self.rows: list[dict] = []
        self.finalized: list[str] = []

    def log_metrics(self, metrics: dict, step: int | None = None) -> None:
        self.write(metrics)
        self.rows.append(metrics)

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing to log."""

    def finalize(self, status: str) -> None:
        self.finalized.append(status)


def refuse(row: dict) -> None:
    """Fail for our rows."""
    if "power/gpu_w" in row:
        raise ConnectionError("the server is gone")


def test_one_of_several_loggers_may_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others get our rows, and one that Lightning calls raises as without us."""
    clock = FakeClock()
    loggers = [Remote(refuse), Remote(), CSVLogger(tmp_path, name="csv")]
    trainer(tmp_path, callback(clock), logger=loggers).fit(TinyModule(clock), loader())
    assert logger_warnings(caplog) == 1
    assert "Remote" in caplog.text
    assert any("power/gpu_w" in row for row in loggers[1].rows)
    assert not any("power/gpu_w" in row for row in loggers[0].rows)
    assert loggers[0].finalized == ["success"]


def test_a_training_that_fails_keeps_its_exception(tmp_path: Path) -> None:
    """After an exception, a logger that fails in the last row does not replace the exception."""
    clock, remote = FakeClock(), Remote(refuse)

    class Failing(TinyModule):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if batch_idx == 30:
                raise RuntimeError("boom")
            return super().training_step(batch, batch_idx)

    ours = callback(clock)
    with pytest.raises(RuntimeError, match="boom"):
        trainer(tmp_path, ours, logger=remote).fit(Failing(clock), loader())
    assert remote.finalized == ["failed"]
    assert ours.report.run.status == "failed"


class Unready(Metric):
    """A metric whose value cannot be computed."""

    def update(self) -> None:
        """Nothing to add."""

    def compute(self) -> torch.Tensor:
        raise ZeroDivisionError("no samples")


def test_a_metric_that_cannot_be_computed_is_lightning_s_matter(tmp_path: Path) -> None:
    """Its error reaches the user as without us; loggers are finished, and there is a report."""

    class Measured(TinyModule):
        def __init__(self, clock: FakeClock) -> None:
            super().__init__(clock)
            self.unready = Unready()

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.unready.update()
            self.log("unready", self.unready, on_step=False, on_epoch=True)
            return super().training_step(batch, batch_idx)

    found = []
    for ours in ((), (callback(FakeClock()),)):
        remote = Remote()
        with pytest.raises(ZeroDivisionError) as caught:
            trainer(tmp_path, *ours, logger=remote).fit(Measured(FakeClock()), loader())
        found.append((caught.value.__context__, remote.finalized))
    assert found == [(None, ["failed"])] * 2
    assert ours[0].report.run.status == "failed"


def fail(*_: Any) -> int:
    """Fail, like a function that does not know this kind of batch."""
    raise TypeError("not this kind of batch")


def test_warnings_may_be_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With ``python -W error``, warnings of ours are logged, and do not end the training."""
    clock = FakeClock()
    ours = callback(clock, batch_size_fn=fail)
    lightning = trainer(tmp_path, ours, max_epochs=1, limit_val_batches=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*could not count a batch.*")
        lightning.fit(TinyModule(clock), loader())
    assert lightning.global_step == 40
    assert "could not count a batch" in caplog.text
    assert ours.report.throughput.steps == 40


@pytest.fixture
def _broken_logging() -> Iterator[None]:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError("the server for logs is gone")

    handler = Broken()
    logger.logger.addHandler(handler)
    yield
    logger.logger.removeHandler(handler)


@pytest.mark.usefixtures("_broken_logging")
def test_log_handlers_may_fail(tmp_path: Path) -> None:
    """Not even the warning about a logger that fails ends the training."""
    clock = FakeClock()
    ours = callback(clock)
    lightning = trainer(tmp_path, ours, logger=Remote(refuse))
    lightning.fit(TinyModule(clock), loader())
    assert lightning.global_step == 80
    assert ours.report.run.status == "finished"


class PreemptedError(Exception):
    """What a handler of the user raises."""


@pytest.mark.parametrize("setting", ["batch_size_fn", "length_fn"])
def test_a_signal_while_samples_are_counted(tmp_path: Path, setting: str) -> None:
    """What the handler raises ends the training; it is not an error of the function."""

    def handler(*_: Any) -> None:
        raise PreemptedError

    def count(batch: Any) -> int:
        signal.raise_signal(signal.SIGTERM)
        return 4

    clock = FakeClock()
    ours = callback(clock, **{setting: count})
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with pytest.raises(PreemptedError):
            trainer(tmp_path, ours).fit(TinyModule(clock), loader())
    finally:
        signal.signal(signal.SIGTERM, before)


def test_rows_of_a_slow_logger_come_less_often(tmp_path: Path) -> None:
    """A logger that takes 0.05 s per row has a row every 5 s, so that rows take 1 % of the time."""
    clock = FakeClock()

    def wait(row: dict) -> None:
        if "power/gpu_w" in row:
            clock.advance(0.05)

    remote = Remote(wait)
    lightning = trainer(tmp_path, callback(clock), logger=remote, max_epochs=1)
    lightning.fit(TinyModule(clock), loader(600))
    rows = sum("power/gpu_w" in row for row in remote.rows)
    assert 600 * STEP_S / 5.0 - 2 <= rows <= 600 * STEP_S / 5.0 + 3


def test_a_bug_in_a_hook_does_not_end_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error of ours in any hook after the start ends measuring with one warning."""

    def broken(*_: object) -> None:
        raise RuntimeError("our bug")

    clock = FakeClock()
    monkeypatch.setattr(
        "energy_callbacks_lightning.step_counter.LightningStepCounter.begin", broken
    )
    lightning = trainer(tmp_path, callback(clock))
    lightning.fit(TinyModule(clock), loader(), loader(5))
    assert lightning.global_step == 80
    assert sum("measuring ends here" in record.message for record in caplog.records) == 1
