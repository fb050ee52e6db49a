"""Comparisons of groups of runs: effects, verdicts and caveats."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.compare import compare, model, page, plots, text
from energy_callbacks.core.errors import JournalError
from energy_callbacks.report import build
from energy_callbacks.report.model.amounts import Efficiencies, Efficiency, Figure
from tests.report.journals import CPU, GPU, GPU1, IDLE, PROCESS, Attempt, Stretch, write

RAPL_CPU = replace(CPU, origin="measured")
ACCURACY = [
    (20.0 + 10.0 * i, {"val_accuracy": 1.0 - 0.5**i}, 100 * i, float(i)) for i in range(1, 7)
]
# Starts of a second group of five between those of the first.
BETWEEN = {"first_s": 1200.0, "apart_s": 500.0}
NOISE = (0.0, 0.01, -0.01, 0.005, -0.005)


def report(folder: Path, power_w: float, *, start_s: float = 0.0, **more):
    """Returns the report of a training of 60 s at a given power."""
    gpu = more.pop("key", "gpu0")
    train = Stretch(phase="train", duration_s=60.0, power_w={gpu: power_w, "cpu0": 100.0})
    attempt = Attempt(
        stretches=(replace(IDLE, power_w={gpu: 80.0, "cpu0": 40.0}), train),
        unix_s=1.79e9 + start_s,
        **{"metrics": ACCURACY} | more,
    )
    write(folder, attempt)
    return build(folder, now_unix_s=2e9)


def _run(folder: Path, power_w, **more):
    """Returns the report of a training of 60 s with these powers."""
    train = Stretch(phase="train", duration_s=60.0, power_w=power_w)
    write(folder, Attempt(stretches=(IDLE, train), run_id=folder.name, **more))
    return build(folder, now_unix_s=2e9)


def group(folder: Path, power_w: float, *, first_s: float = 0.0, apart_s: float = 1000.0, **more):
    """Returns five repeats with a small spread."""
    return [
        report(
            folder / str(i), power_w * (1.0 + noise), start_s=first_s + i * apart_s,
            run_id=f"{folder.name}{i}", **more,
        )
        for i, noise in enumerate(NOISE)
    ]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Two groups at 500 and 450 W, in the order A A B B A B B A B A: interleaved, not in pairs."""
    folder = tmp_path_factory.mktemp("groups")
    return {
        "old": group(folder / "old", 500.0),
        "new": group(folder / "new", 450.0, **BETWEEN),
    }


@pytest.fixture
def groups(built):
    """A copy of ``built`` that a test can change."""
    return dict(built)


def test_less_power_for_the_same_work_is_lower(groups):
    """600 and 550 W for 32 samples in a tenth of a second; the truth lies in the interval."""
    found = compare(groups)
    effect = found.effect("new", "j_per_sample")
    truth = 550.0 / 600.0
    assert effect.verdict == "lower"
    assert effect.low < truth < effect.high
    assert effect.ratio == pytest.approx(truth, rel=0.002)
    assert effect.basis == "runs"
    assert found.groups[0].means["j_per_sample"] == pytest.approx(600.0 / 320.0, rel=0.002)
    assert found.primary == "energy_to_target_j"
    assert found.effect("new", "duration_s").verdict == "not resolved"


def test_the_other_way_round_is_the_inverse(groups):
    """Swapped groups invert the verdict, the ratio and its interval."""
    there = compare(groups).effect("new", "j_per_sample")
    back = compare({"new": groups["new"], "old": groups["old"]}).effect("old", "j_per_sample")
    assert back.verdict == "higher"
    assert back.ratio == pytest.approx(1.0 / there.ratio)
    assert back.low == pytest.approx(1.0 / there.high, rel=2e-3)
    assert back.high == pytest.approx(1.0 / there.low, rel=2e-3)


def test_the_same_against_itself_is_not_resolved(tmp_path):
    """The answer names the smallest detectable change."""
    found = compare({"a": group(tmp_path / "a", 500.0), "b": group(tmp_path / "b", 500.0)})
    assert {effect.verdict for effect in found.effects} == {"not resolved"}
    assert "not resolved (this number of runs can detect changes of" in found.answers[0]


