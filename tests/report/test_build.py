"""Reports of journals with energies that are known in closed form."""

import json
import math
from dataclasses import replace

import pytest

from energy_callbacks.accounting.journal.journal import (
    COLUMNS,
    JournalWriter,
    device_record,
    path_for,
    row_as_json,
)
from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Device
from energy_callbacks.core.units import kilowatt_hours
from energy_callbacks.report.build import build
from energy_callbacks.report.model.schema import EnergyReport, from_json, to_json
from energy_callbacks.report.render.text import render
from tests.report.journals import (
    CPU,
    GERMANY,
    GPU,
    GPU1,
    IDLE,
    PROCESS,
    TRAIN,
    Attempt,
    Stretch,
    Window,
    write,
)

# 20 s at 80 W and 60 s at 500 W; 20 s at 40 W and 60 s at 100 W.
GPU_J, HOST_J = 31_600.0, 6_800.0
LATER_S = 1_790_000_000.0 + 3600.0


def _codes(report: EnergyReport) -> set[str]:
    return {warning.code for warning in report.warnings}


def _phase(report: EnergyReport, name: str):
    return next(phase for phase in report.phases if phase.name == name)


def _assert_phases_sum_to_totals(report: EnergyReport) -> None:
    for scope in ("gpu", "host", "total"):
        whole_j = getattr(report.energy, scope).energy_j
        in_phases = [getattr(phase, scope).energy_j for phase in report.phases]
        if whole_j is None:
            assert set(in_phases) == {None}
        else:
            known = math.fsum(energy_j for energy_j in in_phases if energy_j is not None)
            assert known == pytest.approx(whole_j, rel=1e-9)


def _assert_durations_sum(report: EnergyReport) -> None:
    total_s = math.fsum(phase.duration_s for phase in report.phases)
    assert total_s == pytest.approx(report.run.duration_s, rel=1e-9)


def test_the_totals_are_watts_times_seconds(report):
    """gpu, host and total are the joules on paper; total is their sum."""
    assert report.energy.gpu.energy_j == pytest.approx(GPU_J)
    assert report.energy.host.energy_j == pytest.approx(HOST_J)
    assert report.energy.total.energy_j == pytest.approx(GPU_J + HOST_J)


def test_a_folder_may_be_a_string(tmp_path):
    """As everywhere else in Python, and in ``load``."""
    write(tmp_path, Attempt())
    assert build(str(tmp_path)) == build(tmp_path) == build([str(tmp_path)])


def test_errors_add_as_the_records_say(report):
    """Two random errors of 1 J make sqrt(2) J; 1 % of each device adds linearly."""
    assert report.energy.total.stderr_j == pytest.approx(math.sqrt(2.0))
    assert report.energy.total.systematic_j == pytest.approx(0.01 * (GPU_J + HOST_J))


def test_origin_and_measured_fraction_tell_sensors_from_models(report):
    """The GPU is measured, the CPU estimated, both together mixed."""
    energy = report.energy
    assert (energy.gpu.origin, energy.host.origin, energy.total.origin) == (
        "measured",
        "estimated",
        "mixed",
    )
    assert report.measured_fraction == pytest.approx(GPU_J / (GPU_J + HOST_J))


def test_a_window_takes_its_energy_and_time_out_of_its_phase(report):
    """A validation of 1500 J inside 30000 J of training leaves 28500 J; 5 of 60 s likewise."""
    train, validation = _phase(report, "train"), _phase(report, "validation")
    assert (train.gpu.energy_j, train.duration_s) == pytest.approx((28_500.0, 55.0))
    assert (validation.gpu.energy_j, validation.duration_s) == pytest.approx((1_500.0, 5.0))
    assert validation.share == pytest.approx(1_900.0 / (GPU_J + HOST_J))
    _assert_phases_sum_to_totals(report)
    _assert_durations_sum(report)


