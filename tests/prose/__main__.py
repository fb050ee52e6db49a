"""``python -m tests.prose [FILE ...]``: print findings as ``file:line: message``, exit 1 if any."""

import sys
from pathlib import Path

from tests.prose.findings import findings
from tests.prose.texts import ROOT, all_texts


def main(names: list[str]) -> int:
    """Check all files, or those that are named, and print what was found."""
    only = {Path(name).resolve() for name in names}
    found = 0
    for path, text in all_texts():
        if only and path not in only:
            continue
        for line, message in findings(text):
            print(f"{path.relative_to(ROOT)}:{line}: {message}")
            found += 1
    return int(found > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
