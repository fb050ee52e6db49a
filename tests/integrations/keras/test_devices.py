"""Which GPUs and which process: each backend says it in its own words."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest

from energy_callbacks.testing import FakeClock
from energy_callbacks_keras import devices
from tests.integrations.keras import two_devices
from tests.integrations.keras.training import BACKEND, IS_3_6, callback, fit, model
from tests.integrations.ports import reserved_port
from tests.integrations.processes import Script, Scripts
from tests.integrations.ranks import assert_ranks_end_well
from tests.integrations.reading import training_files

pytestmark = pytest.mark.every_backend


def only(backend: str) -> pytest.MarkDecorator:
    """Mark a test of one backend."""
    return pytest.mark.skipif(backend != BACKEND, reason=f"only {backend} speaks so")


def on(value: Any) -> Any:
    """Return a model whose weights have such a value."""
    return SimpleNamespace(trainable_variables=[SimpleNamespace(value=value)])


def test_a_model_on_the_cpu_uses_no_gpu() -> None:
    """Its weights are on the CPU, on every backend."""
    assert devices.used_gpus(model()) == ()


@pytest.mark.parametrize("nothing", [None, SimpleNamespace(trainable_variables=[], variables=[])])
def test_a_model_without_weights_says_nothing(nothing: Any) -> None:
    """The meter then asks the driver."""
    assert devices.used_gpus(nothing) is None


@only("torch")
def test_torch() -> None:
    """The index of the device of the weights is used."""
    import torch

    assert devices.used_gpus(on(SimpleNamespace(device=torch.device("cuda", 3)))) == (3,)
    assert devices.used_gpus(on(SimpleNamespace(device=torch.device("cuda")))) == (0,)
    assert devices.used_gpus(on(SimpleNamespace(device=torch.device("xpu", 1)))) == ("xpu:1",)


@only("jax")
def test_jax() -> None:
    """All devices of this process that hold a part of the weights, by hardware number."""

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
    """Logical numbers are mapped to cards that set_visible_devices allows."""
    import tensorflow as tf

    visible = [SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in (2, 3)]
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: visible)

    def value(number: int) -> Any:
        return SimpleNamespace(device=f"/job:localhost/replica:0/task:0/device:GPU:{number}")

    assert devices.used_gpus(on(value(1))) == (3,)
    assert devices.used_gpus(on(SimpleNamespace(values=(value(0), value(1))))) == (2, 3)


def test_one_process() -> None:
    """A single process; reports have the version of Keras."""
    found = devices.process(model())
    assert (found.framework, found.framework_version) == ("keras", keras.__version__)
    assert (found.rank, found.world_size, found.local_rank) == (0, 1, 0)


def test_a_process_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variables of launchers such as torchrun count if the backend knows no other process."""
    for name, value in {"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    found = devices.process(model())
    assert (found.rank, found.local_rank, found.world_size) == (3, 1, 4)


@only("tensorflow")
def test_a_worker_of_tensorflow() -> None:
    """The chief is rank 0, and workers follow."""

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
    """jax.distributed has the number of processes."""
    import jax

    monkeypatch.setattr(jax, "process_index", lambda: 1)
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    assert (devices.process(model()).rank, devices.process(model()).world_size) == (1, 2)


@only("torch")
def test_a_process_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.distributed has the number of processes, if initialized."""
    from torch import distributed

    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 2)
    assert (devices.process(model()).rank, devices.process(model()).world_size) == (1, 2)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras distributes nothing on torch")
def test_two_devices_of_one_process() -> None:
    """Two devices share each batch, which is counted once."""
    clock = FakeClock()
    ours = callback(clock)
    with two_devices.used():
        trained = model()
        fit(clock, ours, model=trained, samples=12)
    copies = trained.weights[0].value
    assert len(copies.devices() if BACKEND == "jax" else copies.values) == 2
    assert (ours.report().throughput.steps, ours.report().throughput.samples) == (6, 24)


def two_processes(scripts: Scripts, folder: Path, *kinds: str) -> Any:
    """Return the output of the first of two JAX processes for each kind of data."""
    port = str(reserved_port())
    started = []
    for rank in range(2):
        (folder / f"rank{rank}").mkdir()
        script = Script(
            module="tests.integrations.keras.processes_script",
            folder=folder / f"rank{rank}",
            arguments=(port, str(rank), str(folder), *kinds),
        )
        started.append((script, scripts.start(script)))
    assert_ranks_end_well(started)
    lines = started[0][0].output.splitlines()  # warnings of the exit may follow the results
    return json.loads(next(line for line in lines[::-1] if line.startswith("{")))


def assert_one_attempt_of_two_ranks(scripts: Scripts, folder: Path, *kinds: str) -> None:
    """Each rank has its samples; callbacks do not see our figures."""
    first = two_processes(scripts, folder, *kinds)
    assert set(first) == set(kinds)
    for data, found in first.items():
        assert found["attempts"] == [[0, 6, 24], [1, 6, 24]]
        assert found["keys"] == ["loss"]
        assert len(training_files(folder / data)) == 1


@only("jax")
@pytest.mark.skipif(IS_3_6, reason="Keras 3.6 refuses all but tf.data in several processes")
def test_two_processes_of_jax(tmp_path: Path, scripts: Scripts) -> None:
    """Known and unknown batch sizes: one attempt with two ranks."""
    assert_one_attempt_of_two_ranks(scripts, tmp_path, "arrays", "PyDataset")


@only("jax")
@pytest.mark.slow(reason="two processes that import TensorFlow")
def test_two_processes_of_jax_on_tf_data(tmp_path: Path, scripts: Scripts) -> None:
    """One attempt with two ranks."""
    assert_one_attempt_of_two_ranks(scripts, tmp_path, "tf.data")