def test_a_window_across_two_phases_is_shared_by_time(tmp_path):
    """5 s in idle and 15 s in train: a quarter of its 4000 J comes out of idle."""
    window = Window(name="probe", start_s=15.0, end_s=35.0, energy_j={"gpu0": 4000.0})
    write(tmp_path, Attempt(windows=(window,), devices=(GPU,)))
    report = build(tmp_path)
    assert _phase(report, "idle").gpu.energy_j == pytest.approx(1_600.0 - 1_000.0)
    assert _phase(report, "train").gpu.energy_j == pytest.approx(30_000.0 - 3_000.0)
    assert _phase(report, "probe").gpu.energy_j == pytest.approx(4_000.0)
    _assert_phases_sum_to_totals(report)


def test_a_window_never_takes_more_than_there_is(tmp_path):
    """A window that claims more joules than its phase had leaves zero, and sums still hold."""
    window = Window(name="greedy", start_s=0.0, end_s=20.0, energy_j={"gpu0": 1e6})
    write(tmp_path, Attempt(windows=(window,), devices=(GPU,)))
    report = build(tmp_path)
    assert _phase(report, "greedy").gpu.energy_j == pytest.approx(1_600.0)
    _assert_phases_sum_to_totals(report)


def test_joules_per_unit_are_training_energy_over_work(report):
    """28500 J of training over 600 steps of 32 samples, with the interval around it."""
    per_sample = report.efficiency.gpu.j_per_sample
    assert report.efficiency.gpu.j_per_step.value_j == pytest.approx(28_500.0 / 600.0)
    assert per_sample.value_j == pytest.approx(28_500.0 / 19_200.0)
    error_j = math.hypot(1.96 * math.sqrt(2.0), 0.01 * 28_500.0)
    assert per_sample.high_j - per_sample.value_j == pytest.approx(error_j / 19_200.0)
    assert per_sample.value_j - per_sample.low_j == pytest.approx(error_j / 19_200.0)
    assert report.efficiency.gpu.j_per_token is None


def test_work_that_nobody_counted_is_unknown(tmp_path):
    """Without samples there is no J/sample and no samples/s, but still J/step."""
    write(tmp_path, Attempt(samples_per_step=None, tokens_per_step=2048))
    report = build(tmp_path)
    assert report.throughput.samples is None
    assert report.throughput.samples_per_s is None
    assert report.efficiency.gpu.j_per_sample is None
    assert report.efficiency.gpu.j_per_step is not None
    assert report.throughput.tokens == 600 * 2048


def test_throughput_is_work_over_training_time(report):
    """19200 samples in 55 s, 6 s of them waiting."""
    done = report.throughput
    assert (done.steps, done.samples, done.train_s) == (600, 19_200, pytest.approx(55.0))
    assert done.samples_per_s == pytest.approx(19_200 / 55.0)
    assert done.data_wait_fraction == pytest.approx(6.0 / 55.0)


def test_memory_is_the_highest_and_the_mean_of_its_rows(report):
    """Peaks at the last row; the mean of a straight line is its middle."""
    memory = report.memory
    assert memory.device_used_peak_bytes == pytest.approx(40e9 + 80e8)
    assert memory.host_rss_peak_bytes == pytest.approx(2e9 + 80e7)
    assert memory.host_rss_mean_bytes == pytest.approx(2e9 + 1e7 * 40.25)
    assert memory.peak_allocated_bytes == 30e9


def test_a_device_tells_its_power_heat_and_throttling(report):
    """Mean 395 W over 80 s, peak 500 W, and the growth of the throttling counter, not its value."""
    gpu = report.devices[0]
    assert gpu.key == "gpu0"
    assert (gpu.mean_power_w, gpu.peak_power_w) == pytest.approx((GPU_J / 80.0, 500.0))
    assert gpu.temperature_max_c == pytest.approx(58.0)
    assert gpu.throttled_s == pytest.approx(0.01 * 79.5)
    assert gpu.utilisation_mean == pytest.approx(0.75)
    assert gpu.memory_utilisation_mean == pytest.approx(0.3)
    assert gpu.sensors[0].name == "nvmlDeviceGetSamples"


def test_the_curve_has_exactly_the_energy_of_the_device(report):
    """Bins of a curve: seconds seen times watts is the energy of the run."""
    curve = next(series for series in report.series if series.key == "gpu0")
    area_j = math.fsum(w * s for w, s in zip(curve.power_w, curve.seen_s, strict=True))
    assert area_j == pytest.approx(GPU_J, rel=1e-6)