def test_runs_made_in_turn_are_pairs(tmp_path):
    """A drift cancels in pairs made in turn, but not with ``paired=False`` or made in a row."""
    drifting = [500.0 * math.exp(0.05 * i) for i in range(4)]
    sides = {
        name: [
            report(
                tmp_path / name / str(i), share * power_w + 100.0 * (share - 1.0),
                start_s=2000.0 * i + first_s, run_id=f"{name}{i}",
            )
            for i, power_w in enumerate(drifting)
        ]
        for name, share, first_s in (("a", 1.0, 0.0), ("b", 0.95, 1000.0))
    }  # fmt: skip
    effect = compare(sides).effect("b", "j_per_sample")
    assert (effect.basis, effect.verdict) == ("pairs", "lower")
    assert effect.ratio == pytest.approx(0.95)
    apart = compare(sides, paired=False).effect("b", "j_per_sample")
    assert (apart.basis, apart.verdict) == ("runs", "not resolved")


def test_all_questions_together_are_allowed_for(groups):
    """Holm's adjustment counts the questions with an interval; verdicts use adjusted values."""
    found = compare(groups)
    adjusted = [effect.p_holm for effect in found.effects]
    assert all(a >= e.p for a, e in zip(adjusted, found.effects, strict=True))
    assert max(adjusted) <= 1.0
    assert found.effect("new", "j_per_sample").p_holm > found.effect("new", "j_per_sample").p


def test_unlike_cards_leave_open_what_edges_hide(tmp_path):
    """The error from the edges of training has the same sign in all runs: 1500 of 30 000 J."""
    old = group(tmp_path / "a", 400.0, relative_error=0.0, edge_j=1500.0)
    more = {"devices": (GPU1, CPU, PROCESS), "key": "gpu1", "relative_error": 0.0}
    new = group(tmp_path / "b", 400.0, edge_j=1500.0, **more)
    share = 1500.0 * 2 / (60.0 * (400.0 * 0.99 + 100.0))
    effect = compare({"a": old, "b": new}).effect("b", "j_per_sample")
    assert effect.systematic == pytest.approx(2 * share, rel=0.01)


def test_unlike_cards_leave_open_what_their_sensors_may_differ_by(tmp_path):
    """Systematic errors of 5 % cancel on the same GPU, but not between two GPUs."""
    devices = (GPU1, RAPL_CPU, PROCESS)
    same = {
        "a": group(tmp_path / "a", 500.0, relative_error=0.05, devices=(GPU, RAPL_CPU, PROCESS)),
        "b": group(tmp_path / "b", 450.0, relative_error=0.05, devices=(GPU, RAPL_CPU, PROCESS)),
    }
    assert compare(same).effect("b", "energy_j").systematic == 0.0
    other = same | {
        "b": group(tmp_path / "c", 450.0, relative_error=0.05, devices=devices, key="gpu1")
    }
    effect = compare(other).effect("b", "energy_j")
    assert effect.systematic == pytest.approx(0.1)
    apart = 0.95 / 1.05
    exact = compare(same).effect("b", "energy_j")
    assert effect.low == pytest.approx(exact.low * apart, rel=0.01)
    assert effect.high == pytest.approx(exact.high / apart, rel=0.01)
    assert effect.low < 0.87
    assert effect.high > 1.0
    assert effect.verdict == "not resolved"
    assert compare(other).effect("b", "duration_s").systematic == 0.0


def read_by(report, method: str):
    """Returns the report with a GPU whose energy was found in another way."""
    devices = tuple(
        replace(one, energy=replace(one.energy, method=method)) if one.kind == "gpu" else one
        for one in report.devices
    )
    return replace(report, devices=devices)


def imported(report):
    """Returns the report as if it was made from a log of another program."""
    return replace(report, environment=report.environment | {"imported_from": "log.csv"})


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda report: report, 0.0),
        (lambda report: read_by(report, "counter"), 0.0),
        (lambda report: read_by(report, "power"), 1.0),
        (lambda report: read_by(report, "counter+power, power"), 1.0),
        (imported, 1.0),
    ],
)
def test_errors_cancel_only_for_counters_of_the_same_device(tmp_path, change, share):
    """Those of polled power and of imported logs stay in the interval, on the same GPU too."""
    more = {"relative_error": 0.05, "devices": (GPU, RAPL_CPU, PROCESS)}
    sides = {"a": group(tmp_path / "a", 500.0, **more), "b": group(tmp_path / "b", 450.0, **more)}
    found = compare({name: [change(one) for one in runs] for name, runs in sides.items()})
    assert found.effect("b", "gpu_energy_j").systematic == pytest.approx(0.1 * share)
    assert found.effect("b", "gpu_energy_j").verdict == ("lower" if not share else "not resolved")


