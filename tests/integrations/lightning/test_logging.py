"""Our figures stand in the user's own run, at the steps of the loss, and disturb no row of it."""

import functools
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("lightning")

from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

from energy_callbacks.testing import FakeClock
from tests.integrations.contract.loggers import warnings
from tests.integrations.lightning.training import (
    BATCH_SIZE,
    POWER_W,
    STEP_S,
    FailingModule,
    ManualModule,
    Remote,
    TinyModule,
    callback,
    loader,
    refuse,
    trainer,
)
from tests.integrations.reading import Rows, scalars, steps, training_files

TAG = "efficiency/gpu_j_per_sample"
SETTINGS = {
    "plain": {"limit_val_batches": 0},
    "validation": {},
    "mid-epoch validation": {"val_check_interval": 0.5},
    "accumulation": {"accumulate_grad_batches": 3},
    "log every step": {"log_every_n_steps": 1},
    "short epochs": {"log_every_n_steps": 50},
}


def run(root: Path, module: TinyModule, *callbacks: object, **settings: object) -> dict:
    """Fit, and read the event file."""
    trainer(root, *callbacks, **settings).fit(module, loader(), loader(5))
    return scalars(root / "tb" / "version_0")


@pytest.fixture(scope="module")
def rows_with_ours(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rows]:
    """The rows of a training with our callback, by the name of its settings."""

    @functools.cache
    def rows(name: str) -> Rows:
        clock, folder = FakeClock(), tmp_path_factory.mktemp("with")
        found = run(folder, TinyModule(clock), callback(clock), **SETTINGS[name])
        assert len(training_files(folder / "tb" / "version_0")) == 1
        return found

    return rows


@pytest.mark.parametrize("name", SETTINGS)
def test_every_row_of_the_training_is_there_bit_for_bit(
    tmp_path: Path, rows_with_ours: Callable[[str], Rows], name: str
) -> None:
    """The event file has the same loss rows as without our callback, and ours."""
    without = run(tmp_path, TinyModule(FakeClock()), **SETTINGS[name])
    with_ours = rows_with_ours(name)
    assert without
    assert {tag: with_ours[tag] for tag in without} == without
    assert set(with_ours) - set(without)


@pytest.mark.parametrize("name", SETTINGS)
def test_our_steps_are_those_of_the_loss(rows_with_ours: Callable[[str], Rows], name: str) -> None:
    """Our rows have steps of the loss, in the same event file, up to the last one.

    There is a row at each step of the loss, but not within a second (10 steps) after another row.
    """
    found = rows_with_ours(name)
    loss = set(steps(found.get("train_loss_step", []))) | set(steps(found["train_loss_epoch"]))
    ours = steps(found["energy/gpu_wh"])
    assert set(ours) <= loss
    assert max(ours) == max(loss)
    for step in loss - set(ours):
        assert step < 20 or any(0 < step - row < 10 for row in ours), "only the first may miss"


def test_manual_optimisation(tmp_path: Path) -> None:
    """Two optimizer steps per batch count as two steps, at Lightning's logger step."""
    clock = FakeClock()
    found = run(tmp_path, ManualModule(clock), callback(clock))
    assert set(steps(found["energy/gpu_wh"])) <= set(steps(found["train_loss"])) | {39, 79}
    per_step = found["efficiency/gpu_j_per_step"][-2][1]
    assert per_step == pytest.approx(POWER_W * STEP_S, rel=1e-6)
    assert found[TAG][-2][1] == pytest.approx(2 * POWER_W * STEP_S / BATCH_SIZE, rel=1e-6)


def test_joules_per_sample_are_watts_times_seconds_over_samples(tmp_path: Path) -> None:
    """200 W for 0.1 s per batch of 4 is 5 J per sample without validation, in its interval."""
    clock = FakeClock()
    found = run(tmp_path, TinyModule(clock), callback(clock))
    for step, value in found[TAG]:
        assert value == pytest.approx(5.0, rel=1e-6), step
    low, high = found[f"{TAG}_lo"][-1][1], found[f"{TAG}_hi"][-1][1]
    assert low <= 5.0 <= high
    assert found["throughput/samples_per_s"][-1][1] == pytest.approx(BATCH_SIZE / STEP_S)
    assert found["power/gpu_w"][-1][1] == pytest.approx(POWER_W)


def test_energy_so_far_ends_at_the_total(tmp_path: Path) -> None:
    """The last row of energy/gpu_wh is the report's total: 90 batches of 0.1 s at 200 W."""
    clock = FakeClock()
    ours = callback(clock)
    found = run(tmp_path, TinyModule(clock), ours, num_sanity_val_steps=0)
    seen_j = found["energy/gpu_wh"][-1][1] * 3600
    assert seen_j == pytest.approx(90 * STEP_S * POWER_W, rel=1e-3)
    assert ours.report().energy.gpu.energy_j == pytest.approx(seen_j, rel=1e-6)


def test_without_a_gpu_its_tags_are_absent(tmp_path: Path) -> None:
    """Without a device of scope gpu there is no gpu tag, not even zero."""
    from energy_callbacks import EnergyMeter
    from energy_callbacks.core.records import Device
    from energy_callbacks.lightning import GpuEnergyCallback
    from energy_callbacks.testing import ScriptedSource

    clock = FakeClock()
    host = Device(key="cpu", kind="cpu", scope="host", name="model", origin="estimated")
    source = ScriptedSource(clock, power_w=lambda t_s: 30.0, device=host)
    ours = GpuEnergyCallback(meter=EnergyMeter(sources=[source], clock=clock))
    found = run(tmp_path, TinyModule(clock), ours)
    assert found["energy/host_wh"]
    assert found["energy/measured_fraction"][-1][1] == 0.0
    assert not [tag for tag in found if "gpu" in tag]