def test_a_long_curve_is_decimated_and_keeps_energy_and_means(tmp_path):
    """6000 rows become at most 2000 points, with the same joules."""
    long = replace(TRAIN, duration_s=3000.0)
    write(tmp_path, Attempt(devices=(GPU,), stretches=(long,)))
    (curve,) = build(tmp_path).series
    area_j = math.fsum(w * s for w, s in zip(curve.power_w, curve.seen_s, strict=True))
    assert 1000 < len(curve.t_s) <= 2000
    assert area_j == pytest.approx(3000.0 * 500.0, rel=1e-6)
    assert set(curve.power_w) == {500.0}
    assert set(curve.utilisation) == {0.75}
    # The card gets a degree hotter each 10 s, and is throttled for 1 % of the time.
    assert curve.temperature_c[-1] == 350.0
    throttled_s = [one for one in curve.throttled_s if one is not None]
    assert math.fsum(throttled_s) == pytest.approx(0.01 * 3000.0, rel=1e-3)


def test_a_cut_off_run_keeps_the_open_phase(tmp_path):
    """Killed 30 s into training: 1600 J idle, 15000 J train, and the report says so."""
    write(tmp_path, Attempt(cut_off_at_s=50.0))
    report = build(tmp_path, now_unix_s=LATER_S)
    assert report.run.status == "cut off"
    assert "cut_off" in _codes(report)
    assert _phase(report, "idle").gpu.energy_j == pytest.approx(1_600.0)
    assert _phase(report, "train").gpu.energy_j == pytest.approx(15_000.0)
    assert report.energy.gpu.energy_j == pytest.approx(16_600.0)
    # 1 % of the whole, although only the idle span states its error.
    assert report.energy.gpu.systematic_j == pytest.approx(166.0)
    assert report.measuring.sampler_cpu_s is None
    _assert_phases_sum_to_totals(report)
    _assert_durations_sum(report)


def test_a_run_cut_off_in_its_first_phase_is_not_lost(tmp_path):
    """No span is closed: the rows' energy is the open phase's, with its sensor's error."""
    write(tmp_path, Attempt(cut_off_at_s=10.0))
    report = build(tmp_path, now_unix_s=LATER_S)
    assert _phase(report, "idle").gpu.energy_j == pytest.approx(800.0)
    assert report.energy.gpu.systematic_j == pytest.approx(0.01 * 800.0)


def test_a_journal_that_was_just_written_is_running(tmp_path):
    """Two seconds after its last line a run without an end still runs; ten seconds after not."""
    write(tmp_path, Attempt(cut_off_at_s=50.0))
    end_unix_s = Attempt().unix_s + 50.0
    assert build(tmp_path, now_unix_s=end_unix_s + 2.0).run.status == "running"
    assert build(tmp_path, now_unix_s=end_unix_s + 10.0).run.status == "cut off"


def test_attempts_add_up_without_the_pause_between_them(tmp_path):
    """Cut off at 50 s, an hour of nothing, 80 s more: 130 s and both energies."""
    first = Attempt(cut_off_at_s=50.0)
    write(tmp_path, first)
    write(tmp_path, replace(first, attempt=2, cut_off_at_s=None, unix_s=first.unix_s + 3600.0))
    report = build(tmp_path, now_unix_s=LATER_S * 2)
    assert report.run.duration_s == pytest.approx(130.0)
    assert report.run.status == "finished"
    assert report.energy.gpu.energy_j == pytest.approx(16_600.0 + GPU_J)
    assert [one.status for one in report.attempts] == ["cut off", "finished"]
    assert [one.offset_s for one in report.attempts] == [0.0, 50.0]
    assert max(report.series[0].t_s) == pytest.approx(130.0)
    attempts_j = math.fsum(one.energy.energy_j for one in report.attempts)
    assert attempts_j == pytest.approx(report.energy.total.energy_j)
    _assert_phases_sum_to_totals(report)


