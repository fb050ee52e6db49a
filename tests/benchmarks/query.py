"""Measures a query over 100,000 reports: ``python -m tests.benchmarks.query``.

The reports are generated, each in its own folder, as a run leaves them: the report of ten minutes
on one card, about 110 kB, with its own name and joules, beside a text and a folder of journals.
Some are cut off, some folders have only a page: the query must name both. The answers are compared
with what was written.

The time is that of the whole command, ``python -m energy_callbacks query ... --json``, including
imports and the search for reports; nothing is kept between two commands.

* warm: files were read before and are in the system's cache, median of three;
* cold: the cache has dropped the content of all reports, but not the names of the folders. If the
  system or a virtual disk below it keeps a copy, this is faster than a first read after a boot.

The bar: 5 s warm for the table ``reports``, right answers, and every omitted run named. Tables of
other parts (``phases``, ``devices``, ``metrics``) read whole files; their time is measured on one
folder of 1,000, without a bar.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from energy_callbacks.report import build
from energy_callbacks.report.model import schema
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.benchmarks.page import attempt
from tests.report.journals import write

REPORTS, QUICK_REPORTS, BAR_S = 100_000, 2_000, 5.0
IN_A_FOLDER = 1_000
# One report of this many is cut off; one folder of this many has a page and no report.
CUT, PAGE = 5_000, 20_000
SQL = (
    "select count(*) as n, sum(total_wh) as wh, count(distinct name) as names, "
    "avg(gpu_j_per_sample) as j, max(duration_s) as s from reports where status = 'finished'"
)
SKIPPED_SQL = "select why, count(*) as n from skipped group by why order by why"
TOP_SQL = "select name, total_wh from reports order by total_wh desc limit 10"
PHASES_SQL = "select phase, count(*) as n, sum(total_wh) as wh from phases group by phase"


@dataclass(frozen=True)
class Written:
    """What was generated."""

    reports: int
    cut: int
    pages: int
    energy_wh: float
    best: str
    report_kb: float


@dataclass(frozen=True)
class Timed:
    """The time of one query."""

    question: str
    wall_s: float
    cpu_s: float
    is_right: bool


def generate(folder: Path, count: int) -> Written:
    """Write the reports; energies are closed forms of their number."""
    with tempfile.TemporaryDirectory() as scratch:
        write(Path(scratch), attempt(600.0, 1))
        text = schema.to_json(build(scratch))
    value = json.loads(text)
    head, _, tail = text.partition(',\n"phases": ')
    cut = pages = 0
    energy_wh = 0.0
    for i in range(count):
        run = folder / f"team{i // IN_A_FOLDER:03d}" / f"run-{i:06d}"
        (run / "attempts" / "1").mkdir(parents=True)
        (run / "energy_report.txt").write_text("as a run leaves it\n", encoding="utf-8")
        if i % PAGE == PAGE // 2:
            (run / "energy_report.html").write_text("<html></html>", encoding="utf-8")
            pages += 1
            continue
        value["run"] |= {"run_id": f"{i:012x}", "name": f"run {i}"}
        value["energy"]["total"]["energy_j"] = 3600.0 * i
        own = head
        for part in ("run", "energy"):
            before, _, rest = own.partition(f'\n"{part}": ')
            own = f'{before}\n"{part}": {json.dumps(value[part])},\n{rest.partition(chr(10))[2]}'
        whole = f'{own},\n"phases": {tail}'
        if i % CUT == CUT // 2:
            whole = whole[: len(whole) // 2]
            cut += 1
        else:
            energy_wh += i
        (run / "energy_report.json").write_text(whole, encoding="utf-8")
    return Written(
        reports=count - cut - pages,
        cut=cut,
        pages=pages,
        energy_wh=energy_wh,
        best=f"run {count - 1}",
        report_kb=len(text) / 1e3,
    )


def forget(folder: Path) -> None:
    """Drop the content of all reports from the system's cache."""
    os.sync()
    for path in folder.rglob("energy_report.json"):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def asked(sql: str, folder: Path) -> tuple[list[dict], float, float]:
    """Return rows, seconds, and processor seconds of the whole command."""
    before = os.times()
    start_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "energy_callbacks", "query", sql, str(folder), "--json"],
        check=True,
        capture_output=True,
        text=True,
    )
    wall_s, after = time.perf_counter() - start_s, os.times()
    cpu_s = after.children_user + after.children_system
    return json.loads(done.stdout), wall_s, cpu_s - before.children_user - before.children_system


def timed(question: str, sql: str, folder: Path, right: list[dict], times: int) -> Timed:
    """Return the median of several commands, and whether all answers were right."""
    found = [asked(sql, folder) for _ in range(times)]
    return Timed(
        question=question,
        wall_s=statistics.median(wall_s for _, wall_s, _ in found),
        cpu_s=statistics.median(cpu_s for _, _, cpu_s in found),
        is_right=all(_is_like(rows, right) for rows, _, _ in found),
    )


def _is_like(rows: list[dict], right: list[dict]) -> bool:
    """Whether the answer has all expected values, numbers to a part in a billion."""
    return len(rows) == len(right) and all(
        abs(row[key] - known) <= 1e-9 * abs(known)
        if isinstance(known, float)
        else row[key] == known
        for row, wanted in zip(rows, right, strict=True)
        for key, known in wanted.items()
    )


def measure(folder: Path, written: Written, times: int) -> list[Timed]:
    """Measure all queries, the cold one last, so that others find the new files in the cache."""
    whole = [{"n": written.reports, "wh": written.energy_wh, "names": written.reports}]
    skipped = [{"why": "not read", "n": written.cut}, {"why": "only page", "n": written.pages}]
    os.sync()  # else the disk is still busy with the generated files
    asked(SQL, folder)
    rows = [
        timed("sums over all, warm", SQL, folder, whole, times),
        timed("the ten largest, warm", TOP_SQL, folder, [{"name": written.best}] + [{}] * 9, times),
        timed(
            "what was left out, warm", SKIPPED_SQL, folder, [one for one in skipped if one["n"]], 1
        ),
    ]
    first = folder / "team000"
    asked(PHASES_SQL, first)
    rows.append(timed(f"phases of {IN_A_FOLDER}, warm", PHASES_SQL, first, [{}, {}], 1))
    forget(folder)
    rows.append(timed("sums over all, cold", SQL, folder, whole, 1))
    return rows


def main() -> int:
    """Generate reports, run queries, print the table, and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--folder", type=Path, help="where to generate (11 GB); default: a new one")
    parser.add_argument("--reports", type=int, help="how many; default: 100,000")
    arguments = parser.parse_args()
    count = arguments.reports or (QUICK_REPORTS if arguments.quick else REPORTS)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        written = generate(Path(scratch), count)
        rows = measure(Path(scratch), written, 1 if arguments.quick else 3)
    print(f"{count} runs, {written.report_kb:.0f} kB a report; load {os.getloadavg()[0]:.1f}")
    for row in rows:
        right = "" if row.is_right else "   WRONG"
        print(f"{row.question:28}{row.wall_s:8.2f} s{row.cpu_s:8.2f} s of processor{right}")
    wrong = sum(not row.is_right for row in rows)
    return bars.finish(
        "query",
        arguments,
        [
            Bar(name="s of sums over all, warm", value=rows[0].wall_s, at_most=BAR_S),
            Bar(name="wrong answers", value=wrong, at_most=0),
        ],
        written=asdict(written),
        rows=[asdict(row) for row in rows],
    )


if __name__ == "__main__":
    sys.exit(main())