def test_errors_of_estimates_stay(tmp_path):
    """A CPU of 100 of 600 W, estimated within 30 % on both sides, and a GPU with a counter."""
    sides = {name: group(tmp_path / name, 500.0, relative_error=0.3) for name in ("a", "b")}
    cpu_share = (20 * 40 + 60 * 100) / (20 * 120 + 60 * 600)
    assert compare(sides).effect("b", "energy_j").systematic == pytest.approx(
        0.6 * cpu_share, rel=0.01
    )
    assert compare(sides).effect("b", "gpu_energy_j").systematic == 0.0


def test_nothing_but_estimates_is_not_measured(tmp_path):
    """A modelled difference has no verdict, whatever its size; time is measured."""
    estimated = {"devices": (replace(GPU, origin="estimated"), CPU, PROCESS)}
    sides = {
        "a": group(tmp_path / "a", 500.0, **estimated),
        "b": group(tmp_path / "b", 250.0, **estimated),
        "c": group(tmp_path / "c", 250.0),
    }
    found = compare(sides)
    energies = ("j_per_sample", "energy_j", "gpu_energy_j", "power_w", "energy_to_target_j")
    for name in ("b", "c"):
        assert {found.effect(name, one).verdict for one in energies} == {"not measured"}
        assert found.effect(name, "duration_s").verdict == "not resolved"
        assert found.effect(name, "j_per_sample").high < 0.7
    assert "not measured (the energy that differs is estimated by models" in found.answers[0]
    assert "not measured" in str(found)


@pytest.mark.parametrize(
    ("cpu", "verdict"), [(CPU, "not measured"), (RAPL_CPU, "higher")], ids=["model", "sensor"]
)
def test_a_difference_of_the_estimated_part_is_not_measured(tmp_path, cpu, verdict):
    """The GPU takes the same; the CPU 300 W instead of 100 W."""
    more = {"relative_error": 0.01, "devices": (GPU, cpu, PROCESS)}
    sides = {
        name: [
            _run(tmp_path / f"{name}{i}", {"gpu0": 500.0 * (1.0 + noise), "cpu0": cpu_w}, **more)
            for i, noise in enumerate(NOISE)
        ]
        for name, cpu_w in (("a", 100.0), ("b", 300.0))
    }
    effect = compare(sides).effect("b", "j_per_sample")
    assert effect.verdict == verdict
    assert effect.low > 1.25
    assert effect.modelled == pytest.approx(200.0 / 600.0 if cpu is CPU else 0.0, rel=0.05)


@pytest.mark.parametrize(
    ("first_s", "apart_s", "is_flagged"),
    [(10_000.0, 1000.0, True), (-10_000.0, 1000.0, True), (2400.0, 1000.0, True),
     (500.0, 1000.0, False), (*BETWEEN.values(), False)],
)  # fmt: skip
def test_groups_made_one_after_the_other_are_flagged(
    groups, tmp_path, first_s, apart_s, is_flagged
):
    """Also if only the first and the last runs overlap; not A B A B, and not A A B B A B B A."""
    new = group(tmp_path / "new", 450.0, first_s=first_s, apart_s=apart_s)
    found = compare({"old": groups["old"], "new": new})
    assert ("not_interleaved" in codes(found, "new")) is is_flagged
    assert found.effect("new", "j_per_sample").verdict == "lower"
    assert codes(compare({"old": groups["old"][0], "new": new[0]}), "new") == set()


def test_mean_memory_stands_beside_peak_memory(groups):
    """Both are compared, of the card and of the host."""
    found = compare(groups)
    for peak, mean in (
        ("peak_memory_bytes", "mean_memory_bytes"),
        ("host_memory_bytes", "host_mean_memory_bytes"),
    ):
        assert 0.0 < found.groups[0].means[mean] < found.groups[0].means[peak]
        assert found.effect("new", mean).ratio == pytest.approx(1.0)


def codes(comparison, group_name: str) -> set[str]:
    """Returns the codes of a group's caveats."""
    return {one.code for one in comparison.caveats if one.group == group_name}