def test_without_a_logger(tmp_path: Path) -> None:
    """logger=False: nothing is logged or raised, and the report is beside the checkpoints."""
    clock = FakeClock()
    ours = callback(clock)
    trainer(tmp_path, ours, logger=False).fit(TinyModule(clock), loader())
    assert (tmp_path / "energy" / "energy_report.html").is_file()
    assert ours.report().throughput.steps == 80


def test_several_loggers(tmp_path: Path) -> None:
    """Each of the user's loggers gets the rows."""
    clock = FakeClock()
    loggers = [TensorBoardLogger(tmp_path, name="tb", version=0), CSVLogger(tmp_path, name="csv")]
    trainer(tmp_path, callback(clock), logger=loggers).fit(TinyModule(clock), loader())
    assert TAG in scalars(tmp_path / "tb" / "version_0")
    assert TAG in (tmp_path / "csv" / "version_0" / "metrics.csv").read_text()


def test_own_log_interval(tmp_path: Path) -> None:
    """Our log_every_n_steps is independent of the trainer's."""
    clock = FakeClock()
    found = run(tmp_path, TinyModule(clock), callback(clock, log_every_n_steps=10))
    assert set(steps(found["power/gpu_w"])) <= {9, 19, 29, 39, 49, 59, 69, 79}


def test_rows_come_at_most_once_per_second(tmp_path: Path) -> None:
    """The loss is logged every 0.5 s; every second of its rows has our figures."""
    clock = FakeClock()
    found = run(tmp_path, TinyModule(clock), callback(clock), limit_val_batches=0)
    rows = [step for step in steps(found["power/gpu_w"]) if step > 20]
    assert sorted(set(rows)) == [29, 39, 49, 59, 69, 79]
    assert len(found["train_loss_step"]) == 16


def test_a_setting_is_obeyed_exactly(tmp_path: Path) -> None:
    """With log_every_n_steps=3, a step of 0.1 s has a row at every third step, as asked."""
    clock = FakeClock()
    found = run(tmp_path, TinyModule(clock), callback(clock, log_every_n_steps=3))
    rows = {step for step in steps(found["power/gpu_w"]) if step > 20}
    assert rows == set(range(23, 80, 3)) | {39, 79}


def test_checkpoint_monitors_joules_per_sample(tmp_path: Path) -> None:
    """ModelCheckpoint and EarlyStopping find our figures in callback_metrics."""
    clock = FakeClock()
    best = ModelCheckpoint(monitor=TAG, mode="min")
    patience = EarlyStopping(monitor="efficiency/total_j_per_sample", patience=5)
    run(tmp_path, TinyModule(clock), callback(clock), best, patience)
    assert best.best_model_score.item() == pytest.approx(5.0, rel=1e-5)


def test_checkpoint_monitors_before_anything_was_seen(tmp_path: Path) -> None:
    """A first epoch shorter than the sensor's period gives NaN, not an error."""
    clock = FakeClock()
    best = ModelCheckpoint(monitor="efficiency/total_j_per_sample", mode="min")
    lightning = trainer(tmp_path, callback(clock), best, max_epochs=1)
    lightning.fit(TinyModule(clock), loader(1), loader(1))


def test_real_time_without_any_setting(tmp_path: Path) -> None:
    """GpuEnergyCallback() without settings, on the sensors of this machine."""
    from energy_callbacks.lightning import GpuEnergyCallback

    ours = GpuEnergyCallback()
    trainer(tmp_path, ours).fit(TinyModule(FakeClock()), loader(), loader(5))
    report = ours.report()
    assert report.run.status == "finished"
    assert report.throughput.samples == 2 * 40 * BATCH_SIZE
    folder = tmp_path / "tb" / "version_0" / "energy"
    assert ours.wait_for_report() == folder / "energy_report.html"
    assert "scripted GPU" not in {device.name for device in report.devices}


def test_one_of_several_loggers_may_fail(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The others get our rows, and one that Lightning calls raises as without us."""
    clock = FakeClock()
    loggers = [Remote(refuse), Remote(), CSVLogger(tmp_path, name="csv")]
    trainer(tmp_path, callback(clock), logger=loggers).fit(TinyModule(clock), loader())
    assert warnings(caplog) == 1
    assert "Remote" in caplog.text
    assert any("power/gpu_w" in row for row in loggers[1].rows)
    assert not any("power/gpu_w" in row for row in loggers[0].rows)
    assert loggers[0].finalized == ["success"]


def test_a_training_that_fails_keeps_its_exception(tmp_path: Path) -> None:
    """After an exception, a logger that fails in the last row does not replace the exception."""
    clock, remote = FakeClock(), Remote(refuse)
    ours = callback(clock)
    module = FailingModule(clock, RuntimeError("boom"))
    with pytest.raises(RuntimeError, match="boom"):
        trainer(tmp_path, ours, logger=remote).fit(module, loader())
    assert remote.finalized == ["failed"]
    assert ours.report().run.status == "failed"


@pytest.fixture
def _broken_logging() -> Iterator[None]:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise ConnectionError("the server for logs is gone")

    handler = Broken()
    logger = logging.getLogger("energy_callbacks")
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


@pytest.mark.usefixtures("_broken_logging")
def test_log_handlers_may_fail(tmp_path: Path) -> None:
    """Not even the warning about a logger that fails ends the training."""
    clock = FakeClock()
    ours = callback(clock)
    lightning = trainer(tmp_path, ours, logger=Remote(refuse))
    lightning.fit(TinyModule(clock), loader())
    assert lightning.global_step == 80
    assert ours.report().run.status == "finished"


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
