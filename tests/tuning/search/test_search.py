"""The search over batch sizes, without a device."""

import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from energy_callbacks.core.records import Energy
from energy_callbacks.tuning.result import points
from energy_callbacks.tuning.search.limits import limits, predicted_largest
from energy_callbacks.tuning.search.search import Search, SearchAnswer
from energy_callbacks.tuning.search.settings import SearchSettings
from energy_callbacks.tuning.search.trial import Trial
from tests.benchmarks.common.device_model import Device

GIB = 2**30


def run(search: Search, trial: Callable[[int], Trial]) -> list[int]:
    """Run a search to its end, and return the sizes that it asked for."""
    asked = []
    while (size := search.ask()) is not None:
        assert len(asked) < 200
        asked.append(size)
        search.tell(trial(size))
    return asked


def to_json(trials: Sequence[Trial]) -> str:
    """Return trials as JSON."""
    return json.dumps([asdict(trial) for trial in trials])


def from_json(text: str) -> list[Trial]:
    """Return trials from JSON."""
    return [Trial(**{**one, "energy": Energy(**one["energy"])}) for one in json.loads(text)]


def chosen(search: Search) -> list[Trial]:
    """Return the trials of the answer that ran."""
    size = search.answer().size
    return [trial for trial in search.trials if trial.size == size and trial.status == "ok"]


def on(device: Device, noise: float = 0.0, seed: int = 0) -> Callable[[int], Trial]:
    """Return a function that runs trials on a modeled device."""
    dice = np.random.default_rng(seed)
    return lambda size: device.trial(size, dice, noise)


def ran(size: int, step_s: float = 1.0, peak_bytes: int | None = None, **more: float) -> Trial:
    """Return a trial of one step."""
    return Trial(size=size, steps=1, duration_s=step_s, peak_bytes=peak_bytes, **more)


def too_large(size: int) -> Trial:
    """Return a trial with CUDA's out-of-memory error."""
    return Trial(size=size, status="out_of_memory", reason="CUDA out of memory")


def fits_to(most: int) -> Callable[[int], Trial]:
    """Return trials of a device of unknown memory that fits this many samples."""
    return lambda size: ran(size, 0.1 + size) if size <= most else too_large(size)


@pytest.mark.parametrize("most", [1, 2, 5, 63, 64, 65, 1000, 4097, 8191, 8192])
def test_largest_is_exact_without_knowing_the_memory(most):
    """Bisection alone finds every limit from 1 to 8192 in 20 trials."""
    search = Search(SearchSettings(objective="largest"))
    assert len(run(search, fits_to(most))) <= 20
    assert search.answer().size == most


@pytest.mark.parametrize("multiple_of", [1, 8])
def test_peaks_lead_to_the_largest_in_a_few_trials(multiple_of):
    """A line through measured peaks predicts the limit; one trial on each side confirms it."""
    device = Device()
    search = Search(
        SearchSettings(
            objective="largest", memory_bytes=device.memory_bytes, multiple_of=multiple_of
        )
    )
    assert len(run(search, on(device))) <= 10
    assert search.answer().size == device.sizes(0.1, multiple_of)[-1] == chosen(search)[0].size


def test_full_memory_below_the_predicted_limit_is_found():
    """With fragmentation the device is full at 85 % of the prediction from peaks."""
    device = Device(fragmentation=0.3, sample_bytes=40 * 2**20)
    search = Search(SearchSettings(objective="largest", memory_bytes=device.memory_bytes))
    assert len(run(search, on(device))) <= 20
    assert search.answer().size == device.sizes()[-1]


@pytest.mark.parametrize(("power", "most"), [(1.5, 20), (8.0, 22)])
def test_peaks_that_bend_do_not_hold_the_search_up(power, most):
    """Memory that grows with a power of the size does not fit any line."""

    def trial(size: int) -> Trial:
        return ran(size, peak_bytes=int(1e8 + 8e8 * (size / 3000.0) ** power))

    search = Search(SearchSettings(objective="largest", memory_bytes=10**9))
    assert len(run(search, trial)) <= most
    assert search.answer().size == 3000


