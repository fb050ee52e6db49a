"""``python -m tests.golden [FOLDER]``: write what is expected anew, or every file to a folder."""

import sys
from pathlib import Path

from tests.golden import results

if len(sys.argv) > 1:
    target = Path(sys.argv[1]).resolve()
    target.mkdir(parents=True)
    results.write(target)
else:
    results.write_expected()