@pytest.mark.parametrize(
    "fault",
    [
        ({"cut_off_at_s": 70.0}, "unfinished", True),
        ({"coverage": 0.8}, "low_coverage", False),
        ({"devices": (replace(GPU, notes=("shared card: in use by other processes too: 77",)),
                      CPU, PROCESS)}, "shared_card", False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("where", ["old", "new"])
def test_a_fault_of_either_side_keeps_verdicts_from_being_given(groups, tmp_path, fault, where):
    """A fatal caveat forbids verdicts on whole runs, and on samples if it is about them."""
    more, code, decided = fault
    power_w, first_s = {"old": (500.0, 0.0), "new": (450.0, 10_000.0)}[where]
    faulty = group(tmp_path / "faulty", power_w, first_s=first_s, **more)
    found = compare(groups | {where: faulty})
    assert code in codes(found, where)
    assert found.effect("new", "energy_j").verdict == "not resolved"
    assert (found.effect("new", "j_per_sample").verdict == "lower") is decided
    assert code not in codes(compare(groups), where)


def warmer(report, by_c: float):
    """Returns the report with a GPU that is hotter by ``by_c``."""
    curves = [
        replace(one, temperature_c=tuple(t if t is None else t + by_c for t in one.temperature_c))
        for one in report.series
    ]
    return replace(report, series=tuple(curves))


@pytest.mark.parametrize(("by_c", "is_valid"), [(4.0, True), (14.0, False)])
def test_a_card_that_began_warm_cannot_be_compared_with_a_cold_one(groups, by_c, is_valid):
    """More than ten degrees of difference forbid a verdict."""
    found = compare(groups | {"new": [warmer(one, by_c) for one in groups["new"]]})
    assert ("unlike_temperature" in codes(found, "new")) is not is_valid
    assert (found.effect("new", "j_per_sample").verdict == "lower") is is_valid


def test_clocks_that_were_held_down_on_one_side_are_told(groups):
    """Throttling for 25 % of the time against 1 % gives a caveat."""

    def slowed(report):
        devices = tuple(replace(one, throttled_s=20.0) for one in report.devices)
        return replace(report, devices=devices)

    found = compare(groups | {"new": [slowed(one) for one in groups["new"]]})
    assert codes(found, "new") == {"throttled"}
    assert "25.0 % of the time in new" in found.caveats[0].message


def test_unlike_work_and_cards_are_told(groups, tmp_path):
    """Twice the samples on another GPU give two caveats."""
    more = group(tmp_path / "more", 450.0, **BETWEEN, samples_per_step=64,
                 devices=(replace(GPU, name="NVIDIA A100"), CPU, PROCESS))  # fmt: skip
    found = compare(groups | {"new": more})
    assert codes(found, "new") == {"unlike_work", "unlike_cards"}
    assert found.effect("new", "energy_j").verdict == "not resolved"
    assert found.effect("new", "j_per_sample").basis == "runs"
    assert codes(compare(groups), "new") == set()


def scored(reports, scores):
    """Returns the runs with other accuracies."""
    return [
        replace(
            one,
            metrics=tuple(replace(m, value=tuple(score * v for v in m.value)) for m in one.metrics),
        )
        for one, score in zip(reports, scores, strict=True)
    ]


EVEN = (1.0, 1.001, 0.999, 1.0005, 0.9995)


def test_a_metric_that_is_as_good_is_said_to_be(groups):
    """0.2 % worse is as good with a margin of 1 %, but not with 0.01 %."""
    groups["old"] = scored(groups["old"], EVEN)
    groups["new"] = scored(groups["new"], [0.998 * score for score in EVEN])
    found = compare(groups)
    assert [one.verdict for one in found.qualities] == ["as good"]
    assert "and val_accuracy is as good" in found.answers[0]
    strict = compare(groups, margin=0.0001)
    assert [one.verdict for one in strict.qualities] == ["worse"]


def test_cheaper_but_worse(groups):
    """The answer mentions both the lower energy and the worse metric."""
    groups["old"] = scored(groups["old"], EVEN)
    groups["new"] = scored(groups["new"], [0.9 * score for score in EVEN])
    found = compare(groups, target=0.4)
    assert [one.verdict for one in found.qualities] == ["worse"]
    assert found.answers[0].endswith("cheaper but worse in val_accuracy.")


def test_a_loss_is_better_when_it_is_lower(groups):
    """The target of a loss is the highest of the lowest values."""
    loss = {
        name: [
            replace(
                one,
                metrics=tuple(
                    replace(m, name="val_loss", value=tuple(2.0 - v for v in m.value))
                    for m in one.metrics
                ),
            )
            for one in scored(runs, EVEN)
        ]
        for name, runs in groups.items()
    }
    found = compare(loss)
    assert (found.metric, found.direction) == ("val_loss", "lower")
    assert found.target == pytest.approx(
        max(run.best_metric for g in found.groups for run in g.runs)
    )
    assert found.qualities[0].verdict == "as good"


def test_energy_to_the_target_is_what_had_been_used_when_it_was_first_reached(groups):
    """Accuracy 0.75 is reached at 40 s, after 20 s of idling and 20 s of training."""
    found = compare(groups, target=0.75)
    idle_j, train_j = 20.0 * 120.0, 20.0 * 600.0
    assert found.groups[0].means["energy_to_target_j"] == pytest.approx(idle_j + train_j, rel=0.005)
    assert found.groups[0].means["time_to_target_s"] == pytest.approx(40.0)


def test_runs_that_never_get_there_are_told(groups):
    """If runs miss the target, the answer is about samples."""
    found = compare(groups, target=0.99)
    assert codes(found, "old") == codes(found, "new") == {"target_not_reached"}
    assert found.effect("new", "energy_to_target_j") is None
    assert found.primary == "j_per_sample"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"metric": "val_acc"}, "no run has a metric 'val_acc'; there are: val_accuracy"),
        ({"margin": -0.1}, "margin=-0.1 must not be negative"),
        ({"goal": "max"}, "goal must be 'lower' or 'higher', got 'max'"),
        ({"metric": "val_accuracy", "goal": "min"}, "goal must be 'lower' or 'higher', got 'min'"),
        ({"target": math.nan}, "target must be a finite number, got nan"),
    ],
)
def test_wrong_settings_are_told(groups, arguments, message):
    """Errors name the problem, the value and the alternatives."""
    with pytest.raises(ValueError, match=re.escape(message)):
        compare(groups, **arguments)


