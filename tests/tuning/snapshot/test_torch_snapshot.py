"""After trial steps a training continues as if there had been none."""

import copy
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from energy_callbacks.tuning.snapshot.torch_snapshot import TorchSnapshot

torch = pytest.importorskip("torch")
nn = torch.nn


class Net(nn.Module):
    """Dropout, batch norm, tied weights, a buffer that is not saved and one that is replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(8, 8)
        self.tied = nn.Linear(8, 8)
        self.tied.weight = self.head.weight
        self.frozen = nn.Linear(8, 1).requires_grad_(requires_grad=False)
        self.register_buffer("seen", torch.zeros(()), persistent=False)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, batch: Any) -> Any:
        hidden = self.tied(self.head(self.body(batch)))
        self.seen += len(batch)
        self.mean = 0.9 * self.mean + 0.1 * hidden.detach().mean(0)
        return self.frozen(hidden + self.mean)


OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adam, learning rate in a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "lbfgs": lambda p: torch.optim.LBFGS(p, lr=0.1, max_iter=3, history_size=2),
}
SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "steps": lambda o: torch.optim.lr_scheduler.MultiStepLR(o, [2, 2, 4]),
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "in turn": lambda o: torch.optim.lr_scheduler.SequentialLR(
        o,
        [
            torch.optim.lr_scheduler.LinearLR(o, total_iters=3),
            torch.optim.lr_scheduler.ExponentialLR(o, 0.9),
        ],
        [3],
    ),
    "plateau": lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0),
}


class Training:
    """A model that is trained on random batches, step by step."""

    def __init__(self, optimizer: str = "adam", scheduler: str = "cosine", seed: int = 0) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        self.model = Net()
        parameters = [one for one in self.model.parameters() if one.requires_grad]
        self.optimizer = OPTIMIZERS[optimizer](parameters)
        self.scheduler = SCHEDULERS[scheduler](self.optimizer)

    def step(self, size: int = 8, fault: Exception | None = None) -> float:
        batch = torch.randn(size, 4) * random.random() + np.random.rand()
        if fault is not None:
            batch.requires_grad_()

        def closure() -> Any:
            self.optimizer.zero_grad()
            loss = self.model(batch).square().mean()
            if fault is not None:
                batch.register_hook(raising(fault))  # when the gradients of the model are there
            loss.backward()
            return loss

        loss = self.optimizer.step(closure).item()
        plateau = isinstance(self.scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau)
        self.scheduler.step(*([loss] if plateau else []))
        return loss

    def run(self, steps: int) -> list[float]:
        return [self.step() for _ in range(steps)]

    def snapshot(self) -> TorchSnapshot:
        return TorchSnapshot([self.model, self.optimizer, self.scheduler])


def raising(fault: Exception) -> Callable[[Any], None]:
    """Return a hook that raises."""

    def hook(_: Any) -> None:
        raise fault

    return hook


def everything(training: Training) -> dict[str, Any]:
    """Return all state that a step can change, with tensors as bytes."""
    parameters = list(training.model.parameters())
    state = training.optimizer.state
    return flat(
        {
            "tensors": dict(training.model.named_parameters())
            | dict(training.model.named_buffers()),
            "grads": [one.grad for one in parameters],
            "wanting": [one.requires_grad for one in parameters],
            "modes": [one.training for one in training.model.modules()],
            "state": [dict(state[one]) if one in state else None for one in parameters],
            "groups": [
                {key: value for key, value in group.items() if key != "params"}
                for group in training.optimizer.param_groups
            ],
            "scheduler": training.scheduler.state_dict(),
            "random": [random.getstate(), torch.get_rng_state(), np.random.get_state()],
        }
    )


def flat(value: Any, path: str = "") -> dict[str, Any]:
    """Return the leaves by their paths."""
    if isinstance(value, torch.Tensor):
        held = value.detach().contiguous().reshape(-1).view(torch.uint8)
        return {path: (str(value.dtype), str(value.device), tuple(value.shape), held.tolist())}
    if isinstance(value, np.ndarray):
        return {path: value.tobytes()}
    if isinstance(value, dict):
        return {k: v for key, one in value.items() for k, v in flat(one, f"{path}/{key}").items()}
    if isinstance(value, list | tuple):
        return {k: v for i, one in enumerate(value) for k, v in flat(one, f"{path}/{i}").items()}
    return {path: copy.deepcopy(value)}


def identities(training: Training) -> list[int]:
    """Return the ids of objects that others refer to."""
    held = [*training.model.parameters(), *training.model.buffers()]
    groups = training.optimizer.param_groups
    inner = [one for group in groups for one in (group, group["params"], *group["params"])]
    state = [one for owner in training.optimizer.state.values() for one in owner.values()]
    return [id(one) for one in (*held, groups, *inner, *filter(torch.is_tensor, state))]


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_detour_leaves_no_trace(optimizer: str, before: int) -> None:
    """The state and the next five losses are identical, also before the first step."""
    expected = Training(optimizer).run(before + 5)[before:]
    other = Training(optimizer)
    other.run(before)
    was, who = everything(other), identities(other)
    snapshot = other.snapshot()
    for detour in (3, 1, 0):  # as often as one likes
        other.run(detour)
        other.model.eval()
        snapshot.restore()
        assert everything(other) == was
        if optimizer != "lbfgs":  # which replaces tensors of its state itself
            assert identities(other) == who
    assert other.run(5) == expected


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_schedules_go_on_where_they_were(scheduler: str) -> None:
    """Also across milestones."""
    training = Training("sgd", scheduler)
    training.run(2)
    was, snapshot = everything(training), training.snapshot()
    ahead = training.run(5)
    snapshot.restore()
    assert everything(training) == was
    assert training.run(5) == ahead


def test_what_a_first_step_makes_is_gone() -> None:
    """State and gradients that did not exist do not exist afterwards; they are not zero."""
    training = Training("adam")
    snapshot = training.snapshot()
    training.run(1)
    assert len(training.optimizer.state) > 0
    snapshot.restore()
    assert len(training.optimizer.state) == 0
    assert all(one.grad is None for one in training.model.parameters())


def test_a_step_that_failed_on_its_way_back() -> None:
    """Gradients of a backward pass that failed are removed."""
    expected = Training(seed=3).run(7)[2:]
    failing = Training(seed=3)
    failing.run(2)
    was, snapshot = everything(failing), failing.snapshot()
    with pytest.raises(torch.OutOfMemoryError):
        failing.step(512, torch.OutOfMemoryError("CUDA out of memory."))
    assert everything(failing) != was
    snapshot.restore()
    assert everything(failing) == was
    assert failing.run(5) == expected


def test_gradients_that_were_there_are_there_again() -> None:
    """In the same tensors if these still exist, otherwise in new ones."""
    training = Training()
    training.step()
    grads = {one: one.grad for one in training.model.parameters() if one.grad is not None}
    values = {one: grad.clone() for one, grad in grads.items()}
    snapshot = training.snapshot()
    training.step()
    snapshot.restore()
    assert all(one.grad is grad for one, grad in grads.items())
    grads.clear()
    training.optimizer.zero_grad()
    snapshot.restore()
    assert len(values) > 0
    assert all(torch.equal(one.grad, value) for one, value in values.items())


def test_freezing_and_modes_are_undone() -> None:
    """Each submodule has its old mode, and each parameter its old ``requires_grad``."""
    model = Net()
    model.body[1].eval()
    snapshot = TorchSnapshot([model])
    model.train()
    model.requires_grad_(requires_grad=False)
    snapshot.restore()
    modes = {name: one.training for name, one in model.named_modules()}
    assert [name for name, is_training in modes.items() if not is_training] == ["body.1"]
    frozen = [name for name, one in model.named_parameters() if not one.requires_grad]
    assert frozen == ["frozen.weight", "frozen.bias"]


def test_tensors_are_put_back_under_their_names() -> None:
    """After replacing, deleting and adding: the same objects in the same order."""
    model = Net()
    names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]
    held = [*model.parameters(), *model.buffers()]
    snapshot = TorchSnapshot([model])
    model.head.weight = nn.Parameter(torch.ones(8, 8))
    del model.mean
    model.register_buffer("cache", torch.ones(3), persistent=False)
    snapshot.restore()
    assert [name for name, _ in (*model.named_parameters(), *model.named_buffers())] == names
    assert [id(one) for one in (*model.parameters(), *model.buffers())] == [id(t) for t in held]
    assert model.head.weight is model.tied.weight
    assert "seen" not in model.state_dict()
    assert "mean" in model.state_dict()


def test_memory_that_was_shared_is_shared_again() -> None:
    """Views of one storage, also after the model was converted to another type."""
    flat_weights = torch.arange(6.0)
    model = nn.Module()
    model.left = nn.Parameter(flat_weights[:4])
    model.right = nn.Parameter(flat_weights[2:])
    snapshot = TorchSnapshot([model])
    with torch.no_grad():
        model.left.fill_(7.0)
    model.half()
    snapshot.restore()
    assert model.left.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert model.right.tolist() == [2.0, 3.0, 4.0, 5.0]
    with torch.no_grad():
        model.left[2] = 9.0
    assert model.right[0] == 9.0


@pytest.mark.parametrize("apply", ["parametrize", "hook"])
def test_modules_with_computed_weights(apply: str) -> None:
    """Spectral norm keeps its vectors in buffers, with either way of applying it."""
    torch.manual_seed(0)
    norm = (
        nn.utils.parametrizations.spectral_norm
        if apply == "parametrize"
        else nn.utils.spectral_norm
    )
    model = norm(nn.Linear(4, 4))
    batch = torch.randn(2, 4)
    snapshot = TorchSnapshot([model])
    first = model(batch)
    model(batch).sum().backward()
    snapshot.restore()
    assert torch.equal(model(batch), first)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda model: torch.compile(model, backend="eager"),
        nn.DataParallel,
        torch.optim.swa_utils.AveragedModel,
    ],
    ids=["compiled", "parallel", "averaged"],
)
def test_wrapped_modules_are_modules(wrap: Callable[[Any], Any]) -> None:
    """The wrapped module is restored with its mode."""
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
    was = flat(dict(model.state_dict()))
    snapshot = TorchSnapshot([model])
    model(torch.randn(3, 4)).sum().backward()
    with torch.no_grad():
        for one in model.parameters():
            one.add_(1.0)
    model.eval()
    snapshot.restore()
    assert flat(dict(model.state_dict())) == was
    assert all(one.training for one in model.modules())
    assert all(one.grad is None for one in model.parameters())


def test_a_scripted_module_is_a_module() -> None:
    """Its tensors are held by C++."""
    model = torch.jit.script(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    was = flat(dict(model.state_dict()))
    snapshot = TorchSnapshot([model])
    model(torch.randn(3, 2))
    model.eval()
    snapshot.restore()
    assert flat(dict(model.state_dict())) == was
    assert model.training


@pytest.fixture
def gloo(tmp_path) -> Iterator[None]:
    """Create a process group of one process."""
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("as_view", [False, True])
def test_distributed_training_goes_on(gloo: None, as_view: bool) -> None:
    """Gradients may be views of the buckets that ranks exchange."""

    def losses(*, detour: bool) -> list[float]:
        torch.manual_seed(0)
        inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(), nn.Linear(4, 1))
        model = nn.parallel.DistributedDataParallel(inner, gradient_as_bucket_view=as_view)
        optimizer = torch.optim.Adam(model.parameters())

        def step() -> float:
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            return loss.item()

        first = [step() for _ in range(2)]
        if detour:
            snapshot = TorchSnapshot([model, optimizer])
            step()
            snapshot.restore()
        return first + [step() for _ in range(5)]

    assert losses(detour=True) == losses(detour=False)


def test_a_gradient_scaler_can_go_on_after_a_step_that_failed() -> None:
    """Between ``unscale_`` and ``update`` the scaler refuses to unscale a second time."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=1)

    def step(*, fails: bool = False) -> None:
        scaler.scale(model(torch.ones(3, 2)).sum()).backward()
        scaler.unscale_(optimizer)
        if fails:
            raise torch.OutOfMemoryError
        scaler.step(optimizer)
        scaler.update()

    snapshot = TorchSnapshot([model, optimizer, scaler])
    step()
    assert scaler.get_scale() == 512.0
    with pytest.raises(torch.OutOfMemoryError):
        step(fails=True)
    snapshot.restore()
    assert scaler.get_scale() == 256.0
    step()
    assert scaler.get_scale() == 512.0