@pytest.mark.parametrize("objective", ["knee", "throughput", "energy", "largest", 0.5])
def test_size_at_the_upper_bound_is_no_answer_until_it_ran(objective):
    """Lightning's finder with max_val=16 returns 16 after 2, 4 and 8 ran and 16 failed."""
    trial = on(Device())
    search = Search(SearchSettings(objective=objective, min_size=2, max_size=16))
    asked = run(search, lambda size: trial(size) if size < 16 else too_large(16))
    answer = search.answer()
    assert 16 in asked
    assert answer.size < 16
    assert chosen(search) != []


@pytest.mark.parametrize("objective", ["knee", "throughput", "energy", "largest", 0.5])
def test_nothing_fits_is_no_answer_and_has_a_reason(objective):
    """Lightning's finder returns 1 or raises ``batch_size=0``."""
    search = Search(SearchSettings(objective=objective, start_size=64))
    asked = run(search, too_large)
    assert asked == [64, 8, 1]
    assert search.answer().size is None
    assert search.answer().why == (
        "batch size 1 does not fit: CUDA out of memory; make min_size or the model smaller, or "
        "end other programs on the device"
    )


def test_reason_names_a_peak_that_leaves_too_little_free():
    """Size 1 runs and uses 95 % of the device."""
    search = Search(SearchSettings(memory_bytes=100))
    assert run(search, lambda size: ran(size, peak_bytes=95)) == [8, 1]
    assert search.answer().size is None
    assert "peak of 95 bytes leaves less than 10% of the device free" in search.answer().why


@pytest.mark.parametrize("powers_of_two", [False, True])
@pytest.mark.parametrize("objective", ["knee", "throughput", "energy", "largest"])
def test_margin_is_always_applied(objective, powers_of_two):
    """Lightning applies its margin in one of two modes only; here 64 uses 97 % of the device."""
    device = Device(fixed_bytes=0, sample_bytes=int(1.2 * GIB), fragmentation=0.0)
    search = Search(
        SearchSettings(
            objective=objective, powers_of_two=powers_of_two, memory_bytes=device.memory_bytes
        )
    )
    told = run(search, on(device))
    answer = search.answer()
    assert chosen(search)[0].peak_bytes <= 0.9 * device.memory_bytes
    assert answer.size <= 60
    if objective == "largest":
        assert answer.size == (32 if powers_of_two else 60)
    assert max(told) <= 512


def test_throughput_is_found_where_it_falls_at_the_end():
    """Throughput falls by 20 % beyond 1024: the best size is not the largest."""
    device = Device(corner=4.0, decline=0.2, decline_from=1024.0)
    search = Search(SearchSettings(objective="throughput", memory_bytes=device.memory_bytes))
    run(search, on(device, noise=0.003))
    best = device.cost(device.sizes(), 0.0).min()
    assert device.cost(np.array([float(search.answer().size)]), 0.0)[0] < 1.02 * best


@pytest.mark.parametrize("weight", [1.0, 0.5, "energy"])
def test_energy_has_an_optimum_of_its_own(weight):
    """Power rises faster than throughput: the optimum of energy is a much smaller size."""
    device = Device(corner=64.0, gamma=2.0)
    share = 1.0 if weight == "energy" else weight
    costs = device.cost(device.sizes(), share)
    search = Search(SearchSettings(objective=weight, memory_bytes=device.memory_bytes))
    run(search, on(device, noise=0.003))
    assert device.cost(np.array([float(search.answer().size)]), share)[0] < 1.02 * costs.min()
    assert search.answer().size < (4096 if share == 1.0 else 8193)


def test_knee_is_found_and_run():
    """The throughput at the knee of a fixed part and a part per sample is 3 % below the best."""
    device = Device(corner=20.0)
    search = Search(SearchSettings(objective="knee", memory_bytes=device.memory_bytes))
    asked = run(search, on(device, noise=0.003))
    answer = search.answer()
    assert answer.size in asked
    costs = device.cost(device.sizes(), 0.0)
    assert costs.min() / costs[answer.size - 1] == pytest.approx(0.97, abs=0.01)
    assert str(answer.size) in answer.why


