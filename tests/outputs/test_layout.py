"""Charts as TensorBoard's own plugin lists them."""

from pathlib import Path

import pytest

from energy_callbacks.accounting.metrics.tags import INTERVALS, TAGS, expected_tags
from energy_callbacks.outputs.layout import layout, tags_of
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from tests.outputs.tensorboard_view import TensorBoardView

EVERY = expected_tags(gpu=True, tokens=True, waits=True)
# Beside the loss they are of use; a page of charts of them would say nothing about energy.
NOT_CHARTED = {"energy/measured_fraction"}


def charts(folder: Path, tags: tuple[str, ...], prefix: str = "") -> dict[str, list[str]]:
    """Charts of the plugin for a layout, with a row of these tags."""
    output = TensorBoardOutput(folder / "run")
    output.write({f"{prefix}{tag}": 1.0 for tag in tags}, 0, 1.7e9)
    output.add(layout(tags, prefix=prefix), 0)
    output.close()
    return TensorBoardView(folder).charts()


def test_every_tag_has_a_place_in_a_chart(tmp_path: Path) -> None:
    """Every tag of the reference and both ends of each interval are in a chart."""
    shown = {line.strip("^$") for lines in charts(tmp_path, EVERY).values() for line in lines}
    assert shown == set(EVERY) - NOT_CHARTED


def test_intervals_are_bands(tmp_path: Path) -> None:
    """A band has the exact tags of value, lower and upper end, in this order."""
    found = list(charts(tmp_path, EVERY).values())
    for tag in INTERVALS:
        assert [tag, f"{tag}_lo", f"{tag}_hi"] in found


def test_a_training_without_a_gpu_has_no_chart_of_one(tmp_path: Path) -> None:
    """It has no chart of tokens either, if they are not counted."""
    found = charts(tmp_path, expected_tags(gpu=False, tokens=False, waits=True))
    words = " ".join([*found, *(line for lines in found.values() for line in lines)]).lower()
    assert "gpu" not in words
    assert "token" not in words
    assert "^memory/host_rss_gib$" in words


@pytest.mark.parametrize("prefix", ["", "a.b+"])
def test_a_line_shows_its_own_tag_only(tmp_path: Path, prefix: str) -> None:
    """TensorBoard matches patterns: no other tag may match, with any prefix."""
    found = charts(tmp_path, EVERY, prefix)
    view = TensorBoardView(tmp_path)
    for lines in found.values():
        for line in (one for one in lines if one.startswith("^")):
            [tag] = view.matches("run", line)
            assert tag.removeprefix(prefix) in TAGS


def test_what_a_training_can_have_is_seen_in_a_row() -> None:
    """Gauges may be missing in the first row, but not the figures of a GPU."""
    sample = "efficiency/total_j_per_sample"
    ends = {f"emissions/total_g{end}": 1.0 for end in ("_lo", "_hi")}
    row = {"power/host_w": 30.0, "throughput/samples_per_s": 4.0, sample: 1.0, **ends}
    found = tags_of(row)
    assert {"memory/host_rss_gib", "throughput/samples_per_s", sample, *ends} <= set(found)
    assert "emissions/total_g" not in found
    assert not [tag for tag in found if "gpu" in tag or "token" in tag or "wait" in tag]


def test_an_unknown_place_has_no_chart_of_emissions(tmp_path: Path) -> None:
    """The ends of an interval alone are not shown as a chart."""
    known = tuple(tag for tag in EVERY if tag != "emissions/total_g")
    found = charts(tmp_path, known)
    assert [title for title in found if "emissions" in title] == []
    assert "energy so far (Wh)" in found
