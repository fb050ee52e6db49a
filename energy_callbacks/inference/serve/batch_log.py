"""Batches that have run, and what they say about windows of time."""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from energy_callbacks.inference.records import Tenant


class Batch(NamedTuple):
    """A batch that has run, or that runs.

    Attributes:
        worker: number of the worker.
        tenant: its tenant.
        samples: samples in the batch.
        start_s: its start, s.
        end_s: its end, s; of a batch that runs, the expected one.
    """

    worker: int
    tenant: Tenant
    samples: int
    start_s: float
    end_s: float

    def share_in(self, start_s: float, end_s: float) -> float:
        """Return which share of its time is in a window."""
        inside_s = min(self.end_s, end_s) - max(self.start_s, start_s)
        return max(inside_s, 0.0) / max(self.end_s - self.start_s, 1e-9)


@dataclass(slots=True)
class BatchLog:
    """Finished batches since the last window, and the latencies of all requests.

    Attributes:
        batches: finished batches in the order of their answers.
        latencies_s: time from arrival to answer of each request, s, by model.
    """

    batches: list[Batch] = field(default_factory=list)
    latencies_s: dict[str, "array[float]"] = field(default_factory=dict)

    def add(self, batch: Batch, arrivals_s: Sequence[float]) -> None:
        """Add a batch that has ended, with the arrivals of its requests."""
        self.batches.append(batch)
        found = self.latencies_s.setdefault(batch.tenant.model, array("f"))
        found.extend(batch.end_s - arrival_s for arrival_s in arrivals_s)

    def forget(self, before_s: float) -> None:
        """Forget batches that ended before a time, s, at which the present window begins."""
        self.batches = [one for one in self.batches if one.end_s > before_s]

    def overlapping(self, start_s: float, end_s: float) -> list[Batch]:
        """Return the batches that ran in a window."""
        return [one for one in self.batches if one.end_s > start_s and one.start_s < end_s]

    def latencies_ms(self, model: str | None = None) -> Mapping[str, float]:
        """Return the 50, 95 and 99 % quantiles of the latencies of a model's requests, ms.

        Args:
            model: the model; ``None`` for all requests.
        """
        chosen = [own for name, own in self.latencies_s.items() if model in (None, name)]
        values = np.concatenate([np.zeros(0), *(np.asarray(one) for one in chosen)])
        if not values.size:
            return {}
        quantiles = 1e3 * np.quantile(values, (0.5, 0.95, 0.99))
        return dict(zip(("p50", "p95", "p99"), map(float, quantiles), strict=True))


def figures(
    batches: Iterable[Batch], workers: Sequence[int], start_s: float, end_s: float
) -> dict[str, Any]:
    """Return the fields of ``MeasuredWindow`` about throughput and times of batches.

    A batch at an edge of the window counts with the share of its time in the window.

    Args:
        batches: batches that ran in the window.
        workers: number of the worker of each present tenant.
        start_s: start of the window.
        end_s: end of the window.
    """
    samples = dict.fromkeys(workers, 0.0)
    others, times_ms = 0.0, []
    for one in batches:
        count = one.samples * one.share_in(start_s, end_s)
        if one.worker in samples:
            samples[one.worker] += count
        else:
            others += count
        if start_s < one.end_s <= end_s:
            times_ms.append(1e3 * (one.end_s - one.start_s))
    duration_s = end_s - start_s
    found: dict[str, Any] = {
        "steps": len(times_ms),
        "throughput_per_s": (sum(samples.values()) + others) / duration_s,
        "tenant_throughputs_per_s": tuple(one / duration_s for one in samples.values()),
    }
    if times_ms:
        names = ("latency_p50_ms", "latency_p95_ms", "latency_p99_ms")
        quantiles = map(float, np.quantile(times_ms, (0.5, 0.95, 0.99)))
        found |= dict(zip(names, quantiles, strict=True))
    return found
