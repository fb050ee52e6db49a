import os
import subprocess
import sys
from pathlib import Path

import pytest

# The part of HIP's interface that is asked for (hip_runtime_api.h): two devices. Every function
# initialises HIP, which is said in a file.
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
static void init(void) { FILE *f = fopen(getenv("HIP_LOG"), "a"); fputs("init\\n", f); fclose(f); }
int hipGetDeviceCount(int *count) { init(); *count = 2; return 0; }
int hipDeviceGetPCIBusId(char *text, int length, int device)
{
    init();
    if (getenv("HIP_BROKEN") && device == 1) return 101;
    snprintf(text, length, "0000:%02X:00.0", 0xc1 + device);
    return 0;
}
"""
ASK = "from energy_callbacks.sensing.frameworks import hip_runtime as h; print(h.pci_addresses())"
LOAD = "import ctypes; ctypes.CDLL({library!r})"
TORCH = """
import sys, types
cuda = types.SimpleNamespace(is_initialized=lambda: {is_awake})
sys.modules["torch"], sys.modules["torch.cuda"] = types.SimpleNamespace(cuda=cuda), cuda
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A HIP runtime, named as in a wheel."""
    folder = tmp_path_factory.mktemp("hip")
    (folder / "hip.c").write_text(SOURCE, encoding="utf-8")
    library = folder / "libamdhip64-0e1a2b3c.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, folder / "hip.c"], check=True)
    return library


@pytest.mark.parametrize(
    ("is_loaded", "is_awake", "is_broken", "said"),
    [
        (True, True, False, "('0000:c1:00.0', '0000:c2:00.0')"),
        (True, True, True, "None"),
        (True, False, False, "None"),
        (False, True, False, "None"),
    ],
)
def test_addresses(
    library: Path, tmp_path: Path, said: str, *, is_loaded: bool, is_awake: bool, is_broken: bool
) -> None:
    """HIP is asked if PyTorch has initialised it, and is never initialised by the question."""
    load = LOAD.format(library=str(library)) if is_loaded else ""
    log = tmp_path / "log"
    environment = {**os.environ, "HIP_LOG": str(log)} | ({"HIP_BROKEN": "1"} if is_broken else {})
    done = subprocess.run(
        [sys.executable, "-c", "\n".join((load, TORCH.format(is_awake=is_awake), ASK))],
        env=environment,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == said
    assert log.exists() == (is_loaded and is_awake)
