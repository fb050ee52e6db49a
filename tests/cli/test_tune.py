"""Tests of ``energy-callbacks tune`` through its command line."""

import json
from pathlib import Path

import pytest

from energy_callbacks.cli import main

STEPS = """
import time

def step(size, accumulation=1):
    if size > 12:
        raise MemoryError("no room")
    time.sleep(0.001 + accumulation * size * 0.001)

def make():
    return step

def talking(size):
    print("a line of the user")
    step(size)

def broken(size):
    raise ZeroDivisionError(size)

number = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a user's module to the current folder, with a different name for each test."""
    name = f"steps_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(STEPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENERGY_CALLBACKS_DISABLED", "1")
    return name


@pytest.mark.parametrize("function", ["step", "make"])
def test_the_table_is_printed(module: str, function: str, capsys) -> None:
    """A step, or a function that returns one, is tuned; trials are reported on standard error."""
    arguments = ["--max-size", "16", "--max-trials", "4", "--objective", "largest"]
    assert main(["tune", f"{module}:{function}", *arguments]) == 0
    told = capsys.readouterr()
    assert "batch size 12: " in told.out
    assert "does not fit: MemoryError: no room" in told.err


def test_the_result_as_json(module: str, capsys) -> None:
    """Standard output has only JSON, although the step prints; with -q, there is nothing else."""
    arguments = ["--max-size", "16", "--max-trials", "4", "--objective", "largest", "--json", "-q"]
    assert main(["tune", f"{module}:talking", *arguments]) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert told.err == ""
    sizes = [trial["size"] for trial in result["trials"] if trial["status"] == "ok"]
    assert result["size"] == max(sizes) <= 12
    assert all(trial["samples_per_s"] > 0 for trial in result["trials"] if trial["steps"])


def test_a_fixed_global_batch(module: str, capsys) -> None:
    """Micro-batches divide the global batch size, within the given limits."""
    found = ["--global-batch-size", "16", "--max-size", "4", "--min-size", "2"]
    arguments = [*found, "--objective", "largest", "--json"]
    assert main(["tune", f"{module}:step", *arguments]) == 0
    told = capsys.readouterr()
    result = json.loads(told.out)
    assert {trial["size"] * trial["accumulation"] for trial in result["trials"]} == {16}
    assert result["size"] == 4
    assert result["accumulation"] == 4


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("{}", "contains no function; write MODULE:FUNCTION"),
        ("{}:nothing", "has no attribute 'nothing'"),
        ("{}:number", "must be a function step(size)"),
        ("no_such_module:step", "there is no module 'no_such_module' in"),
    ],
)
def test_a_wrong_name_is_explained(module: str, capsys, name: str, message: str) -> None:
    """The message says what is wrong and how to write it."""
    assert main(["tune", name.format(module)]) == 2
    assert message in capsys.readouterr().err


def test_an_error_of_the_step_is_the_users(module: str) -> None:
    """The exception passes through with its traceback."""
    with pytest.raises(ZeroDivisionError):
        main(["tune", f"{module}:broken"])


def test_an_objective_that_is_none(module: str, capsys) -> None:
    """The message lists the objectives."""
    with pytest.raises(SystemExit, match="2"):
        main(["tune", f"{module}:step", "--objective", "best"])
    assert (
        "knee, throughput, energy, largest or a number from 0 to 1, got 'best'"
        in capsys.readouterr().err
    )
