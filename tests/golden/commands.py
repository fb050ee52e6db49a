"""Commands whose output and files are compared, each in a folder that holds the inputs."""

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

from energy_callbacks.cli import COMMANDS, main

MATRIX = """
name = "golden"
command = "python train.py --lr {lr}"
repeats = 2
[parameters]
lr = [0.1, 0.01]
"""
# Fixed terminal size and time zone, no colours.
ENVIRONMENT = {"COLUMNS": "100", "LINES": "40", "TZ": "UTC", "NO_COLOR": "1", "TERM": "dumb"}
FINISHED = ("usual", "ranks", "resumed", "failed", "profiled")
LOGS = ("gputop.json", "smi.csv", "all_smi.ndjson")
HELPS = [[name, "--help"] for name in COMMANDS]
REPORTS = [
    *(["report", name, "--graphs"] if name == "usual" else ["report", name] for name in FINISHED),
    *(["report", name, "--json"] for name in FINISHED),
    ["report", "usual", "--country", "FRA", "--price-per-kwh", "0.2", "--out", "french"],
    ["report", "usual", "--emissions-csv", "emissions.csv"],
    *(["report", name, "--out", f"from_{name.partition('.')[0]}"] for name in LOGS),
]
COMPARISONS = [
    ["compare", "old", "new", "--out", "compared"],
    ["compare", "old", "new", "--json", "--metric", "val_loss", "--target", "0.6"],
    ["compare", "old", "new", "--markdown", "--paired"],
    ["project", "usual", "--jobs-per-day", "1e6"],
    ["project", "old/run0", "new/run0", "--jobs-per-day", "1e5", "--country", "DEU", "--markdown"],
    ["project", "new/run0", "--jobs-per-day", "10", "--kg-per-kwh", "0.4", "--json"],
    ["query", "--columns"],
    ["query", "SELECT name, run_id, gpu_wh, total_wh FROM reports ORDER BY path", "old", "--csv"],
    ["query", "SELECT * FROM phases ORDER BY ALL", "usual", "--json"],
    ["matrix", "matrix.toml", "--dry-run"],
]
WRONG = [
    ["report", "nothing"],
    ["report", "usual", "--format", "odt"],
    ["compare", "old"],
    ["project", "usual", "--jobs-per-day", "-1"],
    ["query", "INSERT INTO reports VALUES (1)", "usual"],
    ["matrix", "missing.toml"],
]
ALL = [*HELPS, *REPORTS, *COMPARISONS, *WRONG]


def run_all(folder: Path) -> str:
    """Run all commands in the folder; return their output and exit codes."""
    (folder / "matrix.toml").write_text(MATRIX, encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        with mock.patch.dict(os.environ, ENVIRONMENT):
            return "".join(map(_run, ALL))
    finally:
        os.chdir(before)


def _run(arguments: list[str]) -> str:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code: object = main(arguments)
        except SystemExit as ended:
            code = ended.code
    return f"$ {' '.join(arguments)}\n{out.getvalue()}{err.getvalue()}exit code {code}\n\n"
