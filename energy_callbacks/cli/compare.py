"""``energy-callbacks compare``: does a change save energy, and is the difference real?"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from energy_callbacks.accounting.journal import journal
from energy_callbacks.cli.shares import share
from energy_callbacks.compare import Comparison, compare, model, text, validity
from energy_callbacks.compare.answers import change
from energy_callbacks.compare.quantities import BY_NAME

HELP = "compare runs, or groups of repeats, with the first of them"
# Neither that of a failure (1) nor that of a wrong argument (2).
UNJUDGED: Final = 3
REGRESSED: Final = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "groups",
        nargs="+",
        metavar="GROUP",
        help="a run folder, saved report or log of another tool; several repeats of the same as "
        "PATH,PATH or as a folder of run folders; NAME=... gives it a name. The first is what the "
        "others are compared with",
    )
    parser.add_argument("--metric", help="by which quality is judged; default: of a validation")
    parser.add_argument("--goal", choices=("lower", "higher"), help="which way it is better")
    parser.add_argument(
        "--target", type=float, metavar="X", help="value of it that energy and time are asked for"
    )
    parser.add_argument(
        "--paired",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="runs of two groups belong together one by one; default: where they were made in turn",
    )
    parser.add_argument(
        "--margin",
        type=share,
        default=0.01,
        metavar="SHARE",
        help="by which the metric may be worse and still be as good (default: 1%%)",
    )
    parser.add_argument(
        "--fail-if-regress",
        type=share,
        metavar="SHARE",
        help=f"exit with {REGRESSED} where a group is known to take more than so much more energy, "
        f"such as 5%%; with {UNJUDGED} where that cannot be judged",
    )
    parser.add_argument(
        "--on",
        choices=sorted(BY_NAME),
        metavar="QUANTITY",
        help="what --fail-if-regress asks about: "
        f"{', '.join(sorted(BY_NAME))}; default: what the answer speaks of",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write comparison.html, .json, .md and pictures"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print the comparison as JSON")
    how.add_argument("--markdown", action="store_true", help="print it as markdown")


def run(arguments: argparse.Namespace) -> int:
    """Compare, print, write the files, judge."""
    comparison = compare(
        _groups(arguments.groups),
        metric=arguments.metric,
        goal=arguments.goal,
        target=arguments.target,
        paired="auto" if arguments.paired is None else arguments.paired,
        margin=arguments.margin,
    )
    if arguments.json:
        sys.stdout.write(model.to_json(comparison))
    elif arguments.markdown:
        sys.stdout.write(text.markdown(comparison))
    else:
        sys.stdout.write(text.render(comparison))
    for path in comparison.save(arguments.out) if arguments.out else ():
        print(path, file=sys.stderr)
    if arguments.fail_if_regress is None:
        return 0
    return _judged(comparison, arguments.on, arguments.fail_if_regress)


def _judged(comparison: Comparison, quantity: str | None, limit: float) -> int:
    """``REGRESSED`` if a group is known to be worse by more than the limit."""
    code = 0
    first = comparison.groups[0].name
    for group in comparison.groups[1:]:
        effect = (
            comparison.effect(group.name, quantity) if quantity else comparison.answer(group.name)
        )
        if effect is None:
            raise ValueError(
                f"--fail-if-regress: {quantity or 'no quantity'} is not known of {group.name} and "
                f"{first}; choose another with --on"
            )
        told = f"{group.name}: {BY_NAME[effect.quantity].title.lower()} {change(effect)}"
        spoilt = [one for one in comparison.caveats if validity.forbids(one, effect, first)]
        if spoilt:
            print(f"cannot be judged: {told}: {spoilt[0].message}", file=sys.stderr)
            code = max(code, UNJUDGED)
        elif effect.low is None or effect.high is None or effect.basis == "blocks":
            print(f"cannot be judged from one run a side: {told}; repeat it", file=sys.stderr)
            code = max(code, UNJUDGED)
        else:
            ends = (effect.low - 1.0, effect.high - 1.0)
            if effect.quantity == "samples_per_s":  # less is worse
                ends = (1.0 / effect.high - 1.0, 1.0 / effect.low - 1.0)
            if effect.verdict != "not resolved" and ends[0] > limit:
                print(f"regressed: {told}, more than {100.0 * limit:g} %", file=sys.stderr)
                code = max(code, REGRESSED)
            elif ends[1] > limit:
                print(
                    f"not known to be regressed: {told}; the interval leaves more than "
                    f"{100.0 * limit:g} % open, repeat runs to close it",
                    file=sys.stderr,
                )
    return code


def _groups(words: Sequence[str]) -> dict[str, list[Path]]:
    groups: dict[str, list[Path]] = {}
    for word in words:
        name, paths = _group(word)
        if name in groups:
            raise ValueError(f"two groups are called {name!r}; name them: NAME=PATH")
        groups[name] = paths
    return groups


def _group(word: str) -> tuple[str, list[Path]]:
    """Name and runs of one argument; a path that exists is a path, whatever is in its name."""
    name, sign, rest = word.partition("=")
    is_named = bool(sign) and not Path(word).exists() and "/" not in name
    listed = rest if is_named else word
    parts = [listed] if Path(listed).exists() else [p for p in listed.split(",") if p]
    if not parts:
        raise ValueError(f"group {word!r} has no run; give NAME=PATH,PATH")
    paths = [run for part in parts for run in _runs(Path(part))]
    return name if is_named else _name_of(Path(parts[0])), paths


def _name_of(path: Path) -> str:
    resolved = path.resolve()
    _, sign, one = path.name.partition("#")  # one run of a log
    name = resolved.name if resolved.is_dir() else Path(resolved.name.partition("#")[0]).stem
    return f"{name}{sign}{one}"


def _runs(path: Path) -> list[Path]:
    """The path itself, or the run folders right below it."""
    if not path.is_dir() or journal.find(path) or journal.find(path / "energy"):
        return [path]
    below = sorted(one for one in path.iterdir() if one.is_dir())
    return [one for one in below if journal.find(one) or journal.find(one / "energy")] or [path]
