"""Sections of a report for profiles, the same on page, in text and in the terminal."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from energy_callbacks.report.charts.host_plot import host_figure
from energy_callbacks.report.charts.kernels_plot import kernels_figure
from energy_callbacks.report.model import (
    profile_host,
    profile_kernels,
    profile_lines,
    profile_phases,
)
from energy_callbacks.report.model.profile_host import HostProfile
from energy_callbacks.report.model.profile_kernels import KernelProfile
from energy_callbacks.report.model.profile_lines import LineProfile
from energy_callbacks.report.model.schema import Profile

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
        draw: gives its picture for a ``width_in``; ``None`` if it has none.
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
    if profile is None:
        return
    if (phases := profile.step_phases) is not None:
        yield Section(
            name="step_phases",
            title="Phases of the step",
            remarks=(phases.sentence,),
            head=profile_phases.HEAD,
            rows=profile_phases.rows(phases),
        )
    if profile.kernels is not None:
        yield from _kernels(profile.kernels)
    if profile.lines is not None:
        yield from _lines(profile.lines)
    if profile.host is not None:
        yield from _host(profile.host)


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


def _lines(found: LineProfile) -> Iterator[Section]:
    files = f"more in {', '.join(found.files)}"
    for number, (title, head, rows) in enumerate(profile_lines.tables(found)):
        remarks = (found.sentence, *([files] if found.files else [])) if number == 0 else ()
        yield Section(name=f"lines_{number}", title=title, remarks=remarks, head=head, rows=rows)


def _host(found: HostProfile) -> Iterator[Section]:
    if (calls := found.calls) is not None:
        yield Section(
            name="host_calls",
            title="Host: calls by own time",
            remarks=(calls.sentence, f"{calls.file} opens in SnakeViz"),
            head=profile_host.HEAD,
            rows=profile_host.rows(calls),
        )
        yield Section(
            name="host_icicle",
            title="Host: calls with what they called",
            remarks=(profile_host.KNOWS_BY_FUNCTION,),
            head=profile_host.CALLEES_HEAD,
            rows=profile_host.callee_rows(calls.functions),
            draw=lambda *, width_in: host_figure(calls, width_in=width_in),
        )
    if (memory := found.memory) is not None:
        more = f"; {memory.left_out} more lines are in it" if memory.left_out else ""
        yield Section(
            name="host_memory",
            title="Host: memory line by line",
            remarks=(f"by memory_profiler, in {memory.file}{more}",),
            lines=memory.lines,
        )
    if (workers := found.workers) is not None:
        yield Section(
            name="host_workers",
            title="Host: data-loader workers",
            remarks=(f"{workers.processes} processes together: {', '.join(workers.files)}",),
            head=profile_host.CALLEES_HEAD,
            rows=profile_host.callee_rows(workers.functions),
            lines=workers.lines,
        )
