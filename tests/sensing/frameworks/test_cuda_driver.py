import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from energy_callbacks.sensing.frameworks import cuda_driver

# The part of the CUDA driver's interface that is asked for (cuda.h): two devices, whose UUIDs are
# sixteen bytes of 0x10 and 0x11; a context on the second; nothing before cuInit.
SOURCE = """
#include <string.h>
typedef struct { unsigned char bytes[16]; } CUuuid;
static int awake = 0;
int cuInit(unsigned flags) { (void)flags; awake = 1; return 0; }
int cuDeviceGetCount(int *count) { if (!awake) return 3; *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal)
{
    if (!awake) return 3;
    if (ordinal < 0 || ordinal > 1) return 101;
    *device = ordinal;
    return 0;
}
int cuDeviceGetUuid_v2(CUuuid *uuid, int device)
{
    if (!awake) return 3;
    memset(uuid->bytes, 0x10 + device, 16);
    return 0;
}
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    if (!awake) return 3;
    *flags = 0;
    *active = device == 1;
    return 0;
}
"""
UUIDS = "('10101010-1010-1010-1010-101010101010', '11111111-1111-1111-1111-111111111111')"
ASK = (
    "from energy_callbacks.sensing.frameworks import cuda_driver as d; "
    "print(d.uuids(), d.active_ordinals())"
)

Run = Callable[[str], str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """``run(code)``: what the code prints in a process where libcuda.so.1 can be found."""
    folder = tmp_path_factory.mktemp("cuda")
    source = folder / "cuda.c"
    source.write_text(SOURCE, encoding="utf-8")
    library = folder / "libcuda.so.1"
    options = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run(["cc", *options, str(source)], check=True)

    def run_code(code: str) -> str:
        environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=environment,
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    return run_code


def test_library_is_not_loaded_by_asking(run: Run) -> None:
    """A driver that no framework has loaded is not loaded."""
    code = f"{ASK}\nprint('libcuda' in open('/proc/self/maps').read())"

    assert run(code).splitlines() == ["None ()", "False"]


def test_loaded_driver_is_not_initialised_by_asking(run: Run) -> None:
    """A driver that is loaded but not initialised gives no answer and is not initialised."""
    code = f"""
import ctypes
library = ctypes.CDLL("libcuda.so.1")
{ASK}
print(library.cuDeviceGetCount(ctypes.byref(ctypes.c_int())))
"""

    assert run(code).splitlines() == ["None ()", "3"]


def test_awake_driver_answers(run: Run) -> None:
    """Once a framework has initialised CUDA, its devices have UUIDs, and those in use are known."""
    code = f"import ctypes\nctypes.CDLL('libcuda.so.1').cuInit(0)\n{ASK}"

    assert run(code) == f"{UUIDS} (1,)"


def test_machine_without_cuda() -> None:
    """Without a driver there is neither an answer nor an error."""
    if "libcuda" in Path("/proc/self/maps").read_text(encoding="utf-8"):
        pytest.skip("this process has loaded CUDA")

    assert cuda_driver.uuids() is None
    assert cuda_driver.active_ordinals() == ()
