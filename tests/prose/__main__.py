"""``python -m tests.prose [FILE ...]``: print findings as ``file:line: message``, exit 1 if any.

``known_findings.toml`` has the number of findings in files that were written before the linter.
They do not fail, but a file with more findings than its number does. ``--list`` prints all
findings, ``--write`` stores the numbers, which may only fall.
"""

import sys
import tomllib
from pathlib import Path

from tests.prose.findings import findings
from tests.prose.texts import ROOT, all_texts

KNOWN = Path(__file__).with_name("known_findings.toml")


def excess(found: dict[str, list[str]], known: dict[str, int]) -> list[str]:
    """Return the findings of files that have more of them than is known."""
    return [
        line for name, lines in found.items() if len(lines) > known.get(name, 0) for line in lines
    ]


def lowered(found: dict[str, list[str]], known: dict[str, int]) -> dict[str, int]:
    """Return the known numbers without findings that were fixed."""
    return {
        name: min(number, len(found[name])) for name, number in known.items() if found.get(name)
    }


def main(arguments: list[str]) -> int:
    """Check all files, or those that are named."""
    only = {Path(name).resolve() for name in arguments if not name.startswith("--")}
    known = tomllib.loads(KNOWN.read_text(encoding="utf-8"))
    found: dict[str, list[str]] = {}
    for path, text in all_texts():
        if not only or path in only:
            name = path.relative_to(ROOT).as_posix()
            found[name] = [f"{name}:{line}: {message}" for line, message in findings(text)]
    if "--write" in arguments:
        lines = [f'"{name}" = {number}' for name, number in sorted(lowered(found, known).items())]
        head = KNOWN.read_text(encoding="utf-8").splitlines()[0]
        KNOWN.write_text("\n".join([head, *lines]) + "\n", encoding="utf-8")
    wrong = [line for lines in found.values() for line in lines]
    if "--list" not in arguments:
        wrong = excess(found, known)
    print("\n".join(wrong))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