def test_a_replayed_step_is_counted_once(tmp_path):
    """300 steps, then 600 that begin at step 250: 850 steps, 50 of them done twice."""
    first = Attempt(cut_off_at_s=50.0, devices=(GPU,))
    write(tmp_path, first)
    write(
        tmp_path,
        replace(
            first, attempt=2, cut_off_at_s=None, unix_s=first.unix_s + 100.0, resumed_at_step=250
        ),
    )
    report = build(tmp_path, now_unix_s=LATER_S)
    assert (report.throughput.steps, report.throughput.replayed_steps) == (850, 50)
    assert "replayed_steps" in _codes(report)
    assert report.efficiency.gpu.j_per_step.value_j == pytest.approx(45_000.0 / 900.0)


def test_steps_that_a_resume_did_not_reach_again_are_not_repeated(tmp_path):
    """600 steps, then twice 300 that begin at step 100: 600 of the 1,200 steps are repetitions."""
    for number in range(3):
        attempt = Attempt(attempt=number + 1, unix_s=Attempt().unix_s + 100.0 * number)
        resumed = replace(attempt, cut_off_at_s=50.0, resumed_at_step=100)
        write(tmp_path, resumed if number else attempt)
    throughput = build(tmp_path, now_unix_s=LATER_S).throughput
    assert (throughput.steps, throughput.replayed_steps) == (600, 600)


def test_a_card_that_two_ranks_wrote_is_counted_once(tmp_path):
    """Both ranks see gpu0; rank 1 knows it by another key; its joules count once."""
    base = Attempt(world_size=2, devices=(GPU, CPU, PROCESS))
    write(tmp_path, base)
    same_card = replace(GPU, key="gpu7")
    stretches = tuple(
        replace(stretch, power_w={"gpu7": stretch.power_w["gpu0"]}) for stretch in base.stretches
    )
    write(tmp_path, replace(base, rank=1, devices=(same_card, PROCESS), stretches=stretches))
    report = build(tmp_path)
    assert report.energy.gpu.energy_j == pytest.approx(GPU_J)
    assert report.energy.host.energy_j == pytest.approx(HOST_J)
    assert [device.key for device in report.devices if device.scope == "gpu"] == ["gpu0"]
    assert [one.energy.energy_j for one in report.attempts] == [pytest.approx(GPU_J + HOST_J), None]


def test_cards_with_one_key_on_two_hosts_are_two_cards(tmp_path):
    """gpu0 of node1 and gpu0 of node2 have UUIDs of their own and add up."""
    write(tmp_path, Attempt(devices=(GPU,)))
    other = replace(GPU, uuid="GPU-cccc")
    write(tmp_path, Attempt(host="node2", rank=1, devices=(other,)))
    assert build(tmp_path).energy.gpu.energy_j == pytest.approx(2.0 * GPU_J)


def test_samples_of_all_ranks_add_and_steps_do_not(tmp_path):
    """Two ranks take the same 600 steps with 32 samples each."""
    base = Attempt(world_size=2, devices=(GPU,))
    write(tmp_path, base)
    other = tuple(replace(s, power_w={"gpu1": 100.0}) for s in base.stretches)
    write(tmp_path, replace(base, rank=1, devices=(GPU1,), stretches=other))
    report = build(tmp_path)
    assert (report.throughput.steps, report.throughput.samples) == (600, 2 * 19_200)
    assert report.energy.gpu.energy_j == pytest.approx(GPU_J + 8_000.0)
    _assert_phases_sum_to_totals(report)


def test_a_device_inside_another_is_listed_and_not_added(tmp_path):
    """A card inside a module that is there: the module's joules only."""
    module = Device(key="module0", kind="gpu", scope="gpu", name="Grace Hopper module")
    card = replace(GPU, parent="module0")
    stretch = replace(TRAIN, power_w={"gpu0": 400.0, "module0": 600.0})
    write(tmp_path, Attempt(devices=(module, card), stretches=(stretch,)))
    report = build(tmp_path)
    assert report.energy.gpu.energy_j == pytest.approx(60.0 * 600.0)
    inner = next(device for device in report.devices if device.key == "gpu0")
    assert (inner.counted_in, inner.energy.energy_j) == ("module0", pytest.approx(24_000.0))


