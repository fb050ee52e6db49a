"""``energy-callbacks compare``: compares groups of runs, and can fail if energy increased."""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from energy_callbacks.cli.common import options, papers, run_folders
from energy_callbacks.cli.common.messages import logger
from energy_callbacks.compare import (
    Comparison,
    bibtex,
    compare,
    latex,
    model,
    plots,
    text,
    validity,
)
from energy_callbacks.compare.answers import change
from energy_callbacks.compare.quantities import BY_NAME
from energy_callbacks.report import load

HELP = "compare runs, or groups of repeated runs, with the first one"
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
        help="a run folder, saved report or log of another program; or several repeats of the "
        "same training, as PATH,PATH or as a folder with run folders below it. NAME=... names the "
        "group. The other groups are compared with the first",
    )
    add(
        "--metric",
        help="metric that measures the quality of the result (default: a validation metric)",
    )
    add("--goal", choices=("lower", "higher"), help="which values of the metric are better")
    add(
        "--target",
        type=float,
        metavar="X",
        help="value of the metric: the energy and time to reach it are compared (default: the "
        "best value that all runs reach)",
    )
    add(
        "--paired",
        action=argparse.BooleanOptionalAction,
        default="auto",
        help="compare the groups run by run: the first with the first, and so on (default: on "
        "if runs of the groups alternated)",
    )
    add(
        "--margin",
        type=options.share,
        default=0.01,
        metavar="SHARE",
        help="a metric that is worse by at most this share is considered as good (default: 1%%)",
    )
    add(
        "--fail-if-regress",
        type=options.share,
        metavar="SHARE",
        help=f"exit with {REGRESSED} if a group certainly uses more energy than the first "
        f"group, by more than this share, such as 5%%; exit with {UNJUDGED} if this cannot "
        "be judged",
    )
    add(
        "--on",
        choices=sorted(BY_NAME),
        metavar="QUANTITY",
        help="quantity to which --fail-if-regress applies: "
        f"{', '.join(sorted(BY_NAME))} (default: the headline quantity of the comparison)",
    )
    add(
        "--out",
        type=Path,
        metavar="DIR",
        help="also write comparison.html, .json, .md and charts to this folder",
    )
    papers.add_figures(parser)
    papers.add_embodied(parser)
    options.add_json(
        parser,
        markdown="print the comparison as Markdown",
        latex=papers.LATEX,
        bibtex=papers.BIBTEX,
    )


def run(arguments: argparse.Namespace) -> int:
    """Compare the groups and print the comparison; if requested, save it and judge regressions.

    Returns:
        0 without ``--fail-if-regress``; otherwise the highest exit code from ``_judge``.
    """
    given = {name: getattr(arguments, name) for name in _OPTIONS}
    groups = _groups(arguments.groups)
    comparison = compare(groups, **given)
    with options.until_reader_ends():
        sys.stdout.write(_document(comparison, groups, arguments))
    paths = comparison.save(arguments.out) if arguments.out else []
    if arguments.figures is not None:
        charts = plots.vector_graphics(comparison, arguments.figure_format)
        paths += papers.save_figures(arguments.figures, charts)
    for path in paths:
        logger.info("%s", path)
    if arguments.fail_if_regress is None:
        return 0
    rule = (arguments.on, arguments.fail_if_regress)
    return max(_judge(comparison, group.name, *rule) for group in comparison.groups[1:])


def _document(
    comparison: Comparison, groups: Mapping[str, Sequence[Path]], arguments: argparse.Namespace
) -> str:
    """Return the comparison in the format that the options select."""
    embodied = papers.embodied(arguments)
    if arguments.latex or arguments.bibtex:
        in_tex = latex if arguments.latex else bibtex
        reports = {name: [load(path) for path in paths] for name, paths in groups.items()}
        return in_tex(comparison, reports, embodied=embodied)
    if arguments.json:
        return model.to_json(comparison)
    return (text.markdown if arguments.markdown else text.render)(comparison)


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
            f"--fail-if-regress: {quantity or 'every quantity'} is unknown for {group} or {first}; "
            "choose another quantity with --on"
        )
    difference = f"{group}: {BY_NAME[effect.quantity].in_sentence} {change(effect)}"
    forbidden = [one for one in comparison.caveats if validity.forbids(one, effect, first)]
    if forbidden:
        return _say(UNJUDGED, f"cannot be judged: {difference}: {forbidden[0].message}")
    low, high = effect.low, effect.high
    if low is None or high is None or effect.basis == "blocks":
        return _say(
            UNJUDGED, f"cannot be judged from one run per group: {difference}; repeat the runs"
        )
    if effect.quantity == "samples_per_s":  # for this quantity, a decrease is worse
        low, high = 1.0 / high, 1.0 / low
    percent = f"{100.0 * limit:g} %"
    if effect.verdict == "not measured":
        return _say(UNJUDGED, f"cannot be judged: {difference}, estimated and not measured")
    if effect.verdict != "not resolved" and low - 1.0 > limit:
        return _say(REGRESSED, f"regressed: {difference}, more than {percent}")
    if high - 1.0 > limit:
        interval = f"the interval includes more than {percent}; more repeats make it narrower"
        return _say(0, f"no certain regression: {difference}; {interval}")
    return 0


def _say(code: int, text: str) -> int:
    logger.info("%s", text)
    return code


def _groups(words: Sequence[str]) -> dict[str, list[Path]]:
    """Return the paths of the runs of each group, by the name of the group.

    Raises:
        ValueError: if two groups have the same name, or if a group names no path.
        JournalError: if a folder contains no run.
    """
    groups: dict[str, list[Path]] = {}
    given = [_group(word) for word in words]
    unnamed = _names([paths[0] for name, paths in given if not name])
    for own_name, paths in given:
        name = own_name or next(unnamed)
        if name in groups:
            raise ValueError(f"two groups have the name {name!r}; name them: NAME=PATH")
        groups[name] = [run for path in paths for run in sorted(run_folders.runs_at(path))]
    return groups


def _group(word: str) -> tuple[str, list[Path]]:
    """Return the name and the paths in ``NAME=PATH,PATH`` or ``PATH,PATH``, which has no name.

    An argument that is an existing path is not split, even if the path contains ``=`` or ``,``.
    """
    name, sign, rest = word.partition("=")
    is_named = bool(sign) and not Path(word).exists() and "/" not in name
    listed = rest if is_named else word
    parts = [listed] if Path(listed).exists() else [p for p in listed.split(",") if p]
    if not parts:
        raise ValueError(f"group {word!r} has no run; give NAME=PATH,PATH")
    return name if is_named else "", [Path(part) for part in parts]


def _names(paths: Sequence[Path]) -> Iterator[str]:
    """Yield a name for each path: its last parts, as many as are needed to tell them apart.

    The default name of run folders is left out: ``a/energy`` and ``b/energy`` are ``a`` and ``b``.
    """
    parts = [_parts(path) for path in paths]
    for one in parts:
        others = [other for other in parts if other != one]
        count = 1
        while count < len(one) and any(other[-count:] == one[-count:] for other in others):
            count += 1
        yield "/".join(one[-count:])


def _parts(path: Path) -> list[str]:
    """Return the parts of an absolute path without file type; ``FILE#RUN`` keeps ``#RUN``."""
    resolved = path.resolve()
    name, sign, run = resolved.name.partition("#")
    if resolved.is_dir():
        *parents, last = resolved.parts
        return [*parents, last] if last != run_folders.DEFAULT_NAME else parents
    return [*resolved.parts[:-1], f"{Path(name).stem}{sign}{run}"]
