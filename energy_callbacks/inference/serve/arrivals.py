"""When requests arrive: always, at random, or at recorded times. A request is one sample."""

import csv
import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from energy_callbacks.inference.serve.steps_over_time import StepsOverTime

# The rate at a time is the mean of this time before it and after it, s.
_RATE_WINDOW_S: Final = 10.0
_TIMES: Final = ("time_s", "t_s", "time", "arrival_s", "timestamp")


class Arrivals(Protocol):
    """Requests for one model. Times are seconds since the start."""

    def next_s(self) -> float:
        """Return when the next request arrives; infinity if none will."""
        ...

    def until(self, t_s: float) -> Sequence[float]:
        """Return the times of all new requests until a time, in ascending order."""
        ...

    def answered(self, count: int, t_s: float) -> None:
        """Tell that requests were answered at a time."""
        ...

    def offered(self, samples: int, t_s: float) -> None:
        """Tell how many requests keep all tenants busy at a time."""
        ...

    def rate_per_s(self, t_s: float) -> float | None:
        """Return the rate that must be served at a time; ``None`` if as much as possible."""
        ...


class ClosedLoop:
    """Clients that send a request when the previous one was answered.

    Args:
        clients: number of clients; ``None`` for as many as keep all tenants busy.

    Raises:
        ValueError: if the number is not positive.
    """

    def __init__(self, clients: int | None = None) -> None:
        if clients is not None and clients < 1:
            raise ValueError(f"clients must be at least 1, got {clients}")
        self._is_fixed: Final = clients is not None
        self._wanted = clients or 0
        self._present = 0
        self._new: deque[float] = deque()
        self._send(0.0)

    def next_s(self) -> float:
        """See ``Arrivals``."""
        return self._new[0] if self._new else math.inf

    def until(self, t_s: float) -> Sequence[float]:
        """See ``Arrivals``."""
        found = []
        while self._new and self._new[0] <= t_s:
            found.append(self._new.popleft())
        return found

    def answered(self, count: int, t_s: float) -> None:
        """See ``Arrivals``."""
        self._present -= count
        self._send(t_s)

    def offered(self, samples: int, t_s: float) -> None:
        """See ``Arrivals``."""
        if not self._is_fixed:
            self._wanted = samples
            self._send(t_s)

    def rate_per_s(self, t_s: float) -> float | None:  # noqa: ARG002
        """See ``Arrivals``."""
        return None

    def _send(self, t_s: float) -> None:
        missing = max(self._wanted - self._present, 0)
        self._new.extend([t_s] * missing)
        self._present += missing


class _OpenLoop:
    """Requests that do not depend on answers."""

    def answered(self, count: int, t_s: float) -> None:
        """See ``Arrivals``."""

    def offered(self, samples: int, t_s: float) -> None:
        """See ``Arrivals``."""


class Poisson(_OpenLoop):
    """Requests at random times, independent of each other.

    Args:
        rate: requests per second over time.
        seed: seed of the times.
    """

    def __init__(self, rate: StepsOverTime, seed: int = 0) -> None:
        self._rate: Final = rate
        self._rng = np.random.default_rng(seed)
        self._next_s = self._after(0.0)

    def next_s(self) -> float:
        """See ``Arrivals``."""
        return self._next_s

    def until(self, t_s: float) -> Sequence[float]:
        """See ``Arrivals``."""
        found = []
        while self._next_s <= t_s:
            found.append(self._next_s)
            self._next_s = self._after(self._next_s)
        return found

    def rate_per_s(self, t_s: float) -> float | None:
        """See ``Arrivals``."""
        return self._rate.at(t_s)

    def _after(self, t_s: float) -> float:
        """Return the next time; a new draw at a change of the rate does not change the process."""
        while t_s < math.inf:
            rate, change_s = self._rate.at(t_s), self._rate.next_s(t_s)
            at_s = t_s + self._rng.exponential(1.0 / rate) if rate > 0.0 else math.inf
            if at_s < change_s:
                return float(at_s)
            t_s = change_s
        return math.inf


class Recorded(_OpenLoop):
    """Requests at recorded times.

    Args:
        times_s: the times, s, in ascending order, from the start of the recording.
    """

    def __init__(self, times_s: Sequence[float]) -> None:
        self._times_s: Final = np.asarray(times_s, dtype=np.float64)
        if np.any(np.diff(self._times_s) < 0.0):
            at = int(np.argmax(np.diff(self._times_s) < 0.0))
            raise ValueError(
                f"times of requests must ascend, got {self._times_s[at + 1]:g} s after "
                f"{self._times_s[at]:g} s; sort them"
            )
        self._at = 0

    def next_s(self) -> float:
        """See ``Arrivals``."""
        return float(self._times_s[self._at]) if self._at < self._times_s.size else math.inf

    def until(self, t_s: float) -> Sequence[float]:
        """See ``Arrivals``."""
        end = int(np.searchsorted(self._times_s, t_s, side="right"))
        found = self._times_s[self._at : end].tolist()
        self._at = max(end, self._at)
        return [float(one) for one in found]

    def rate_per_s(self, t_s: float) -> float | None:
        """See ``Arrivals``."""
        start_s = max(t_s - _RATE_WINDOW_S, 0.0)
        end_s = t_s + _RATE_WINDOW_S
        first, last = np.searchsorted(self._times_s, [start_s, end_s])
        return float(last - first) / (end_s - start_s)


def read(path: Path, models: Sequence[str]) -> Mapping[str, Recorded]:
    """Read the times of requests from a CSV file.

    The file has a header with a column of times in seconds, ``time_s`` (also ``t_s``, ``time``,
    ``arrival_s`` or ``timestamp``), and a column ``model`` if there are several models. A column
    ``requests`` has the number of requests at a time. Times begin at the first of the file.

    Raises:
        ValueError: if a column is missing, or if a cell is not valid.
        OSError: if the file cannot be read.
    """
    times: dict[str, list[float]] = {model: [] for model in models}
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        names = reader.fieldnames or []
        column = next((name for name in _TIMES if name in names), None)
        if column is None:
            raise ValueError(f"{path} has no column time_s, got {', '.join(names)}")
        if len(models) > 1 and "model" not in names:
            raise ValueError(f"{path} has no column model, which several models need")
        for cells in reader:
            where = f"{path}, line {reader.line_num}"
            model = cells["model"] if "model" in names else models[0]
            if model not in times:
                raise ValueError(f"{where}: {model!r} is none of {', '.join(models)}")
            at_s, count = _numbers(where, cells[column], cells.get("requests") or "1")
            times[model] += [at_s] * count
    first_s = min((at_s for each in times.values() for at_s in each), default=0.0)
    return {
        model: Recorded(sorted(at_s - first_s for at_s in each)) for model, each in times.items()
    }


def _numbers(where: str, at: str, count: str) -> tuple[float, int]:
    try:
        at_s, requests = float(at), int(count)
    except (ValueError, TypeError):
        raise ValueError(
            f"{where}: a time in seconds and a whole number of requests are needed, got {at!r} "
            f"and {count!r}"
        ) from None
    if not math.isfinite(at_s) or requests < 0:
        raise ValueError(
            f"{where}: a time must be finite and a number of requests at least 0, got {at!r} and "
            f"{count!r}"
        )
    return at_s, requests
