"""Time and energy of each phase of a process, such that they sum to the whole attempt.

Spans cover the attempt without a hole, except for the phase that was still open when a process
was cut off: that one gets what the spans leave of the total. A window that was named afterwards
takes its time and energy away from the spans it lies in. The trainings inside a measured command
take theirs away from the command.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter

from energy_callbacks.accounting.journal.launch import COMMAND
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total
from energy_callbacks.core.records import Energy
from energy_callbacks.report.collect.merge import energy_of
from energy_callbacks.report.collect.process import ProcessJournal, TimedEnergy

# Below this share of the total, a remainder is rounding of the numbers in the journal.
_ROUNDING = 1e-9


@dataclass(slots=True)
class _Piece:
    """A span, or the part of one that a window has left over."""

    name: str
    start_s: float
    end_s: float
    duration_s: float
    energy: Energy


def durations_s(process: ProcessJournal) -> dict[str, float]:
    """Seconds of each phase, in order of appearance; they sum to the attempt's duration."""
    found: dict[str, float] = {}
    for piece in _cut(process, None, UNKNOWN):
        found[piece.name] = found.get(piece.name, 0.0) + piece.duration_s
    for training in process.trainings:
        for name, duration_s in durations_s(training.process).items():
            found[name] = found.get(name, 0.0) + duration_s
        found[COMMAND] = max(found.get(COMMAND, 0.0) - training.process.end_s, 0.0)
    return found


def energies(process: ProcessJournal, key: str, whole: Energy) -> dict[str, Energy]:
    """Energy of one device in each phase.

    Args:
        process: the owner of the device.
        key: of the device in that journal.
        whole: its energy over the attempt.

    Returns:
        By phase; the joules sum to ``whole.energy_j``.
    """
    by_name: dict[str, list[_Piece]] = {}
    for piece in _cut(process, key, whole):
        by_name.setdefault(piece.name, []).append(piece)
    found = {
        name: total([p.energy for p in pieces], [p.duration_s for p in pieces])
        for name, pieces in by_name.items()
    }
    return _with_trainings(process, key, found) if process.trainings else found


def _with_trainings(
    process: ProcessJournal, key: str, found: dict[str, Energy]
) -> dict[str, Energy]:
    """What the trainings inside a command have measured themselves is taken out of it."""
    trainings = [one.process for one in process.trainings if key in one.process.devices]
    inside = [energies(one, key, energy_of(one, key)) for one in trainings]
    seconds = [durations_s(one) for one in trainings]
    known_j = math.fsum(e.energy_j or 0.0 for phases in inside for e in phases.values())
    command = found.get(COMMAND, UNKNOWN)
    if command.energy_j is None or not known_j:
        return found
    # Two that read one sensor may differ by what lies between two of its values.
    share = min(command.energy_j / known_j, 1.0)
    by_name: dict[str, list[tuple[Energy, float]]] = {}
    for duration_s, energy in zip(seconds, inside, strict=True):
        for name, one in energy.items():
            by_name.setdefault(name, []).append((one, duration_s.get(name, 0.0)))
    taken = {
        name: _times(total([one for one, _ in parts], [s for _, s in parts]), share)
        for name, parts in by_name.items()
    }
    rest = replace(
        command,
        energy_j=command.energy_j - share * known_j,
        stderr_j=math.hypot(command.stderr_j, *(one.stderr_j for one in taken.values())),
        systematic_j=max(
            command.systematic_j - math.fsum(one.systematic_j for one in taken.values()), 0.0
        ),
    )
    own = {name: energy for name, energy in found.items() if name != COMMAND}
    for name, one in taken.items():
        own[name] = total([own[name], one]) if name in own else one
    return {COMMAND: rest, **own}


def _times(energy: Energy, factor: float) -> Energy:
    if energy.energy_j is None or factor == 1.0:
        return energy
    return replace(energy, energy_j=energy.energy_j * factor)


def named(process: ProcessJournal) -> list[TimedEnergy]:
    """Windows and, of a command, the spans and windows of its trainings, by their start."""
    inside = (
        replace(one, start_s=training.start_s + one.start_s, end_s=training.start_s + one.end_s)
        for training in process.trainings
        for one in (*training.process.spans, *training.process.windows)
    )
    return sorted((*process.windows, *inside), key=attrgetter("start_s"))


def stretches(process: ProcessJournal) -> list[tuple[str, float, float]]:
    """Name, start and end of each span, of the open phase and of each window, for a time axis."""
    if process.trainings:
        return list(_around_trainings(process))
    timed = [(span.name, span.start_s, span.end_s) for span in process.spans]
    closed_s = timed[-1][2] if timed else 0.0
    if process.end_s > closed_s:
        timed.append((process.open_phase, closed_s, process.end_s))
    return timed + [(window.name, window.start_s, window.end_s) for window in process.windows]


