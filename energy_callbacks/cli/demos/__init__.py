"""One small real training per framework, on data that comes with Python and scikit-learn.

No file here bears the name of a framework: one that is run by its path would hide it.
"""

from itertools import count
from pathlib import Path


def new_folder(root: Path) -> Path:
    """The first ``version_<n>`` below ``root`` that is not there yet, as Lightning counts them."""
    return next(path for n in count() if not (path := root / f"version_{n}").exists())
