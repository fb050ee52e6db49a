"""Small programs that replay the recordings in ``tests/data/commands``."""

import sys
from collections.abc import Sequence
from pathlib import Path

DATA = Path(__file__).parents[3] / "data" / "commands"


def python(script: str, *arguments: object) -> Sequence[str]:
    """The command line of a script."""
    return (sys.executable, "-c", script, *map(str, arguments))


def printed(name: str) -> Sequence[str]:
    """A command that prints a recording."""
    return python("import sys; print(open(sys.argv[1]).read(), end='')", DATA / name)


def refused(text: str, code: int = 1) -> Sequence[str]:
    """A command that writes an error message and ends with a code."""
    return python("import sys; print(sys.argv[1], file=sys.stderr); sys.exit(int(sys.argv[2]))",
                  text, code)  # fmt: skip


# Writes a document at once, and one more for each line ``next`` in a pipe; ``stop`` ends it.
STREAM = """
import sys
documents = open(sys.argv[1], "rb").read().split(b"\\0")
sys.stdout.buffer.write(documents[0]); sys.stdout.buffer.flush()
for document, line in zip(documents[1:] * 100, open(sys.argv[2])):
    if line.strip() == "stop":
        sys.exit("powermetrics was stopped")
    if line.strip() == "damage":
        document = document[:200] + b"</plist>"
    sys.stdout.buffer.write(b"\\0" + document); sys.stdout.buffer.flush()
"""