def _around_trainings(process: ProcessJournal) -> Iterator[tuple[str, float, float]]:
    before_s = 0.0
    for training in process.trainings:
        yield COMMAND, before_s, training.start_s
        for name, start_s, end_s in stretches(training.process):
            yield name, training.start_s + start_s, training.start_s + end_s
        before_s = training.start_s + training.process.end_s
    yield COMMAND, before_s, process.end_s


def _cut(process: ProcessJournal, key: str | None, whole: Energy) -> list[_Piece]:
    pieces = [_piece(span, key) for span in process.spans]
    _balance(pieces, process, whole)
    starts_s = [piece.start_s for piece in pieces]
    moved: list[_Piece] = []
    for window in process.windows:
        first = max(bisect_right(starts_s, window.start_s) - 1, 0)
        moved += _take_out(window, _piece(window, key), pieces[first:])
    return pieces + moved


def _piece(timed: TimedEnergy, key: str | None) -> _Piece:
    return _Piece(
        name=timed.name,
        start_s=timed.start_s,
        end_s=timed.end_s,
        duration_s=timed.end_s - timed.start_s,
        energy=UNKNOWN if key is None else timed.energy.get(key, UNKNOWN),
    )


def _balance(pieces: list[_Piece], process: ProcessJournal, whole: Energy) -> None:
    """Give the open phase what the spans leave, or take back what they have too much."""
    closed_s = pieces[-1].end_s if pieces else 0.0
    known_j = math.fsum(piece.energy.energy_j or 0.0 for piece in pieces)
    rest_j = (whole.energy_j or 0.0) - known_j
    if whole.energy_j is not None and rest_j < 0.0:
        _scale(pieces, whole.energy_j / known_j)
        rest_j = 0.0
    if process.end_s > closed_s or rest_j > _ROUNDING * known_j:
        pieces.append(_open_piece(pieces, process, whole, closed_s, rest_j))
    elif rest_j > 0.0:
        _scale(pieces, 1.0 + rest_j / known_j)


def _scale(pieces: list[_Piece], factor: float) -> None:
    for piece in pieces:
        if piece.energy.energy_j is not None:
            piece.energy = replace(piece.energy, energy_j=piece.energy.energy_j * factor)


def _open_piece(
    pieces: list[_Piece], process: ProcessJournal, whole: Energy, closed_s: float, rest_j: float
) -> _Piece:
    known_systematic_j = math.fsum(piece.energy.systematic_j for piece in pieces)
    end_s = max(process.end_s, closed_s)
    energy = Energy(
        energy_j=rest_j,
        stderr_j=whole.stderr_j * math.sqrt(rest_j / whole.energy_j) if whole.energy_j else 0.0,
        systematic_j=max(whole.systematic_j - known_systematic_j, 0.0),
        method=whole.method,
        coverage=whole.coverage,
    )
    return _Piece(
        name=process.open_phase,
        start_s=closed_s,
        end_s=end_s,
        duration_s=end_s - closed_s,
        energy=energy if whole.energy_j is not None else UNKNOWN,
    )


def _take_out(window: TimedEnergy, whole: _Piece, pieces: list[_Piece]) -> list[_Piece]:
    """Move a window's time and energy out of the pieces it overlaps, by time of overlap."""
    touched = []
    for piece in pieces:
        if piece.start_s >= window.end_s:
            break
        overlap_s = min(piece.end_s, window.end_s) - max(piece.start_s, window.start_s)
        if overlap_s > 0.0:
            touched.append((piece, overlap_s))
    all_s = math.fsum(overlap_s for _, overlap_s in touched)
    return [_move(whole, piece, overlap_s, overlap_s / all_s) for piece, overlap_s in touched]


def _move(whole: _Piece, piece: _Piece, overlap_s: float, share: float) -> _Piece:
    """Take a share of ``whole`` out of ``piece``, never more than is left in it."""
    duration_s = min(overlap_s, piece.duration_s)
    piece.duration_s -= duration_s
    taken = _taken(whole.energy, piece.energy, share)
    if taken.energy_j is not None and piece.energy.energy_j is not None:
        piece.energy = Energy(
            energy_j=piece.energy.energy_j - taken.energy_j,
            stderr_j=math.hypot(piece.energy.stderr_j, taken.stderr_j),
            systematic_j=max(piece.energy.systematic_j - taken.systematic_j, 0.0),
            method=piece.energy.method,
            coverage=piece.energy.coverage,
        )
    return _Piece(
        name=whole.name,
        start_s=piece.start_s,
        end_s=piece.end_s,
        duration_s=duration_s,
        energy=taken,
    )


def _taken(window: Energy, left: Energy, share: float) -> Energy:
    if window.energy_j is None or left.energy_j is None:
        return UNKNOWN
    return Energy(
        energy_j=min(window.energy_j * share, left.energy_j),
        stderr_j=window.stderr_j * share,
        systematic_j=window.systematic_j * share,
        method=window.method,
        coverage=window.coverage,
    )
