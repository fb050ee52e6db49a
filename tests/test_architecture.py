"""The rules of the house, each with a proof that its check can fail."""

import inspect
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import energy_callbacks

ROOT = Path(__file__).parents[1]
# No framework, nothing heavy, nothing that opens a device: these wait until they are needed.
FORBIDDEN = (
    "torch", "lightning", "pytorch_lightning", "tensorflow", "keras", "jax", "transformers",
    "codecarbon", "pandas", "pynvml", "matplotlib", "pydantic", "rich", "tensorboard", "jinja2",
    "memory_profiler",
)  # fmt: skip
NO_FRAMEWORK = "the core imports no framework and no adapter"
PACKAGES = (
    "energy_callbacks",
    "integrations/energy_callbacks_lightning",
    "integrations/energy_callbacks_keras",
    "integrations/energy_callbacks_huggingface",
)
DEVICES = ("/dev/nvidia", "/dev/cpu", "/sys/class/powercap", "libnvidia-ml", "libcuda")


def broken_contracts(root: Path) -> str:
    """What import-linter says of a checkout: its contracts as ``pyproject.toml`` has them."""
    answer = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()",
         "--config", str(ROOT / "pyproject.toml"), "--no-cache"],
        cwd=root, capture_output=True, text=True, check=False, timeout=60.0,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{root}:{root / 'integrations'}"},
    )  # fmt: skip
    return "" if answer.returncode == 0 else answer.stdout + answer.stderr


def test_imports_point_down_only() -> None:
    """Rooms import only rooms below them, and the core imports no framework and no adapter."""
    assert broken_contracts(ROOT) == ""


@pytest.mark.parametrize(
    ("path", "line", "contract"),
    [
        (
            "energy_callbacks/sensing/series.py",
            "import energy_callbacks.meter",
            "imports point down only",
        ),
        ("energy_callbacks/units.py", "import energy_callbacks.errors", "imports point down only"),
        ("energy_callbacks/accounting/steps.py", "def f():\n    import torch", NO_FRAMEWORK),
        ("energy_callbacks/report/words.py", "import energy_callbacks_keras", NO_FRAMEWORK),
        (
            "integrations/energy_callbacks_keras/loop.py",
            "import energy_callbacks_lightning",
            "adapters do not know each other",
        ),
    ],
)
def test_the_check_of_imports_can_fail(tmp_path: Path, path: str, line: str, contract: str) -> None:
    """One forbidden import in a copy of the package, and the contract is broken."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    changed = tmp_path / path
    changed.write_text(changed.read_text(encoding="utf-8") + f"\n\n{line}\n", encoding="utf-8")
    said = broken_contracts(tmp_path)
    assert contract in said
    assert "BROKEN" in said


PROBE = """
import sys
touched = []
def watch(event, args):
    if event in ("open", "ctypes.dlopen", "os.listdir", "subprocess.Popen", "socket.connect"):
        touched.append(str(args[0]))
sys.addaudithook(watch)
from energy_callbacks import EnergyMeter
{extra}
names = {name.partition(".")[0] for name in sys.modules}
print([name for name in FORBIDDEN if name in names])
print([path for path in touched if any(device in path for device in DEVICES)])
import threading
print([thread.name for thread in threading.enumerate() if thread.name != "MainThread"])
"""


def import_costs(extra: str = "") -> list[str]:
    """What ``from energy_callbacks import EnergyMeter`` brings: modules, devices, threads."""
    program = f"FORBIDDEN, DEVICES = {FORBIDDEN}, {DEVICES}\n" + PROBE.replace("{extra}", extra)
    answer = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, check=True, timeout=60.0, cwd=ROOT,
    )  # fmt: skip
    return answer.stdout.splitlines()


def test_the_import_is_light() -> None:
    """The meter brings no framework and nothing heavy, opens no device, starts no thread."""
    assert import_costs() == ["[]", "[]", "[]"]


def test_making_a_meter_is_light() -> None:
    """Nothing is opened before ``start``: a meter without a place costs no import either."""
    assert import_costs("EnergyMeter()") == ["[]", "[]", "[]"]


@pytest.mark.parametrize(
    ("extra", "seen"),
    [
        ("import matplotlib", "['matplotlib']"),
        ("try: open('/dev/nvidia-probe')\nexcept OSError: pass", "['/dev/nvidia-probe']"),
        ("import ctypes\ntry: ctypes.CDLL('libnvidia-ml.so.1')\nexcept OSError: pass",
         "['libnvidia-ml.so.1']"),
        ("from threading import *\nThread(target=Event().wait, name='t', daemon=True).start()",
         "['t']"),
    ],
)  # fmt: skip
def test_the_check_of_the_import_can_fail(extra: str, seen: str) -> None:
    """A heavy import, an opened device and a thread are each seen by the check above."""
    assert seen in import_costs(extra)


def test_all_is_what_is_exported() -> None:
    """``__all__`` names every public name of the package and the version, and no other."""
    public = [
        name
        for name, value in vars(energy_callbacks).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    ]
    assert sorted([*public, "__version__"]) == sorted(energy_callbacks.__all__)
    assert len(set(energy_callbacks.__all__)) == len(energy_callbacks.__all__)


def test_public_names_show_the_path_that_users_type() -> None:
    """Every exported class can be found where it says that it lives."""
    for name in set(energy_callbacks.__all__) - {"__version__"}:
        value = getattr(energy_callbacks, name)
        assert getattr(sys.modules[value.__module__], name) is value
        assert value.__doc__


def test_adapters_stay_thin() -> None:
    """Events in, nothing else: what a framework does not need belongs into the core."""
    modules = [path for name in PACKAGES[1:] for path in (ROOT / name).glob("*.py")]
    assert len(modules) > 15
    lengths = {path.name: len(path.read_text().splitlines()) for path in modules}
    assert [name for name, length in lengths.items() if length >= 200] == []
