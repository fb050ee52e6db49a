"""Matrices on this machine, with real processes that fail, hang and are killed."""

import os
import signal
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from energy_callbacks.report import load
from tests.fake_nvml import Constant, Scenario, card_uuid, env, h200
from tests.matrix.lab import Lab, until

NAMED = "{a}-{b}-{repeat}"


def test_order_results_and_a_second_call(lab: Lab) -> None:
    """ABBA, a run folder for each job, one table; a second call has nothing to do."""
    lab.write(repeats=2, cool_down_s=1.0, parameters={"a": ["x"], "b": ["A", "B"]})
    assert "4 x-A #2: " in lab.run("--dry-run").out
    assert not lab.results.exists()
    ended = lab.run()
    assert ended.code == 0, ended.err
    assert lab.log == ["x-A-1", "x-B-1", "x-B-2", "x-A-2"]
    spans = lab.spans()
    assert all(after[0] - before[1] >= 1.0 for before, after in pairwise(spans))
    [report] = [load(path) for path in lab.results.glob("jobs/*b=A/repeat-2/try-1/*.json")
                if path.name == "energy_report.json"]  # fmt: skip
    assert report.run.tags == {"a": "x", "b": "A", "repeat": "2"}
    found = lab.table()["configurations"]
    assert [(one["finished"], one["failed"], one["missing"]) for one in found] == [(2, 0, 0)] * 2
    means = [one["energy_j"] for one in found]
    assert means == sorted(means)
    page = (lab.results / "matrix.html").read_text(encoding="utf-8")
    assert all(text in page for text in ("Which is the cheapest", "x-A", "repeat-2/try-1"))
    before = {path: path.stat().st_mtime for path in lab.results.glob("jobs/*/*/*/*")}
    assert lab.run().code == 0
    assert {path: path.stat().st_mtime for path in lab.results.glob("jobs/*/*/*/*")} == before


def test_a_job_that_fails_stops_no_other(lab: Lab) -> None:
    """Its code and last words are told, the exit code says so, and only it is tried again."""
    command = [sys.executable, "job.py", NAMED, "0.1", "{b}"]
    lab.write(command=command, parameters={"a": ["x"], "b": [3, 0]})
    ended = lab.run()
    assert ended.code == 1
    assert lab.log == ["x-3-1", "x-0-1"]
    assert "x-3 #1: exit code 3" in ended.err
    assert "    job x-3-1" in ended.err
    page = (lab.results / "matrix.html").read_text(encoding="utf-8")
    assert "exit code 3" in page
    assert "job x-3-1" in page
    job = (lab.folder / "job.py").read_text(encoding="utf-8")
    (lab.folder / "job.py").write_text(job.replace("sys.exit(code)", ""), encoding="utf-8")
    assert lab.run().code == 0
    assert lab.log == ["x-3-1", "x-0-1", "x-3-1"]
    assert [one["finished"] for one in lab.table()["configurations"]] == [1, 1]


def test_a_file_that_has_changed(lab: Lab) -> None:
    """New values and repeats are new jobs; another command for one that counts is refused."""
    lab.write(parameters={"a": ["x"], "b": [1]})
    assert lab.run().code == 0
    lab.write(parameters={"a": ["x"], "b": [2, 1]})
    assert lab.run().code == 0
    assert lab.log == ["x-1-1", "x-2-1"]
    lab.write(parameters={"a": ["x"], "b": [2]})
    ended = lab.run()
    assert ended.code == 0
    assert "holds 1 job not in the file" in ended.err
    assert [one["parameters"]["b"] for one in lab.table()["configurations"]] == ["2"]
    lab.write(command=[sys.executable, "job.py", NAMED, "0.2", "0"])
    ended = lab.run()
    assert ended.code == 2
    assert "was run with another command" in ended.err
    assert len(lab.log) == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_all_and_loses_nothing(lab: Lab, number: signal.Signals) -> None:
    """It reaches the command once; what it ended is run again by the next call, and counts once."""
    (lab.folder / "patient.py").write_text(
        "import signal, sys, time\n"
        "def hear(number, _): open('heard', 'a').write(f'{number}\\n')\n"
        "if not __import__('pathlib').Path('heard').exists():\n"
        "    signal.signal(int(sys.argv[2]), hear)\n"
        "    open('ready', 'a').write(sys.argv[1])\n"
        "    time.sleep(2.0)\n"
        "    sys.exit(9)\n"
        "open('log', 'a').write(sys.argv[1] + '\\n')\n",
        encoding="utf-8",
    )
    lab.write(command=[sys.executable, "patient.py", NAMED, str(int(number))])
    process = lab.start()
    until((lab.folder / "ready").exists)
    process.send_signal(number)
    process.communicate(timeout=60.0)
    assert process.returncode == 128 + number
    assert (lab.folder / "heard").read_text().split() == [str(int(number))]
    assert lab.log == []
    assert lab.run().code == 0
    assert lab.log == ["x-1-1", "x-2-1"]
    assert [one["finished"] for one in lab.table()["configurations"]] == [1, 1]


