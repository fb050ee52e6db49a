"""Readable and unique folder names for configurations."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

# Most file systems take 255 bytes.
_LONGEST: Final = 120
_DIGEST: Final = 8


def counted(number: int) -> str:
    """So many jobs.

    >>> counted(1), counted(2)
    ('1 job', '2 jobs')
    """
    return f"{number} job{'' if number == 1 else 's'}"


def folder_name(parameters: Mapping[str, str]) -> str:
    """``name=value,name=value``; a digest stands for what a file system may not bear.

    >>> folder_name({"optimizer": "adam", "lr": "1e-3"})
    'optimizer=adam,lr=1e-3'
    >>> folder_name({"model": "a/b"}) == folder_name({"model": "a_b"})
    False
    """
    whole = ",".join(f"{name}={value}" for name, value in parameters.items())
    plain = ",".join(f"{name}={_plain(value)}" for name, value in parameters.items())
    if plain == whole and len(whole) <= _LONGEST:
        return whole
    exact = repr(list(parameters.items()))
    digest = hashlib.sha256(exact.encode()).hexdigest()[:_DIGEST]
    return f"{plain[:_LONGEST]}~{digest}"


def _plain(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", value)
