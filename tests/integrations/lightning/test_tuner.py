"""The batch-size tuner in Lightning: what it finds, where it sets it, and what others get wrong."""

import copy
import itertools
import pickle
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("lightning")

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities import CombinedLoader
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler

from energy_callbacks.core.errors import NothingFits
from energy_callbacks.lightning import (
    BatchSizeTuner,
    GpuEnergyCallback,
    tune_batch_size,
    with_batch_size,
)
from energy_callbacks.tuning import Patience
from energy_callbacks_lightning.tuning.search import check
from tests.integrations.left import children_left
from tests.integrations.lightning.tuning import (
    LAUNCH_S,
    POWER_W,
    SAMPLE_S,
    STEADY,
    Manual,
    Net,
    meter,
    options,
    rows,
    state,
    trainer,
)


def trained_sizes(net: Net, before: int) -> set[int]:
    """Return the sizes of the batches after the first ones."""
    return set(net.told.sizes[before:])


class Rows(pl.LightningDataModule):
    """A datamodule with batch size and data."""

    def __init__(self, batch_size: int = 16) -> None:
        super().__init__()
        self.save_hyperparameters()

    def train_dataloader(self) -> DataLoader:
        return DataLoader(rows(), batch_size=self.hparams.batch_size)


def test_the_curve_is_that_of_the_steps(tmp_path: Path) -> None:
    """20 ms + 1 ms per sample determine samples/s and joules per sample of each trial."""
    net = Net()
    asked = options(net, tmp_path, max_trials=3, patience=STEADY)
    result = tune_batch_size(trainer(tmp_path), net, **asked)
    for trial in result.trials:
        step_s = LAUNCH_S + trial.size * SAMPLE_S
        assert trial.samples_per_s == pytest.approx(trial.size / step_s, rel=1e-6)
        assert trial.j_per_sample == pytest.approx(POWER_W * step_s / trial.size, rel=0.01)
    assert {trial.size for trial in result.trials} == set(net.told.sizes)


def test_the_size_is_set_and_trained_with(tmp_path: Path) -> None:
    """The call before fit sets the module's attribute, and fit uses it."""
    net, lightning = Net(most=100), trainer(tmp_path)
    result = tune_batch_size(lightning, net, **options(net, tmp_path, objective="largest"))
    assert net.batch_size == result.size <= 100
    before = len(net.told.sizes)
    lightning.fit(net)
    assert trained_sizes(net, before) == {result.size, 256 % result.size} - {0}


def test_a_datamodule_has_the_size(tmp_path: Path) -> None:
    """In its hparams, as by ``save_hyperparameters``; the module's attribute is set too."""
    net, data = Net(most=64), Rows()
    result = tune_batch_size(
        trainer(tmp_path), net, datamodule=data,
        **options(net, tmp_path, objective="largest", powers_of_two=True),
    )  # fmt: skip
    assert data.hparams.batch_size == net.batch_size == result.size == 64


def test_a_loader_that_is_passed_stays_as_it_is(tmp_path: Path) -> None:
    """Lightning's finder rejects it (lightning#11604); ours searches and says what to do."""
    net, loader = Net(), DataLoader(rows(), batch_size=4, drop_last=True)
    del net.batch_size
    result = tune_batch_size(
        trainer(tmp_path), net, train_dataloaders=loader, **options(net, tmp_path)
    )
    assert loader.batch_size == 4
    assert len(loader) == 64
    assert result.size > 4
    assert with_batch_size(loader, result.size).batch_size == result.size


def test_fit_goes_on_with_what_the_callback_has_found(tmp_path: Path) -> None:
    """The same fit continues, with a loader that was passed to it."""
    net = Net(most=100)
    tuner = BatchSizeTuner(**options(net, tmp_path, objective="largest", powers_of_two=True))
    steps: list[int] = []

    class Count(pl.Callback):
        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any
        ):
            steps.append(len(batch[0]))

    lightning = trainer(tmp_path, Count(), tuner)
    lightning.fit(net, DataLoader(rows(), batch_size=4))
    assert tuner.optimal_batch_size == tuner.result.size == 64
    assert steps == [64] * 4 * 2
    assert lightning.global_step == 8
    assert lightning.callbacks[0] is tuner


