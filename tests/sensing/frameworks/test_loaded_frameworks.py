import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.sensing.frameworks import loaded_frameworks


@pytest.mark.parametrize("name", ["libamdhip64.so.6", "libamdhip64-0e1a2b3c.so"])
def test_hip_runtime_is_seen_in_its_process(tmp_path: Path, name: str) -> None:
    """HIP's runtime is detected once it is loaded, also with the name that wheels give it."""
    library = tmp_path / name
    options = ["-shared", "-o", str(library), "-x", "c", "/dev/null"]
    subprocess.run(["cc", *options], check=True)
    code = (
        "import ctypes, sys\n"
        "from energy_callbacks.sensing.frameworks import loaded_frameworks\n"
        "before = loaded_frameworks.is_hip_loaded()\n"
        "ctypes.CDLL(sys.argv[1])\n"
        "print(before, loaded_frameworks.is_hip_loaded())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(library)], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "True"]


def test_hip_runtime_where_nobody_knows(tmp_path: Path) -> None:
    """Without ``/proc/self/maps`` no HIP is detected, and no error raised."""
    assert not loaded_frameworks.is_hip_loaded(tmp_path / "maps")
