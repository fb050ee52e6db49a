"""Records of what happened over time: curves of devices, phases, and progress."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Curves of one device, as values in n bins of time.

    ``utilisation``, ``temperature_c``, ``throttled_s`` and ``peak_allocated_bytes`` are empty if
    the device does not report them.

    Attributes:
        key: key of the device, unique on its host.
        host: name of the host.
        t_s: (n,), end of each bin in seconds since the run began, without pauses between attempts.
        seen_s: (n,), seconds of the bin in which power was known; ``seen_s * power_w`` is the known
            energy of the bin.
        power_w: (n,), mean power during ``seen_s``; ``None`` if power was not known in the bin.
        memory_bytes: (n,), highest memory in the bin: memory used on a GPU, resident memory of a
            process, or memory of an allocator; ``None`` if not known.
        utilisation: (n,), mean share of time in which the device was busy, 0 to 1.
        temperature_c: (n,), highest temperature in the bin, in degrees Celsius.
        throttled_s: (n,), seconds of the bin in which the driver reduced the clocks.
        peak_allocated_bytes: (n,), highest memory in the framework's allocator in the bin.
    """

    key: str
    host: str
    t_s: tuple[float, ...]
    seen_s: tuple[float, ...]
    power_w: tuple[float | None, ...]
    memory_bytes: tuple[float | None, ...]
    utilisation: tuple[float | None, ...] = ()
    temperature_c: tuple[float | None, ...] = ()
    throttled_s: tuple[float | None, ...] = ()
    peak_allocated_bytes: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of time in one phase, on the time axis of the charts.

    Attributes:
        phase: name of the phase.
        start_s: start, in seconds since the run began, without pauses between attempts.
        end_s: end, on the same time axis.
    """

    phase: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Cumulative steps, samples and energy at n moments of the run.

    Attributes:
        t_s: (n,), the moments, on the time axis of the charts.
        step: (n,), optimizer steps of the run; decreases where a resumed attempt repeats steps.
        samples: (n,), samples of the lead process (usually rank 0) in all executed steps, times the
            number of ranks; ``None`` if not counted.
        energy_j: (n,), known energy of GPUs and host up to the moment.
        train_j: (n,), part of ``energy_j`` in the phase ``train``.
    """

    t_s: tuple[float, ...]
    step: tuple[int, ...]
    samples: tuple[float, ...] | None
    energy_j: tuple[float, ...]
    train_j: tuple[float, ...]
