"""One small training per framework, on data that comes with Python and scikit-learn.

No file here has the name of a framework: run by its path, it would hide that framework.
"""

from itertools import count
from pathlib import Path


def new_folder(root: Path) -> Path:
    """Return the first ``version_<n>`` below ``root`` that does not exist, as Lightning does."""
    return next(path for n in count() if not (path := root / f"version_{n}").exists())