class Counter:
    """A user's object with a tensor in its state."""

    def __init__(self) -> None:
        self.counts = {"steps": 0, "sums": torch.zeros(2), "names": set()}

    def state_dict(self) -> dict[str, Any]:
        return self.counts  # itself, as careless classes do

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = state


def test_others_get_their_state_back() -> None:
    """Each restore loads a new copy, so that changes do not reach the snapshot."""
    counter = Counter()
    snapshot = TorchSnapshot([counter])
    for _ in range(2):
        counter.counts["steps"] += 1
        counter.counts["sums"] += 1.0
        counter.counts["names"].add("one")
        counter.counts["new"] = True
        snapshot.restore()
        assert counter.counts.keys() == {"steps", "sums", "names"}
        assert counter.counts["names"] == set()
        assert counter.counts["steps"] == 0
        assert counter.counts["sums"].tolist() == [0.0, 0.0]


def test_groups_that_were_added_go() -> None:
    """A callback may add groups to unfreeze layers; new keys of a group are removed too."""
    training = Training()
    snapshot = training.snapshot()
    extra = nn.Parameter(torch.ones(1))
    training.optimizer.add_param_group({"params": [extra]})
    training.optimizer.param_groups[0]["params"].append(extra)
    training.optimizer.param_groups[0]["mark"] = True
    snapshot.restore()
    (group,) = training.optimizer.param_groups
    assert extra not in set(group["params"])
    assert "mark" not in group


