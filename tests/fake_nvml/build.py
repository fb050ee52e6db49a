"""Compiles the simulated NVML with the system's C compiler, once per version of its sources."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

SOURCE_DIR = Path(__file__).parent / "c"
SONAME = "libnvidia-ml.so.1"
FLAGS = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"),
    *("-shared", "-fPIC", "-fvisibility=hidden", f"-Wl,-soname,{SONAME}"),
)
COMPILE_LIMIT_S = 120


class CompileError(RuntimeError):
    """The library could not be built; the message has the command and the compiler's output."""


def build(source_dir: Path = SOURCE_DIR, *, compiler: str | None = None) -> Path:
    """Return the path of the library; compile it if its sources have changed.

    The cache is ``$FAKE_NVML_CACHE`` or a folder of this user in the temporary folder. Any number
    of processes may call this at once: each compiles to a separate file and renames it.

    Raises:
        CompileError: there is no compiler, or it rejects the sources.
    """
    command = [_find(compiler or os.environ.get("CC", "cc")), *FLAGS]
    sources = sorted(source_dir.glob("*.[ch]"))
    target = _cache_dir() / _digest(command, sources) / SONAME
    if not target.exists():
        _compile([*command, *(str(path) for path in sources if path.suffix == ".c")], target)
    return target


def _find(compiler: str) -> str:
    path = shutil.which(compiler)
    if path is None:
        raise CompileError(
            f"the fake NVML needs a C compiler, and {compiler!r} is not on the path; "
            "install gcc or set CC"
        )
    return path


def _cache_dir() -> Path:
    default = Path(tempfile.gettempdir()) / f"fake_nvml-{os.getuid()}"
    folder = Path(os.environ.get("FAKE_NVML_CACHE", default))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        raise CompileError(f"{folder} is another user's; set FAKE_NVML_CACHE to a folder of yours")
    return folder


def _digest(command: Sequence[str], sources: Sequence[Path]) -> str:
    digest = hashlib.sha256(" ".join(command).encode())
    for path in sources:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:20]


def _compile(command: Sequence[str], target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        mine = Path(folder) / SONAME
        full = [*command, "-o", str(mine), "-lm", "-lpthread"]
        done = subprocess.run(
            full, capture_output=True, text=True, timeout=COMPILE_LIMIT_S, check=False
        )
        if done.returncode != 0:
            raise CompileError(
                f"the fake NVML does not compile: {' '.join(full)} exited {done.returncode}; "
                f"correct the sources:\n{done.stderr}"
            )
        mine.replace(target)