def test_a_parent_without_energy_does_not_swallow_its_child(tmp_path):
    """The module's sensor failed: the card inside it counts itself."""
    module = Device(key="module0", kind="gpu", scope="gpu", name="Grace Hopper module")
    stretch = replace(TRAIN, power_w={"gpu0": 400.0})
    devices = (module, replace(GPU, parent="module0"))
    write(tmp_path, Attempt(devices=devices, stretches=(stretch,)))
    report = build(tmp_path)
    assert report.energy.gpu.energy_j == pytest.approx(24_000.0)
    assert "energy_unknown" in _codes(report)


def test_without_a_gpu_the_gpu_is_unknown_and_not_zero(tmp_path):
    """A laptop: gpu is None, total is the host."""
    write(tmp_path, Attempt(devices=(CPU, PROCESS)))
    report = build(tmp_path)
    assert report.energy.gpu.energy_j is None
    assert report.energy.gpu.origin is None
    assert report.energy.total.energy_j == pytest.approx(HOST_J)
    assert report.efficiency.gpu.j_per_step is None
    assert report.efficiency.total.j_per_step is not None
    assert report.memory.device_used_peak_bytes is None


def test_without_any_device_everything_is_unknown_and_says_so(tmp_path):
    """No sensor at all: no energy, no emissions, one grave warning, steps still counted."""
    write(tmp_path, Attempt(devices=()))
    report = build(tmp_path)
    assert report.energy.total.energy_j is None
    assert report.emissions is None
    assert "nothing_measured" in _codes(report)
    assert report.throughput.steps == 600
    _assert_phases_sum_to_totals(report)


def test_the_newest_run_of_a_folder_wins_and_the_others_are_named(tmp_path):
    """Two older runs in the folder are left out, and a warning says how many."""
    base = Attempt()
    for number, run_id in enumerate(("old-1", "old-2", "new")):
        unix_s = base.unix_s + 1000.0 * number
        write(tmp_path, replace(base, run_id=run_id, attempt=number + 1, unix_s=unix_s))
    report = build(tmp_path)
    assert report.run.run_id == "new"
    assert report.energy.gpu.energy_j == pytest.approx(GPU_J)
    warning = next(one for one in report.warnings if one.code == "other_runs")
    assert "2 older runs" in warning.message


def test_emissions_are_energy_times_intensity_times_pue(tmp_path):
    """Germany's grid and a PUE of 1.5, within an interval around it."""
    write(tmp_path, Attempt(config={"place": GERMANY, "pue": 1.5}))
    found = build(tmp_path).emissions
    assert found.place == "Germany"
    assert found.kg == pytest.approx(
        kilowatt_hours(GPU_J + HOST_J) * 1.5 * found.kg_per_kwh, rel=1e-12
    )
    # Between the cleanest and the dirtiest grid there is, in kg for each kWh.
    assert 0.2 < found.kg_per_kwh < 0.6
    assert found.low_kg < found.kg < found.high_kg


def test_an_unknown_place_gives_an_interval_and_says_so(tmp_path):
    """No place: no best value, an interval, a warning with the fix."""
    write(tmp_path, Attempt())
    report = build(tmp_path)
    assert report.emissions.kg is None
    assert 0.0 < report.emissions.low_kg < report.emissions.high_kg
    warning = next(one for one in report.warnings if one.code == "place_unknown")
    assert "country=" in warning.fix


