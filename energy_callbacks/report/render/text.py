"""The report as text: plain for files and pipes, with rich in a terminal, one line for a log."""

import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from energy_callbacks.core import formatting
from energy_callbacks.report.charts.profile_sections import sections
from energy_callbacks.report.model import batch_sizes, figure_format
from energy_callbacks.report.model.display import as_text
from energy_callbacks.report.model.models import (
    Activity,
    DeviceUse,
    Figure,
    Phase,
    RankUse,
    ReportWarning,
)
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.headline import cards

_NARROWEST = 40
_NARROWEST_COLUMN = 6
# Columns of names, like the first one of each table; a number that is cut is a wrong number.
_NAMES = ("host", "cards")


def summary_line(report: EnergyReport, path: Path | None = None) -> str:
    """The run in one line, for the end of a training.

    ``12.3 Wh (gpu 10.1 measured, host 2.2 estimated) · 0.41 J/sample · 4.5 gCO2e (Germany)``

    Args:
        report: the report.
        path: of the saved report, named at the end.
    """
    pieces = [_energy_in_short(report), _efficiency_in_short(report), _emissions_in_short(report)]
    if report.run.status not in ("finished", "running"):
        pieces.insert(0, report.run.status)
    attempts = len({attempt.attempt for attempt in report.attempts})
    if attempts > 1:
        pieces.insert(0, f"{attempts} attempts together")
    if report.warnings:
        pieces.append(f"{len(report.warnings)} warning{'s' if len(report.warnings) > 1 else ''}")
    if path is not None:
        pieces.append(f"report: {path}")
    return " · ".join(formatting.one_line(piece) for piece in pieces if piece)


def _energy_in_short(report: EnergyReport) -> str:
    by_scope = {"gpu": report.energy.gpu, "host": report.energy.host}
    known = [
        f"{scope} {figure_format.figure(figure)} {figure.origin}"
        for scope, figure in by_scope.items()
        if figure.energy_j is not None
    ]
    if not known:
        return "energy not known"
    return f"{figure_format.figure(report.energy.total)} ({', '.join(known)})"


def _efficiency_in_short(report: EnergyReport) -> str:
    has_gpu = report.efficiency.gpu.j_per_step is not None
    found = report.efficiency.gpu if has_gpu else report.efficiency.total
    for unit, ratio in (
        ("token", found.j_per_token),
        ("sample", found.j_per_sample),
        ("step", found.j_per_step),
    ):
        if ratio is not None:
            return f"{figure_format.ratio(ratio)}/{unit}"
    return ""


def _emissions_in_short(report: EnergyReport) -> str:
    found = report.emissions
    if found is None:
        return ""
    return f"{figure_format.emissions(found)} ({found.place or 'place not known'})"


