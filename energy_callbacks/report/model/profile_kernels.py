"""Records of the kernel profile, and its sentences and tables."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from energy_callbacks.core import formatting

HEAD = ("kind of work", "time/step", "share", "attributed J/step", "run total")
KERNEL_HEAD = ("kernel", "time/step", "share", "attributed J/step")
# Maximum number of rows of the table of kernels, and maximum length of a kernel's name.
_ROWS: Final = 20
_LONGEST: Final = 90
_NAMES: Final = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """The part of a step that belongs to one kernel, or to one class of kernels.

    Attributes:
        name: name of the kernel or class; name of a host operator if no accelerator ran kernels.
        class_name: name of the class, such as ``attention``; ``idle`` for idle time.
        calls: number of executions per step.
        time_s: time per step, summed over the devices of the process, in seconds.
        share: ``time_s`` as a share of the devices' busy and idle time, 0 to 1.
        energy_j: energy per step, attributed by ``share``; ``None`` if the energy of a step is not
            known.
    """

    name: str
    class_name: str
    calls: float
    time_s: float
    share: float
    energy_j: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRoofline:
    """The position of a training step in the roofline model of the GPU.

    Attributes:
        flops_per_s: FLOPs per step as stated by the user, divided by the duration of the whole
            step and by the number of GPUs.
        flops_per_byte: FLOPs per step as stated by the user, divided by the bytes that the GPU's
            memory moves per step. These bytes are computed from the mean share of the memory
            bandwidth that is in use, or of the time in which memory is in use.
        ridge: FLOPs per byte above which arithmetic is the limit; below, memory is the limit.
        peak_flops_per_s: maximum FLOPs per second of the GPU.
        source: how the GPU's maximum FLOPs per second and memory bandwidth are known.
        is_lower_bound: whether ``flops_per_byte`` is a lower bound, because only the time in which
            memory is in use is known (GPUs before Hopper).
    """

    flops_per_s: float
    flops_per_byte: float
    ridge: float
    peak_flops_per_s: float
    source: str
    is_lower_bound: bool = False

    @property
    def intensity(self) -> str:
        """``flops_per_byte`` as text."""
        return f"{'at least ' * self.is_lower_bound}{self.flops_per_byte:.3g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelProfile:
    """Results of the windows of steps that the framework's profiler recorded.

    Attributes:
        framework: framework whose profiler recorded the windows; ``None`` if no profiler ran.
        has_device: whether an accelerator executed kernels.
        windows: number of recorded windows.
        measured_steps: number of whole steps in the windows; times of kernels are means over these.
        steps: number of optimizer steps of the training.
        step_s: mean duration of a step outside the windows; ``None`` if no step was outside.
        overhead: time that recording added to the training, as a share of the training time
            without recording; ``None`` if not known.
        scope: scope of the energy: ``gpu`` or ``host``.
        j_per_step: energy per step outside the windows; ``None`` if not known or not resolved.
        j_per_step_error: half-width of the 95 % interval of ``j_per_step``; ``None`` if not known.
        kernels_per_step: number of kernels and copies per step, or of operators of the host if no
            accelerator ran kernels; ``None`` if no step was recorded.
        busy_share: share of the devices' time in which a kernel or copy ran; ``None`` if not known.
        classes: one row for each class of kernels, longest first, then one for idle time; the
            times of the rows add up to ``device_s``.
        kernels: one row for each of the longest kernels, and one for all other kernels.
        parts: share of ``forward``, ``backward`` and ``optimizer`` in the busy time; ``None`` if
            not known.
        idle_s: idle time per step in seconds, by cause: ``input`` (a batch was fetched), ``launch``
            (the host launched kernels), ``host`` (the host did other work), ``device`` (the next
            work was already queued); ``None`` if not known.
        cudnn_share: share of cuDNN's kernels in the busy time; ``None`` if not known.
        copy_s: time of copies between host and devices per step, in seconds; ``None`` if not known.
        copy_overlap: share of the time of copies in which kernels ran too; ``None`` without copies.
        activity: mean values of the GPUs' activity counters outside the windows, 0 to 1, by
            quantity, such as ``sm_active``; ``None`` if not known.
        roofline: position in the roofline model; ``None`` if the user stated no FLOPs, or if the
            GPU's peaks or its memory traffic are not known.
        bound: what limits the speed of the training.
        sentence: ``bound`` as a sentence.
        evidence: statements with numbers that support ``sentence``.
        traces: files for Perfetto, ``chrome://tracing`` or TensorBoard, in the run folder.
        folded: file with the energy by kernel for flame graphs, in the format "folded stacks";
            ``None`` if not written.
        speedscope: file with the energy by kernel for the viewer speedscope; ``None`` if not
            written.
        notes: problems that occurred during profiling.
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
        """Busy and idle time per step, summed over the devices, in seconds."""
        return sum(row.time_s for row in self.classes)

    @property
    def energy_j(self) -> float | None:
        """Energy of all steps in joules: ``j_per_step`` times ``steps``; ``None`` if not known."""
        return None if self.j_per_step is None else self.j_per_step * self.steps

    def share_of(self, class_name: str) -> float:
        """Return the share of a class of kernels in the devices' busy and idle time."""
        return sum(row.share for row in self.classes if row.class_name == class_name)

    def idle_share(self, cause: str) -> float | None:
        """Return the share of ``device_s`` that is idle for ``cause``; ``None`` if not known."""
        if self.idle_s is None or not self.device_s:
            return None
        return self.idle_s[cause] / self.device_s


