"""The records of a profile by kernels, and their sentences and tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.core import formatting

HEAD = ("kind of work", "time/step", "share", "attributed J/step", "of the run")
KERNEL_HEAD = ("kernel", "time/step", "share", "attributed J/step")
_ROWS: Final = 20
_LONGEST: Final = 90
_NAMES: Final = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """A kernel's, or a kind of kernels', part of a step.

    Attributes:
        name: of it; operators of the host if no accelerator worked.
        class_name: what kind of work; ``idle`` for none.
        calls: a step.
        time_s: a step, on all devices of the process together.
        share: of the devices' time.
        energy_j: a step, attributed by that share; ``None`` if nothing was measured.
    """

    name: str
    class_name: str
    calls: float
    time_s: float
    share: float
    energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRoofline:
    """Where a step lies under the card's roof.

    Attributes:
        flops_per_s: of the user's FLOPs, over the whole step, a device.
        flops_per_byte: of the memory's traffic by its counter.
        ridge: FLOPs a byte from which on arithmetic is the limit.
        peak_flops_per_s: of the card.
        source: of the peaks.
    """

    flops_per_s: float
    flops_per_byte: float
    ridge: float
    peak_flops_per_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """What windows of the framework's profiler have found.

    Attributes:
        framework: whose profiler; ``None`` if none ran.
        has_device: whether an accelerator was seen at work.
        windows: that were recorded.
        measured_steps: whole steps in them that are in the figures.
        steps: of the training.
        step_s: mean outside of windows; ``None`` if there was nothing outside.
        overhead: what windows cost, as a share of the time of training without them.
        scope: whose energy: ``gpu`` or ``host``.
        j_per_step: measured outside of windows; ``None`` if not known.
        j_per_step_error: half-width of its 95 % interval.
        kernels_per_step: kernels and copies.
        busy_share: of the devices' time in which anything ran.
        classes: by kind of work, most time first, idle last; they add up to the step.
        kernels: those with most time, and all others in one row.
        parts: shares of the busy time: ``forward``, ``backward``, ``optimizer``.
        idle_s: a step, by cause: ``input``, ``launch``, ``host``, ``device``.
        cudnn_share: of the busy time, in cuDNN.
        copy_s: a step, copies between host and devices.
        copy_overlap: share of it that kernels hide.
        activity: the card's own counters while training, shares of the time.
        roofline: if the user gave FLOPs.
        bound: what holds the training back.
        sentence: the same in words.
        evidence: by which figures.
        traces: files for Perfetto, ``chrome://tracing`` or TensorBoard, in the run folder.
        folded: file of joules as folded stacks.
        speedscope: file of the same for speedscope.
        notes: what went amiss.
    """

    framework: str | None
    has_device: bool
    windows: int
    measured_steps: int
    steps: int
    step_s: float | None
    overhead: float | None
    scope: str
    j_per_step: float | None
    j_per_step_error: float | None
    kernels_per_step: float | None
    busy_share: float | None
    classes: tuple[KernelRow, ...]
    kernels: tuple[KernelRow, ...]
    parts: dict[str, float] | None
    idle_s: dict[str, float] | None
    cudnn_share: float | None
    copy_s: float | None
    copy_overlap: float | None
    activity: dict[str, float] | None
    roofline: KernelRoofline | None
    bound: Literal["input", "launch", "memory", "compute", "unknown"]
    sentence: str
    evidence: tuple[str, ...]
    traces: tuple[str, ...]
    folded: str | None
    speedscope: str | None
    notes: tuple[str, ...]

    @property
    def device_s(self) -> float:
        """Time of a step, summed over the devices."""
        return sum(row.time_s for row in self.classes)

    @property
    def energy_j(self) -> float | None:
        """Energy of all steps at the energy of a step outside of windows; ``None`` if unknown."""
        return None if self.j_per_step is None else self.j_per_step * self.steps

    def share_of(self, class_name: str) -> float:
        """Returns the share of a kind of work in the devices' time."""
        return sum(row.share for row in self.classes if row.class_name == class_name)

    def idle_share(self, cause: str) -> float | None:
        """Returns the share of idle time with a cause in the devices' time; ``None`` if unknown."""
        if self.idle_s is None or not self.device_s:
            return None
        return self.idle_s[cause] / self.device_s


