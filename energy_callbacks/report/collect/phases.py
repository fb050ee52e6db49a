"""Computes time and energy of each phase of a process; phases sum to the whole attempt.

A span is the time from one change of phase to the next. Spans have no gaps between them. If the
process was cut off or is still running, the phase that is open at the end of the journal has no
span; this phase gets the part of the total that is in no span. Time and energy of a window are
subtracted from the spans that the window overlaps. A measured command (see ``command.py``) may
contain trainings; their time and energy are subtracted from those of the command.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from energy_callbacks.accounting.journal.launch import COMMAND
from energy_callbacks.accounting.metrics.energy_sums import UNKNOWN, total, total_of_neighbours
from energy_callbacks.core.records import Energy
from energy_callbacks.report.collect.merge import energy_of
from energy_callbacks.report.collect.process import ProcessJournal, TimedEnergy
from energy_callbacks.sensing.track import NOT_USED

# Energy that is in no span is due to the rounding of numbers in the journal if it is at most this
# share of the energy in all spans.
_ROUNDING = 1e-9


@dataclass(slots=True)
class _Piece:
    """A span or a window, or the part of a window inside one span.

    Windows are subtracted from ``duration_s`` and ``energy`` of a span, but do not change its
    ``start_s`` and ``end_s``. The part of a window inside a span has the ``start_s`` and ``end_s``
    of that span.
    """

    name: str
    start_s: float
    end_s: float
    duration_s: float
    energy: Energy


def durations_s(process: ProcessJournal) -> dict[str, float]:
    """Return the seconds in each phase; their sum is the duration of the attempt."""
    seconds: dict[str, float] = defaultdict(float)
    for piece in _cut(process, None, UNKNOWN):
        seconds[piece.name] += piece.duration_s
    for training in process.trainings:
        for name, duration_s in durations_s(training.process).items():
            seconds[name] += duration_s
        seconds[COMMAND] = max(seconds[COMMAND] - training.process.end_s, 0.0)
    return dict(seconds)


def energies(process: ProcessJournal, key: str, whole: Energy) -> dict[str, Energy]:
    """Return the energy of one device in each phase.

    Args:
        process: a process that measured the device.
        key: key of the device in the journal of ``process``.
        whole: energy of the device over the attempt.

    Returns:
        Energy by phase; the joules sum to ``whole.energy_j``.
    """
    pieces = _cut(process, key, whole)
    found = sums((piece.name, piece.duration_s, piece.energy) for piece in pieces)
    found = _fitted(found, process.fitted.get(key, {}), whole)
    return _with_trainings(process, key, found) if process.trainings else found


def _fitted(
    found: dict[str, Energy], by_phase: Mapping[str, Energy], whole: Energy
) -> dict[str, Energy]:
    """Return the energies that were fitted to all spans together, if all phases have one.

    Args:
        found: sums over the spans.
        by_phase: fitted energies; see ``PhaseEnergy``.
        whole: energy of the device over the attempt.
    """
    fitted = {name: by_phase.get(name, energy) for name, energy in found.items()}
    missing_j = [found[name].energy_j for name in found if name not in by_phase]
    known_j = math.fsum(energy.energy_j or 0.0 for energy in fitted.values())
    if not by_phase or any(missing_j) or whole.energy_j is None or known_j <= 0.0:
        return found
    return {name: _times(energy, whole.energy_j / known_j) for name, energy in fitted.items()}


def sums(parts: Iterable[tuple[str, float, Energy]]) -> dict[str, Energy]:
    """Return the total energy by name; each part is a tuple of name, duration in s, and energy."""
    by_name: dict[str, list[tuple[float, Energy]]] = defaultdict(list)
    for name, duration_s, energy in parts:
        by_name[name].append((duration_s, energy))
    return {
        name: total([energy for _, energy in pairs], [duration_s for duration_s, _ in pairs])
        for name, pairs in by_name.items()
    }


def _with_trainings(process: ProcessJournal, key: str, own: dict[str, Energy]) -> dict[str, Energy]:
    """Return ``own``, with energy moved from ``COMMAND`` to the phases of the trainings.

    Args:
        process: the command.
        key: key of the device.
        own: energies of the command by phase, including the energies of the trainings.
    """
    inside: list[tuple[str, float, Energy]] = []
    wholes: list[Energy] = []
    for one in process.trainings:
        if key in one.process.devices:
            seconds = durations_s(one.process)
            wholes.append(energy_of(one.process, key))
            by_phase = energies(one.process, key, wholes[-1])
            inside += [(name, seconds.get(name, 0.0), by_phase[name]) for name in by_phase]
    known_j = math.fsum(energy.energy_j or 0.0 for *_, energy in inside)
    command = own.get(COMMAND, UNKNOWN)
    if command.energy_j is None or not known_j:
        return own
    # The readings of two processes from the same sensor may differ by one update of the sensor, so
    # the trainings may seem to use more energy than the command.
    share = min(command.energy_j / known_j, 1.0)
    taken = {name: _times(energy, share) for name, energy in sums(inside).items()}
    phases = {name: energy for name, energy in own.items() if name != COMMAND}
    for name, energy in taken.items():
        phases[name] = total([phases[name], energy]) if name in phases else energy
    # The errors at the edges between two phases of a training cancel in its whole energy.
    return {COMMAND: _minus(command, share * known_j, wholes), **phases}


def _times(energy: Energy, factor: float) -> Energy:
    if energy.energy_j is None or factor == 1.0:
        return energy
    return replace(energy, energy_j=energy.energy_j * factor)


def _minus(energy: Energy, taken_j: float, taken: Sequence[Energy]) -> Energy:
    """Return a known energy without the parts in ``taken``, whose sum is ``taken_j``.

    The edges of the parts are edges of the result too.
    """
    taken_systematic_j = math.fsum(one.systematic_j for one in taken)
    return replace(
        energy,
        energy_j=(energy.energy_j or 0.0) - taken_j,
        stderr_j=math.hypot(energy.stderr_j, *(one.stderr_j for one in taken)),
        edge_j=energy.edge_j + math.fsum(one.edge_j for one in taken),
        systematic_j=max(energy.systematic_j - taken_systematic_j, 0.0),
    )


def layers(process: ProcessJournal) -> tuple[list[TimedEnergy], ...]:
    """Return the windows, the spans of trainings inside a command, and the spans of ``process``.

    Each list is sorted by start. An element has precedence over those of later lists. The windows
    of a command are those of its trainings. The open phase of a training counts as a span.
    """
    windows, spans = list(process.windows), []
    for one, start_s in process.trainings:
        windows += [_moved(window, start_s) for window in one.windows]
        spans += [_moved(span, start_s) for span in (*one.spans, *_open(one))]
    return sorted(windows, key=attrgetter("start_s")), spans, process.spans


def _moved(timed: TimedEnergy, by_s: float) -> TimedEnergy:
    return replace(timed, start_s=timed.start_s + by_s, end_s=timed.end_s + by_s)


def _open(process: ProcessJournal) -> Iterator[TimedEnergy]:
    """Yield the open phase, from the end of the last span to the end of the journal, if any."""
    closed_s = process.spans[-1].end_s if process.spans else 0.0
    if process.end_s > closed_s:
        yield TimedEnergy(name=process.open_phase, start_s=closed_s, end_s=process.end_s, energy={})


def stretches(process: ProcessJournal) -> list[tuple[str, float, float]]:
    """Return name, start and end (s) of each span, of the open phase and of each window.

    For a command with trainings, the spans, open phases and windows are those of the trainings. The
    times before, between and after the trainings are returned with the name ``COMMAND``.
    """
    if process.trainings:
        return list(_around_trainings(process))
    timed = (*process.spans, *_open(process), *process.windows)
    return [(one.name, one.start_s, one.end_s) for one in timed]


def _around_trainings(process: ProcessJournal) -> Iterator[tuple[str, float, float]]:
    before_s = 0.0
    for training in process.trainings:
        yield COMMAND, before_s, training.start_s
        for name, start_s, end_s in stretches(training.process):
            yield name, training.start_s + start_s, training.start_s + end_s
        before_s = training.start_s + training.process.end_s
    yield COMMAND, before_s, process.end_s


def _cut(process: ProcessJournal, key: str | None, whole: Energy) -> list[_Piece]:
    """Return spans and windows without overlaps; their joules sum to ``whole``.

    Args:
        process: the process.
        key: key of the device; ``None`` for durations without energies.
        whole: energy of the device over the attempt.
    """
    # The lines before a GPU joined the run do not contain it.
    joined = key is not None and "used_since_s" in process.devices.get(key, {})
    absent = NOT_USED if joined else UNKNOWN
    pieces = _with_neighbours_joined([_piece(span, key, absent) for span in process.spans])
    _balance(pieces, process, whole)
    starts_s = [piece.start_s for piece in pieces]
    moved: list[_Piece] = []
    for window in process.windows:
        first = max(bisect_right(starts_s, window.start_s) - 1, 0)
        moved += _take_out(_piece(window, key, absent), pieces[first:])
    return pieces + moved


def _piece(timed: TimedEnergy, key: str | None, absent: Energy) -> _Piece:
    energy = absent if key is None else timed.energy.get(key, absent)
    return _Piece(timed.name, timed.start_s, timed.end_s, timed.end_s - timed.start_s, energy)


def _with_neighbours_joined(pieces: Sequence[_Piece]) -> list[_Piece]:
    """Return the pieces; successive pieces of the same phase without a gap become one piece."""
    groups: list[list[_Piece]] = []
    for piece in pieces:
        last = groups[-1][-1] if groups else None
        if last is not None and (last.name, last.end_s) == (piece.name, piece.start_s):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [group[0] if len(group) == 1 else _joined(group) for group in groups]


def _joined(group: Sequence[_Piece]) -> _Piece:
    first, last = group[0], group[-1]
    lengths_s = [piece.duration_s for piece in group]
    energy = total_of_neighbours([piece.energy for piece in group], lengths_s)
    return _Piece(first.name, first.start_s, last.end_s, last.end_s - first.start_s, energy)


def _balance(pieces: list[_Piece], process: ProcessJournal, whole: Energy) -> None:
    """Change ``pieces`` so that their joules sum to ``whole``.

    Energy that is in no span is assigned to the open phase. The energies of the spans are scaled
    instead if they sum to more than ``whole``, or if the last span ends with the journal and the
    difference is due to rounding.
    """
    closed_s = pieces[-1].end_s if pieces else 0.0
    known_j = math.fsum(piece.energy.energy_j or 0.0 for piece in pieces)
    rest_j = (whole.energy_j or 0.0) - known_j
    if whole.energy_j is not None and rest_j < 0.0:
        _scale(pieces, whole.energy_j / known_j)
        rest_j = 0.0
    if process.end_s > closed_s or rest_j > _ROUNDING * known_j:
        end_s = max(process.end_s, closed_s)
        energy = _rest([piece.energy for piece in pieces], whole, rest_j)
        pieces.append(_Piece(process.open_phase, closed_s, end_s, end_s - closed_s, energy))
    elif rest_j > 0.0:
        _scale(pieces, 1.0 + rest_j / known_j)


def _scale(pieces: list[_Piece], factor: float) -> None:
    for piece in pieces:
        piece.energy = _times(piece.energy, factor)


def _rest(known: Sequence[Energy], whole: Energy, rest_j: float) -> Energy:
    """Return the energy of the open phase with its errors; unknown if ``whole`` is unknown.

    The open phase begins at the end of the last span and ends with the attempt, so its error from
    edges is at most that of both.

    Args:
        known: energies of the spans.
        whole: energy of the attempt.
        rest_j: part of ``whole`` that is in no span, in J.
    """
    if whole.energy_j is None:
        return UNKNOWN
    known_systematic_j = math.fsum(energy.systematic_j for energy in known)
    last = next((energy for energy in reversed(known) if energy.energy_j is not None), UNKNOWN)
    return replace(
        whole,
        energy_j=rest_j,
        stderr_j=whole.stderr_j * math.sqrt(rest_j / whole.energy_j) if whole.energy_j else 0.0,
        edge_j=math.hypot(last.edge_j, whole.edge_j),
        systematic_j=max(whole.systematic_j - known_systematic_j, 0.0),
    )


def _take_out(window: _Piece, pieces: list[_Piece]) -> list[_Piece]:
    """Subtract a window from the pieces that it overlaps; return the subtracted parts."""
    touched = []
    for piece in pieces:
        if piece.start_s >= window.end_s:
            break
        overlap_s = min(piece.end_s, window.end_s) - max(piece.start_s, window.start_s)
        if overlap_s > 0.0:
            touched.append((piece, overlap_s))
    all_s = math.fsum(overlap_s for _, overlap_s in touched)
    return [_move(window, piece, overlap_s, overlap_s / all_s) for piece, overlap_s in touched]


def _move(window: _Piece, piece: _Piece, overlap_s: float, share: float) -> _Piece:
    """Subtract a part of a window from a piece, at most down to 0; return the subtracted part.

    Args:
        window: the window.
        piece: the piece, which is changed.
        overlap_s: time that ``window`` and ``piece`` have in common.
        share: share of the energy of ``window`` to subtract.
    """
    duration_s = min(overlap_s, piece.duration_s)
    piece.duration_s -= duration_s
    taken, left_j = UNKNOWN, piece.energy.energy_j
    if window.energy.energy_j is not None and left_j is not None:
        taken_j = min(window.energy.energy_j * share, left_j)
        taken = replace(
            window.energy,
            energy_j=taken_j,
            stderr_j=window.energy.stderr_j * share,
            edge_j=window.energy.edge_j * share,
            systematic_j=window.energy.systematic_j * share,
        )
        piece.energy = _minus(piece.energy, taken_j, [taken])
    return _Piece(window.name, piece.start_s, piece.end_s, duration_s, taken)
