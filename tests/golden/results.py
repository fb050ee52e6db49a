"""Writes every golden result into a folder, and takes the checksum of each file."""

import hashlib
import tempfile
from pathlib import Path

from tests.golden import commands, inputs, training

EXPECTED = Path(__file__).parent / "expected"
CHECKSUMS = "SHA256SUMS"
OUTPUT = "commands.txt"
# Files that differ between machines or days.
_LEFT_OUT = ("run/", "events/")


def write(folder: Path) -> None:
    """Write the inputs, run everything on them, and list the checksums."""
    inputs.write_all(folder)
    output = commands.run_all(folder)
    (folder / OUTPUT).write_text(output.replace(str(folder), "FOLDER"), encoding="utf-8")
    training.train(folder)
    (folder / CHECKSUMS).write_text(checksums(folder), encoding="utf-8")


def checksums(folder: Path) -> str:
    """Return a line of ``sha256sum`` for each file, in the order of their names."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in files]
    kept = [name for name in names if not name.startswith(_LEFT_OUT) and name != CHECKSUMS]
    return "".join(f"{_digest(folder / name, folder)}  {name}\n" for name in kept)


def _digest(path: Path, folder: Path) -> str:
    content = path.read_bytes().replace(str(folder).encode(), b"FOLDER")
    return hashlib.sha256(content).hexdigest()


def write_expected() -> None:
    """Store the checksums and the output of the commands as expected results."""
    EXPECTED.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch))
        for name in (CHECKSUMS, OUTPUT):
            (EXPECTED / name).write_bytes((Path(scratch) / name).read_bytes())
