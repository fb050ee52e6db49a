"""Tasks: those of the published benchmark, ours, and those of files."""

from pathlib import Path

import pytest

from energy_callbacks.inference.bench.tasks import Task, ordered, own_tasks, read, selected, tasks
from energy_callbacks.inference.simulated import presets

ONE = 'task = [{ id = 7, gpu = "a100", model = "m", dataset = "d", %s }]'


def test_the_tasks_are_the_published_ones() -> None:
    """There are 28 tasks with a fixed cap, 14 for each GPU, and two with a changing cap."""
    found = tasks()
    assert [one.number for one in found] == list(range(1, 31))
    fixed = [one for one in found if one.cap_w is not None]
    assert [one.gpu for one in fixed] == ["rtx3080ti"] * 14 + ["a100"] * 14
    assert [one.dataset for one in fixed] == (["imagenet"] * 7 + ["caltech256"] * 7) * 2
    assert [one.cap_w for one in fixed] == [
        *(120, 180, 140, 170, 120, 130, 155, 140, 190, 190, 200, 125, 170, 180),
        *(70, 200, 180, 200, 100, 150, 130, 100, 280, 240, 250, 120, 180, 180),
    ]
    down, up = found[28:]
    assert down.schedule == ((0, 200.0), (50, 160.0), (100, 120.0))
    assert up.schedule == ((0, 130.0), (50, 180.0), (100, 230.0))
    assert (down.iterations, up.iterations) == (150, 150)
    assert (down.kind, up.kind) == ("power_down", "power_up")


def test_our_tasks_can_be_simulated() -> None:
    """Each model is one of the preset of its card, and the numbers differ from published ones."""
    found = own_tasks()
    for one in found:
        assert one.model in presets.workloads(one.gpu)
    assert {one.mode for one in found} == {"infer", "train"}
    assert {one.kind for one in found} >= {"power_down", "power_up", "dynamic"}
    assert len(ordered([*tasks(), *found], "all")) == 30 + len(found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("task = 1", "must have a list 'task'"),
        ("[[tasks]]\nid = 1", "must have a list 'task'"),
        ("task = [1", "is no TOML file"),
        ("task = [1]", "task 1: a task must be a table, got 1"),
        (ONE % "cap_w = 0", "task 7: caps must be positive and finite"),
        (ONE % "cap_w = true", "a cap must be a number of W, got True"),
        (ONE % 'cap_w = 1, mode = "serve"', "mode must be one of infer, train, got 'serve'"),
        (ONE % "cap_w = 1, schedule = []", "give either cap_w or schedule"),
        (ONE % "watts = 1", "the key 'watts' is unknown"),
        (ONE % "schedule = [[0, 1], [5, 2]]", "a task with a schedule needs iterations"),
        (ONE % "schedule = [[1, 1]]", "schedule must begin at 0 and ascend"),
        (ONE % "schedule = []", "schedule must begin at 0 and ascend"),
        (ONE % "schedule = [[0, 1], [5, 2]], iterations = 5", "must exceed the last iteration"),
        (ONE % "schedule = [0, 1]", r"must be \[iteration, cap in W\], got 0"),
        ('task = [{ gpu = "a100" }]', "task no. 1: the key 'id' is missing"),
        ((ONE % "cap_w = 1").replace('"m"', '"a b"'), "model must be a name without spaces"),
        ((ONE % "cap_w = 1").replace('"m"', "3"), "model must be a string, got 3"),
        ((ONE % "cap_w = 1").replace("7", "0"), "id must be at least 1, got 0"),
    ],
)
def test_wrong_files(text: str, message: str, tmp_path: Path) -> None:
    """The message has the file, the task, the value and what is allowed."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"mine\.toml.*{message}"):
        read(path)


def test_numbers_are_unique(tmp_path: Path) -> None:
    """Two tasks with the same number would write the same file."""
    path = tmp_path / "mine.toml"
    line = '{ id = 7, gpu = "a100", model = "m", dataset = "d", cap_w = 1 }'
    path.write_text(f"task = [{line}, {line}]")
    with pytest.raises(ValueError, match="two tasks have the id 7"):
        read(path)


def test_another_length_keeps_the_parts() -> None:
    """Caps change at the same parts of a run, and each has at least one window."""
    down = tasks()[28]
    assert down.lasting(30).schedule == ((0, 200.0), (10, 160.0), (20, 120.0))
    late = Task(
        number=1, gpu="a", model="m", dataset="d", iterations=100,
        schedule=((0, 3.0), (98, 2.0), (99, 1.0)),
    )  # fmt: skip
    for iterations in (3, 4, 10):
        starts = [start for start, _ in late.lasting(iterations).schedule]
        assert starts == [0, iterations - 2, iterations - 1]
    with pytest.raises(ValueError, match="task 29 has 3 caps and needs as many iterations, got 2"):
        down.lasting(2)


def test_selection() -> None:
    """Numbers and a start are combined; an unknown number is an error."""
    found = selected(tasks(), numbers=[3, 20, 28], start_from=20)
    assert [one.number for one in found] == [20, 28]
    with pytest.raises(ValueError, match="there is no task 31; the tasks are 1, 2"):
        selected(tasks(), numbers=[31])
    with pytest.raises(ValueError, match="no task has a number of at least 31"):
        selected(tasks(), start_from=31)


def test_a_file_of_tasks(tmp_path: Path) -> None:
    """Tasks have the values of the file, and are ordered by number; others have defaults."""
    path = tmp_path / "mine.toml"
    path.write_text(
        "task = ["
        '{ id = 9, gpu = "g", model = "m", dataset = "d", mode = "train", cap_w = 450.5 },'
        '{ id = 2, gpu = "h", model = "n", dataset = "e", iterations = 150, '
        "schedule = [[0, 500], [50, 400]] }]"
    )
    assert read(path) == (
        Task(
            number=2,
            gpu="h",
            model="n",
            dataset="e",
            schedule=((0, 500.0), (50, 400.0)),
            iterations=150,
            mode="infer",
        ),
        Task(number=9, gpu="g", model="m", dataset="d", schedule=((0, 450.5),), mode="train"),
    )
