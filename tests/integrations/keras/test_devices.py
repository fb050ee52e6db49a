"""Which GPUs and which process: each backend says it in its own words."""

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest

from energy_callbacks_keras import devices
from tests.integrations.keras.training import BACKEND, IS_3_6, model
from tests.integrations.processes import Running, Script, Spawning, wait

pytestmark = pytest.mark.every_backend


def only(backend: str) -> pytest.MarkDecorator:
    """A test of one backend's words."""
    return pytest.mark.skipif(backend != BACKEND, reason=f"only {backend} speaks so")


def on(value: Any) -> Any:
    """A model whose weights are such a value."""
    return SimpleNamespace(trainable_variables=[SimpleNamespace(value=value)])


def test_a_model_on_the_cpu_uses_no_gpu() -> None:
    """Its weights say so, on every backend."""
    assert devices.used_gpus(model()) == ()


@pytest.mark.parametrize("nothing", [None, SimpleNamespace(trainable_variables=[], variables=[])])
def test_a_model_without_weights_says_nothing(nothing: Any) -> None:
    """Then the meter asks the driver."""
    assert devices.used_gpus(nothing) is None


@only("torch")
def test_torch() -> None:
    """The index of the device of the weights."""
    import torch

    assert devices.used_gpus(on(SimpleNamespace(device=torch.device("cuda", 3)))) == (3,)
    assert devices.used_gpus(on(SimpleNamespace(device=torch.device("cuda")))) == (0,)
    assert devices.used_gpus(on(SimpleNamespace(device=torch.device("mps")))) == ()


@only("jax")
def test_jax() -> None:
    """All devices of this process that hold a part of the weights, by their hardware number."""

    def device(platform: str, number: int, process: int = 0) -> Any:
        return SimpleNamespace(
            platform=platform, id=8 * process + number, local_hardware_id=number,
            process_index=process,
        )  # fmt: skip

    mesh = [device("gpu", 1), device("gpu", 0), device("gpu", 5, process=1)]
    assert devices.used_gpus(on(SimpleNamespace(devices=lambda: mesh))) == (0, 1)
    assert devices.used_gpus(on(SimpleNamespace(devices=lambda: [device("tpu", 0)]))) == ()


@only("tensorflow")
def test_tensorflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logical numbers become those of the cards that set_visible_devices has left."""
    import tensorflow as tf

    visible = [SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in (2, 3)]
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: visible)

    def value(number: int) -> Any:
        return SimpleNamespace(device=f"/job:localhost/replica:0/task:0/device:GPU:{number}")

    assert devices.used_gpus(on(value(1))) == (3,)
    assert devices.used_gpus(on(SimpleNamespace(values=(value(0), value(1))))) == (2, 3)


def test_one_process() -> None:
    """Alone, and reports name Keras with its version."""
    found = devices.process(model())
    assert (found.framework, found.framework_version) == ("keras", keras.__version__)
    assert (found.rank, found.world_size, found.local_rank) == (0, 1, 0)


def test_a_process_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs such as torchrun say which process this is where the backend knows of no other."""
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    found = devices.process(model())
    assert (found.rank, found.local_rank, found.world_size) == (3, 1, 4)


@only("tensorflow")
def test_a_worker_of_tensorflow() -> None:
    """The chief is the first; workers follow it."""

    def process(kind: str, number: int) -> Any:
        tasks = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
        cluster = SimpleNamespace(as_dict=lambda: tasks)
        resolver = SimpleNamespace(task_type=kind, task_id=number, cluster_spec=lambda: cluster)
        strategy = SimpleNamespace(cluster_resolver=resolver)
        return devices.process(SimpleNamespace(distribute_strategy=strategy))

    assert [process("chief", 0).rank, process("worker", 0).rank, process("worker", 1).rank] == [
        0, 1, 2,
    ]  # fmt: skip
    assert process("worker", 1).world_size == 3


@only("jax")
def test_a_process_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """jax.distributed counts the processes."""
    import jax

    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert (devices.process(model()).rank, devices.process(model()).world_size) == (1, 2)


@only("torch")
def test_a_process_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.distributed counts them where it is initialised."""
    from torch import distributed

    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    assert (devices.process(model()).rank, devices.process(model()).world_size) == (1, 2)


def start(module: str, folder: Path, *arguments: str) -> tuple[Script, Running]:
    """A script of these tests in a process of its own."""
    folder.mkdir(exist_ok=True)
    script = Script(module=f"tests.integrations.keras.{module}", folder=folder, arguments=arguments)
    return script, Spawning().start(script)


def said(script: Script, running: Running) -> Any:
    """What it has printed last."""
    assert wait(running, timeout_s=600.0) == 0, script.output
    return json.loads(script.output.splitlines()[-1])


@pytest.mark.skipif(BACKEND == "torch", reason="Keras distributes nothing on torch")
def test_two_devices_of_one_process(tmp_path: Path) -> None:
    """Each batch is shared by two devices, and counted once."""
    found = said(*start("distributed_script", tmp_path, str(tmp_path / "run")))
    assert found == {"steps": 6, "samples": 24}


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """Run folders of trainings by two processes of JAX, and what the first of these says."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    runs = tmp_path_factory.mktemp("runs")
    kinds = ("dataset",) if IS_3_6 else ("dataset", "arrays")
    ranks = [
        start("processes_script", runs / f"rank{rank}", port, str(rank), str(runs), *kinds)
        for rank in (0, 1)
    ]
    first, _ = [said(*rank) for rank in ranks]
    return runs, first


@only("jax")
@pytest.mark.parametrize("data", ["dataset", "arrays"])
def test_two_processes_of_jax(two_processes: tuple[Path, Any], data: str) -> None:
    """One attempt with two ranks, each with its samples; callbacks are not shown our figures."""
    if data == "arrays" and IS_3_6:
        pytest.skip("Keras 3.6 refuses arrays in several processes")
    runs, first = two_processes
    assert first[data]["attempts"] == [[0, 6, 24], [1, 6, 24]]
    assert first[data]["keys"] == ["loss"]
    assert len(list((runs / data).glob("events.*"))) == 1
