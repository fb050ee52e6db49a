"""Selects the user's metrics, such as the loss, that are written to the journal."""

import math
import reprlib
from collections import Counter
from collections.abc import Collection, Mapping
from numbers import Integral, Real
from typing import Any, Final

from energy_callbacks.accounting.journal.journal import Record
from energy_callbacks.accounting.metrics.tags import OWN_TAGS, own_tags
from energy_callbacks.accounting.recorder import JournalRecorder
from energy_callbacks.core.guard import FirstWarning

# Maximum number of metrics in one record.
MAX_NAMES: Final = 20
# Maximum length of a name, in characters. A report reads whole journals; therefore the limits in
# this module keep journals small.
_MAX_NAME: Final = 120
# Whether a record is written depends on the number of earlier records with the same set of names;
# the first ``_ALL`` are all written. Each of the first ``_KINDS`` sets of names has its own count.
# All later sets share one count, which limits the number of written records.
_ALL, _KINDS = 1000, 20


def kept(values: Mapping[str, Any], own: Collection[str] = OWN_TAGS) -> dict[str, float]:
    """Return at most 20 of the user's metrics that are finite numbers; shorten long names.

    Tensors are left out, because reading a tensor would wait for the tensor's device.

    Args:
        values: metrics by name.
        own: names of the figures of this package, which are left out.
    """
    numbers = {
        str(name)[:_MAX_NAME]: float(value)
        for name, value in values.items()
        if isinstance(value, Real) and not isinstance(value, bool) and name not in own
    }
    finite = [(name, value) for name, value in numbers.items() if math.isfinite(value)]
    return dict(finite[:MAX_NAMES])


class MetricLog:
    """Writes metrics to the journal of an attempt.

    The training thread only copies the metrics: the journal's thread selects those to write.

    A record consists of the metrics of one call of ``record``. The first 1000 records with the same
    set of metric names are all written. Of records 1001 to 2000 every second one is written, of
    records 2001 to 4000 every fourth, of records 4001 to 8000 every eighth, and so on. Of a million
    records, about 6000 are written. After 20 different sets of names, records with any new set are
    counted together.

    Args:
        recorder: writes the journal.
        tag_prefix: the user's setting ``tag_prefix``.
    """

    def __init__(self, recorder: JournalRecorder, tag_prefix: str = "") -> None:
        self._recorder = recorder
        self._own = own_tags(tag_prefix)
        self._seen: Counter[frozenset[str]] = Counter()
        self._warn = FirstWarning()
        self._warn_of_place = FirstWarning()

    def record(
        self, values: Mapping[str, Any], t_s: float, step: int | None, epoch: float | None
    ) -> None:
        """Write metrics to the journal, unless this record is one of those that are left out.

        Args:
            values: metrics by name.
            t_s: monotonic time at which the metrics were logged.
            step: number of the optimizer step; ``None`` if unknown. A value of another type counts
                as unknown.
            epoch: number of epochs so far, possibly with a fraction; ``None`` as for ``step``.
        """
        if not isinstance(values, Mapping):
            self._warn(
                "record_metrics takes a dictionary, got %s; it is ignored; write "
                "record_metrics({'loss': value})",
                reprlib.repr(values),
            )
            return
        taken = dict(values)  # the caller may change its dictionary afterwards
        self._recorder.queue(lambda: self._line(taken, t_s, step, epoch))

    def _line(
        self, values: Mapping[str, Any], t_s: float, step: int | None, epoch: float | None
    ) -> Record | None:
        """Return the line for the journal, if there is one; runs on the journal's thread."""
        found = kept(values, self._own)
        if not found or not self._is_due(frozenset(found)):
            return None
        if not isinstance(step, Integral | None) or not isinstance(epoch, Real | None):
            self._warn_of_place(
                "record_metrics needs a whole number as step and a number as epoch, got step=%s "
                "and epoch=%s; the wrong one counts as unknown; pass int(step) and float(epoch)",
                reprlib.repr(step),
                reprlib.repr(epoch),
            )
            step = step if isinstance(step, Integral) else None
            epoch = epoch if isinstance(epoch, Real) else None
        return self._recorder.event_line("metrics", t_s, step=step, epoch=epoch, values=found)

    def _is_due(self, names: frozenset[str]) -> bool:
        kind = names if names in self._seen or len(self._seen) < _KINDS else frozenset()
        seen = self._seen[kind]
        self._seen[kind] += 1
        return seen % (1 << (seen // _ALL).bit_length()) == 0