def test_wrong_groups_are_told(groups):
    """Errors name the problem, the value and the alternatives."""
    with pytest.raises(ValueError, match="needs at least two groups of runs, got 1"):
        compare({"old": groups["old"]})
    with pytest.raises(ValueError, match="group 'new' has no run"):
        compare(groups | {"new": []})
    with pytest.raises(
        ValueError, match="the same number of runs in each group, got old: 5, new: 1"
    ):
        compare(groups | {"new": groups["new"][0]}, paired=True)
    with pytest.raises(ValueError, match="target=3 needs a metric"):
        compare({n: [replace(r, metrics=()) for r in g] for n, g in groups.items()}, target=3)
    with pytest.raises(JournalError, match="does not exist"):
        compare({"a": "nowhere", "b": groups["new"]})


def test_a_metric_with_a_name_that_says_nothing_needs_a_goal(groups):
    """A metric of unknown direction is not chosen by default."""
    odd = {
        name: [
            replace(r, metrics=tuple(replace(m, name="val_reward") for m in r.metrics)) for r in g
        ]
        for name, g in groups.items()
    }
    assert compare(odd).metric is None
    with pytest.raises(ValueError, match="pass goal='lower' or goal='higher'"):
        compare(odd, metric="val_reward")
    assert compare(odd, metric="val_reward", goal="higher").direction == "higher"


def long(folder: Path, power_w: float, seed: int):
    """Returns four minutes of training whose power has a spread of 2 %."""
    dice = np.random.default_rng(seed)
    stretches = [
        Stretch(
            phase="train", duration_s=8.0,
            power_w={"gpu0": power_w * math.exp(dice.normal(0.0, 0.02)), "cpu0": 100.0},
        )
        for _ in range(30)
    ]  # fmt: skip
    write(folder, Attempt(stretches=stretches, run_id=folder.name))
    return build(folder)


def test_one_run_a_side_is_judged_by_its_blocks_and_says_so(tmp_path):
    """Samples and power have blocks and thus intervals; whole runs have one value each."""
    found = compare({"a": long(tmp_path / "a", 500.0, 1), "b": long(tmp_path / "b", 450.0, 2)})
    effect = found.effect("b", "j_per_sample")
    assert (effect.basis, effect.verdict) == ("blocks", "lower")
    assert effect.low < 550.0 / 600.0 < effect.high
    assert found.effect("b", "energy_j").low is None
    assert found.effect("b", "energy_j").verdict == "not resolved"
    assert "for these two runs only" in found.answers[0]
    assert "They do not include the differences between repeated runs" in str(found)