def sentences(profile: KernelProfile) -> tuple[str, ...]:
    """Returns the findings as sentences, for the text before the tables."""
    return tuple(_sentences(profile))


def _sentences(profile: KernelProfile) -> Iterator[str]:
    if profile.classes:
        yield profile.sentence
        yield f"Evidence: {'; '.join(profile.evidence)}."
        yield _recording(profile)
        yield from _parts(profile)
        yield _energy(profile)
    if profile.roofline is not None:
        yield _roof(profile.roofline)
    yield from (note[:1].upper() + note[1:] + "." for note in profile.notes)
    if files := [*profile.traces, *filter(None, (profile.folded, profile.speedscope))]:
        yield f"Files: {', '.join(files)}"


def _recording(profile: KernelProfile) -> str:
    work = "kernels" if profile.has_device else "operators"
    framework = _NAMES.get(profile.framework or "", profile.framework)
    sentence = (
        f"{profile.measured_steps} steps of {profile.steps} were recorded by {framework}'s "
        f"profiler in {profile.windows} window{'s' if profile.windows > 1 else ''}"
    )
    if profile.overhead is not None:
        sentence += f", which made training {formatting.percent(profile.overhead)} longer"
    if profile.kernels_per_step is not None:
        sentence += f"; {profile.kernels_per_step:.0f} {work} a step"
    return sentence + "."


def _parts(profile: KernelProfile) -> Iterator[str]:
    shares = dict(profile.parts or {})
    if profile.cudnn_share and profile.has_device:
        shares["cuDNN"] = profile.cudnn_share
    if shares:
        listed = (f"{part} {formatting.percent(share)}" for part, share in shares.items())
        yield f"Of the time at work: {', '.join(listed)}."
    if profile.copy_overlap is not None:
        hidden = formatting.percent(profile.copy_overlap)
        yield f"Copies between host and device overlap with kernels in {hidden} of their time."


def _energy(profile: KernelProfile) -> str:
    if profile.j_per_step is None or profile.j_per_step_error is None:
        return "Joules are unknown: no sensor could tell the energy of a step."
    joules = " ± ".join(formatting.with_error(profile.j_per_step, profile.j_per_step_error))
    device = "the GPUs" if profile.scope == "gpu" else "the host"
    return (
        f"A step took {joules} J of {device}, measured between the windows. What each kind of work "
        "has of it is attributed by its share of the time: that all draw the same power is assumed."
    )


def _roof(roof: KernelRoofline) -> str:
    return (
        f"Roofline: {roof.flops_per_s / 1e12:.3g} TFLOP/s of {roof.peak_flops_per_s / 1e12:.4g} at "
        f"{roof.flops_per_byte:.3g} FLOPs a byte; the ridge is at {roof.ridge:.3g} ({roof.source})."
    )


def class_rows(profile: KernelProfile) -> list[tuple[str, ...]]:
    """Returns the table of kinds of work with the columns ``HEAD``; rows sum to the step."""
    steps = profile.steps
    return [(row.name, *_times(row), *_joules(row.energy_j, steps)) for row in profile.classes]


def kernel_rows(profile: KernelProfile) -> list[tuple[str, ...]]:
    """Returns the table of the longest kernels, with the columns ``KERNEL_HEAD``."""
    return [
        (_short(row.name), *_times(row), _joules(row.energy_j, profile.steps)[0])
        for row in profile.kernels[:_ROWS]
    ]


def _times(row: KernelRow) -> tuple[str, str]:
    return (formatting.short_time(row.time_s), formatting.percent(row.share))


def _joules(energy_j: float | None, steps: int) -> tuple[str, str]:
    if energy_j is None:
        return ("unknown", "unknown")
    return (formatting.joules(energy_j), formatting.energy(energy_j * steps))


def _short(name: str) -> str:
    """Removes the common prefix of PyTorch's kernels from a name, and limits its length.

    >>> _short("void at::native::reduce_kernel<512, 1>()")
    'reduce_kernel<512, 1>()'
    """
    name = name.removeprefix("void ").replace("at::native::", "")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
