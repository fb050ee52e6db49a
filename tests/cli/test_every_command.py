"""What is the same for every command: --json, -q and -v, exit codes, completion."""

import argparse
import io
import json
import logging
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.cli import COMMANDS, build_parser, demo, main
from energy_callbacks.cli.common import messages
from energy_callbacks.cli.compare import UNJUDGED
from energy_callbacks.profiling.zoo.quick import QuickProfile
from tests.charts import no_charts  # noqa: F401 - a fixture
from tests.report.journals import Attempt, write

STEP = """
import time

def step(size):
    print("the user prints")
    time.sleep(0.002 * size)
"""
MATRIX = 'name = "m"\ncommand = "true {x}"\n[parameters]\nx = [1, 2]\n'
TUNE = [
    "tune",
    "a_users_step:step",
    "--max-size",
    "1",
    "--max-trials",
    "1",
    "--objective",
    "largest",
]
# Arguments with which each command has a result, in the folder ``place``.
RESULTS: Mapping[str, list[str]] = {
    "demo": ["demo", "--model", "simple_cnn"],
    "run": ["run", "--out", "measured", "--", "sh", "-c", "echo the command prints"],
    "profile": ["profile", "--no-lines", "--no-kernels", "--out", "profiled", "--", "printing.py"],
    "matrix": ["matrix", "m.toml", "--dry-run"],
    "list": ["list", "--limit", "1"],
    "report": ["report"],
    "compare": ["compare", "a/energy", "b/energy"],
    "query": ["query", "select name from reports", "b"],
    "project": ["project", "a", "--jobs-per-day", "10"],
    "tune": TUNE,
    "powercap": ["powercap", "status"],
    "monitor": ["monitor", "--interval", "0.1", "--seconds", "0.1"],
    "doctor": ["doctor"],
}
# Wrong input for each command, and what the message names.
WRONG = [
    (["demo", "--epochs", "0"], "--epochs"),
    (["run", "--out", "a/energy", "--", "true"], "a/energy"),
    (["run", "--devices", "0,", "--", "true"], "'0,'"),
    (["run", "--compare-with", "empty", "--", "true"], "no run in or below empty"),
    (["profile", "--", "nowhere.py"], "nowhere.py"),
    (["matrix", "nowhere.toml"], "nowhere.toml: No such file or directory"),
    (["matrix", "wrong.toml"], "wrong.toml"),
    (["list", "nowhere"], "nowhere"),
    (["list", "--limit", "0"], "--limit"),
    (["report", "nowhere"], "nowhere"),
    (["report", "empty"], "no run in or below empty"),
    (["report", "wrong.toml"], "wrong.toml"),
    (["report", "a", "--out", "m.toml"], "m.toml"),
    (["compare", "a", "empty"], "no run in or below empty"),
    (["compare", "a", "b", "--margin", "much"], "must be a share such as 5% or 0.05, got 'much'"),
    (["query", "select nothing from reports", "b"], "nothing"),
    (["query", "select 1", "nowhere"], "nowhere"),
    (["project", "empty", "--jobs-per-day", "1"], "no run in or below empty"),
    (["project", "a", "--jobs-per-day", "-1"], "-1"),
    (["tune", "nowhere:step"], "nowhere"),
    (["powercap", "set", "--limit-w", "300"], "add --yes to consent"),
    (["powercap", "sweep", "--limits", "300", "--yes", "--"], "there is no command"),
    (["monitor", "--interval", "1e12"], "1e12"),
    (["doctor", "--region", "Texas"], "Texas"),
]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a folder with two runs, a step to tune, a matrix and wrong files."""
    base = Attempt()
    write(tmp_path / "a/energy", replace(base, run_id="a"))
    write(tmp_path / "b/energy", replace(base, run_id="b", unix_s=base.unix_s + 100.0))
    assert main(["report", str(tmp_path / "b"), "--format", "json", "-q"]) == 0
    (tmp_path / "a_users_step.py").write_text(STEP)
    (tmp_path / "printing.py").write_text("print('the script prints')")
    (tmp_path / "m.toml").write_text(MATRIX)
    (tmp_path / "wrong.toml").write_text("name = [")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def commands() -> Mapping[str, argparse.ArgumentParser]:
    """Return the parser of each command."""
    [action] = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return action.choices


def test_every_command_has_the_same_options() -> None:
    """--json, -q and -v are flags with the same help everywhere."""
    options: dict[str, set[Any]] = {}
    for command in commands().values():
        for action in command._actions:
            for name in action.option_strings:
                options.setdefault(name, set()).add((type(action), action.help, command))
    for name in ("--json", "-q", "--quiet", "-v", "--verbose"):
        assert len(options[name]) == len(COMMANDS), name
        assert len({(kind, text) for kind, text, _ in options[name]}) == 1, name
    assert set(RESULTS) == {arguments[0] for arguments, _ in WRONG} == set(COMMANDS)


def test_a_command_imports_no_other_command() -> None:
    """``list`` starts without the modules of power limits and of other commands."""
    code = (
        "import sys; from energy_callbacks import cli; cli._parse(['list', '--json']);"
        "found = [name for name in sys.modules if name.startswith('energy_callbacks.')];"
        "print([name for name in cli.COMMANDS if f'energy_callbacks.cli.{name}' in found],"
        "'energy_callbacks.inference' in found)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['list'] False\n"


def result_of(name: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    """Run a command that has a result; return its exit code. Training and sensors are left out."""

    def train(*_: object, **__: object) -> QuickProfile:
        print("the training prints")
        return QuickProfile(folder=Path(), rows=(), reports={})

    monkeypatch.setattr(demo, "run_quick_profile", train)
    if name == "tune":
        monkeypatch.setenv("ENERGY_CALLBACKS_DISABLED", "1")
    if name == "query":
        pytest.importorskip("duckdb")
    command, *others = RESULTS[name]
    return main([command, *options, *others])


@pytest.mark.parametrize("name", COMMANDS)
def test_json_is_all_that_is_printed(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Standard output is one JSON document, also if the measured program prints there."""
    assert result_of(name, monkeypatch, "--json") == 0
    told = capfd.readouterr()
    assert isinstance(json.loads(told.out), dict | list)
    assert ("prints" in told.err) == (name in ("demo", "run", "profile", "tune"))