def test_one_short_run_a_side_has_numbers_and_no_interval(tmp_path):
    """Short single runs have ratios, but no intervals and no verdicts."""
    found = compare(
        {"a": report(tmp_path / "a", 500.0), "b": report(tmp_path / "b", 450.0, run_id="b")}
    )
    assert {(effect.low, effect.verdict) for effect in found.effects} == {(None, "not resolved")}
    [axes] = plots.changes(found).axes
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(points) == len(found.effects)
    assert len(axes.lines) == len(points) + 1  # one line is at no change
    assert "one run does not show how much repeated runs differ" in found.answers[0]


def test_pairs_that_are_asked_for_are_those_given(tmp_path):
    """Requested pairs are those in the given order, whenever the runs were made."""
    watts = [400.0, 500.0, 600.0]
    old = [report(tmp_path / f"a{i}", w, run_id=f"a{i}", start_s=i) for i, w in enumerate(watts)]
    new = [
        report(tmp_path / f"b{i}", 0.95 * w - 5.0, run_id=f"b{i}", start_s=9000.0 - i)
        for i, w in enumerate(watts)
    ]
    effect = compare({"a": old, "b": new}, paired=True).effect("b", "j_per_sample")
    assert (effect.ratio, effect.verdict) == (pytest.approx(0.95), "lower")
    assert compare({"a": old, "b": new}).effect("b", "j_per_sample").verdict == "not resolved"


def test_a_run_counts_once(groups):
    """A run may be given once only."""
    with pytest.raises(ValueError, match=r"is the same run as .* of group 'old'; give each run"):
        compare(groups | {"old": [*groups["old"], groups["old"][0]]})
    with pytest.raises(ValueError, match="is the same run as"):
        compare(groups | {"third": groups["new"][:2]})


def test_less_power_is_no_answer(tmp_path):
    """Lower power for twice the time is more energy, so power is not the answer."""
    sides = {}
    for name, power_w, seconds in (("a", 500.0, 100.0), ("b", 400.0, 200.0)):
        train = Stretch(phase="train", duration_s=seconds, power_w={"gpu0": power_w, "cpu0": 100.0})
        write(tmp_path / name, Attempt(
            stretches=(train,), samples_per_step=None, tokens_per_step=7, run_id=name,
            step_s=seconds / 1000.0,
        ))  # fmt: skip
        sides[name] = build(tmp_path / name)
    found = compare(sides)
    assert found.effect("b", "power_w").verdict == "lower"
    assert found.primary == "j_per_token"
    assert "energy per token +66.7 %, not resolved" in found.answers[0]


def test_a_group_that_lacks_what_others_are_asked_for_has_an_answer_too(groups, tmp_path):
    """The third group misses the target, so all answers are about samples."""
    groups["third"] = scored(group(tmp_path / "third", 550.0, first_s=30_000.0), [0.5] * 5)
    found = compare(groups, target=0.9)
    assert found.primary == "j_per_sample"
    assert found.answers[1].startswith("third has a higher energy per sample than old")


def test_a_run_that_crashed_sets_no_target(groups, tmp_path):
    """A crashed run does not set the target, and its group has no verdict on quality."""
    bad = report(tmp_path / "bad", 450.0, start_s=19_000.0, run_id="bad", cut_off_at_s=35.0)
    groups["new"] = [*groups["new"][:4], bad]
    found = compare(groups)
    assert found.target == pytest.approx(1.0 - 0.5**6, abs=1e-4)
    assert {"unfinished", "target_not_reached"} <= codes(found, "new")
    assert [one.verdict for one in found.qualities] == ["not resolved"]


def test_caveats_of_one_run_are_in_the_singular(groups, tmp_path):
    """A group of one run, and one of several of which one is affected."""
    bad = report(tmp_path / "bad", 450.0, run_id="bad", cut_off_at_s=35.0)
    found = compare({"old": groups["old"], "new": [bad]}, metric="val_accuracy", target=0.999)
    told = {one.code: one.message for one in found.caveats if one.group == "new"}
    assert told["unfinished"].startswith(
        "The run of new did not finish (cut off): its energy and time are not those of a whole run"
    )
    assert told["target_not_reached"] == (
        "The run of new never reached val_accuracy 0.999: its energy and time to the target are "
        "not known."
    )
    assert re.fullmatch(
        r"A run of old executed [\d ]+ samples, and a run of new [\d ]+: the energies and times .*",
        told["unlike_work"],
    )
    several = compare({"old": groups["old"], "new": [*groups["new"][:2], bad]})
    told = {one.code: one.message for one in several.caveats if one.group == "new"}
    assert told["unfinished"].startswith("1 of 3 runs of new did not finish (cut off): its energy")


