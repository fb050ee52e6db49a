"""The allocator source, with stand-ins for frameworks on a GPU and the real torch without one."""

import subprocess
import sys
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import pytest

from energy_callbacks.core.errors import ReadingMissed
from energy_callbacks.sensing.sources.allocator import AllocatorSource


class Clock:
    """Time that stands still."""

    def monotonic_s(self):
        return 5.0


@pytest.fixture(autouse=True)
def no_framework(monkeypatch):
    """Whatever other tests have imported is out of sight."""
    for name in ("torch", "torch.cuda", "tensorflow", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("tensorflow.python.eager.context", "jax._src.xla_bridge"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def install(monkeypatch, **modules):
    """Put stand-in modules where the source looks; ``__`` in a name stands for a dot."""
    for name, content in modules.items():
        module = ModuleType(name.replace("__", "."))
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, module.__name__, module)


def torch_stats(current_bytes, peak_bytes):
    """As ``torch.cuda.memory_stats`` names them."""
    return {
        "allocated_bytes.all.current": current_bytes,
        "allocated_bytes.all.peak": peak_bytes,
        "num_ooms": 0,
    }


def fake_torch(monkeypatch, *, initialised=True, contexts=(True, True, False)):
    """Three GPUs that hold 1, 2 and 4 bytes and peaked at 10, 20 and 40."""

    def of(values):
        def ask(index):
            assert contexts[index], f"GPU {index} has no context; asking would create one"
            return values[index]

        return ask

    def count():
        assert initialised, "counting devices before CUDA is initialised may initialise it"
        return len(contexts)

    cuda = SimpleNamespace(
        is_initialized=lambda: initialised,
        device_count=count,
        memory_stats=of([torch_stats(1, 10), torch_stats(2, 20), torch_stats(4, 40)]),
    )
    driver = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: contexts[index])
    install(monkeypatch, torch={"cuda": cuda, "_C": driver}, torch__cuda={})


def values():
    """What one read says, by quantity."""
    return {reading.channel.quantity: reading.value for reading in AllocatorSource(Clock()).read()}


def test_nothing_imported_is_nothing_read():
    """Without a framework there are channels, no readings, and nothing gets imported."""
    source = AllocatorSource(Clock())
    channels = source.open()
    assert [channel.quantity for channel in channels] == ["allocated", "peak_allocated"]
    assert {channel.device.scope for channel in channels} == {None}
    assert source.read() == []
    assert "torch" not in sys.modules


def test_torch_sums_the_devices_in_use(monkeypatch):
    """Allocated and peak bytes are summed over devices with a context; others are not touched."""
    fake_torch(monkeypatch)
    assert values() == {"allocated": 3.0, "peak_allocated": 30.0}


def test_torch_before_cuda_is_not_woken(monkeypatch):
    """Until the training has initialised CUDA, nothing else is asked."""
    fake_torch(monkeypatch, initialised=False)
    assert values() == {}


def test_torch_without_cuda_module_is_left_alone(monkeypatch):
    """A torch that is still being imported on another thread is no error."""
    install(monkeypatch, torch={})
    assert values() == {}


def fake_tensorflow(monkeypatch, handle):
    """Two GPUs behind an eager context."""

    def memory_info(device):
        return {"GPU:0": {"current": 5, "peak": 50}, "GPU:1": {"current": 6, "peak": 60}}[device]

    def logical_devices(kind):
        assert handle is not None, "listing devices would initialise them"
        return {"GPU": ["first", "second"]}[kind]

    config = SimpleNamespace(
        list_logical_devices=logical_devices,
        experimental=SimpleNamespace(get_memory_info=memory_info),
    )
    context = SimpleNamespace(_context_handle=handle)
    install(
        monkeypatch,
        tensorflow={"config": config},
        tensorflow__python__eager__context={"context_safe": lambda: context},
    )


def test_tensorflow_sums_its_gpus(monkeypatch):
    """Both GPUs of an initialised context count."""
    fake_tensorflow(monkeypatch, handle=object())
    assert values() == {"allocated": 11.0, "peak_allocated": 110.0}


def test_tensorflow_without_context_is_not_woken(monkeypatch):
    """A context that was made but not initialised is left so."""
    fake_tensorflow(monkeypatch, handle=None)
    assert values() == {}


def fake_jax(monkeypatch, *, initialised):
    """A GPU with statistics and a CPU without."""

    def local_devices():
        assert initialised, "listing devices would initialise the back ends"
        gpu = SimpleNamespace(
            memory_stats=lambda: {"bytes_in_use": 7, "peak_bytes_in_use": 70, "num_allocs": 1}
        )
        return [gpu, SimpleNamespace(memory_stats=lambda: None)]

    install(
        monkeypatch,
        jax={"local_devices": local_devices},
        jax___src__xla_bridge={"backends_are_initialized": lambda: initialised},
    )


@pytest.mark.parametrize(
    ("initialised", "expected"),
    [(True, {"allocated": 7.0, "peak_allocated": 70.0}), (False, {})],
)
def test_jax_counts_devices_with_statistics(monkeypatch, initialised, expected):
    """An initialised GPU counts; a CPU has no statistics; nothing is initialised by asking."""
    fake_jax(monkeypatch, initialised=initialised)
    assert values() == expected


def test_frameworks_are_summed(monkeypatch):
    """Keras on JAX beside a torch loader: both hold memory, both count."""
    fake_torch(monkeypatch)
    fake_jax(monkeypatch, initialised=True)
    assert values() == {"allocated": 10.0, "peak_allocated": 100.0}


def test_failing_framework_is_a_missed_reading(monkeypatch):
    """An error of the framework is a missed reading with its cause, not 0 bytes."""
    fake_torch(monkeypatch)

    def lost(_):
        raise RuntimeError("CUDA error: device lost")

    sys.modules["torch"].cuda.memory_stats = lost
    with pytest.raises(ReadingMissed, match="device lost"):
        AllocatorSource(Clock()).read()


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_real_torch_stays_asleep():
    """The real torch on a machine without GPU: no readings, and CUDA is still not initialised."""
    code = (
        "import torch;"
        "from energy_callbacks.sensing.clock import SystemClock;"
        "from energy_callbacks.sensing.sources.allocator import AllocatorSource;"
        "torch.ones(10).sum();"
        "source = AllocatorSource(SystemClock()); source.open();"
        "assert source.read() == [], source.read();"
        "assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)