@pytest.mark.parametrize("name", ["demo", "run", "query", "report", "list"])
def test_quiet_leaves_only_the_result(
    name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed to standard error."""
    assert result_of(name, monkeypatch, "-q") == 0
    told = capfd.readouterr()
    assert told.err == ""
    assert told.out


@pytest.mark.parametrize(("arguments", "named"), WRONG, ids=[" ".join(a) for a, _ in WRONG])
def test_wrong_input(arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 2, and the message on standard error names what is wrong."""
    before = sorted(Path().rglob("*"))
    try:
        code: object = main(arguments)
    except SystemExit as ended:  # the parser refuses it
        code = ended.code
    told = capsys.readouterr()
    assert (code, told.out) == (2, "")
    assert f"energy-callbacks {arguments[0]}: " in told.err
    assert named in told.err
    assert "Traceback" not in told.err
    assert sorted(Path().rglob("*")) == before


def test_verbose_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """-v prints the traceback of an error, after its message."""
    assert main(["report", "empty", "-v"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("energy-callbacks report: there is no run")
    assert "Traceback" in told


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of a shell; there is no traceback."""

    def interrupted(_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("energy_callbacks.cli.report.load", interrupted)
    assert main(["report", "a"]) == 130
    assert capsys.readouterr().err == "energy-callbacks report: interrupted\n"
    monkeypatch.setattr("energy_callbacks.cli.import_module", interrupted)
    assert main(["report", "a"]) == 130  # while the modules of the command are imported
    assert capsys.readouterr().err == "energy-callbacks: interrupted\n"


def test_logging_is_as_before_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    """Levels, handlers and propagation are restored; warnings are printed once."""
    package = logging.getLogger(messages.PACKAGE)
    before = (package.level, package.propagate, list(package.handlers), messages.logger.level)
    for options, shown in (({}, "w\n"), ({"quiet": True}, ""), ({"verbose": True}, "w\nd\n")):
        with messages.on_stderr(**options):
            package.warning("w")
            package.debug("d")
        assert capsys.readouterr().err == shown
    assert before == (package.level, package.propagate, package.handlers, messages.logger.level)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on this machine")
@pytest.mark.parametrize(
    ("words", "expected"),
    [("rep", {"report"}), ("report --for", {"--format"}), ("compare --js", {"--json"})],
)
def test_completion_in_bash(
    words: str, expected: set[str], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script completes commands and options."""
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit, match="0"):
        main(["--print-completion", "bash"])
    (place / "completion").write_text(capsys.readouterr().out)
    script = (
        f"source completion; COMP_WORDS=(energy-callbacks {words}); "
        "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _shtab_energy_callbacks; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    answer = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert set(answer.stdout.split()) == expected


def test_an_unknown_shell(capsys: pytest.CaptureFixture[str]) -> None:
    """The message lists the shells."""
    pytest.importorskip("shtab")
    with pytest.raises(SystemExit, match="2"):
        main(["--print-completion", "ksh"])
    assert "bash" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_a_misspelled_option_is_named_with_the_right_one(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is that of the command, and proposes an option only if one is similar."""
    command, *others = RESULTS[name]
    for option, hint in (("--quite", "; did you mean --quiet?"), ("--xyz", "")):
        with pytest.raises(SystemExit) as ended:
            main([command, option, *others])
        assert ended.value.code == 2
        told = capsys.readouterr().err
        assert told.startswith(f"usage: energy-callbacks {name} ")
        assert told.endswith(f"{name}: error: unrecognized arguments: {option}{hint}\n")


def test_a_misspelled_option_with_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the command to measure, too."""
    for words in (["--contry=DEU"], ["--contry", "DEU"]):
        with pytest.raises(SystemExit):
            main(["run", *words, "--", "true"])
        assert capsys.readouterr().err.endswith("did you mean --country?\n")


@pytest.mark.parametrize("option", ["-q", "--verbose", "--json"])
def test_an_option_before_the_command(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message states where the option belongs."""
    with pytest.raises(SystemExit, match="2"):
        main([option, "list"])
    assert capsys.readouterr().err.endswith(
        f"unrecognized arguments: {option}; write {option} after list\n"
    )


def shell(script: str) -> tuple[int, str]:
    """Run a script of bash in which ``ec`` is the command line; return exit code and errors."""
    setup = "unset PYTHONUNBUFFERED; set -o pipefail;"
    done = subprocess.run(
        [
            "bash",
            "-c",
            f'{setup} ec() {{ "{sys.executable}" -m energy_callbacks "$@"; }}; {script}',
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_closed_standard_output() -> None:
    """Programs that have none lose the result only."""
    assert shell("ec list empty >&-") == (0, "no runs below empty\n")
    assert shell("ec run --json --no-html -q -- sh -c 'exit 5' >&-") == (5, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("report a -q", 0),
        ("--print-completion bash", 0),
        ("report --help", 0),
        ("matrix failing.toml -q", 1),
        ("run --json --no-html -q -- sh -c 'sleep 0.3; exit 5'", 5),
        ("compare a b -q --fail-if-regress 5%", UNJUDGED),
    ],
)
def test_a_reader_that_ends(words: str, code: int) -> None:
    """The exit code is that of the command, and there is no message."""
    content = "name='x'\ncommand='false {x}'\nrepeats=1\ncool_down_s=0\n[parameters]\nx=[1]\n"
    Path("failing.toml").write_text(content)
    found, told = shell(f"ec {words} | true")
    assert found == code
    assert "ipe" not in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize(
    ("words", "program"),
    [
        ("list a", "energy-callbacks list"),
        ("report a", "energy-callbacks report"),
        ("report --help", "energy-callbacks"),
        ("--print-completion bash", "energy-callbacks"),
    ],
)
def test_a_standard_output_that_is_full(words: str, program: str) -> None:
    """It is named in one line, and the exit code is that of an error."""
    found, told = shell(f"ec {words} >/dev/full")
    assert found == 1
    assert told == f"{program}: standard output: No space left on device\n"


def test_a_standard_output_that_is_not_utf_8(place, no_charts, monkeypatch):  # noqa: F811
    """Characters that its encoding does not have are replaced in texts, and escaped in JSON."""
    (place / "a").rename(place / "größer")
    printed = []
    for arguments in (["report", "größer/energy"], ["list", "--json"]):
        output = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
        monkeypatch.setattr(sys, "stdout", output)
        assert main(arguments) == 0
        output.seek(0)
        printed.append(output.read())
    assert "finished ? " in printed[0]
    assert any("größer" in one["folder"] for one in json.loads(printed[1]))