@pytest.mark.parametrize("home", ["lightning.pytorch", "pytorch_lightning"])
def test_both_packages(tmp_path: Path, home: str) -> None:
    """Each package's Trainer accepts the callback, orders it first, and leaves fit."""
    package = pytest.importorskip(home)
    body = {
        name: value
        for name, value in vars(Net).items()
        if name not in ("__dict__", "__weakref__", "__init__")
    }

    def init(self: Any) -> None:
        package.LightningModule.__init__(self)
        donor = Net(most=40)
        self.layers = donor.layers
        self.clock, self.most, self.batch_size = donor.clock, 40, 4
        self.data, self.outputs, self.steps = donor.data, [], 0
        self.told = donor.told

    net = type("Own", (package.LightningModule,), {**body, "__init__": init})()
    settings = {
        "accelerator": "cpu", "max_epochs": 1, "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "default_root_dir": tmp_path,
    }  # fmt: skip
    asked = options(net, tmp_path, objective="largest", powers_of_two=True)
    assert tune_batch_size(package.Trainer(**settings), net, **asked).size == net.batch_size == 32
    tuner = BatchSizeTuner(**asked | {"meter": meter(net, tmp_path)})
    lightning = package.Trainer(callbacks=tuner, **settings)
    lightning.fit(net)
    assert tuner.optimal_batch_size == 32
    assert lightning.global_step == 256 // 32


# What Lightning's finder gets wrong (2.6.6).


def test_never_a_size_that_did_not_run(tmp_path: Path) -> None:
    """BatchSizeFinder(max_val=16) with memory for 15 returns 16, which it has not tried."""
    net = Net(most=15, batch_size=2, data=rows(60 * 7))
    tuner = BatchSizeTuner(max_val=16, init_val=2, **options(net, tmp_path, objective="largest"))
    trainer(tmp_path, tuner).fit(net)
    ran = {trial.size for trial in tuner.result.trials if trial.status == "ok"}
    assert tuner.optimal_batch_size in ran
    assert tuner.optimal_batch_size <= 15


def test_nothing_fits(tmp_path: Path) -> None:
    """Lightning's finder returns 1, untried, or raises batch_size=0; ours gives the reason."""
    net = Net(most=0)
    with pytest.raises(NothingFits, match="batch size 2 does not fit: OutOfMemoryError"):
        tune_batch_size(trainer(tmp_path), net, **options(net, tmp_path))
    assert net.batch_size == 16


def test_nothing_fits_of_a_datamodule(tmp_path: Path) -> None:
    """Module and datamodule keep their sizes."""
    net, data = Net(most=0), Rows(8)
    with pytest.raises(NothingFits):
        tune_batch_size(trainer(tmp_path), net, datamodule=data, **options(net, tmp_path))
    assert (net.batch_size, data.hparams.batch_size) == (16, 8)


def test_validation_has_no_part_in_trials(tmp_path: Path) -> None:
    """Out of memory there ends Lightning's finder in a KeyError (lightning#18985)."""

    class Validated(Net):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory.")

        def val_dataloader(self) -> DataLoader:
            return self.train_dataloader()

    net = Validated()
    assert tune_batch_size(trainer(tmp_path), net, **options(net, tmp_path)).size in net.told.sizes


def test_fewer_samples_than_the_batch_size(tmp_path: Path) -> None:
    """Lightning's finder returns 64 for 16 rows, untried; ours stops at the number of rows."""
    net = Net(batch_size=64, data=rows(16))
    result = tune_batch_size(trainer(tmp_path), net, **options(net, tmp_path, objective="largest"))
    assert result.size == net.batch_size == 16
    assert max(net.told.sizes) == 16


def test_no_validation_is_wanted_and_none_is_asked_for(tmp_path: Path) -> None:
    """Lightning's finder overrides limit_val_batches=0, and needs a missing loader."""

    class Validated(Net):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            raise AssertionError

    net = Validated()
    tuner = BatchSizeTuner(**options(net, tmp_path))
    lightning = trainer(tmp_path, tuner, limit_val_batches=0)
    lightning.fit(net)
    assert lightning.limit_val_batches == 0
    assert tuner.result is not None


def test_a_global_batch_is_kept(tmp_path: Path) -> None:
    """Lightning's finder ignores accumulation (lightning#17393): 96 samples, 40 fit."""
    net = Net(most=40)
    lightning = trainer(tmp_path)
    asked = options(net, tmp_path, global_batch_size=96, objective="largest", max_trials=9)
    result = tune_batch_size(lightning, net, **asked)
    assert (result.size, result.accumulation) == (32, 3)
    assert (net.batch_size, lightning.accumulate_grad_batches) == (32, 3)
    assert all(trial.size * trial.accumulation == 96 for trial in result.trials)
    lightning.fit(net)
    assert lightning.global_step == 2 * 3  # 8 batches an epoch: after 3, after 6, at the end


