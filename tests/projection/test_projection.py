"""Projections of jobs to scale, compared with closed forms."""

import pytest

from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.accounting.metrics.carbon import Intensity
from energy_callbacks.core.records import Energy
from energy_callbacks.projection import text
from energy_callbacks.projection.projection import Amount, Fleet, JobUse, exact, one_job, project

# Round figures, so that results can be checked by hand.
HALF = Intensity(
    kg_per_kwh=0.5, low_kg_per_kwh=0.4, high_kg_per_kwh=0.6, place="somewhere", source="a test"
)
UNKNOWN = Intensity(
    kg_per_kwh=None, low_kg_per_kwh=0.02, high_kg_per_kwh=0.8, place=None, source="a test"
)
JOB = JobUse(energy_j=exact(15 * 3600.0), wall_s=exact(60.0), gpu_s=exact(240.0))


def fleet(**facts) -> Fleet:
    """A million jobs a day."""
    return Fleet(**({"jobs_per_day": 1e6, "intensity": HALF} | facts))


def ends(found: Amount) -> tuple:
    """Returns value, low and high as one tuple."""
    return found.value, found.low, found.high


def test_a_million_jobs_of_15_wh_of_which_5_percent_are_saved():
    """750 kWh a day, 375 kg at 0.5 kg/kWh; 365 times as much a year."""
    saving = JOB.saving(exact(0.95))
    day, year = project(saving, fleet()), project(saving, fleet(), days=365)
    assert day.energy_kwh.value == pytest.approx(750.0)
    assert ends(day.emissions_kg) == pytest.approx((375.0, 300.0, 450.0))
    assert year.energy_kwh.value == pytest.approx(365 * 750.0)
    assert year.emissions_kg.value == pytest.approx(365 * 375.0)


def test_building_scheduler_and_price():
    """Energy and money include both factors; hours do not."""
    terms = fleet(pue=1.2, scheduler_overhead=0.05, price_per_kwh=0.3)
    day = project(JOB, terms)
    assert day.energy_kwh.value == pytest.approx(15_000 * 1.2 * 1.05)
    assert day.money.value == pytest.approx(15_000 * 1.2 * 1.05 * 0.3)
    assert day.wall_h.value == pytest.approx(1e6 / 60)
    assert day.gpu_h.value == pytest.approx(4e6 / 60)
    assert one_job(JOB, terms).energy_kwh.value == pytest.approx(day.energy_kwh.value / 1e6)
    assert project(JOB, fleet()).money is None


def test_one_job_a_day_is_in_the_singular():
    """Other numbers of jobs are in the plural."""
    assert text.terms(fleet(jobs_per_day=1)).startswith("1 job per day, ")
    assert text.terms(fleet(jobs_per_day=0.5)).startswith("0.500 jobs per day, ")


def test_an_error_does_not_shrink_with_the_number_of_jobs():
    """An error of 5 % stays 5 % for a million jobs, as all share the sensor's error."""
    job = JobUse(energy_j=Amount(value=54_000.0, low=51_300.0, high=56_700.0))
    assert ends(project(job, fleet()).energy_kwh) == pytest.approx((15_000, 14_250, 15_750))


def test_emissions_are_those_of_the_carbon_table():
    """Emissions and their interval equal those of ``carbon.emissions``."""
    energy = Energy(
        energy_j=3.6e9, stderr_j=0.0, systematic_j=1.8e8, method="counter", coverage=1.0
    )
    job = JobUse(energy_j=Amount(value=3.6e9, low=3.42e9, high=3.78e9))
    for intensity in (HALF, UNKNOWN):
        expected = carbon.emissions(energy, intensity, pue=1.5)
        found = project(job, fleet(jobs_per_day=1, intensity=intensity, pue=1.5)).emissions_kg
        assert (found.value is None) == (expected.kg is None)
        assert (found.low, found.high) == pytest.approx((expected.low_kg, expected.high_kg))


def test_a_saving_whose_sign_is_not_known():
    """The interval contains zero, for emissions too."""
    saving = JOB.saving(Amount(value=0.95, low=0.9, high=1.02))
    day = project(saving, fleet())
    assert ends(day.energy_kwh) == pytest.approx((750.0, -300.0, 1500.0))
    assert ends(day.emissions_kg) == pytest.approx((375.0, -180.0, 900.0))
    nowhere = project(saving, fleet(intensity=UNKNOWN)).emissions_kg
    assert nowhere.value is None
    assert (nowhere.low, nowhere.high) == pytest.approx((-300 * 0.8, 1500 * 0.8))


def test_the_difference_of_two_runs_has_the_errors_of_both():
    """The interval of a difference is the widest that both errors allow."""
    before = JobUse(energy_j=Amount(value=100.0, low=98.0, high=102.0), wall_s=exact(10.0))
    after = JobUse(energy_j=Amount(value=95.0, low=94.0, high=96.0), wall_s=exact(11.0))
    saved = before.minus(after)
    assert ends(saved.energy_j) == (5.0, 2.0, 8.0)
    assert ends(saved.wall_s) == (-1.0, -1.0, -1.0)
    assert saved.gpu_s is None


def test_without_an_interval_there_is_none():
    """A ratio without an interval gives a saving without an interval."""
    saving = JOB.saving(Amount(value=0.95, low=None, high=None))
    assert ends(project(saving, fleet()).energy_kwh) == (pytest.approx(750.0), None, None)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"jobs_per_day": 0}, "jobs per day"),
        ({"jobs_per_day": float("nan")}, "jobs per day"),
        ({"pue": 0.9}, "pue"),
        ({"pue": float("nan")}, "pue"),
        ({"scheduler_overhead": -0.1}, "scheduler overhead"),
        ({"price_per_kwh": -1.0}, "price"),
    ],
)
def test_numbers_that_cannot_be(facts, words):
    """Errors name the setting that is out of range."""
    with pytest.raises(ValueError, match=words):
        fleet(**facts)