def test_a_row_that_one_run_does_not_know_is_missed_in_words(groups):
    """If one of five runs lacks samples, steps are compared and a caveat says why."""
    whole = groups["new"][0].efficiency
    lacking = replace(
        groups["new"][0],
        efficiency=replace(whole, total=replace(whole.total, j_per_sample=None)),
    )
    found = compare(groups | {"new": [lacking, *groups["new"][1:]]})
    assert found.effect("new", "j_per_sample") is None
    assert found.effect("new", "j_per_step").verdict == "lower"
    assert (
        "In 1 of 5 runs of new, this quantity is not known: energy per sample."
        in found.caveats[0].message
    )


def test_a_shared_card_says_nothing_of_memory_either(groups, tmp_path):
    """Memory of a shared GPU includes other programs, so it has no verdict either."""
    devices = (replace(GPU, notes=("shared card: in use by other processes too: 77",)), CPU)
    shared = group(tmp_path / "s", 450.0, first_s=10_000.0, devices=devices, memory_grows=9.0)
    found = compare(groups | {"new": shared})
    assert found.effect("new", "peak_memory_bytes").ratio > 1.1
    assert found.effect("new", "peak_memory_bytes").verdict == "not resolved"


def test_the_note_counts_the_questions_that_were_asked(tmp_path):
    """For single runs the note counts only samples and power, which have intervals."""
    found = compare({"a": long(tmp_path / "a", 500.0, 1), "b": long(tmp_path / "b", 450.0, 2)})
    asked = sum(effect.p is not None for effect in found.effects)
    assert asked == 2
    assert "verdicts are corrected for the 2 comparisons made at once" in str(found)


def test_three_groups_are_each_against_the_first(groups, tmp_path):
    """Each group but the first has an answer."""
    groups["third"] = group(tmp_path / "third", 550.0, first_s=20_000.0)
    found = compare(groups)
    assert found.effect("new", "j_per_sample").verdict == "lower"
    assert found.effect("third", "j_per_sample").verdict == "higher"
    assert len(found.answers) == 2


def test_json_gives_it_back(groups):
    """Reading the JSON returns an equal comparison."""
    found = compare(groups)
    assert model.from_json(model.to_json(found)) == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.update(schema_version=99), "schema version 99"),
        (lambda d: d.update(format="x"), "not a comparison"),
        (lambda d: d.update(groups=3), "damaged: groups"),
    ],
)
def test_json_of_something_else_is_refused(groups, change, message):
    """The error says what is wrong."""
    value = json.loads(model.to_json(compare(groups)))
    change(value)
    with pytest.raises(JournalError, match=message):
        model.from_json(json.dumps(value))


@pytest.mark.parametrize("text", ["{", "[" * 100_000, "9" * 5000], ids=("cut", "deep", "long"))
def test_text_that_is_no_json_is_no_comparison(text):
    """Nor is JSON that Python cannot read."""
    with pytest.raises(JournalError, match="not a comparison"):
        model.from_json(text)


@pytest.fixture(scope="module")
def saved(built, tmp_path_factory):
    """The files of a comparison with all charts."""
    return compare(built).save(tmp_path_factory.mktemp("saved"))


def test_files(saved):
    """Page, JSON, markdown and all pictures have these names."""
    names = {path.name for path in saved}
    assert names == {
        "comparison.html", "comparison.json", "comparison.md", "changes.png",
        "metric_by_energy.png", "energy_by_step.png", "power_timeline.png",
        "gpu_memory_timeline.png", "training_memory_comparison.png",
    }  # fmt: skip
    for path in saved:
        assert path.stat().st_size > 500


@pytest.mark.charts
def test_charts_of_what_is_not_known_are_left_out(groups):
    """Charts without data are not written."""
    bare = {
        name: [replace(r, metrics=(), series=(), progress=None) for r in g]
        for name, g in groups.items()
    }
    drawn = [name for name, _ in plots.pictures(compare(bare))]
    assert drawn == ["changes.png", "training_memory_comparison.png"]


@pytest.mark.parametrize(("without", "bars"), [(("new",), 1), (("old", "new"), None)])
def test_memory_that_is_not_known_has_no_bar(groups, without, bars):
    """A group without memory has no bar; without any memory there is no chart."""
    found = compare(groups)
    known = [
        one if one.name not in without
        else replace(one, runs=[replace(run, values={}) for run in one.runs])
        for one in found.groups
    ]  # fmt: skip
    figure = plots.memory_bars(replace(found, groups=known))
    assert (figure and len(figure.axes[0].patches)) == bars