def test_slow_size_is_no_knee():
    """The curve has its knee at 299, where a tile begins; both trials of 299 are 15 % slow."""
    search = Search(SearchSettings(objective="knee", max_size=4096, multiple_of=1))
    for size in (1, 4, 16, 64, 128, 256, 350, 512, 1024, 2048, 4096):
        step_s = 1.0 + size / 10.0
        search.tell(ran(size, step_s, stderr_s=0.03 * step_s))
    for _ in range(2):
        search.tell(ran(299, 1.15 * 30.9, stderr_s=0.03 * 30.9))
    assert search.answer().size != 299


def test_repeats_that_disagree_are_no_small_error():
    """Trials state 0.3 %, but two of one size differ by half: throughput is not known to 2 %."""

    def told(factor: float) -> float:
        search = Search(SearchSettings(objective="knee", max_size=512))
        for size in (8, 16, 32, 64, 128, 256, 512, 512):
            step_s = 1.0 + size / 20.0
            search.tell(ran(size, step_s, stderr_s=0.003 * step_s))
        search.tell(ran(128, factor * 7.4, stderr_s=0.003 * 7.4))
        found = re.search(r"standard error (\d+\.\d)%", search.answer().why)
        return float(found[1])

    assert told(1.003) <= 1.0
    assert told(1.5) > 2.0


def test_trials_are_few_and_of_multiples_of_8():
    """Twelve trials at most, of which at least one repeats a size; ``largest`` may try any size."""
    for objective in ("knee", "throughput", "energy"):
        search = Search(SearchSettings(objective=objective, memory_bytes=Device().memory_bytes))
        asked = run(search, on(Device(), noise=0.03))
        assert len(asked) <= 12
        assert len(set(asked)) < len(asked)
        assert all(size % 8 == 0 for size in asked)
    largest = Search(SearchSettings(objective="largest"))
    run(largest, fits_to(1001))
    assert largest.answer().size == 1001


def test_sizes_below_8_are_tried_if_8_does_not_fit():
    """A large model fits 5 samples; a user who has asked for multiples of 8 gets no size."""
    search = Search(SearchSettings(objective="throughput"))
    asked = run(search, fits_to(5))
    assert asked[0] == 8
    assert search.answer().size in (4, 5)
    asked_for = Search(SearchSettings(objective="throughput", multiple_of=8))
    assert run(asked_for, fits_to(5)) == [8]
    assert asked_for.answer().size is None


def test_rising_throughput_is_followed_to_the_limit():
    """Launches dominate, and unknown memory is full above 1000: the answer is at least 980."""
    search = Search(SearchSettings(objective="throughput"))
    asked = run(search, lambda size: ran(size, 1.0) if size <= 1000 else too_large(size))
    assert 980 <= search.answer().size <= 1000
    assert len(asked) <= 15


def test_neighbours_of_the_best_are_tried():
    """Curves do not model tiles: the answer is compared with sizes close to it."""
    device = Device(corner=4.0, decline=0.2, decline_from=64.0)
    search = Search(SearchSettings(objective="throughput", memory_bytes=device.memory_bytes))
    asked, best = run(search, on(device)), search.answer().size
    assert any(0.6 * best < size < 0.9 * best for size in asked)
    assert any(1.3 * best < size < 1.7 * best for size in asked)


def test_repeats_are_shared_between_the_best_and_its_rival():
    """Two sizes that differ by 1 %, with 10 % of noise, are tried equally often."""
    search = Search(SearchSettings(objective="throughput", min_size=64, max_size=128,
                                   powers_of_two=True, max_trials=12))  # fmt: skip
    speed = {64: 100.0, 128: 101.0}
    asked = run(search, lambda b: ran(b, b / speed[b], stderr_s=0.1 * b / speed[b]))
    assert abs(asked.count(64) - asked.count(128)) <= 2
    assert len(asked) == 12