def test_cost_is_energy_times_pue_times_price(tmp_path):
    """A price of 0.30 for each kWh at a PUE of 1.5; without a price there is no cost."""
    write(tmp_path, Attempt(config={"price_per_kwh": 0.3, "pue": 1.5}))
    expected = (GPU_J + HOST_J) / 3.6e6 * 1.5 * 0.3
    assert build(tmp_path).cost.amount == pytest.approx(expected)
    write(tmp_path / "other", Attempt())
    assert build(tmp_path / "other").cost is None


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"coverage": 0.9}, "low_coverage"),
        ({"unavailable": (("NVIDIA GPU", "no driver", "install it"),)}, "sensor_unavailable"),
        ({"missed": {"NVML GPU-a": 3}}, "missed_readings"),
        ({"warnings": (("source_hangs", "NVML hangs"),)}, "source_hangs"),
        ({"stretches": (replace(TRAIN, duration_s=3.0),)}, "short_run"),
        ({}, "host_estimated"),
    ],
)
def test_each_fault_has_its_warning(tmp_path, changes, code):
    """The run with the fault is warned of it, and only that run."""
    write(tmp_path / "with", replace(Attempt(), **changes))
    write(tmp_path / "without", Attempt(devices=(GPU,)))
    assert code in _codes(build(tmp_path / "with"))
    assert code not in _codes(build(tmp_path / "without"))


def test_a_sensor_without_a_fix_is_listed_and_no_warning(tmp_path):
    """A laptop without a GPU is no fault of anybody."""
    write(tmp_path, Attempt(unavailable=(("NVML", "no NVIDIA driver", ""),)))
    report = build(tmp_path)
    assert "sensor_unavailable" not in _codes(report)
    assert report.unavailable[0].reason == "no NVIDIA driver"


def test_a_failed_run_tells_its_error(tmp_path):
    """Status and exception of the newest attempt are those of the run."""
    write(tmp_path, Attempt(status="failed", error="RuntimeError: CUDA out of memory"))
    run = build(tmp_path).run
    assert (run.status, run.error) == ("failed", "RuntimeError: CUDA out of memory")


def test_a_journal_alone_is_a_report_too(run_folder, report):
    """The path of the only journal gives the same report as its folder."""
    (path,) = run_folder.glob("attempts/*/*.jsonl")
    assert build(path) == report
    assert build([path, run_folder]) == report


def test_a_damaged_journal_beside_a_good_one_is_named(run_folder):
    """An empty journal of another rank is left out with a warning, not a crash."""
    (run_folder / "attempts" / "1" / "node1-1.jsonl").write_text("")
    report = build(run_folder)
    assert "journal_unreadable" in _codes(report)
    assert report.energy.gpu.energy_j == pytest.approx(GPU_J)


def test_a_last_line_cut_in_half_is_left_out(run_folder):
    """Killed in the middle of the totals: the run reads as cut off, its energy is there."""
    (path,) = run_folder.glob("attempts/*/*.jsonl")
    text = path.read_text()
    path.write_text(text[: text.rindex('"totals"') + 30])
    report = build(run_folder, now_unix_s=LATER_S)
    assert report.run.status == "cut off"
    assert report.energy.gpu.energy_j == pytest.approx(GPU_J)


