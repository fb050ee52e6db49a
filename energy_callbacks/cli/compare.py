"""``energy-callbacks compare``: compares groups of runs, and can fail if energy increased."""

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
# Exit codes of --fail-if-regress. They are not 1 or 2: ``main`` (``cli/__init__.py``) returns 1 for
# an error and 2 for a wrong argument.
UNJUDGED: Final = 3
REGRESSED: Final = 4
# Names of the options that are passed to compare() as parameters of the same names.
_OPTIONS: Final = ("metric", "goal", "target", "paired", "margin")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "groups",
        nargs="+",
        metavar="GROUP",
        help="a run folder, saved report or log of another tool; several repeats of the same as "
        "PATH,PATH or as a folder of run folders; NAME=... gives it a name. The first is what the "
        "others are compared with",
    )
    add("--metric", help="by which quality is judged; default: of a validation")
    add("--goal", choices=("lower", "higher"), help="which way it is better")
    add("--target", type=float, metavar="X", help="value of it that energy and time are asked for")
    add(
        "--paired",
        action=argparse.BooleanOptionalAction,
        default="auto",
        help="runs of two groups belong together one by one; default: where they were made in turn",
    )
    add(
        "--margin",
        type=share,
        default=0.01,
        metavar="SHARE",
        help="by which the metric may be worse and still be as good (default: 1%%)",
    )
    add(
        "--fail-if-regress",
        type=share,
        metavar="SHARE",
        help=f"exit with {REGRESSED} where a group is known to take more than so much more energy, "
        f"such as 5%%; with {UNJUDGED} where that cannot be judged",
    )
    add(
        "--on",
        choices=sorted(BY_NAME),
        metavar="QUANTITY",
        help="what --fail-if-regress asks about: "
        f"{', '.join(sorted(BY_NAME))}; default: what the answer speaks of",
    )
    add("--out", type=Path, metavar="DIR", help="write comparison.html, .json, .md and pictures")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print the comparison as JSON")
    how.add_argument("--markdown", action="store_true", help="print it as markdown")


def run(arguments: argparse.Namespace) -> int:
    """Compare the groups and print the comparison; if requested, save it and judge regressions.

    Returns:
        0 without ``--fail-if-regress``; otherwise the highest exit code from ``_judge``.
    """
    options = {name: getattr(arguments, name) for name in _OPTIONS}
    comparison = compare(_groups(arguments.groups), **options)
    in_text = text.markdown if arguments.markdown else text.render
    sys.stdout.write((model.to_json if arguments.json else in_text)(comparison))
    for path in comparison.save(arguments.out) if arguments.out else ():
        print(path, file=sys.stderr)
    if arguments.fail_if_regress is None:
        return 0
    rule = (arguments.on, arguments.fail_if_regress)
    return max(_judge(comparison, group.name, *rule) for group in comparison.groups[1:])


def _judge(comparison: Comparison, group: str, quantity: str | None, limit: float) -> int:
    """Judge whether a group has regressed compared with the first group.

    A message is printed, except if it is known that the group has not regressed.

    Args:
        comparison: comparison of all groups with the first group.
        group: name of the group to judge.
        quantity: name of the quantity to judge; ``None`` for that of ``Comparison.answer``.
        limit: largest relative increase that is not a regression, such as 0.05.

    Returns:
        The exit code: 0, ``UNJUDGED`` or ``REGRESSED``.

    Raises:
        ValueError: if the quantity is unknown for this group or the first group.
    """
    first = comparison.groups[0].name
    effect = comparison.effect(group, quantity) if quantity else comparison.answer(group)
    if effect is None:
        raise ValueError(
            f"--fail-if-regress: {quantity or 'no quantity'} is not known of {group} and "
            f"{first}; choose another with --on"
        )
    difference = f"{group}: {BY_NAME[effect.quantity].title.lower()} {change(effect)}"
    forbidden = [one for one in comparison.caveats if validity.forbids(one, effect, first)]
    if forbidden:
        return _say(UNJUDGED, f"cannot be judged: {difference}: {forbidden[0].message}")
    low, high = effect.low, effect.high
    if low is None or high is None or effect.basis == "blocks":
        return _say(UNJUDGED, f"cannot be judged from one run a side: {difference}; repeat it")
    if effect.quantity == "samples_per_s":  # for this quantity, a decrease is worse
        low, high = 1.0 / high, 1.0 / low
    percent = f"{100.0 * limit:g} %"
    if effect.verdict == "not measured":
        return _say(UNJUDGED, f"cannot be judged: {difference}, not measured but estimated")
    if effect.verdict != "not resolved" and low - 1.0 > limit:
        return _say(REGRESSED, f"regressed: {difference}, more than {percent}")
    if high - 1.0 > limit:
        interval = f"the interval leaves more than {percent} open, repeat runs to close it"
        return _say(0, f"not known to be regressed: {difference}; {interval}")
    return 0


def _say(code: int, text: str) -> int:
    print(text, file=sys.stderr)
    return code


def _groups(words: Sequence[str]) -> dict[str, list[Path]]:
    """Return the paths of the runs of each group, by the name of the group.

    Raises:
        ValueError: if two groups have the same name, or if a group has no run.
    """
    groups: dict[str, list[Path]] = {}
    for name, paths in map(_group, words):
        if name in groups:
            raise ValueError(f"two groups are called {name!r}; name them: NAME=PATH")
        groups[name] = paths
    return groups


def _group(word: str) -> tuple[str, list[Path]]:
    """Return the group name and the paths of the runs in ``NAME=PATH,PATH`` or ``PATH,PATH``.

    An argument that is an existing path is not split, even if the path contains ``=`` or ``,``.
    """
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
    _, sign, run = path.name.partition("#")  # FILE#RUN is one run in a log file
    name = resolved.name if resolved.is_dir() else Path(resolved.name.partition("#")[0]).stem
    return f"{name}{sign}{run}"


def _runs(path: Path) -> list[Path]:
    """Return the run folders that lie directly in a folder.

    If ``path`` is a file or a run folder, or contains no run folder, ``path`` itself is returned.
    """
    if not path.is_dir() or _is_run(path):
        return [path]
    return [one for one in sorted(path.iterdir()) if one.is_dir() and _is_run(one)] or [path]


def _is_run(folder: Path) -> bool:
    return bool(journal.find(folder) or journal.find(folder / "energy"))