@pytest.mark.parametrize("length_fn", [None, len])
def test_a_step_of_a_global_batch_is_whole(tmp_path: Path, length_fn: Any) -> None:
    """All micro-batches, then one optimizer step; checked away from the end of the loader."""
    steps: list[int] = []

    class Counted(Net):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            steps.append(len(self.told.sizes))
            super().optimizer_step(*args, **kwargs)

    net = Counted(data=rows(4096))
    asked = options(net, tmp_path, global_batch_size=32, max_size=8, min_size=8)
    result = tune_batch_size(trainer(tmp_path), net, length_fn=length_fn, **asked)
    assert result.accumulation == 4
    between = {after - before for before, after in itertools.pairwise(steps)}
    assert 4 in between
    assert between <= {4} | set(range(1, 4))  # shorter ones where an epoch has ended


def test_the_longest_samples_fill_a_whole_step(tmp_path: Path) -> None:
    """If the trainer accumulates four batches, a trial begins with four of the longest."""
    seen: list[int] = []

    class Counted(Net):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            seen.append(len(self.told.sizes))
            super().optimizer_step(*args, **kwargs)

    net = Counted(data=rows(512))
    lightning = trainer(tmp_path, accumulate_grad_batches=4)
    tune_batch_size(lightning, net, length_fn=len, **options(net, tmp_path, max_size=8))
    assert seen[0] == 3  # the optimizer itself asks for the fourth


def test_what_accumulates_already_goes_on_to(tmp_path: Path) -> None:
    """Sizes are those of micro-batches, and each trial has at least one whole step."""
    steps: list[int] = []

    class Counted(Net):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            steps.append(self.told.sizes[-1])
            super().optimizer_step(*args, **kwargs)

    net = Counted(data=rows(2048))
    lightning = trainer(tmp_path, accumulate_grad_batches=20)
    result = tune_batch_size(lightning, net, **options(net, tmp_path, max_size=64, max_trials=3))
    assert lightning.accumulate_grad_batches == 20
    assert {trial.size for trial in result.trials} <= set(steps)
    for trial in result.trials:
        assert trial.samples_per_s == pytest.approx(trial.size / (LAUNCH_S + trial.size * SAMPLE_S))


# State.


@pytest.mark.parametrize(("kind", "most"), [(Net, 10**9), (Net, 40), (Manual, 10**9), (Manual, 0)])
def test_fit_is_the_fit_without_a_search(tmp_path: Path, kind: type[Net], most: int) -> None:
    """Bitwise in every state, with a search before or in it, also if nothing has fitted."""
    found = []
    for searched in (True, False):
        pl.seed_everything(1, verbose=False)
        net, lightning = kind(most=most), trainer(tmp_path)
        if searched:
            try:
                tune_batch_size(lightning, net, **options(net, tmp_path, max_trials=4))
            except NothingFits:
                assert most == 0
        net.batch_size, net.most = 16, 10**9
        lightning.fit(net)
        found.append(state(lightning))
    assert found[0] == found[1]


class Milestone(BatchSizeTuner):
    """A tuner that searches during training, and compares the state before and after."""

    def on_fit_start(self, *_: Any) -> None:
        self.states: list[dict] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *_: Any) -> None:
        if trainer.global_step == 6:
            pl_module.most = pl_module.most_later
            self.states.append(state(trainer))
            try:
                self.scale_batch_size(trainer, pl_module)
            except NothingFits:
                self.states.append(state(trainer))
                raise

    def _apply(self, trainer: Any, loaders: Any) -> None:
        self.states.append(state(trainer))


@pytest.mark.parametrize(("kind", "most"), [(Net, 40), (Net, 0), (Manual, 10**9), (Manual, 40)])
def test_nothing_is_changed_in_the_middle(tmp_path: Path, kind: type[Net], most: int) -> None:
    """Weights, moments, learning rates, generators, counters, gradients, metrics are unchanged."""
    net = kind()
    net.most_later = most
    tuner = Milestone(**options(net, tmp_path, max_trials=4))
    lightning = trainer(tmp_path, tuner, max_steps=10, max_epochs=-1)
    try:
        lightning.fit(net)
    except NothingFits:
        assert most == 0
    before, after = tuner.states
    assert before == after
    assert any("exp_avg" in key for key in before)