@pytest.mark.parametrize("name", ["nowhere", "empty"])
def test_a_folder_without_a_run_says_what_to_give(tmp_path, name):
    """A path that is no run is a JournalError with the next step."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(JournalError, match=r"give (a|the) run folder"):
        build(tmp_path / name)


def test_one_gpu_of_two_that_is_unknown_lowers_the_coverage(tmp_path):
    """gpu1 was opened and never read: the gpu figure says that half is missing."""
    write(tmp_path, Attempt(devices=(GPU, GPU1)))
    report = build(tmp_path)
    assert report.energy.gpu.energy_j == pytest.approx(GPU_J)
    assert report.energy.gpu.coverage == pytest.approx(0.5)
    assert "energy_unknown" in _codes(report)


def test_a_report_does_not_depend_on_when_it_is_made(run_folder, report):
    """A finished run gives the same report a year later."""
    assert build(run_folder, now_unix_s=LATER_S + 3.15e7) == report


def test_phases_that_do_not_train_have_no_efficiency(tmp_path):
    """An evaluation alone has energy and no joules per step."""
    write(tmp_path, Attempt(stretches=(IDLE, replace(TRAIN, phase="test")), windows=()))
    report = build(tmp_path)
    assert report.efficiency.gpu.j_per_step is None
    assert report.throughput.steps == 0


def test_many_validations_still_sum(tmp_path):
    """A thousand short validations leave phases that sum to the totals."""
    windows = tuple(
        Window(name="validation", start_s=s, end_s=s + 0.02, energy_j={"gpu0": 10.0, "cpu0": 2.0})
        for s in (20.0 + 0.05 * number for number in range(1000))
    )
    stretches: tuple[Stretch, ...] = (IDLE, TRAIN)
    write(tmp_path, Attempt(windows=windows, stretches=stretches))
    report = build(tmp_path)
    assert _phase(report, "validation").total.energy_j == pytest.approx(12_000.0)
    _assert_phases_sum_to_totals(report)
    _assert_durations_sum(report)
    assert len(report.timeline) <= 2000


def test_a_slow_sensor_makes_no_spikes(tmp_path):
    """A sensor with a value each second and a row each half: every other row has no news."""
    write(tmp_path, Attempt(devices=()))
    (path,) = tmp_path.glob("attempts/*/*.jsonl")
    lines = [line for line in path.read_text().splitlines() if '"type":"totals"' not in line]
    path.write_text("\n".join(lines) + "\n")
    writer = JournalWriter(path_for(tmp_path, 1, "node1", 0))
    writer.write(device_record(GPU, []))
    for half in range(2, 160):
        seen_j = 100.0 * (half // 2)
        row = {"energy_j": seen_j, "power_w": 100.0 if half % 2 == 0 else None}
        writer.write({"type": "series", "t_s": half / 2.0, "devices": {"gpu0": row}})
    writer.close()
    (curve,) = build(tmp_path, now_unix_s=LATER_S).series
    assert set(curve.power_w) == {100.0}


def _without(path, keep) -> None:
    """Leave only the lines of a journal for which ``keep(record)`` holds."""
    lines = [line for line in path.read_text().splitlines() if keep(json.loads(line))]
    path.write_text("\n".join(lines) + "\n")


def test_a_span_that_is_newer_than_the_last_row_counts_whole(tmp_path):
    """Killed between the line of a phase and the next row: the phase's 1600 J stand."""
    path = write(tmp_path, Attempt(cut_off_at_s=20.0, devices=(GPU,)))
    _without(path, lambda record: record["type"] != "series" or record["t_s"] <= 19.0)
    report = build(tmp_path, now_unix_s=LATER_S)
    assert report.energy.gpu.energy_j == pytest.approx(1_600.0)
    assert _phase(report, "idle").gpu.energy_j == pytest.approx(1_600.0)


def test_a_device_without_gauges_has_no_curves_of_them(report):
    """A processor says neither load nor temperature: empty, not a list of nothing."""
    cpu = next(curve for curve in report.series if curve.key == "cpu0")
    assert (cpu.utilisation, cpu.temperature_c, cpu.throttled_s) == ((), (), ())


def test_a_gauge_in_a_bin_is_the_mean_of_its_rows(tmp_path):
    """Half of the rows busy, half idle: wide bins are half busy."""
    path = write(tmp_path, Attempt(devices=(GPU,), stretches=(replace(TRAIN, duration_s=3000.0),)))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    series = [row for row in rows if row["type"] == "series"]
    for number, row in enumerate(series):
        row["devices"]["gpu0"]["utilisation"] = float(number % 2)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    (curve,) = build(tmp_path).series
    means = [value for value in curve.utilisation if value is not None]
    assert sum(means) / len(means) == pytest.approx(0.5, abs=0.01)
    assert 0.3 < min(means) <= max(means) < 0.7


def test_a_gap_of_a_sensor_is_a_hole_in_the_curve(tmp_path):
    """A sensor away from 30 s to 50 s: no power is drawn there, and no low plateau either."""
    path = write(tmp_path, Attempt(devices=(GPU,)))
    _without(path, lambda record: record["type"] != "series" or not 30.0 < record["t_s"] <= 50.0)
    holes = [
        {"type": "series", "t_s": 30.5 + 0.5 * number, "devices": {"gpu0": {"power_w": None}}}
        for number in range(40)
    ]
    lines = path.read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    rows += holes
    rows.sort(key=lambda row: row["t_s"] if row["type"] == "series" else -1.0)
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    (curve,) = build(tmp_path).series
    hole = curve.power_w.index(None)
    assert (curve.t_s[hole], curve.seen_s[hole]) == (50.0, 0.0)
    assert (curve.utilisation[hole], curve.temperature_c[hole]) == (None, None)
    assert max(power_w for power_w in curve.power_w if power_w is not None) >= 500.0
    assert math.fsum(curve.seen_s) == pytest.approx(60.0)