def test_two_at_once_are_refused(lab: Lab) -> None:
    """The second ends at once and says who holds the folder; a killed holder holds nothing."""
    lab.write(command=[sys.executable, "job.py", NAMED, "20", "0"])
    process = lab.start()
    until(lambda: lab.begun)
    second = lab.run()
    assert second.code == 1
    assert f"in use by another matrix (process {process.pid} on" in second.err
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    lab.write()
    assert lab.run().code == 0


def test_a_job_that_has_outlived_its_matrix(lab: Lab) -> None:
    """``kill -9`` of the matrix alone: its job is not run beside itself."""
    lab.write(command=[sys.executable, "job.py", NAMED, "30", "0"])
    process = lab.start()
    until(lambda: lab.begun)
    process.kill()
    process.wait()
    ended = lab.run()
    assert ended.code == 1
    assert "x-1 #1 of an earlier call still runs" in ended.err
    assert lab.begun == ["x-1-1"]
    measuring = [one for one in psutil.process_iter() if str(lab.results) in " ".join(words(one))]
    for one in measuring:  # the command itself goes on, as after any kill -9 of ``run``
        one.kill()
    assert "still runs" in lab.run().err
    os.killpg(process.pid, signal.SIGKILL)
    lab.write()
    assert lab.run().code == 0
    assert lab.log == ["x-1-1", "x-2-1"]


def words(process: psutil.Process) -> list[str]:
    """Its command; nothing of one that has gone."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture
def cards(tmp_path: Path) -> Iterator[Lab]:
    """A machine with two cards of unlike power."""
    scenario = Scenario(cards=(h200(Constant(200.0)), h200(Constant(400.0))))
    environment = env(scenario.write(tmp_path / "scenario"))
    environment.pop("CUDA_VISIBLE_DEVICES", None)
    one = Lab(tmp_path, environment)
    one.environment.pop("CUDA_VISIBLE_DEVICES", None)
    yield one
    one.close()


def test_one_job_a_card(cards: Lab) -> None:
    """Two cards, two jobs at a time, each sees its card alone; energies are the cards' own."""
    cards.write(repeats=2, command=[sys.executable, "job.py", NAMED, "2", "0"], cool_down_s=0.1)
    ended = cards.run()
    assert ended.code == 0, ended.err
    spans = cards.spans()
    uuids = {card_uuid(0), card_uuid(1)}
    assert {mask for _, _, mask in spans} == uuids
    for uuid in uuids:
        mine = sorted(span for span in spans if span[2] == uuid)
        assert all(after[0] > before[1] for before, after in pairwise(mine))
    first, second = sorted(spans)[:2]
    assert second[0] < first[1]
    found = cards.table()
    assert found["scope"] == "gpu"
    for one in found["configurations"]:
        for folder, energy_j in zip(one["folders"], one["energies_j"], strict=True):
            report = load(Path(folder) / "energy_report.json")
            [card] = [device for device in report.devices if device.kind == "gpu"]
            power_w = 200.0 if card.uuid == card_uuid(0) else 400.0
            assert energy_j == pytest.approx(power_w * report.run.duration_s, rel=0.1)


def test_a_card_that_is_not_there(cards: Lab) -> None:
    """Is said before anything runs."""
    cards.write(local={"gpus": 3})
    ended = cards.run()
    assert ended.code == 2
    assert "asks for GPU 2, but 2 are visible" in ended.err
    cards.write(local={"gpus": [1]})
    assert f"1 at a time: {card_uuid(1)}" in cards.run("--dry-run").out
    cards.write(local={"gpus_per_job": 2})
    assert f"1 at a time: {card_uuid(0)}+{card_uuid(1)}" in cards.run("--dry-run").out
