"""Measures how many small random changes of the source the tests detect.

``python -m pip install cosmic-ray && python -m tests.mutations [--number 60] [--processes 2]``
draws changes in sensing, accounting and Lightning's adapter, makes each in a copy of the last
commit, and runs tests until one fails: first those of the changed folder, then the others. The
commit's hash is the seed. A change that no test detects is printed as a diff; it needs a test,
unless it has no effect that a user could see.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from tests.lanes import ROOT

# Folder of the source -> arguments of pytest for each run, in order.
CORE = (
    *("tests/core", "tests/report", "tests/tuning", "tests/outputs"),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "tests").glob("test_*.py"))),
)
TESTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "energy_callbacks/sensing": (("tests/sensing",), ("tests/accounting", *CORE)),
    "energy_callbacks/accounting": (("tests/accounting",), ("tests/sensing", *CORE)),
    "integrations/energy_callbacks_lightning": (("tests/integrations/lightning",),),
}
LIMIT_S = 900.0  # a change that makes a test hang counts as detected


@dataclass(frozen=True)
class Mutation:
    """One change.

    Attributes:
        folder: key of ``TESTS``.
        path: of the file, relative to the repository.
        operator: its name in cosmic-ray.
        occurrence: at which of the places where the operator can change the file.
    """

    folder: str
    path: str
    operator: str
    occurrence: int

    def change(self, source: str) -> str:
        """Return the changed file."""
        changed: str = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        return changed


def draw(number: int, seed: str) -> list[Mutation]:
    """Draw places first, then operators: places with many operators are not preferred."""
    places: dict[tuple[str, tuple[int, int]], list[Mutation]] = defaultdict(list)
    for mutation, at in _mutations():
        places[mutation.path, at].append(mutation)
    chance = random.Random(seed)
    return [chance.choice(places[place]) for place in chance.sample(sorted(places), number)]


def _mutations() -> Iterator[tuple[Mutation, tuple[int, int]]]:
    """Return all changes that can be drawn, and the line and column of each."""
    found = {name: get_operator(name) for name in operator_names()}
    operators = {
        name: operator()
        for name, operator in found.items()
        # ``|`` is used in annotations, where a change is an error on import.
        if not operator.arguments() and "BitOr" not in name
    }
    for folder in TESTS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            path = str(file.relative_to(ROOT))
            nodes = list(ast_nodes(get_ast(file.read_text(encoding="utf-8"))))
            for name, operator in operators.items():
                places = (at for node in nodes for at, _ in operator.mutation_positions(node))
                for occurrence, at in enumerate(places):
                    yield Mutation(folder, path, name, occurrence), at


def is_noticed(mutation: Mutation, copy: Path) -> bool:
    """Return whether a test fails in a copy of the repository with the change."""
    path = copy / mutation.path
    source = path.read_text(encoding="utf-8")
    path.write_text(mutation.change(source), encoding="utf-8")
    try:
        return not all(passes(copy, arguments) for arguments in TESTS[mutation.folder])
    finally:
        path.write_text(source, encoding="utf-8")


def passes(copy: Path, arguments: tuple[str, ...]) -> bool:
    """Return whether tests pass in a copy of the repository."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *arguments]
    paths = os.pathsep.join(map(str, (copy, copy / "integrations")))
    # Bytecode of the previous change is outdated: Python compares times, in s, and a run is longer.
    environment = os.environ | {"PYTHONPATH": paths}
    try:
        ended = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return ended.returncode == 0


def show(mutation: Mutation, is_killed: bool) -> None:
    """Print a line, and the change if no test detected it."""
    word = "noticed" if is_killed else "MISSED "
    print(f"{word} {mutation.path} {mutation.operator} {mutation.occurrence}", flush=True)
    if not is_killed:
        source = (ROOT / mutation.path).read_text(encoding="utf-8")
        lines = [text.splitlines() for text in (source, mutation.change(source))]
        differences = unified_diff(*lines, mutation.path, mutation.path, n=1, lineterm="")
        print("\n".join(differences), flush=True)


def git(*arguments: str) -> str:
    """Return the output of a git command."""
    command = ("git", "-C", str(ROOT), *arguments)
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> int:
    """Draw changes, test them, and print those that no test detected."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--number", type=int, default=60)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    seed = git("rev-parse", "HEAD")
    drawn = draw(options.number, seed)
    copies: SimpleQueue[Path] = SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.processes):
            copy = Path(folder, str(number))
            shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", "__pycache__"))
            copies.put(copy)

        def test(mutation: Mutation) -> bool:
            copy = copies.get()
            try:
                return is_noticed(mutation, copy)
            finally:
                copies.put(copy)

        noticed = []
        with ThreadPoolExecutor(options.processes) as pool:
            for mutation, is_killed in zip(drawn, pool.map(test, drawn), strict=True):
                noticed.append(is_killed)
                show(mutation, is_killed)
    print(f"{sum(noticed)} of {len(drawn)} noticed; seed {seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
