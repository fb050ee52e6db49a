"""Computes the power of CPUs and memory as CodeCarbon does, without importing CodeCarbon.

The rules are those of CodeCarbon 3.3.2 (``core/cpu.py``, ``external/hardware.py``,
``external/ram.py``), and the tests compare them with the installed CodeCarbon.
"""

import math
import platform
import re
from functools import cache
from typing import Final

from energy_callbacks.core.errors import MissingExtraError, SourceUnavailable
from energy_callbacks.core.extras import dependency_command
from energy_callbacks.core.yielding import yield_if_due
from energy_callbacks.sensing import codecarbon_tables

# Share of the power of a memory module that is counted, for the first modules, the next ones, ...
_MODULE_SHARES: Final = (1.0,) * 4 + (0.9,) * 4 + (0.8,) * 8 + (0.7,) * 16
# Sizes of memory modules in servers, GiB.
_MODULES_GIB: Final = (16, 32, 64, 128)


def cpu_power_w(tdp_w: float, load_frac: float) -> float:
    """Return the mean power of CPUs with a thermal design power and a mean load."""
    return tdp_w * (0.1 + 0.9 * load_frac**3)


@cache
def tdp_w(model: str) -> float | None:
    """Return the thermal design power of one CPU, W; ``None`` if it is not in CodeCarbon's table.

    A name in the table matches if it equals ``model`` (with or without the details that Linux
    adds), or if it is the only one of which all words are in ``model``, or the reverse.

    Args:
        model: name of the CPU as in ``/proc/cpuinfo``.

    Raises:
        SourceUnavailable: if the table cannot be read.
    """
    try:
        found = _entry(model)
        return None if found is None else float(found)
    except MissingExtraError as error:
        reason = "CodeCarbon, whose table has the power of CPUs, is not installed"
        raise SourceUnavailable(reason, f"run: {dependency_command('codecarbon')}") from error
    except (OSError, KeyError, TypeError, ValueError) as error:
        reason = f"CodeCarbon's CPU table cannot be read: {error!r}"
        raise SourceUnavailable(reason, f"run: {dependency_command('codecarbon')}") from error


def _entry(model: str) -> str | None:
    """Return the power in CodeCarbon's table of the CPU that matches ``model``."""
    short = _short(model)
    names, words = (model.lower(), short.lower()), _words(short)
    equal: dict[str, str] = {}
    similar: list[str] = []
    for name, power in codecarbon_tables.cpu_rows():
        yield_if_due()
        equal.setdefault(name.lower(), power)
        name_words = _words(name)
        if words & name_words in (words, name_words):
            similar.append(power)
    found = [equal[name] for name in names if name in equal]
    return found[0] if found else similar[0] if len(similar) == 1 else None


def _short(model: str) -> str:
    """Return the name of a CPU without the details that Linux adds.

    >>> _short("Intel(R) Xeon(R) Platinum 8280 CPU @ 2.70GHz")
    'Intel Xeon Platinum 8280'
    """
    name = model.replace("(R)", "")
    start = name.find(" CPU @ ")
    name = name[:start] if start > 0 else name
    return re.sub(r" @\s*\d+\.\d+GHz", "", name.replace(" CPU", ""))


def _words(name: str) -> frozenset[str]:
    return frozenset(re.sub(r"[\W_]", " ", name.lower()).split())


def memory_power_w(size_gib: float) -> float:
    """Return the power of memory, W; the number of modules is guessed from the size in GiB."""
    is_arm = any(name in platform.machine().lower() for name in ("arm", "aarch"))
    module_w, least_w = (1.5, 3.0) if is_arm else (5.0, 10.0)
    power_w = module_w * math.fsum(_MODULE_SHARES[: _modules(size_gib)])
    return max(power_w, least_w)


def _modules(size_gib: float) -> int:
    """Return the number of memory modules that CodeCarbon guesses.

    >>> [_modules(size_gib) for size_gib in (2.0, 16.0, 64.0, 128.0, 512.0, 2000.0)]
    [1, 2, 4, 8, 8, 16]
    """
    for most_gib, count in ((2.0, 1), (16.0, 2), (64.0, 4), (128.0, 8)):
        if size_gib <= most_gib:
            return count
    module_gib = max(size for size in _MODULES_GIB if size <= size_gib / 8.0)
    return min(math.ceil(size_gib / module_gib), len(_MODULE_SHARES))
