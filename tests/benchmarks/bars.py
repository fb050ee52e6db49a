"""The bars of a benchmark: which are met, which are missed, and which misses are known.

``known_misses.toml`` lists the bars that are missed today, each with its value and the reason. A
benchmark fails if a bar is missed that is not listed, if it is missed by more than its listed
value, and if a listed bar is met, so that its entry gets removed. A time that only slow machines
miss is listed as ``on_slow_machines`` and may be met. A listed bar that is not measured, because
its data or a peer is missing, has no effect.
"""

import argparse
import json
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, TypeVar

KNOWN_MISSES: Final = Path(__file__).with_name("known_misses.toml")
SKIPPED: Final = 77  # exit status of skipped tests in Automake
FAILURES: Final = ("MISSED", "WORSE THAN LISTED", "MET, BUT LISTED")
_Found = TypeVar("_Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A value and the limits within which it must be; NaN is within none.

    Attributes:
        name: unique in its benchmark; the key in ``known_misses.toml``.
        value: the measured value.
        at_least: lower limit; ``None`` for none.
        at_most: upper limit; ``None`` for none.
        is_judged: whether this run can judge it; if not, the bar is shown and cannot fail.
    """

    name: str
    value: float
    at_least: float | None = None
    at_most: float | None = None
    is_judged: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the value is within the limits."""
        is_high_enough = self.at_least is None or self.value >= self.at_least
        is_low_enough = self.at_most is None or self.value <= self.at_most
        return is_high_enough and is_low_enough and self.value == self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Miss:
    """An entry of ``known_misses.toml``.

    Attributes:
        value: value of the bar, rounded away from its limit.
        reason: why the bar is missed.
        on_slow_machines: whether it is a time that fast machines meet; meeting it is no failure.
    """

    value: float
    reason: str
    on_slow_machines: bool = False


def decided(
    measure: Callable[[bool], _Found], is_met: Callable[[_Found], bool], *, is_quick: bool
) -> _Found:
    """Measure in real time; a quick measurement that misses its bar is replaced by a full one.

    Args:
        measure: measures, with fewer rounds if its argument is ``True``.
        is_met: whether what was measured meets the bar, which is the same for both.
        is_quick: whether to begin with a quick measurement.
    """
    found = measure(is_quick)
    return found if is_met(found) or not is_quick else measure(False)


def known_misses(run: str) -> dict[str, Miss]:
    """Return the known misses of a run, such as ``calibration --quick``, by name of the bar."""
    listed = tomllib.loads(KNOWN_MISSES.read_text(encoding="utf-8")).get(run, {})
    return {name: Miss(**entry) for name, entry in listed.items()}


def verdict(bar: Bar, miss: Miss | None) -> str:
    """Return the verdict as a few words; those in ``FAILURES`` fail."""
    if not bar.is_judged:
        return "not judged"
    if bar.is_met:
        return "met" if miss is None or miss.on_slow_machines else "MET, BUT LISTED"
    if miss is None:
        return "MISSED"
    is_above = bar.at_most is not None and miss.value > bar.at_most
    is_within = bar.value <= miss.value if is_above else bar.value >= miss.value
    return "known miss" if is_within else "WORSE THAN LISTED"


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="under a minute, with less of all")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the figures to FILE")
    return made


def finish(name: str, arguments: argparse.Namespace, bars: Sequence[Bar], /, **figures: Any) -> int:
    """Print the verdicts, write the figures to ``--json``, and return the exit status."""
    listed = known_misses(f"{name} --quick" if arguments.quick else name)
    verdicts = [verdict(bar, listed.get(bar.name)) for bar in bars]
    print()
    for bar, word in zip(bars, verdicts, strict=True):
        if word != "met" or len(bars) <= _FEW:
            print(_line(bar, word, listed.get(bar.name)))
    for missing in listed.keys() - {bar.name for bar in bars}:
        print(f"listed, not measured: {missing}")
    print("bars: " + ", ".join(f"{verdicts.count(word)} {word}" for word in _in_order(verdicts)))
    found = [{**asdict(bar), "verdict": word} for bar, word in zip(bars, verdicts, strict=True)]
    when = {"is_quick": arguments.quick, "date": datetime.now(tz=UTC).date().isoformat()}
    write(arguments.json, {"bars": found, **when, **figures})
    return 1 if any(word in FAILURES for word in verdicts) else 0


def skip(arguments: argparse.Namespace, reason: str) -> int:
    """Print why nothing can be measured here, and return the exit status for that."""
    print(f"skipped: {reason}")
    write(arguments.json, {"skipped": reason})
    return SKIPPED


_FEW: Final = 12  # all are printed


def _line(bar: Bar, word: str, miss: Miss | None) -> str:
    limits = [
        f"{text} {limit:g}"
        for text, limit in (("at least", bar.at_least), ("at most", bar.at_most))
        if limit is not None
    ]
    reason = f" (listed {miss.value:g}: {miss.reason})" if miss else ""
    return f"bar: {bar.name}: {bar.value:.5g}, {' and '.join(limits)}: {word}{reason}"


def _in_order(verdicts: Sequence[str]) -> list[str]:
    return sorted(set(verdicts), key=lambda word: (word in FAILURES, word != "met", word))


def write(path: Path | None, figures: dict[str, Any]) -> None:
    """Write figures to a file as JSON; without a path, do nothing."""
    if path is not None:
        path.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