def test_noise_is_answered_with_repeats():
    """If two sizes are too close for one trial each, one of them is repeated."""
    device = Device(corner=8.0)
    search = Search(
        SearchSettings(objective="throughput", powers_of_two=True, min_size=32, max_size=128)
    )
    assert len(run(search, on(device, noise=0.1))) > 3
    exact = Search(
        SearchSettings(objective="throughput", powers_of_two=True, min_size=32, max_size=128)
    )
    assert len(run(exact, on(device, noise=0.0))) <= 5


def test_repeats_count_by_their_errors():
    """One accurate trial outweighs two inaccurate ones that contradict it."""
    search = Search(SearchSettings(objective="throughput", min_size=32, max_size=40))
    for size, step_s in ((32, 1.0), (40, 1.5)) * 2:
        search.tell(ran(size, step_s, stderr_s=0.003))
    for _ in range(2):
        search.tell(ran(40, 1.0, stderr_s=0.6))
    assert search.answer().size == 32


def test_unknown_energy_is_no_optimum():
    """Without energy the search ends after two trials and states the reason."""
    search = Search(SearchSettings(objective="energy", min_size=8, max_size=64))
    assert len(run(search, ran)) <= 2
    assert search.answer().size is None
    assert search.answer().why.startswith("the energy of no trial is known: choose objective=")


def test_start_is_tried_first_and_sizes_below_it_are_considered():
    """The start of 4097 is rounded to an allowed size; the knee is much smaller."""
    device = Device(corner=2.0)
    search = Search(SearchSettings(start_size=4097, multiple_of=8, max_trials=14))
    asked = run(search, on(device, noise=0.003))
    assert asked[0] == 4096
    assert search.answer().size <= 1.2 * device.knee(multiple_of=8)


def test_budget_of_seconds_ends_it():
    """Four trials of 10 s fit into 45 s, and their answer is used."""
    search = Search(SearchSettings(objective="largest", max_s=45.0))
    asked = run(search, lambda size: ran(size, cost_s=10.0))
    assert asked == [1, 8, 64, 512]
    assert search.answer().size == 512
    assert search.answer().why == "512 is the largest that was tried, and it fits"


def test_ask_is_the_same_until_a_trial_is_told():
    """Asking twice changes nothing."""
    search = Search(SearchSettings())
    assert search.ask() == search.ask() == 8
    assert search.answer().why == "nothing was tried"


def test_out_of_memory_in_a_repeat_takes_the_size_back():
    """A size that ran once and then failed is no answer, nor is any larger size."""
    search = Search(SearchSettings(objective="largest"))
    for trial in (ran(8), ran(64), too_large(8), ran(4)):
        search.tell(trial)
    assert search.answer().size == 4


class Case:
    """Any device and settings."""

    def __init__(self, draw: st.DrawFn) -> None:
        low = draw(st.integers(1, 600))
        self.device = Device(
            corner=draw(st.floats(1.0, 500.0)),
            sharpness=draw(st.floats(1.0, 5.0)),
            tile=draw(st.integers(1, 200)),
            tile_share=draw(st.floats(0.0, 1.0)),
            decline=draw(st.floats(0.0, 0.5)),
            gamma=draw(st.floats(0.3, 2.5)),
            sample_bytes=draw(st.integers(2**18, 2**33)),
            fragmentation=draw(st.floats(0.0, 0.3)),
        )
        self.noise = draw(st.sampled_from([0.0, 0.03, 0.3]))
        self.settings = SearchSettings(
            objective=draw(st.sampled_from(["knee", "throughput", "energy", "largest", 0.3])),
            min_size=low,
            max_size=draw(st.integers(max(low, 256), 8192).map(lambda size: max(size, 2 * low))),
            multiple_of=draw(st.sampled_from([1, 2, 8])),
            powers_of_two=draw(st.booleans()),
            start_size=draw(st.none() | st.integers(1, 10_000)),
            memory_bytes=draw(st.sampled_from([None, self.device.memory_bytes])),
            max_trials=draw(st.integers(1, 12)),
        )

    def __repr__(self) -> str:
        return f"{self.device}, {self.settings}, noise {self.noise}"


cases = st.composite(Case)()
few = settings(max_examples=20, suppress_health_check=list(HealthCheck))


