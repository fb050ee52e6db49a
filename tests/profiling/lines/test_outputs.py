"""Tests of the files of a profile: listings, flame graphs, Scalene's format."""

import json
from dataclasses import replace

import jsonschema
import pytest

from energy_callbacks.profiling.common.source_location import Line
from energy_callbacks.profiling.lines import listing, record, scalene, stacks
from energy_callbacks.profiling.lines.attribution import LineShare
from energy_callbacks.profiling.lines.stacks import Stack
from energy_callbacks.report.model import profile_lines
from energy_callbacks.report.model.profile_lines import LineProfile, ScopeShare
from energy_callbacks.report.model.schema import from_record

SOURCE = """def main():
    work("<script>alert(1)</script>")
    wait()
    loss.backward()


main()
"""


def share(wall_s, cpu, work_j, waiting_j, **gpu):
    """Time and energy of a line."""
    line = LineShare(work_j=work_j, waiting_j=waiting_j, **gpu)
    line.add(wall_s, cpu, 0.0)
    return line


def profile_of(shares, scopes=(), **numbers):
    """A profile of 10 s."""
    values = {"duration_s": 10.0, "looks": 1, "cost_share": 0.0, "windows": 0, **numbers}
    lines, functions = record.source_lines(shares), record.functions(shares)
    return LineProfile(scopes=scopes, lines=lines, functions=functions, files=(), **values)


@pytest.fixture
def found(tmp_path):
    """A profile of 10 s with a line that works, one that waits and one that uses the GPU."""
    path = tmp_path / "train.py"
    path.write_text(SOURCE)
    work, wait, backward = (Line(str(path), number, "main") for number in (2, 3, 4))
    shares = {
        work: share(6.0, 1.0, 300.0, 0.0),
        wait: share(3.0, 0.0, 0.0, 100.0),
        backward: share(1.0, 1.0, 50.0, 0.0, gpu_s=0.2, gpu_j=1500.0),
    }
    scopes = (
        ScopeShare(scope="host", energy_j=500.0, attributed_j=450.0, reason=None),
        ScopeShare(scope="gpu", energy_j=2000.0, attributed_j=1500.0, reason=None),
    )
    return profile_of(shares, scopes, looks=500, cost_share=0.003, windows=2)


@pytest.fixture
def samples(found):
    """The stacks of the two lines that work, and pooled ones."""
    backward, work, _ = (Line(one.file, one.line, one.function) for one in found.lines)
    outer = Line(work.file, 7, "<module>")
    return [
        Stack(frames=(outer, work), wall_s=6.0, energy_j=300.0),
        Stack(frames=(outer, backward), wall_s=1.0, energy_j=1550.0),
        Stack(frames=(), wall_s=0.1, energy_j=1.0),
    ]


def test_the_record_is_small_and_gives_the_report_its_tables(found, samples, tmp_path):
    """The record survives JSON; lines are ordered by energy, and the rest is unattributed."""
    told = record.write(found, samples, tmp_path)
    text = json.dumps(told)
    profile = from_record(LineProfile, json.loads(text))
    assert [one.line for one in profile.lines] == [4, 2, 3]
    assert (profile.energy_j, profile.attributed_j, profile.unattributed_j) == (2500, 1950, 550)
    rows = profile_lines.rows(profile)
    assert rows[0] == (
        "train.py:4 loss.backward()", "10.0 %", "10.0 %", "0.0 %", "100 %", "1.55 kJ", "62.0 %",
    )  # fmt: skip
    assert rows[-1][0] == "unattributed"
    assert rows[-1][-2:] == ("550 J", "22.0 %")
    assert profile_lines.function_rows(profile)[0][0] == "main train.py:2"
    assert "78.0 % of the energy is attributed" in profile.sentence
    assert all((tmp_path / name).stat().st_size for name in profile.files)


def test_a_record_of_many_lines_is_bounded(found):
    """The record of thousands of lines has less than 200 kB."""
    lines = {
        Line("/home/somebody/project/package/module.py", number, f"Class{number}.method"): share(
            1.0, 1.0, 1.0, 0.0
        )
        for number in range(1, 5000)
    }
    assert len(json.dumps(record.write(profile_of(lines), [], None))) < 200_000


def test_the_listing_has_each_line_beside_its_source(found, samples, tmp_path):
    """The listing is a text and a page without scripts; the source is escaped."""
    record.write(found, samples, tmp_path)
    text = (tmp_path / "profile/lines.txt").read_text()
    (backward,) = [line for line in text.splitlines() if "backward" in line]
    assert backward.split() == [
        "10.0", "%", "10.0", "%", "100.0", "%", "1.55", "kJ", "4", "loss.backward()",
    ]  # fmt: skip
    page = (tmp_path / "profile/lines.html").read_text()
    assert "&lt;script&gt;alert(1)" in page
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "prefers-color-scheme: dark" in page
    assert "http://" not in page
    assert "https://" not in page