@as_text.register
def render(report: EnergyReport, width: int = 80) -> str:
    """The report as plain text, warnings first.

    Args:
        report: the report.
        width: of a line, in characters; at least 40.
    """
    width = max(width, _NARROWEST)
    blocks = [
        _title(report, width),
        _warnings(report.warnings, width),
        _headline(report, width),
        _section("What to change", _advice(report, width), width),
        _section("Energy by phase", _table(PHASE_HEAD, phase_rows(report), width), width),
        _section("Energy per unit of work", _table(RATIO_HEAD, ratio_rows(report), width), width),
        _section("GPU activity", _table(ACTIVITY_HEAD, activity_rows(report), width), width),
        _section("Devices", _devices(report, width), width),
        _section("Measured and estimated by", _sensors(report, width), width),
        _section("Attempts", _attempts(report, width), width),
        _section("Ranks", _ranks(report, width), width),
        *_batch_sizes(report, width),
        *_profile(report, width),
        _section("How to read this", _notes(report, width), width),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _title(report: EnergyReport, width: int) -> list[str]:
    run = report.run
    name = _clipped(formatting.one_line(run.name or f"run {run.run_id}"), width - 16)
    facts = [run.status, formatting.duration(run.duration_s)]
    if run.framework:
        facts.append(f"{run.framework} {run.framework_version or ''}".strip())
    lines = [f"Energy report: {name}", _clipped(" · ".join(map(formatting.one_line, facts)), width)]
    if run.job:
        lines.append(_clipped(formatting.one_line(run.job.label), width))
    if run.error:
        lines += _wrapped(f"error: {run.error}", width)
    lines.append("=" * width)
    return lines


def _warnings(warnings: Sequence[ReportWarning], width: int) -> list[str]:
    lines = []
    for warning in warnings:
        lines += _wrapped(f"! {warning.message}", width, indent="  ")
        if warning.fix:
            lines += _wrapped(f"  fix: {warning.fix}", width, indent="  ")
    return lines


def _headline(report: EnergyReport, width: int) -> list[str]:
    shown = cards(report)
    label_width = max(len(card.label) for card in shown)
    lines = []
    for card in shown:
        detail = ", ".join(part for part in (card.origin, card.detail) if part)
        text = f"{card.label:<{label_width}}  {card.value}" + (f"  ({detail})" if detail else "")
        lines += _wrapped(text, width, indent=" " * (label_width + 2))
    return lines


PHASE_HEAD = ("phase", "time", "gpu", "host", "total", "±", "share")
RATIO_HEAD = ("per", "energy", "95 % interval", "steps")
ACTIVITY_HEAD = ("phase", "SM active", "SM occupancy", "tensor active", "DRAM active")
DEVICE_HEAD = ("device", "energy", "±", "mean", "peak", "memory", "origin")
RANK_HEAD = ("rank", "cards", "steps", "samples", "training", "data wait", "gpu", "mean")
ATTEMPT_HEAD = ("attempt", "host", "rank", "status", "time", "steps", "energy", "±")


def phase_rows(report: EnergyReport) -> list[tuple[str, ...]]:
    """The cells of the table of phases."""
    return [_phase_row(phase) for phase in report.phases]


def _phase_row(phase: Phase) -> tuple[str, ...]:
    scopes = (phase.gpu, phase.host, phase.total)
    energies = [_short_energy(figure) for figure in scopes]
    return (
        phase.name,
        formatting.duration(phase.duration_s),
        *energies,
        figure_format.error(phase.total),
        figure_format.share(phase),
    )


def ratio_rows(report: EnergyReport) -> list[tuple[str, ...]]:
    """The cells of the table of joules per step, sample and token."""
    return [
        (
            f"{unit}, {scope}",
            figure_format.ratio(ratio),
            figure_format.ratio_interval(ratio),
            _or_dash(ratio.steps, formatting.grouped),
        )
        for scope, found in (("gpu", report.efficiency.gpu), ("total", report.efficiency.total))
        for unit, ratio in (
            ("step", found.j_per_step),
            ("sample", found.j_per_sample),
            ("token", found.j_per_token),
        )
        if ratio is not None
    ]


def activity_rows(report: EnergyReport) -> list[tuple[str, ...]]:
    """The cells of the table of how busy the GPUs were; none if no card reports it."""
    return [
        (phase.name, *(_or_dash(share, formatting.percent) for share in _shares(phase.activity)))
        for phase in report.phases
        if phase.activity is not None
    ]


def _shares(busy: Activity) -> tuple[float | None, ...]:
    return (busy.sm_active, busy.sm_occupancy, busy.tensor_active, busy.dram_active)


def _short_energy(figure: Figure) -> str:
    return "-" if figure.energy_j is None else figure_format.figure(figure)


def device_rows(report: EnergyReport) -> list[tuple[str, ...]]:
    """The cells of the table of devices."""
    several = len({device.host for device in report.devices}) > 1
    return [_device_row(one, several) for one in report.devices if one.scope is not None]


def _device_row(device: DeviceUse, with_host: bool) -> tuple[str, ...]:
    return (
        f"{device.key} {device.host if with_host else device.name}",
        _short_energy(device.energy),
        figure_format.error(device.energy),
        _or_dash(device.mean_power_w if device.energy.is_resolved else None, formatting.power),
        _or_dash(device.peak_power_w, formatting.power),
        _or_dash(device.memory_peak_bytes, formatting.size),
        f"in {device.counted_in}" if device.counted_in else device.origin,
    )


def device_notes(report: EnergyReport) -> list[str]:
    """What must be known of single devices, a sentence each."""
    return [f"{one.key}: {note}" for one in report.devices for note in one.notes]


def _devices(report: EnergyReport, width: int) -> Iterator[str]:
    yield from _table(DEVICE_HEAD, device_rows(report), width)
    for note in device_notes(report):
        yield from _wrapped(note, width, indent="  ")


def _or_dash(value: float | None, say: Callable[[float], str]) -> str:
    return "-" if value is None else say(value)


def attempt_rows(report: EnergyReport) -> list[tuple[str, ...]]:
    """The cells of the table of attempts; none if there is but one."""
    if len(report.attempts) < 2:
        return []
    return [
        (
            str(one.attempt),
            one.host,
            str(one.rank),
            one.status,
            formatting.duration(one.duration_s),
            str(one.steps),
            _short_energy(one.energy),
            figure_format.error(one.energy),
        )
        for one in report.attempts
    ]


def attempt_jobs(report: EnergyReport) -> list[str]:
    """The jobs of attempts and ranks, each once; none if all are that of the run."""
    found: dict[str, dict[int, None]] = {}
    for one in report.attempts:
        if one.job is not None:
            found.setdefault(one.job.label, {})[one.attempt] = None
    if set(found) <= {report.run.job.label if report.run.job else ""}:
        return []
    return [f"attempt {formatting.listed(list(numbers))}: {job}" for job, numbers in found.items()]


def _attempts(report: EnergyReport, width: int) -> Iterator[str]:
    yield from _table(ATTEMPT_HEAD, attempt_rows(report), width)
    for line in attempt_jobs(report):
        yield from _wrapped(line, width, indent="  ")


def rank_rows(report: EnergyReport) -> list[tuple[str, ...]]:
    """The cells of the table of ranks; none if no attempt has several."""
    several = len({one.attempt for one in report.ranks}) > 1
    return [_rank_row(one, with_attempt=several) for one in report.ranks]


def _rank_row(one: RankUse, *, with_attempt: bool) -> tuple[str, ...]:
    place = f"{one.rank} {one.host}"
    return (
        f"{one.attempt}: {place}" if with_attempt else place,
        figure_format.cards(one),
        formatting.grouped(one.steps),
        _or_dash(one.samples, formatting.grouped),
        formatting.duration(one.train_s),
        _or_dash(one.data_wait_s, formatting.duration),
        _short_energy(one.gpu),
        _or_dash(one.gpu_power_w, formatting.power),
    )


def _ranks(report: EnergyReport, width: int) -> Iterator[str]:
    yield from _table(RANK_HEAD, rank_rows(report), width)
    for one in report.imbalances:
        yield from _wrapped(one.message, width, indent="  ")


def _sensors(report: EnergyReport, width: int) -> list[str]:
    lines = []
    for device in report.devices:
        by_sensor: dict[str, list[str]] = {}
        for sensor in device.sensors:
            by_sensor.setdefault(sensor.name, []).append(sensor.quantity)
        for name, quantities in by_sensor.items():
            text = f"{device.key}: {', '.join(quantities)} by {name}"
            lines += _wrapped(text, width, indent="  ")
    for missing in report.unavailable:
        lines += _wrapped(f"not read: {missing.source} ({missing.reason})", width, indent="  ")
    return lines


def advice_lines(report: EnergyReport) -> Iterator[str]:
    """What to change, a line each."""
    for one in report.advice:
        saving = f" ({one.saving})" if one.saving else ""
        yield f"- {one.message}{saving} -> {one.fix}"


def _advice(report: EnergyReport, width: int) -> Iterator[str]:
    for line in advice_lines(report):
        yield from _wrapped(line, width, indent="  ")


def _batch_sizes(report: EnergyReport, width: int) -> Iterator[list[str]]:
    for curve in report.batch_sizes:
        lines = _table(batch_sizes.HEAD, batch_sizes.rows(curve), width)
        yield _section("Batch size", [*_wrapped(curve.sentence, width), "", *lines], width)


def _profile(report: EnergyReport, width: int) -> Iterator[list[str]]:
    for one in sections(report.profile):
        remarks = [line for remark in one.remarks for line in _wrapped(remark, width)]
        table = _table(one.head, one.rows, width)
        lines = [_clipped(formatting.one_line(line), width) for line in one.lines]
        parts = [part for part in (remarks, table, lines) if part]
        yield _section(one.title, [line for part in parts for line in ("", *part)][1:], width)


def _notes(report: EnergyReport, width: int) -> Iterator[str]:
    for note in report.method_notes:
        yield from _wrapped(f"- {note}", width, indent="  ")


def _section(title: str, lines: Iterable[str], width: int) -> list[str]:
    body = list(lines)
    return [title, "-" * min(len(title), width), *body] if body else []


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    if not rows:
        return []
    cells = fitted(head, rows, width)
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    return [_row(row, widths) for row in cells]


def fitted(head: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[list[str]]:
    """The cells of a table, head first; names give way if its lines are too long.

    Args:
        head: of the columns.
        rows: the cells below it.
        width: of a line, in characters, with two of them between columns.
    """
    cells = [[formatting.one_line(cell) for cell in row] for row in (head, *rows)]
    widths = [max(map(_columns, column)) for column in zip(*cells, strict=True)]
    names = [i for i, name in enumerate(head) if i == 0 or name in _NAMES]
    for _ in range(max(sum(widths) + 2 * (len(widths) - 1) - width, 0)):
        widest = max(names, key=widths.__getitem__)
        widths[widest] = max(widths[widest] - 1, _NARROWEST_COLUMN)
    return [[_clipped(*pair) for pair in zip(row, widths, strict=True)] for row in cells]


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    behind = (
        " " * (width - _columns(cell)) + cell
        for cell, width in zip(cells[1:], widths[1:], strict=True)
    )
    return "  ".join([_padded(cells[0], widths[0]), *behind]).rstrip()


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _columns(text))


def _columns(text: str) -> int:
    """How many columns of a terminal a text takes: East Asian wide characters take two."""
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    marks = sum(unicodedata.combining(character) != 0 for character in text)
    return len(text) + wide - marks


def _clipped(text: str, width: int) -> str:
    if _columns(text) <= width:
        return text
    while text and _columns(text) > width - 1:
        text = text[:-1]
    return f"{text}…"


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(formatting.one_line(text), width, subsequent_indent=indent) or [""]
