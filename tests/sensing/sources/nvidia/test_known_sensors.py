import pytest

from energy_callbacks.sensing.sources.nvidia.known_sensors import (
    counter_sensor,
    generation,
    samples_sensor,
)

CAPABILITIES = [
    (3, 0), (3, 5), (3, 7), (5, 0), (5, 2), (6, 0), (6, 1), (7, 0), (7, 2), (7, 5), (8, 0),
    (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (10, 3), (12, 0), (13, 5),
]  # fmt: skip


@pytest.mark.parametrize("capability", CAPABILITIES)
def test_every_figure_has_a_source(capability: tuple[int, int]) -> None:
    """Each generation's sensors state an error, a period and where they come from."""
    found = generation(capability)
    sensors = [found.usage, samples_sensor(found, None), counter_sensor(found)]
    if found.instant is not None:
        sensors.append(found.instant)

    for sensor in sensors:
        assert 0.05 <= sensor.relative_error <= 0.10
        assert sensor.period_s is not None
        assert "SC'24" in sensor.citation


@pytest.mark.parametrize(
    ("capability", "usage_window_s", "instant_window_s"),
    [
        ((6, 0), 0.01, None),
        ((7, 0), 0.01, None),
        ((7, 5), 0.1, None),
        ((8, 0), 0.025, None),
        ((8, 6), 1.0, 0.1),
        ((8, 9), 1.0, 0.1),
        ((9, 0), 1.0, 0.025),
    ],
)
def test_windows_of_the_study(
    capability: tuple[int, int], usage_window_s: float, instant_window_s: float | None
) -> None:
    """Windows are those of the study's table; an instant field is used where usage is a mean."""
    found = generation(capability)

    assert found.usage.window_s == usage_window_s
    assert (found.instant.window_s if found.instant else None) == instant_window_s


def test_assumed_lag_says_so() -> None:
    """Only on Hopper are lag and response of the samples measured; elsewhere it says otherwise."""
    assert samples_sensor(generation((9, 0)), 0.02).citation.startswith("measured on an H200")
    assert samples_sensor(generation((8, 0)), 0.02).citation.startswith("lag and response as")


@pytest.mark.parametrize("capability", [(6, 0), (6, 1), (7, 0), (7, 2)])
def test_short_windows_have_no_response_of_an_h200(capability: tuple[int, int]) -> None:
    """Samples of Pascal and Volta are means over 10 ms, and what is not known is stated."""
    sensor = samples_sensor(generation(capability), None)

    assert (sensor.window_s, sensor.response_s, sensor.lag_s) == (0.01, 0.0, 0.005)
    assert sensor.is_buffered
    assert sensor.citation.startswith("lag and response not measured")
