"""What a watch tells about sources that fail."""

from collections.abc import Sequence

from energy_callbacks.core.errors import SourceLost
from energy_callbacks.core.records import Channel, Reading
from energy_callbacks.sensing.watch import Watch
from energy_callbacks.testing import FakeClock
from tests.sensing.loads import channel


class LostSource:
    """A source that is lost at its first reading, and has a remark."""

    name, interval_s = "lost", 1.0

    def open(self) -> Sequence[Channel]:
        return [channel("power", "gauge", period_s=0.5)]

    def read(self) -> Sequence[Reading]:
        raise SourceLost("the card is gone")

    def remarks(self) -> Sequence[str]:
        return ["samples were repeated"]

    def close(self) -> None:
        pass


def test_a_lost_source_with_remarks_is_a_problem() -> None:
    """The remarks that follow do not hide it."""
    clock = FakeClock()
    watch = Watch([LostSource()], clock)
    watch.start()
    clock.advance(2.0)
    assert [(one.kind, one.message) for one in watch.problems] == [("lost", "the card is gone")]