def test_a_source_that_is_gone_leaves_the_numbers(found, tmp_path):
    """A line of a deleted file is listed without its source."""
    gone = profile_lines.SourceLine(
        file="/nowhere/gone.py", line=12, function="f", source="", wall_s=1.0, cpu_s=1.0,
        wait_s=0.0, gpu_share=None, host_j=None, waiting_j=None, gpu_j=None,
    )  # fmt: skip
    whole = replace(found, lines=(gone,))
    assert "12" in listing.text(whole)
    assert "/nowhere/gone.py" in listing.html(whole)


def test_unknown_energy_is_told_as_such():
    """Without a sensor, times are shown and energy is not known."""
    found = profile_of({Line("/x/a.py", 1, "f"): share(6.0, 1.0, None, None)}, looks=5)
    profile = from_record(LineProfile, record.write(found, [], None))
    assert "the energy is not known" in profile.sentence
    ((_, time, *_, joules, _),) = profile_lines.rows(profile)
    assert (time, joules) == ("60.0 %", "not known")


def test_folded_stacks_and_speedscope_sum_to_the_joules(samples):
    """The weights are millijoules, and the file is valid in speedscope's schema."""
    folded = stacks.folded(samples)
    assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) == 1_851_000
    assert "(other stacks) 1000" in folded
    told = json.loads(stacks.speedscope(samples))
    frames = told["shared"]["frames"]
    for profile in told["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == pytest.approx(sum(profile["weights"]))
        assert all(0 <= one < len(frames) for sample in profile["samples"] for one in sample)
    assert told["profiles"][0]["endValue"] == pytest.approx(1_851_000.0)
    schema = {
        "type": "object",
        "required": ["$schema", "shared", "profiles"],
        "properties": {
            "shared": {"properties": {"frames": {"items": {"required": ["name"]}}}},
            "profiles": {
                "items": {
                    "properties": {
                        "type": {"enum": ["evented", "sampled"]},
                        "unit": {"enum": ["none", "nanoseconds", "microseconds", "milliseconds",
                                          "seconds", "bytes"]},
                    }
                }
            },
        },
    }  # fmt: skip
    jsonschema.validate(told, schema)


@pytest.fixture
def of_scalene(found, samples):
    """The profile in Scalene's format."""
    return json.loads(scalene.profile(found, samples))


def test_scalenes_form_has_time_waiting_gpu_and_joules_of_each_line(of_scalene):
    """The file has all lines, percentages up to 100, and flame charts of millijoules."""
    (file,) = of_scalene["files"].values()
    lines = file["lines"]
    assert [line["lineno"] for line in lines] == [1, 2, 3, 4, 5, 6, 7]
    assert lines[1]["n_cpu_percent_python"] == 60.0
    assert [line["n_sys_percent"] for line in lines] == [0.0, 0.0, 30.0, 0.0, 0.0, 0.0, 0.0]
    assert lines[3]["n_gpu_percent"] == 100.0
    times = ("n_cpu_percent_python", "n_cpu_percent_c", "n_sys_percent")
    assert sum(line[name] for line in lines for name in times) <= 100.0
    assert all(0.0 <= line["n_core_utilization"] <= 1.0 for line in lines)
    assert [line.get("energy_j") for line in lines] == [None, 300, 100, 1550, None, None, None]
    assert (of_scalene["gpu"], of_scalene["gpu_device"]) == (True, "GPU")
    assert [count for _, count in of_scalene["combined_stacks"]] == [300_000, 1_550_000]
    names = {"kind", "display_name", "filename_or_module", "line", "ip", "offset"}
    frames = [frame for stack, _ in of_scalene["combined_stacks"] for frame in stack]
    assert all(set(frame) == names and frame["kind"] == "py" for frame in frames)


@pytest.mark.slow(
    reason="to import Scalene takes 10 s; test_scalenes_form has its fields and sums without it"
)
def test_scalene_accepts_it(of_scalene, monkeypatch):
    """Scalene's own model of its JSON accepts the file."""
    monkeypatch.setenv("LC_ALL", "POSIX")  # Scalene sets it for good
    pytest.importorskip("scalene")
    from scalene.scalene_json import ScaleneJSONSchema

    checked = ScaleneJSONSchema(**of_scalene)
    (file,) = checked.files.values()
    assert [line.lineno for line in file.lines] == [1, 2, 3, 4, 5, 6, 7]
    work = file.lines[1]
    assert (work.n_cpu_percent_python, work.n_sys_percent) == (60.0, 0.0)
    assert file.lines[2].n_sys_percent == 30.0
    assert file.lines[3].n_gpu_percent == 100.0
    assert checked.gpu_device == "GPU"
    assert [count for _, count in checked.combined_stacks] == [300_000, 1_550_000]
