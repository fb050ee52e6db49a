"""Builds the sections for batch-size searches and profiles in a report, with tables and charts.

The HTML page, the plain text and the terminal output share these sections.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from energy_callbacks.report.charts.batch_size_plot import batch_size_figure
from energy_callbacks.report.charts.drawing import Chart
from energy_callbacks.report.charts.power_limit_plot import power_limit_figure
from energy_callbacks.report.charts.profile_plots import host_figure, kernels_figure
from energy_callbacks.report.model import (
    batch_sizes,
    power_limit,
    profile_host,
    profile_kernels,
    profile_lines,
    profile_phases,
)
from energy_callbacks.report.model.schema import EnergyReport, Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of a report.

    Attributes:
        title: heading.
        remarks: sentences about the section.
        head: names of the table's columns.
        rows: cells of the table; empty if the section has no table.
        notes: sentences directly below the table.
        lines: preformatted text below the table.
        chart: chart of the section; ``None`` if the section has none.
    """

    title: str
    remarks: Sequence[str] = ()
    head: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    notes: Sequence[str] = ()
    lines: Sequence[str] = ()
    chart: Chart | None = None


def batch_size_sections(report: EnergyReport) -> Iterator[Section]:
    """Yield a section for each batch-size search."""
    title = "Batch size"
    for number, curve in enumerate(report.batch_sizes, start=1):
        name = "batch_sizes" if number == 1 else f"batch_sizes_{number}"
        yield Section(
            title=title,
            remarks=(curve.sentence,),
            head=batch_sizes.HEAD,
            rows=batch_sizes.rows(curve),
            chart=Chart(name=name, title=title, draw=batch_size_figure, data=curve),
        )


def profile_sections(profile: Profile | None) -> Iterator[Section]:
    """Yield the sections of the profiles of a run."""
    if profile is None:
        return
    if (phases := profile.step_phases) is not None:
        yield Section(
            title="Phases of a step",
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
    if profile.power_limit is not None:
        yield _power_limit(profile.power_limit)


def _power_limit(search: power_limit.PowerLimitSearch) -> Section:
    title = "Power limit"
    return Section(
        title=title,
        remarks=search.sentences,
        head=power_limit.HEAD,
        rows=power_limit.rows(search),
        chart=Chart(name="power_limit", title=title, draw=power_limit_figure, data=search),
    )


def _kernels(profile: profile_kernels.KernelProfile) -> Iterator[Section]:
    title = "Kernels: device time by kind of work"
    yield Section(
        title=title,
        remarks=profile_kernels.sentences(profile),
        head=profile_kernels.HEAD,
        rows=profile_kernels.class_rows(profile),
        chart=Chart(name="kernels", title=title, draw=kernels_figure, data=profile),
    )
    if profile.kernels:
        yield Section(
            title="Kernels: longest times",
            head=profile_kernels.KERNEL_HEAD,
            rows=profile_kernels.kernel_rows(profile),
        )


def _lines(profile: profile_lines.LineProfile) -> Iterator[Section]:
    remarks = [profile.sentence]
    if profile.files:
        remarks.append(f"Files: {', '.join(profile.files)}.")
    for title, head, rows in profile_lines.tables(profile):
        yield Section(title=title, remarks=remarks, head=head, rows=rows)
        remarks = []


def _host(profile: profile_host.HostProfile) -> Iterator[Section]:
    if (calls := profile.calls) is not None:
        yield Section(
            title="Host: calls by own time",
            remarks=(calls.sentence, f"SnakeViz shows the file {calls.file}."),
            head=profile_host.HEAD,
            rows=profile_host.rows(calls),
        )
        title = "Host: calls with their callees"
        yield Section(
            title=title,
            remarks=(profile_host.KNOWS_BY_FUNCTION,),
            head=profile_host.CALLEES_HEAD,
            rows=profile_host.callee_rows(calls.functions),
            chart=Chart(name="host_icicle", title=title, draw=host_figure, data=calls),
        )
    if (memory := profile.memory) is not None:
        more = f", with {memory.left_out} more lines" if memory.left_out else ""
        yield Section(
            title="Host: memory by line",
            remarks=(f"Measured by memory_profiler. The whole table{more}: {memory.file}.",),
            lines=memory.lines,
        )
    if (workers := profile.workers) is not None:
        yield Section(
            title="Host: data-loader workers",
            remarks=(
                f"Sum over {workers.processes} processes. Files: {', '.join(workers.files)}.",
            ),
            head=profile_host.CALLEES_HEAD,
            rows=profile_host.callee_rows(workers.functions),
            lines=workers.lines,
        )
