"""Tests of reading a TOML file: it is read completely, or refused with a clear message."""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.matrix import toml_file
from energy_callbacks.matrix.engines.slurm import SlurmEngine

USUAL: dict[str, Any] = {"name": "n", "command": "x {a}", "parameters": {"a": [1, 2]}}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"repeat": 3}, "'repeat' is not known; did you mean 'repeats'?"),
        ({"cooldown_s": 3}, "'cooldown_s' is not known; did you mean 'cool_down_s'?"),
        ({"folder": "x"}, "'folder' is not known"),
        ({"energy": {}}, "'energy' is not known"),
        ({"local": {"gpu": 1}}, "'gpu' in [local] is not known; did you mean 'gpus'?"),
        ({"ray": {"addr": "x"}}, "'addr' in [ray] is not known; did you mean 'address'?"),
        ({"ray": {"gpus": -1}}, "gpus in [ray] must be a whole number of at least 0, got -1"),
        ({"local": {"gpus": "some"}}, "got 'some'; write gpus = 2 or gpus = [0, 1]"),
        ({"local": {"gpus": []}}, "got []"),
        ({"local": {"gpus": [0, 0]}}, "contains a GPU twice"),
        ({"local": {"gpus_per_job": 0}}, "gpus_per_job must be a whole number of at least 1"),
        ({"local": 3}, "local must be a table, got 3; write [local]"),
        ({"slurm": {"array": "0-3"}}, "'array' in [slurm] is set by the matrix itself"),
        ({"slurm": {"Time!": "1"}}, "'Time!' in [slurm] is not an option of sbatch"),
        ({"slurm": {"time": "1\nrm"}}, "time in [slurm] must be a string, a number, or true"),
        ({"slurm": {"at_once": 0}}, "at_once must be a whole number of at least 1, got 0"),
        ({"slurm": {"setup": 1}}, "setup must be a string with shell commands, got 1"),
        ({"pue": "high"}, "pue must be a number, got 'high'"),
    ],
)
def test_what_is_not_understood_is_refused(changed: dict[str, Any], said: str) -> None:
    """Tables of engines that are not used are checked as well; similar keys are suggested."""
    with pytest.raises((ValueError, TypeError), match=r".") as raised:
        toml_file.parsed(USUAL | changed, Path())
    assert said in str(raised.value)


@pytest.mark.parametrize("name", USUAL)
def test_what_a_matrix_needs(name: str) -> None:
    """Name, command and parameters are required."""
    content = {key: value for key, value in USUAL.items() if key != name}
    with pytest.raises(ValueError, match=f"{name} is missing"):
        toml_file.parsed(content, Path())


def test_the_file_is_named(tmp_path: Path) -> None:
    """The message names the file, also if it is not TOML."""
    file = tmp_path / "bad.toml"
    file.write_text("name = \nrepeats = 3", encoding="utf-8")
    with pytest.raises(ValueError, match=r"bad\.toml: .*line 1"):
        toml_file.load(file)


def test_everything_arrives(tmp_path: Path) -> None:
    """The plan, its energy settings, the folder of the file, and the chosen engine are returned."""
    file = tmp_path / "good.toml"
    file.write_text(
        'name = "n"\ncommand = "x {a}"\ncountry = "FRA"\npue = 1.3\n[parameters]\na = [1, 2]\n'
        '[slurm]\npartition = "gpu"\ngpus_per_node = 1\nexclusive = true\nat_once = 4\n',
        encoding="utf-8",
    )
    plan, engine = toml_file.load(file, "slurm")
    assert (plan.engine, plan.folder, len(plan.jobs())) == ("slurm", tmp_path, 6)
    assert plan.energy == {"country": "FRA", "pue": 1.3}
    assert isinstance(engine, SlurmEngine)
    assert engine.at_once == 4
    assert engine.lines == [
        "#SBATCH --partition=gpu",
        "#SBATCH --gpus-per-node=1",
        "#SBATCH --exclusive",
    ]
