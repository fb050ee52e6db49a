"""The package's estimator of phase energies, or the sum over spans until there is one."""

from collections.abc import Mapping

from energy_callbacks.accounting.metrics.energy_sums import total
from energy_callbacks.accounting.phases import PhaseSpan
from energy_callbacks.core.records import Energy
from energy_callbacks.sensing.timeline import Timeline

__all__ = ["PhaseEnergy"]


class _SumOverSpans:
    """Adds the energies of spans, without knowledge of edges."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._spans: list[PhaseSpan] = []

    def add(self, span: PhaseSpan) -> None:
        """Add a span."""
        self._spans.append(span)

    def update(self, until_s: float) -> None:
        """Do nothing."""

    def energies(self) -> Mapping[str, Mapping[str, Energy]]:
        """Return the energy of each device in each phase."""
        names = dict.fromkeys(span.name for span in self._spans)
        return {
            key: {name: self._total(key, name) for name in names} for key in self._timeline.metered
        }

    def _total(self, key: str, name: str) -> Energy:
        spans = [span for span in self._spans if span.name == name and span.end_s > span.start_s]
        return total(
            [self._timeline.energy(key, span.start_s, span.end_s) for span in spans],
            [span.end_s - span.start_s for span in spans],
        )


try:
    from energy_callbacks.accounting.metrics.phase_energy import PhaseEnergy
except ImportError:
    PhaseEnergy = _SumOverSpans  # type: ignore[misc, assignment]