def test_a_command_line_of_undecodable_bytes_is_readable(tmp_path):
    """Python gives such bytes as lone surrogates, which no file can hold."""
    path = write(tmp_path, Attempt())
    path.write_text(path.read_text().replace("python train.py", "python \\udcff.py"))
    report = build(tmp_path)
    assert report.run.command == "python ?.py --lr 1e-3"
    render(report).encode("utf-8")
    assert from_json(to_json(report)) == report


def test_rows_with_and_without_names_give_the_same_report(tmp_path):
    """Version 1 wrote each value with its name; both versions are read."""
    path = write(tmp_path, Attempt())
    named = build(tmp_path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["type"] == "series":
            rows = record.pop("devices")
            record["rows"] = {key: row_as_json(row) for key, row in rows.items()}
        if record.get("kind") == "steps":
            del record["energy"]
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    assert build(tmp_path) == named


def test_a_newer_writer_may_know_more_columns(tmp_path):
    """The header names the columns: another order and an unknown one are read by their names."""
    path = write(tmp_path, Attempt(devices=(GPU,)))
    named = build(tmp_path)
    records = [json.loads(line) for line in path.read_text().splitlines()]
    names = ["fan_rpm", *reversed(COLUMNS)]
    records[0]["columns"] = names
    for record in records:
        if record["type"] == "series":
            rows = record.pop("devices")
            record["rows"] = {k: [row.get(name) for name in names] for k, row in rows.items()}
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    assert build(tmp_path) == named


def test_a_run_killed_in_its_first_phase_knows_how_good_its_energy_is(tmp_path):
    """No span is closed: method, error and coverage are those last written with the energy."""
    path = write(tmp_path, Attempt(cut_off_at_s=15.0, devices=(GPU,)))
    _without(path, lambda record: record.get("kind") not in ("span", "steps"))
    known = {
        "energy_j": 800.0, "stderr_j": 3.0, "systematic_j": 40.0,
        "method": "counter+samples", "coverage": 0.9,
    }  # fmt: skip
    with path.open("a") as file:
        file.write(json.dumps({"type": "so_far", "t_s": 10.0, "energy": {"gpu0": known}}) + "\n")
    gpu = build(tmp_path, now_unix_s=LATER_S).energy.gpu
    assert gpu.energy_j == pytest.approx(1_200.0)
    assert (gpu.method, gpu.stderr_j, gpu.coverage) == ("counter+samples", 3.0, 0.9)
    assert gpu.systematic_j == pytest.approx(60.0)


def test_the_time_after_a_sensor_is_lost_counts_once_in_a_killed_run(tmp_path):
    """Lost after 4 s, killed after 15 s; the coverage of ``so_far`` includes the time without."""
    path = write(tmp_path, Attempt(cut_off_at_s=15.0, devices=(GPU,)))
    _without(path, lambda record: record.get("kind", record["type"]) not in ("span", "series"))
    known = {
        "energy_j": 319.9, "stderr_j": 3.0, "systematic_j": 0.0,
        "method": "power", "coverage": 4.0 / 14.0,
    }  # fmt: skip
    row = {"energy_j": 320.0, "seen_s": 4.0}
    with path.open("a") as file:
        for line in (
            {"type": "so_far", "t_s": 14.0, "energy": {"gpu0": known}},
            {"type": "series", "t_s": 15.0, "devices": {"gpu0": row}},
        ):
            file.write(json.dumps(line) + "\n")
    gpu = build(tmp_path, now_unix_s=LATER_S).energy.gpu
    assert (gpu.energy_j, gpu.stderr_j) == (320.0, 3.0)
    assert gpu.coverage == pytest.approx(4.0 / 15.0)
