"""One small training per framework, on data that comes with Python and scikit-learn.

No file here has the name of a framework. If such a file were run by its path, Python would search
its folder first, and import the file instead of the framework.
"""

from itertools import count
from pathlib import Path


def new_folder(root: Path) -> Path:
    """Return the first folder ``version_<n>`` in ``root`` that does not exist, as in Lightning."""
    return next(path for n in count() if not (path := root / f"version_{n}").exists())