def test_no_random_number_is_drawn(tmp_path: Path) -> None:
    """Also if the module draws some in its setup."""

    class Drawing(Net):
        def setup(self, stage: str) -> None:
            torch.rand(1)
            random.random()

    net = Drawing()
    before = (torch.get_rng_state().tolist(), random.getstate())
    tune_batch_size(trainer(tmp_path), net, **options(net, tmp_path, max_trials=2))
    assert (torch.get_rng_state().tolist(), random.getstate()) == before


@pytest.mark.parametrize("where", ["training_step", "optimizer_step", "on_train_start"])
def test_an_error_of_the_user_passes_through(tmp_path: Path, where: str) -> None:
    """The error propagates, the module is restored, and the trainer can train afterwards."""

    class Broken(Net):
        is_broken = True

    def broken(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_broken and len(self.told.sizes) >= (0 if where == "on_train_start" else 30):
            raise ZeroDivisionError("of the user")
        return getattr(Net, where)(self, *args, **kwargs)

    setattr(Broken, where, broken)
    net, lightning = Broken(), trainer(tmp_path)
    weights = copy.deepcopy(net.state_dict())
    with pytest.raises(ZeroDivisionError, match="of the user"):
        tune_batch_size(lightning, net, **options(net, tmp_path))
    assert all(torch.equal(weights[name], value) for name, value in net.state_dict().items())
    assert (net.batch_size, net.steps, net.outputs) == (16, 0, [])
    Broken.is_broken = False
    lightning.fit(net)
    assert lightning.global_step == 32


def test_nobody_else_sees_the_trials(tmp_path: Path) -> None:
    """No callback, logger or checkpoint; a logger's experiment is available."""
    seen: list[str] = []

    class Watching(pl.Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            seen.append("batch")

        def on_before_optimizer_step(self, *_: Any) -> None:
            seen.append("step")

    class Logging(Net):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            self.logger.experiment.add_scalar("own", 1.0)
            return super().training_step(batch, batch_idx)

    net = Logging()
    lightning = trainer(
        tmp_path, Watching(), ModelCheckpoint(tmp_path, every_n_train_steps=1),
        LearningRateMonitor("step"),
        logger=True, enable_checkpointing=True, log_every_n_steps=1, profiler="simple",
    )  # fmt: skip
    written: list[Any] = []
    logger = lightning.logger
    logger.log_metrics = lambda *args, **kwargs: written.append(args)
    tune_batch_size(lightning, net, **options(net, tmp_path))
    assert (seen, written, list(tmp_path.glob("*.ckpt"))) == ([], [], [])
    assert not any("training" in name for name in lightning.profiler.recorded_durations)
    assert lightning.callback_metrics == {}
    assert lightning.logger is logger


def test_generators_of_the_loader_are_put_back(tmp_path: Path) -> None:
    """The order of samples in the fit is that without a search."""
    firsts = []
    for searched in (True, False):
        net = Net()
        loader = DataLoader(
            net.data, 16, shuffle=True, generator=torch.Generator().manual_seed(3)
        )  # fmt: skip
        if searched:
            tune_batch_size(
                trainer(tmp_path), net, train_dataloaders=loader, **options(net, tmp_path)
            )
        firsts.append(next(iter(loader))[0])
    assert torch.equal(*firsts)


# Ways to train.


class Looking(Net):
    """A module that records settings of the trainer in a step."""

    def forward(self, batch: Any) -> torch.Tensor:
        self.told.types.add(self.layers[0](batch[0]).dtype)
        self.told.watches.add(torch.is_anomaly_enabled())
        return super().forward(batch) * 100.0

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        super().optimizer_step(*args, **kwargs)
        gradients = [parameter.grad.norm() for parameter in self.parameters()]
        self.told.norms.append(float(torch.stack(gradients).norm()))


@pytest.mark.parametrize(
    ("settings", "is_so"),
    [
        ({"precision": "bf16-mixed"}, lambda told: told.types == {torch.bfloat16}),
        ({"gradient_clip_val": 0.1}, lambda told: max(told.norms) <= 0.1001),
        ({"detect_anomaly": True}, lambda told: told.watches == {True}),
    ],
)
def test_a_trial_is_a_step_of_the_trainer(tmp_path: Path, settings: dict, is_so: Any) -> None:
    """With its precision, clipping and anomaly detection."""
    net = Looking()
    tune_batch_size(trainer(tmp_path, **settings), net, **options(net, tmp_path, max_trials=2))
    assert is_so(net.told)
    plain = Looking()
    tune_batch_size(trainer(tmp_path), plain, **options(plain, tmp_path, max_trials=2))
    assert not is_so(plain.told)


class Compiled(Net):
    """A module without code that PyTorch 2.13 cannot compile, such as ``self.log``."""

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return self.layers(batch[0]).square().mean()


def test_a_compiled_module(tmp_path: Path) -> None:
    """``trainer.fit(torch.compile(model))``: the same weights as without a search."""
    weights = []
    for searched in (True, False):
        pl.seed_everything(0, verbose=False)
        net, lightning = Compiled(), trainer(tmp_path)
        compiled = torch.compile(net, backend="eager")
        if searched:
            asked = options(net, tmp_path, max_trials=2, meter=None, max_size=32)
            asked["patience"] = Patience(block_s=0.005, least_s=0.02, most_s=0.05, seen_s=0.1)
            assert tune_batch_size(lightning, compiled, **asked).size == net.batch_size
        net.batch_size = 16
        lightning.fit(compiled)
        weights.append(net.state_dict())
    assert all(torch.equal(weights[0][name], value) for name, value in weights[1].items())


@pytest.mark.parametrize("is_broken", [False, True])
def test_loaders_with_workers(tmp_path: Path, is_broken: bool) -> None:
    """Created for each size and ended afterwards, also if an error still refers to the loop."""

    class Broken(Net):
        def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
            if is_broken:
                raise ZeroDivisionError
            super().optimizer_step(*args, **kwargs)

    net = Broken()
    loader = DataLoader(net.data, 16, num_workers=1, persistent_workers=True)
    asked = options(net, tmp_path, max_trials=2)
    held = None
    try:
        tune_batch_size(trainer(tmp_path), net, train_dataloaders=loader, **asked)
    except ZeroDivisionError as error:
        held = error
    assert (held is not None) == is_broken
    assert children_left() == 0
    assert loader._iterator is None


@pytest.mark.parametrize("combine", [dict, list, CombinedLoader])
def test_several_loaders(tmp_path: Path, combine: type) -> None:
    """Loaders of one batch size all get the other one, in the same structure."""

    class Both(Net):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            first, second = batch.values() if isinstance(batch, dict) else batch
            assert len(first[0]) == len(second[0])
            return super().training_step(first, batch_idx)

    net = Both()
    first, second = DataLoader(rows(), 16), DataLoader(rows(100), 16)
    loaders: Any = {"first": first, "second": second}
    if combine is not dict:
        loaders = [first, second] if combine is list else CombinedLoader(loaders, "max_size_cycle")
    result = tune_batch_size(
        trainer(tmp_path), net, train_dataloaders=loaders,
        **options(net, tmp_path, objective="largest", max_trials=3),
    )  # fmt: skip
    assert max(trial.size for trial in result.trials) <= 100
    assert set(net.told.sizes) == {trial.size for trial in result.trials}


class Stream(IterableDataset):
    """A number of rows without a length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        return iter((row,) for row in rows(self.count).tensors[0])


def test_a_stream(tmp_path: Path) -> None:
    """Only full batches are counted; without one the search ends with an error message."""
    net = Net()
    loader = DataLoader(Stream(100), 16)
    asked = options(net, tmp_path, max_size=48)
    tune_batch_size(trainer(tmp_path), net, train_dataloaders=loader, **asked)
    assert max(net.told.sizes) <= 48
    assert 100 % 48 not in net.told.sizes
    with pytest.raises(ValueError, match=r"at least one full batch.*make max_size smaller"):
        tune_batch_size(
            trainer(tmp_path), net, train_dataloaders=loader,
            **options(net, tmp_path, objective="largest"),
        )  # fmt: skip


class Ragged(torch.utils.data.Dataset):
    """Sequences of 10 tokens; the last one has 50, and a trial would not reach it."""

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, place: int) -> torch.Tensor:
        return torch.ones(50 if place == 4999 else 10, 8)


def test_a_trial_begins_with_the_longest(tmp_path: Path) -> None:
    """Memory for 1000 tokens: 20 samples padded to 50; without padding 100 would fit."""

    class Tokens(Net):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            if batch[0].shape[0] * batch[0].shape[1] > 1000:
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return super().training_step([batch[0].mean(1)], batch_idx)

    def padded(samples: list) -> list:
        return [torch.nn.utils.rnn.pad_sequence(samples, batch_first=True)]

    net = Tokens()
    asked = options(net, tmp_path, objective="largest", max_trials=20)
    loader = DataLoader(Ragged(), 2, collate_fn=padded)
    result = tune_batch_size(
        trainer(tmp_path), net, length_fn=len, train_dataloaders=loader, **asked
    )
    assert result.size == 20


def test_loaders_that_each_epoch_makes_anew(tmp_path: Path) -> None:
    """``reload_dataloaders_every_n_epochs`` does not restore the module's loader in a trial."""
    net = Net()
    lightning = trainer(tmp_path, reload_dataloaders_every_n_epochs=1)
    result = tune_batch_size(lightning, net, **options(net, tmp_path, max_trials=2))
    assert set(net.told.sizes) == {trial.size for trial in result.trials}
    assert lightning.reload_dataloaders_every_n_epochs == 1


def test_a_schedule_for_so_many_steps(tmp_path: Path) -> None:
    """A cycle of all steps: trials do not consume it, and it is created for the new number."""

    class Cycle(Net):
        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            steps = self.trainer.estimated_stepping_batches
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=steps)
            return [optimizer], [{"scheduler": schedule, "interval": "step"}]

    net = Cycle(most=64)
    asked = options(net, tmp_path, objective="largest", powers_of_two=True)
    lightning = trainer(tmp_path, BatchSizeTuner(**asked))
    lightning.fit(net)
    (config,) = lightning.lr_scheduler_configs
    assert config.scheduler.total_steps == lightning.global_step == 2 * 256 // 64


def test_a_wrapped_scheduler_stays_wrapped(tmp_path: Path) -> None:
    """A user's own ``step`` of one scheduler is not called in trials, but in the training."""
    calls: list[int] = []

    class Wrapping(Net):
        def configure_optimizers(self) -> Any:
            found = super().configure_optimizers()
            schedule = found["lr_scheduler"]["scheduler"]
            step = schedule.step
            schedule.step = lambda *given: (calls.append(1), step(*given))
            return found

    net = Wrapping(most=64)
    lightning = trainer(tmp_path, BatchSizeTuner(**options(net, tmp_path, objective="largest")))
    lightning.fit(net)
    assert len(calls) == lightning.global_step


def test_a_resumed_run_keeps_its_size(tmp_path: Path) -> None:
    """There is no second search: the checkpoint has size and accumulation."""
    net = Net(most=40)
    asked = {"global_batch_size": 64, "objective": "largest"}
    lightning = trainer(tmp_path, BatchSizeTuner(**options(net, tmp_path, **asked)))
    lightning.fit(net)
    lightning.save_checkpoint(tmp_path / "last.ckpt")
    resumed = Net()
    tuner = BatchSizeTuner(**options(resumed, tmp_path, **asked))
    again = trainer(tmp_path, tuner, max_epochs=3)
    again.fit(resumed, ckpt_path=tmp_path / "last.ckpt")
    assert tuner.result is None
    assert (resumed.batch_size, again.accumulate_grad_batches) == (32, 2)
    assert set(resumed.told.sizes) == {32}


# Energy.


def test_joules_are_in_the_report_of_the_training(tmp_path: Path) -> None:
    """The callback's running meter measures the trials in the phase ``tuning``."""
    net = Net()
    ours = GpuEnergyCallback(meter=meter(net, tmp_path))
    asked = options(net, tmp_path, patience=STEADY)
    del asked["meter"]
    tuner = BatchSizeTuner(**asked)
    trainer(tmp_path, ours, tuner).fit(net)
    phases = {phase.name: phase for phase in ours.report().phases}
    assert phases["tuning"].gpu.energy_j == pytest.approx(tuner.result.energy_j, rel=0.05)
    assert phases["train"].gpu.energy_j > 0.0
    batches = -(-256 // tuner.result.size)
    assert ours.report().throughput.steps == 2 * batches
    assert ours.report().throughput.samples == 2 * 256


# What cannot be.


class _Bucket(BatchSampler):
    """A user's batch sampler."""


@pytest.mark.parametrize(
    ("loader", "said"),
    [
        (lambda: DataLoader(rows(), batch_size=None), "created with batch_size="),
        (lambda: [torch.ones(4, 8)], "got Tensor"),
        (
            lambda: DataLoader(rows(), batch_sampler=_Bucket(SequentialSampler(rows()), 4, False)),
            "_Bucket",
        ),
        (lambda: [DataLoader(rows(), 4), DataLoader(rows(), 8)], r"one batch size, got \[4, 8\]"),
    ],
)
def test_a_loader_of_no_other_size_is_refused(tmp_path: Path, loader: Any, said: str) -> None:
    """The error is raised before any step."""
    net = Net()
    with pytest.raises(ValueError, match=said):
        tune_batch_size(
            trainer(tmp_path), net, train_dataloaders=loader(), **options(net, tmp_path)
        )
    assert net.told.sizes == []


def test_a_module_without_the_attribute_is_refused(tmp_path: Path) -> None:
    """Also a module whose loader does not use it."""
    net = Net()
    with pytest.raises(ValueError, match="neither it nor its hparams have 'width'"):
        tune_batch_size(trainer(tmp_path), net, batch_arg_name="width", **options(net, tmp_path))
    net.width = 16
    with pytest.raises(ValueError, match="gave batches of 16 when width was"):
        tune_batch_size(trainer(tmp_path), net, batch_arg_name="width", **options(net, tmp_path))
    assert net.width == 16


def test_steps_that_need_all_ranks_are_refused() -> None:
    """Ranks run different numbers of steps."""
    strategy = pl.strategies.FSDPStrategy()
    with pytest.raises(ValueError, match="with DDP, got FSDPStrategy"):
        check(SimpleNamespace(strategy=strategy, lightning_module=Net(), world_size=2))
    module = torch.nn.SyncBatchNorm.convert_sync_batchnorm(Net())
    strategy = pl.strategies.DDPStrategy()
    with pytest.raises(ValueError, match=r"SyncBatchNorm waits.*sync_batchnorm=False"):
        check(SimpleNamespace(strategy=strategy, lightning_module=module, world_size=2))
    check(SimpleNamespace(strategy=strategy, lightning_module=Net(), world_size=2))


def test_misuse_is_told_at_once(tmp_path: Path) -> None:
    """At construction, or before a fit begins."""
    with pytest.raises(TypeError, match="no option 'mode'"):
        BatchSizeTuner(mode="power")
    with pytest.raises(ValueError, match="steps_per_trial must be from 1 to 8"):
        BatchSizeTuner(steps_per_trial=100)
    with pytest.raises(ValueError, match="objective must be"):
        BatchSizeTuner(objective="size")
    with pytest.raises(ValueError, match="has another BatchSizeFinder"):
        tune_batch_size(trainer(tmp_path, BatchSizeFinder()), Net())
    with pytest.raises(ValueError, match="child processes of this process, got 'spawn'"):
        tune_batch_size(trainer(tmp_path, strategy="ddp_spawn", devices=2), Net())
    with pytest.raises(ValueError, match="fast_dev_run must be off"):
        tune_batch_size(trainer(tmp_path, fast_dev_run=True), Net())
    with pytest.raises(TypeError, match="trainer must be a Trainer of Lightning, got 3; pass"):
        tune_batch_size(3, Net())
    with pytest.raises(TypeError, match="length_fn must be a function of a sample, got 3; leave"):
        BatchSizeTuner(length_fn=3)  # type: ignore[arg-type]


def test_lightning_s_tuner_knows_what_it_is(tmp_path: Path) -> None:
    """Lightning's Tuner rejects a second search; the callback can be pickled."""
    tuner = BatchSizeTuner(max_val=64)
    with pytest.raises(ValueError, match="already configured with a `BatchSizeFinder`"):
        Tuner(trainer(tmp_path, tuner)).scale_batch_size(Net())
    assert pickle.loads(pickle.dumps(tuner))._options == {"max_size": 64}


def test_only_fit_is_tuned(tmp_path: Path) -> None:
    """The callback does nothing in validate, test and predict."""

    class Tested(Net):
        def test_step(self, batch: Any, batch_idx: int) -> None:
            self(batch)

        def test_dataloader(self) -> DataLoader:
            return self.train_dataloader()

    net, tuner = Tested(), BatchSizeTuner()
    trainer(tmp_path, tuner).test(net)
    assert tuner.result is None
    assert set(net.told.sizes) == {16}
