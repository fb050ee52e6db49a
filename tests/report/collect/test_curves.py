"""Limits of the curves and of the timeline of a report."""

from pathlib import Path

import numpy as np

from energy_callbacks.report.collect import curves
from energy_callbacks.report.collect.merge import merge
from energy_callbacks.report.collect.process import ProcessJournal, TimedEnergy
from energy_callbacks.report.collect.rows import DeviceColumns

HEADER = {"run_id": "r", "attempt": 1, "host": "h", "rank": 0, "unix_s": 0.0}


def test_the_longest_spans_are_kept_if_many_others_are_of_equal_length() -> None:
    """1500 phases of one second, and then one of an hour: the hour is in the timeline."""
    names = [("train", "validation")[i % 2] for i in range(1500)]
    spans = [
        TimedEnergy(name=name, start_s=float(i), end_s=i + 1.0, energy={})
        for i, name in enumerate(names)
    ]
    spans.append(TimedEnergy(name="test", start_s=1500.0, end_s=5100.0, energy={}))
    process = ProcessJournal(path=Path("j"), header=HEADER, end_s=5100.0, spans=spans)
    found = curves.timeline(merge([process]))
    assert len(found) == curves.MAX_SPANS
    assert (found[-1].phase, found[-1].end_s) == ("test", 5100.0)
    assert [one.start_s for one in found] == sorted(one.start_s for one in found)


def test_more_devices_than_points_have_a_point_each() -> None:
    """256 hosts with eight GPUs and three other devices have more devices than points."""
    t_s = np.arange(1.0, 5.0)
    table = np.column_stack([t_s, 100.0 * t_s, np.full(4, 100.0)])
    columns = DeviceColumns(("t_s", "energy_j", "power_w"), table)
    keys = [f"gpu{i}" for i in range(curves.MAX_POINTS_IN_ALL + 1)]
    device = {"scope": "gpu", "uuid": None, "parent": None, "notes": []}
    process = ProcessJournal(
        path=Path("j"),
        header=HEADER,
        end_s=4.0,
        devices={key: {"device": device, "sensors": {}} for key in keys},
        columns=dict.fromkeys(keys, columns),
    )
    found = curves.series(merge([process]))
    assert len(found) == len(keys)
    assert {(one.t_s, one.power_w) for one in found} == {((4.0,), (100.0,))}
