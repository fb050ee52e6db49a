"""One small training per framework, on data that comes with Python and scikit-learn.

No file in this folder has the name of a framework: if a file here is run by its path, Python
searches this folder first, and would import such a file instead of the framework.
"""

from itertools import count
from pathlib import Path


def new_folder(root: Path) -> Path:
    """Return the first path ``version_<n>`` in ``root`` that does not exist, from 0."""
    return next(path for n in count() if not (path := root / f"version_{n}").exists())
