import os
import subprocess
import sys
from pathlib import Path

import pytest

from energy_callbacks.sensing.gpus.drm_clients import descendants, used_by
from tests.sensing.gpus.machines import children, client

A, B = "0000:03:00.0", "0000:8a:00.0"


@pytest.mark.parametrize(
    ("fields", "is_used"),
    [
        ({"engine_render": "25662044495 ns"}, True),  # i915
        ({"engine_compute": "1 ns", "engine_render": "0 ns"}, True),
        ({"cycles_ccs": "28257900", "total_cycles_ccs": "7655183225"}, True),  # xe
        ({"cycles_ccs": "0", "total_cycles_ccs": "7655183225"}, False),
        ({"engine_render": "0 ns", "engine_capacity_video": "2"}, False),
        ({"engine_gfx": "0 ns", "memory_vram": "1048576 KiB"}, True),  # amdgpu, computes with ROCm
        ({"memory_vram": "2048 KiB"}, True),
        ({"memory_vram": "2 MiB"}, True),
        ({"memory_vram": "2047 KiB"}, False),
        ({"engine_gfx": "unknown"}, False),
        ({"total_vram0": "1048576 KiB"}, False),  # buffers of Level Zero itself
        ({}, False),
    ],
)
def test_use(tmp_path: Path, fields: dict[str, str], *, is_used: bool) -> None:
    """A process uses a GPU if an engine has worked for it, or if it has memory on an AMD GPU."""
    client(tmp_path, 100, 5, A, **fields)

    assert used_by(100, tmp_path) == ({A} if is_used else set())


def test_files_of_a_process(tmp_path: Path) -> None:
    """All files of GPUs count, copies too; other files and processes do not."""
    client(tmp_path, 100, 5, A, engine_render="9 ns")
    client(tmp_path, 100, 6, A, engine_render="9 ns")
    client(tmp_path, 100, 7, B.upper(), engine_render="0 ns")
    client(tmp_path, 100, 8, B.upper(), engine_copy="9 ns")
    client(tmp_path, 200, 5, "0000:99:00.0", engine_render="9 ns")
    (tmp_path / "100/fd/9").symlink_to("socket:[123]")
    (tmp_path / "100/fdinfo/9").write_text("drm-pdev:\t0000:77:00.0\ndrm-engine-render:\t9 ns\n")
    (tmp_path / "100/fd/10").symlink_to("/dev/dri/renderD129")  # it was closed in between

    assert used_by(100, tmp_path) == {A, B}


def test_process_that_has_ended(tmp_path: Path) -> None:
    """A process without files uses nothing, and there is no error."""
    assert used_by(100, tmp_path) == set()
    assert descendants(100, tmp_path) == set()


def test_own_process() -> None:
    """The files of a real process can be read; it has no GPU."""
    assert used_by(os.getpid(), Path("/proc")) == set()


def test_descendants(tmp_path: Path) -> None:
    """Children of all threads and their children are descendants."""
    children(tmp_path, 100, 200, 201)
    children(tmp_path, 100, 202, thread=150)
    children(tmp_path, 201, 300)
    children(tmp_path, 300)
    children(tmp_path, 999, 998)

    assert descendants(100, tmp_path) == {200, 201, 202, 300}


def test_descendants_of_a_real_process() -> None:
    """A child of a child is found, and only while it lives."""
    code = (
        "import subprocess, sys\n"
        "one = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "print(one.pid, flush=True)\n"
        "input()\n"
        "one.communicate()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as child:  # type: ignore[call-overload]
        grandchild = int(child.stdout.readline())
        assert {child.pid, grandchild} <= descendants(os.getpid(), Path("/proc"))
        child.communicate("\n")
    assert not {child.pid, grandchild} & descendants(os.getpid(), Path("/proc"))