def test_an_optimizer_alone_restores_its_parameters() -> None:
    """The parameters belong to no module."""
    weight = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    snapshot = TorchSnapshot([optimizer])
    weight.sum().backward()
    optimizer.step()
    snapshot.restore()
    assert weight.tolist() == [1.0, 1.0]


def test_state_loaded_meanwhile_is_replaced() -> None:
    """``load_state_dict`` gives an optimizer a new dict of state and new groups."""
    training = Training("adam")
    training.run(2)
    was, snapshot = everything(training), training.snapshot()
    training.run(1)
    training.optimizer.load_state_dict(copy.deepcopy(training.optimizer.state_dict()))
    snapshot.restore()
    assert everything(training) == was


def test_a_buffer_that_became_part_of_a_graph_is_free_again() -> None:
    """Otherwise the next backward would pass through the failed step's graph."""
    model = nn.Module()
    model.register_buffer("carry", torch.zeros(2))
    model.weight = nn.Parameter(torch.ones(2))
    snapshot = TorchSnapshot([model])
    model.carry.add_(model.weight)
    snapshot.restore()
    assert model.carry.grad_fn is None
    assert not model.carry.requires_grad
    assert model.carry.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(3.0).expand(4, 3),
        torch.arange(3.0).expand(1, 3),
        torch.eye(3).to_sparse(),
        torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
        torch.arange(6.0).reshape(2, 3).t(),
        torch.zeros(0),
        torch.tensor(1 + 2j),
        torch.tensor([float("nan"), -0.0, float("inf")]),
        torch.ones(2, dtype=torch.bfloat16),
    ],
    ids=["expanded", "one row", "sparse", "channels last", "transposed", "empty", "complex", "nan",
         "bfloat16"],
)  # fmt: skip
def test_any_layout_is_kept(tensor: Any) -> None:
    """Buffers of all layouts, changed through their memory if possible."""
    model = nn.Module()
    model.register_buffer("held", tensor.clone() if tensor.layout != torch.strided else tensor)
    held = model.held
    was, strides = flat(held.to_dense()), held.layout == torch.strided and held.stride()
    snapshot = TorchSnapshot([model])
    if held.layout == torch.strided:
        torch.as_strided(held, (held.untyped_storage().size() // held.itemsize,), (1,)).fill_(5.0)
    else:
        held.mul_(5.0)
    snapshot.restore()
    assert model.held is held
    assert flat(held.to_dense()) == was
    assert (held.layout == torch.strided and held.stride()) == strides


@settings(max_examples=25)
@given(
    optimizer=st.sampled_from(sorted(OPTIMIZERS)),
    scheduler=st.sampled_from(sorted(SCHEDULERS)),
    before=st.integers(0, 4),
    detours=st.lists(
        st.one_of(st.integers(2, 20), st.sampled_from(["fault", "eval", "zero"])), max_size=5
    ),
)
def test_any_detour_leaves_no_trace(
    optimizer: str, scheduler: str, before: int, detours: list[Any]
) -> None:
    """Steps of any size, failures, other modes and cleared gradients in any order."""
    training = Training(optimizer, scheduler)
    training.run(before)
    was, snapshot = everything(training), training.snapshot()
    for detour in detours:
        if detour == "eval":
            training.model.eval()
        elif detour == "zero":
            training.optimizer.zero_grad()
        else:
            fault = torch.OutOfMemoryError("CUDA out of memory.") if detour == "fault" else None
            with suppress(torch.OutOfMemoryError):
                training.step(4 if fault else detour, fault)
    snapshot.restore()
    assert everything(training) == was


class Generator:
    """The part of a device's random generator that the snapshot uses."""

    def __init__(self) -> None:
        self.drawn = 0

    def get_state(self) -> int:
        return self.drawn

    def set_state(self, drawn: int) -> None:
        self.drawn = drawn

    def initial_seed(self) -> int:
        return 42

    def manual_seed(self, seed: int) -> None:
        assert seed == 42
        self.drawn = 0


def test_generators_of_devices_in_use(monkeypatch) -> None:
    """The generator of a device that is first used later starts from its seed."""
    awake, woken = Generator(), Generator()
    awake.drawn = 5
    cuda = SimpleNamespace(is_initialized=lambda: True, default_generators=(awake,))
    xpu = SimpleNamespace(is_initialized=lambda: False, default_generators=(woken,))
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(torch, "xpu", xpu)
    snapshot = TorchSnapshot([nn.Linear(1, 1)])
    awake.drawn = woken.drawn = 9
    snapshot.restore()
    assert (awake.drawn, woken.drawn) == (5, 9)  # one that sleeps is not touched
    xpu.is_initialized = lambda: True
    snapshot.restore()
    assert (awake.drawn, woken.drawn) == (5, 0)


def test_to_make_a_snapshot_is_no_step() -> None:
    """Creating a snapshot changes nothing and draws no random number."""
    training = Training()
    training.step()
    was = everything(training)
    training.snapshot()
    assert everything(training) == was


def test_a_snapshot_keeps_no_memory_of_the_device() -> None:
    """Gradients and state that the training frees are freed in spite of the snapshot."""
    training = Training("adam")
    training.step()
    weight = training.model.head.weight
    state = training.optimizer.state[weight]
    freed = [weakref.ref(weight.grad), weakref.ref(state["exp_avg"])]
    snapshot = training.snapshot()
    value = state["exp_avg"].clone()
    training.optimizer.zero_grad()
    state["exp_avg"] = torch.ones(8, 8)
    assert [one() for one in freed] == [None, None]
    snapshot.restore()
    assert torch.equal(state["exp_avg"], value)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (nn.Linear(1, 1), TypeError, r"got Linear; write keep=\[it\]"),
        (nn.Sequential(nn.Linear(1, 1)), TypeError, r"got Sequential; write keep=\[it\]"),
        (["model"], TypeError, "keep takes modules, optimizers, .* got str; leave it"),
        ([nn.Linear(1, 1), object()], TypeError, "with state_dict and load_state_dict, got object"),
        (3, TypeError, "got int"),
        ([nn.Linear(1, 1, device="meta")], ValueError, "weight of Linear has no values"),
        ([nn.Sequential(nn.LazyLinear(1))], ValueError, "0.weight of Sequential has no"),
        ([nn.LazyBatchNorm1d(affine=False)], ValueError, "running_mean of LazyBatchNorm1d has"),
    ],
)  # fmt: skip
def test_wrong_arguments_raise_at_once(given: Any, error: type[Exception], message: str) -> None:
    """The message names what was expected, what was given, and what to do."""
    with pytest.raises(error, match=message):
        TorchSnapshot(given)


def test_objects_of_an_iterator_are_all_restored() -> None:
    """An iterator can be read only once, and modules come before optimizers."""
    module = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(module.parameters())
    snapshot = TorchSnapshot(one for one in (module, optimizer))  # type: ignore[arg-type]
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    snapshot.restore()
    assert not optimizer.state


def test_an_optimizer_without_values_is_named() -> None:
    """The message names its class, as the user knows it."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1, device="meta"))], lr=0.1)
    with pytest.raises(ValueError, match="a parameter of SGD has no values yet, got Parameter"):
        TorchSnapshot([optimizer])