def sentences(profile: KernelProfile) -> tuple[str, ...]:
    """Return the results as sentences, for display above the tables."""
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
        f"The profiler of {framework} recorded {profile.measured_steps} of {profile.steps} steps "
        f"in {profile.windows} window{'s' if profile.windows > 1 else ''}"
    )
    if profile.overhead is not None:
        sentence += f", which prolonged the training by {formatting.percent(profile.overhead)}"
    if profile.kernels_per_step is not None:
        sentence += f"; {profile.kernels_per_step:.0f} {work} per step"
    return sentence + "."


def _parts(profile: KernelProfile) -> Iterator[str]:
    shares = dict(profile.parts or {})
    if profile.cudnn_share and profile.has_device:
        shares["cuDNN"] = profile.cudnn_share
    if shares:
        listed = (f"{part} {formatting.percent(share)}" for part, share in shares.items())
        yield f"Shares of the busy time: {', '.join(listed)}."
    if profile.copy_overlap is not None:
        hidden = formatting.percent(profile.copy_overlap)
        yield f"Copies between host and device overlap with kernels for {hidden} of their time."


def _energy(profile: KernelProfile) -> str:
    if profile.j_per_step is None or profile.j_per_step_error is None:
        return "The energy of a step is not known."
    joules = " ± ".join(formatting.with_error(profile.j_per_step, profile.j_per_step_error))
    device = "the GPUs" if profile.scope == "gpu" else "the host"
    return (
        f"A step used {joules} J of {device}, measured outside the windows. This energy is "
        "attributed to the kinds of work by time, as if all of them had the same power."
    )


def _roof(roof: KernelRoofline) -> str:
    return (
        f"Roofline: {roof.flops_per_s / 1e12:.3g} of {roof.peak_flops_per_s / 1e12:.4g} TFLOP/s at "
        f"{roof.intensity} FLOPs per byte; the ridge is at {roof.ridge:.3g} "
        f"({roof.source})."
    )


def class_rows(profile: KernelProfile) -> list[tuple[str, ...]]:
    """Return table rows of the classes, with the columns ``HEAD``; times sum to ``device_s``."""
    steps = profile.steps
    return [(row.name, *_times(row), *_joules(row.energy_j, steps)) for row in profile.classes]


def kernel_rows(profile: KernelProfile) -> list[tuple[str, ...]]:
    """Return table rows of the longest kernels, with the columns ``KERNEL_HEAD``."""
    return [
        (_short(row.name), *_times(row), _joules(row.energy_j, profile.steps)[0])
        for row in profile.kernels[:_ROWS]
    ]


def _times(row: KernelRow) -> tuple[str, str]:
    return (formatting.short_time(row.time_s), formatting.percent(row.share))


def _joules(energy_j: float | None, steps: int) -> tuple[str, str]:
    if energy_j is None:
        return (formatting.UNKNOWN, formatting.UNKNOWN)
    return (formatting.joules(energy_j), formatting.energy(energy_j * steps))


def _short(name: str) -> str:
    """Return the name of a kernel without PyTorch's common prefixes, cut to a maximum length.

    >>> _short("void at::native::reduce_kernel<512, 1>()")
    'reduce_kernel<512, 1>()'
    """
    name = name.removeprefix("void ").replace("at::native::", "")
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