@few
@given(case=cases)
def test_every_search_keeps_its_promises(case):
    """Searches end, ask for allowed sizes only, and answer a size that ran with the margin free."""
    allowed, least_full, told = set(case.settings.sizes), math.inf, []
    search, trial = Search(case.settings), on(case.device, case.noise)
    while (size := search.ask()) is not None:
        assert size in allowed
        assert size < least_full
        told.append(trial(size))
        search.tell(told[-1])
        if told[-1].status != "ok":
            least_full = min(least_full, size)
        assert len(told) <= case.settings.max_trials
    answer, room = search.answer(), case.settings.room_bytes
    good = {t.size for t in told if t.status == "ok" and (room is None or t.peak_bytes <= room)}
    assert (answer.size is None) == (not good)
    assert answer.size is None or answer.size in good
    assert answer.why


@settings(few, max_examples=8)
@given(case=cases, cut=st.integers(0, 11))
def test_search_that_was_cut_off_ends_the_same(case, cut):
    """A second search continues in the same way with the trials of the first, read from JSON."""
    whole, trial = Search(case.settings), on(case.device, case.noise)
    asked = run(whole, trial)
    again = Search(case.settings)
    for result in from_json(to_json(whole.trials[:cut])):
        again.tell(result)
    for result in whole.trials[cut:]:
        assert again.ask() == result.size
        again.tell(result)
    assert again.ask() is None
    assert again.answer() == whole.answer()
    assert [result.size for result in again.trials] == asked


@pytest.mark.parametrize(
    ("trial", "said"),
    [
        (ran(12), "a size that the settings allow, got 12"),
        (Trial(size=16), "needs steps and their time, got steps=0"),
    ],
)
def test_trials_that_mean_nothing_are_refused(trial, said):
    """A batch that the dataset has shortened does not have the requested size."""
    with pytest.raises(ValueError, match=said):
        Search(SearchSettings(multiple_of=8)).tell(trial)


def test_prediction_follows_a_curve_that_bends_upwards():
    """The steepest chord counts: small sizes do not raise the predicted limit."""
    assert predicted_largest({1: 100, 100: 110, 200: 1_110}, 2_110) == 300.0
    assert predicted_largest({10: 1_000, 100: 10_000, 101: 10_500}, 20_000) == pytest.approx(192.0)
    assert predicted_largest({1: 100}, 2_000) is None
    assert predicted_largest({1: 100, 9: 100}, 2_000) is None
    assert predicted_largest({1: 100, 9: 900}, None) is None


def test_limit_lies_below_the_smallest_size_that_is_too_tight():
    """Larger sizes are ignored, even if they ran before."""
    found = limits(range(1, 100), [ran(10, peak_bytes=50), ran(20, peak_bytes=95)], 90.0)
    assert (found.low, found.high) == (9, 19)
    assert Search(SearchSettings()).answer() == SearchAnswer(None, "nothing was tried")


def test_the_edges_of_a_trial_are_in_its_error():
    """3 % at random and 4 % from edges, as standard errors, are 5 %."""
    energy = Energy(energy_j=100.0, stderr_j=3.0, edge_j=1.96 * 4.0, systematic_j=9.0, coverage=1.0)
    trial = Trial(size=4, steps=2, duration_s=1.0, energy=energy)
    assert trial.energy_error == pytest.approx(0.05)
    (point,) = points([trial])
    assert point.j_per_sample.edge_j == pytest.approx(1.96 * 4.0 / 8)
    assert point.j_per_sample.high_j == pytest.approx((100.0 + math.hypot(1.96 * 5.0, 9.0)) / 8)


def test_energy_travels_through_json():
    """Joules and their errors are the same in a second search."""
    energy = Energy(energy_j=3.0, stderr_j=0.1, edge_j=0.2, method="counter", coverage=1.0)
    search, again = (Search(SearchSettings(objective="energy")) for _ in range(2))
    search.tell(Trial(size=8, steps=2, duration_s=1.0, energy=energy, cost_s=9.0))
    for result in from_json(to_json(search.trials)):
        again.tell(result)
    assert again.trials == search.trials