HOSTILE = "<script>alert(1)</script>|`*\n\u202ex\x1b[31m"


def hostile(groups):
    """The runs with hostile names."""
    return {
        f"{HOSTILE}{i}": [
            replace(r, run=replace(r.run, name=HOSTILE, run_id=HOSTILE)) for r in runs
        ]
        for i, runs in enumerate(groups.values())
    }


@pytest.fixture(scope="module")
def hostile_comparison(built):
    """The comparison of groups with hostile names."""
    return compare(hostile(built))


@pytest.fixture(scope="module")
def hostile_page(hostile_comparison):
    """The page of that comparison with all charts."""
    return page.render(hostile_comparison)


def test_hostile_names_are_only_names(hostile_comparison, hostile_page):
    """Hostile names are escaped in page, text and table."""
    found = hostile_comparison
    assert "<script>alert" not in hostile_page
    assert "\x1b" not in text.render(found)
    assert "<script" not in text.markdown(found)
    table = [line for line in text.markdown(found).splitlines() if line.startswith("|")]
    columns = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
    assert columns == {7}


@pytest.mark.browser
@pytest.mark.parametrize("which", ["plain", "hostile"])
def test_a_browser_shows_the_page(saved, hostile_page, tmp_path, browser, which):
    """No messages or requests, and nothing is wider than the window, in light and dark mode."""
    [file] = [path for path in saved if path.suffix == ".html"]
    if which == "hostile":
        file = tmp_path / "comparison.html"
        file.write_text(hostile_page, encoding="utf-8")
    for scheme, width in (("light", 1200), ("dark", 380)):
        viewport = {"width": width, "height": 900}
        with browser.new_context(color_scheme=scheme, viewport=viewport) as context:
            _look(context.new_page(), file, width)


def _look(tab, file: Path, width: int) -> None:
    noise: list[str] = []
    tab.on("console", lambda message: noise.append(message.text))
    tab.on("pageerror", lambda error: noise.append(str(error)))
    tab.on("dialog", lambda dialog: noise.append(dialog.message))
    requests: list[str] = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(file.as_uri())
    assert "lower energy to the target" in tab.locator(".advice").inner_text()
    assert tab.locator(".wide svg" if width > 560 else ".narrow svg").first.is_visible()
    assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert noise == []
    assert requests == [file.as_uri()]


def test_a_total_of_the_machine_is_not_compared_with_a_sum_of_parts(groups):
    """The GPUs still are."""
    assert "unlike_total" not in codes(compare(groups), "new")
    groups["new"] = [with_machine(one) for one in groups["new"]]
    found = compare(groups)
    assert "unlike_total" in codes(found, "new")
    assert found.effect("new", "j_per_sample").verdict == "not resolved"
    assert found.effect("new", "gpu_energy_j").verdict == "lower"


def with_machine(report):
    """A report to which a sensor of the whole machine was added."""
    device = replace(report.devices[0], key="machine", kind="machine", scope="machine", uuid=None)
    return replace(report, devices=(device, *report.devices))


def test_a_list_of_runs_is_refused():
    """The message has the form that is needed."""
    with pytest.raises(TypeError, match=r"compare takes a dictionary, got .* write compare"):
        compare(["runs/old", "runs/new"])


def test_an_answer_about_gpus_keeps_their_name(groups):
    """If only the energy of GPUs is known, the answer is about it."""
    unknown = Figure(energy_j=None)
    none = Efficiency(j_per_step=None, j_per_sample=None, j_per_token=None)
    only_gpu = {
        name: [
            replace(
                one,
                energy=replace(one.energy, total=unknown, host=unknown),
                efficiency=Efficiencies(gpu=none, total=none),
                metrics=(),
            )
            for one in reports
        ]
        for name, reports in groups.items()
    }
    found = compare(only_gpu)
    assert found.primary == "gpu_energy_j"
    assert "GPU energy of the run" in found.answers[0]
    first, *others = only_gpu["new"]
    only_gpu["new"] = [replace(first, energy=replace(first.energy, gpu=unknown)), *others]
    messages = [one.message for one in compare(only_gpu).caveats]
    assert (
        "In 1 of 5 runs of new, this quantity is not known: GPU energy of the run. It is left out."
    ) in messages
