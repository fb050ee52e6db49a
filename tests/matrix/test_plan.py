"""Tests of the jobs of a matrix, their order, and the checks of its settings."""

from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from energy_callbacks.matrix.plan import MatrixPlan, folder_name

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def plan(**changed: Any) -> MatrixPlan:
    """Return a plan with two parameters of two values."""
    usual: dict[str, Any] = {
        "name": "p",
        "command": "train --lr {lr} --opt {opt}",
        "parameters": {"lr": [0.1, 1e-3], "opt": ["adam", "sgd"]},
        "repeats": 2,
    }
    return MatrixPlan(**(usual | changed))


def of_sizes(sizes: list[int], repeats: int) -> MatrixPlan:
    """Return a plan with these numbers of values."""
    parameters = {f"p{i}": list(range(size)) for i, size in enumerate(sizes)}
    return plan(command="x " + " ".join(f"{{{n}}}" for n in parameters), parameters=parameters,
                repeats=repeats)  # fmt: skip


@given(SIZES, st.integers(1, 5))
def test_drift_meets_all_configurations_alike(sizes: list[int], half: int) -> None:
    """Over an even number of repeats all configurations have the same mean position."""
    places = defaultdict(list)
    for place, job in enumerate(of_sizes(sizes, 2 * half).jobs()):
        places[job.configuration].append(place)
    assert len({fmean(found) for found in places.values()}) == 1


@given(SIZES, st.integers(1, 5))
def test_every_job_once(sizes: list[int], repeats: int) -> None:
    """Every combination of values appears once in each repeat, one repeat after another."""
    jobs = of_sizes(sizes, repeats).jobs()
    counts = Counter((job.configuration, job.repeat) for job in jobs)
    expected = repeats
    for size in sizes:
        expected *= size
    assert set(counts.values()) == {1}
    assert len(counts) == len({job.folder for job in jobs}) == expected
    assert [job.repeat for job in jobs] == sorted(job.repeat for job in jobs)


def test_the_order_is_abba() -> None:
    """Repeats run forwards, backwards, forwards."""
    jobs = plan(command="x {a}", parameters={"a": ["A", "B", "C"]}, repeats=3).jobs()
    assert "".join(job.parameters["a"] for job in jobs) == "ABCCBAABC"


def test_a_value_stays_in_its_word() -> None:
    """Spaces, quotes, shell characters and braces of a value stay in one word."""
    nasty = ["a b", "'; rm -rf /; '", "$(date)", "{lr}", "*"]
    jobs = plan(
        command="train --lr={lr} '{lr} twice {{}}'", parameters={"lr": nasty}, repeats=1
    ).jobs()
    assert [job.words for job in jobs] == [
        ("train", f"--lr={one}", f"{one} twice {{}}") for one in nasty
    ]


def test_words_and_environment_are_filled() -> None:
    """Numbers are as in TOML, truth values in lower case, repeats count from 1."""
    jobs = plan(
        command=["run me", "{lr}", "{flag}", "{repeat}"],
        parameters={"lr": [1e-3], "flag": [True, False]},
        env={"SEED": "{repeat}"},
    ).jobs()
    assert [job.words for job in jobs[:2]] == [
        ("run me", "0.001", "true", "1"),
        ("run me", "0.001", "false", "1"),
    ]
    assert [job.environment["SEED"] for job in jobs] == ["1", "1", "2", "2"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"command": "train {lr}"}, "the parameter 'opt' is not used in the command"),
        ({"command": "train {lr} {opt} {lrr}"}, "{lrr} in the command is not a parameter"),
        ({"command": "train {lr} {opt} '{\"a\": 1}'"}, "write a literal brace as"),
        ({"command": "train {lr} {opt} {"}, "cannot be parsed"),
        ({"command": "train {lr:5} {opt}"}, "more than the name"),
        ({"command": "train {lr} {opt} 'open"}, "check its quotes"),
        ({"command": []}, "must be a string or a list of words, got []"),
        ({"command": ["a", 3]}, "must be a string or a list of words"),
        ({"parameters": {}}, "[parameters] is empty"),
        ({"parameters": {"lr": [], "opt": [1]}}, "'lr' needs a list of values, got []"),
        ({"parameters": {"lr": "ab", "opt": [1]}}, "'lr' needs a list of values, got 'ab'"),
        ({"parameters": {"lr": [1, "1"], "opt": [1]}}, "contains a value twice: 1, 1"),
        ({"parameters": {"repeat": [1]}}, "cannot be named 'repeat'"),
        ({"repeats": 0}, "repeats must be a whole number of at least 1, got 0"),
        ({"repeats": True}, "repeats must be a whole number"),
        ({"cool_down_s": -1}, "cool_down_s must be a number of seconds, got -1"),
        ({"cool_down_s": float("nan")}, "cool_down_s must be a number of seconds"),
        ({"engine": "k8s"}, 'engine must be one of "local", "slurm", "ray", got \'k8s\''),
        ({"metric": "score"}, "'score' is better when it is lower or higher is not clear"),
        ({"metric_goal": "up"}, 'metric_goal must be one of "min", "max"'),
        ({"name": "a/b"}, "becomes the name of a folder"),
        ({"name": ".."}, "becomes the name of a folder"),
        ({"baseline": {"lr": 0.1}}, "'opt' is 'left out', and its values are adam, sgd"),
        ({"baseline": {"lr": 0.2, "opt": "sgd"}}, "'lr' is 0.2, and its values are 0.1, 0.001"),
        ({"baseline": {"lr": 0.1, "opt": "sgd", "x": 1}}, "'x' is 1, and its values are none"),
        ({"energy": {"pue": 0.5}}, "pue must lie between 1 and 10"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_refused(changed: dict[str, Any], said: str) -> None:
    """The message says what is wrong, the value, and what to do."""
    with pytest.raises(ValueError, match=r".") as raised:
        plan(**changed)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    "changed", [{"name": 3}, {"metric": ""}, {"graphs": 1}, {"env": {"A": 1}},
                {"parameters": {"lr": [[1]], "opt": [1]}}]
)  # fmt: skip
def test_wrong_types_are_refused(changed: dict[str, Any]) -> None:
    """The message has the value."""
    with pytest.raises(TypeError, match=r"got|has the value"):
        plan(**changed)


TEXTS = st.dictionaries(st.sampled_from("abc"), st.text(max_size=40), min_size=1)


@given(TEXTS, TEXTS)
def test_no_two_configurations_share_a_folder(one: dict[str, str], other: dict[str, str]) -> None:
    """Different configurations have different folder names, which file systems allow."""
    assert (folder_name(one) == folder_name(other)) == (list(one.items()) == list(other.items()))
    assert Path(folder_name(one)).name == folder_name(one)
    assert len(folder_name(one).encode()) < 200


def test_the_baseline_is_a_configuration() -> None:
    """It is named by its values, in any order."""
    found = plan(baseline={"opt": "sgd", "lr": 0.1})
    assert found.baseline_name in {job.configuration for job in found.jobs()}
