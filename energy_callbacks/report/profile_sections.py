"""Sections of a report that profilers fill: page, text and terminal show the same ones."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from energy_callbacks.report import profile_kernels, profile_lines
from energy_callbacks.report.kernels_plot import kernels_figure
from energy_callbacks.report.profile import Profile
from energy_callbacks.report.profile_kernels import KernelProfile
from energy_callbacks.report.profile_lines import LineProfile

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section.

    Attributes:
        name: of its picture's file, and in ids.
        remarks: sentences, before the table.
        head: of the table's columns.
        lines: shown as they are, in a font of one width.
        draw: gives its picture for a ``width_in``; ``None`` where it has none.
    """

    name: str
    title: str
    remarks: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    lines: Sequence[str] = ()
    draw: "Callable[..., Canvas | None] | None" = None


def sections(profile: Profile | None) -> Iterator[Section]:
    """The sections of what was found."""
    if profile is not None and profile.kernels is not None:
        yield from _kernels(profile.kernels)
    if profile is not None and profile.lines is not None:
        yield from _lines(profile.lines)


def _lines(found: LineProfile) -> Iterator[Section]:
    files = [f"more in {', '.join(found.files)}"] if found.files else []
    yield Section(
        name="lines",
        title="Energy by lines of source",
        remarks=[found.sentence, *files],
        head=profile_lines.HEAD,
        rows=profile_lines.rows(found),
    )
    yield Section(
        name="functions",
        title="Energy by functions",
        head=profile_lines.FUNCTION_HEAD,
        rows=profile_lines.function_rows(found),
    )


def _kernels(found: KernelProfile) -> Iterator[Section]:
    yield Section(
        name="kernels",
        title="Kernels: who had the device's time",
        remarks=profile_kernels.sentences(found),
        head=profile_kernels.HEAD,
        rows=profile_kernels.class_rows(found),
        draw=(lambda *, width_in: kernels_figure(found, width_in=width_in))
        if found.classes
        else None,
    )
    if found.kernels:
        yield Section(
            name="kernels_longest",
            title="Kernels: the longest",
            head=profile_kernels.KERNEL_HEAD,
            rows=profile_kernels.kernel_rows(found),
        )
