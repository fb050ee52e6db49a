"""Fits the powers of phases together with departures from the model of one power per phase.

The departures are shapes (power that changes within a phase) and offsets (edges that are earlier or
later than reported). Both are the same in every step. Both have a normal prior whose size is not
known, so several sizes are tried.
"""

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.profiling.phases.fit import BOUNDS_S, PRIOR_S, Fit, Readings, cut
from energy_callbacks.sensing.estimation.series import Array

# Standard deviation of the power within a phase, as a share of the mean power, and of an edge in
# seconds: ramps of +- 30 %, and offsets of up to 5 ms, are within two of them.
_SHAPE: Final = 0.3
_EDGE_S: Final = 0.004
# Sizes of shapes and of offsets to try, as shares of these two. The smallest has no visible effect.
_SIZES: Final = (0.01, 0.1, 0.3, 1.0)
# Length of a piece, and maximum number of pieces of a step: half of the response of an H200.
_PIECE_S: Final = 0.008
_MOST_PIECES: Final = 48
# Change of an edge, the lag or the response, in seconds, in numerical derivatives.
_NUDGE_S: Final = 1e-4
# Gauss-Newton steps; the residuals of the test cases do not change after four.
_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """Fitted powers, and how they depend on the readings.

    Attributes:
        pieces: spans between the fitted edges, whose labels are pieces of phases.
        phase_of: phase of each piece, as ``group_of`` of ``Model`` numbers the phases.
        piece_w: power of each piece.
        power_w: power of each phase: its energy between the fitted edges, divided by its reported
            time.
        weights: derivatives of ``power_w`` with respect to the readings, (phases, m).
        by_prior: variance of ``power_w`` that is due to the priors, in W^2.
        rest_w: residuals of the readings, (m,).
        lag_s: delay of the sensor.
        response_s: time constant of the sensor.
        cost: twice the negative logarithm of the evidence, by the Laplace approximation.
        unknowns: number of fitted values.
    """

    pieces: Spans
    phase_of: Numbers
    piece_w: Array
    power_w: Array
    weights: Array
    by_prior: Array
    rest_w: Array
    lag_s: float
    response_s: float
    cost: float
    unknowns: int


class Model:
    """The readings as a function of the unknowns.

    The unknowns are the mean powers of the phases, the shapes (for each phase, one less than it has
    pieces), the offset of the edges at which each phase begins, the lag and the response.

    Args:
        spans: reported spans of the phases.
        readings: readings of the sensor.
        group_of: number of the phase to which each phase of ``spans`` is added in the solutions.
        departs: whether the unknowns include shapes and offsets.
    """

    def __init__(
        self, spans: Spans, readings: Readings, group_of: Numbers, *, departs: bool
    ) -> None:
        self._spans, self._readings, self._group_of = spans, readings, group_of
        counts = _piece_counts(spans) if departs else np.ones(spans.count, dtype=np.intp)
        self._counts = tuple(counts.tolist())
        self._basis = _basis(counts)
        self._powers = self._basis.shape[1]
        self._edges = spans.count if departs else 0
        known = [0.0 if value is None else value for value in (readings.lag_s, readings.response_s)]
        self._centre = np.concatenate([np.zeros(self._powers + self._edges), known])

    def solutions(self, fit: Fit) -> list[Solution]:
        """Return solutions for all sizes of the departures, at up to three local minima.

        Args:
            fit: start values.
        """
        start = self._centre.copy()
        start[: self._spans.count], start[-2:] = fit.power_w, (fit.lag_s, fit.response_s)
        if not self._edges:
            return [self._solution(start, *self._linearised(start), self._spread(1.0, 1.0))]
        # With free shapes, a search may end at an offset of the wrong sign. Without shapes it
        # does not, but the offsets may be wrong if there are shapes.
        rigid = self._minimum(start, self._spread(_SIZES[0], 1.0))
        loose = self._spread(1.0, 1.0)
        found = []
        for at in (rigid, self._minimum(rigid, loose), self._minimum(start, loose)):
            jacobian, rest_w = self._linearised(at)
            found += [
                self._solution(at, jacobian, rest_w, self._spread(*sizes))
                for sizes in itertools.product(_SIZES, repeat=2)
            ]
        return [solution for solution in found if np.isfinite(solution.cost)]

    def _spread(self, shape: float, edge: float) -> Array:
        """Return the standard deviations of the priors; infinity for no prior."""
        readings, count = self._readings, self._spans.count
        shape_w = shape * _SHAPE * float(readings.power_w.mean())
        sensor = (readings.lag_s, readings.response_s)
        return np.concatenate(
            [
                np.full(count, np.inf),
                np.full(self._powers - count, shape_w),
                np.full(self._edges, edge * _EDGE_S),
                [np.inf if known is None else PRIOR_S for known in sensor],
            ]
        )

    def _minimum(self, at: Array, spread: Array) -> Array:
        """Return the unknowns after some Gauss-Newton steps."""
        for _ in range(_ROUNDS):
            jacobian, rest_w = self._linearised(at)
            at = _inside(at + self._step(at, jacobian, rest_w, rest_w, spread)[1])
        return at

    def _step(
        self, at: Array, jacobian: Array, rest_w: Array, noise_w: Array, spread: Array
    ) -> tuple[Array, Array]:
        """Return the matrix of second derivatives of half the cost, and the step to its minimum."""
        noise_w2 = max(float(noise_w @ noise_w) / len(noise_w), 1e-12)
        curvature = jacobian.T @ jacobian / noise_w2 + np.diag(spread**-2.0)
        slope = jacobian.T @ rest_w / noise_w2 + (self._centre - at) / spread**2
        return curvature, _solved(curvature, slope)

    def _solution(self, at: Array, jacobian: Array, rest_w: Array, spread: Array) -> Solution:
        """Return the solution for one size of the departures, by one linear step from ``at``."""
        here, noise_w = at, rest_w
        for _ in range(2 if self._edges else 0):  # the step depends on the residuals after it
            _, step = self._step(at, jacobian, rest_w, noise_w, spread)
            here = _inside(at + step)
            noise_w = rest_w - jacobian @ (here - at)
        curvature, _ = self._step(at, jacobian, rest_w, noise_w, spread)
        noise_w2 = max(float(noise_w @ noise_w) / len(noise_w), 1e-12)
        has_prior = np.isfinite(spread)
        off = (here - self._centre) / spread
        cost = len(noise_w) * np.log(noise_w2) + off @ off + _log_determinant(curvature)
        power_w, gradient = self._phase_powers(here)
        share = _solved(curvature, gradient.T).T
        pieces, phase_of = self._pieces(here)
        return Solution(
            pieces=pieces,
            phase_of=self._group_of[phase_of],
            piece_w=self._basis @ here[: self._powers],
            power_w=power_w,
            weights=share @ jacobian.T / noise_w2,
            by_prior=((share / spread) ** 2).sum(axis=1),
            rest_w=noise_w,
            lag_s=float(here[-2]),
            response_s=float(here[-1]),
            cost=float(cost + 2.0 * np.log(spread[has_prior]).sum()),
            unknowns=len(at),
        )

    def _moved(self, at: Array) -> Spans:
        """Return the spans with their edges moved by the offsets."""
        if not self._edges:
            return self._spans
        offsets_s = np.append(at[self._powers : -2], 0.0)  # the last one is that of label -1
        edges_s = self._spans.edges_s.copy()
        edges_s[:-1] += offsets_s[self._spans.labels]
        edges_s = np.maximum.accumulate(edges_s)
        return Spans(edges_s=edges_s, labels=self._spans.labels, count=self._spans.count)

    def _pieces(self, at: Array) -> tuple[Spans, Numbers]:
        return cut(self._moved(at), self._counts)

    def _seen(self, at: Array, columns: Array) -> Array:
        """Return the readings of signals whose values are given for each piece, (m, signals)."""
        readings, (pieces, _) = self._readings, self._pieces(at)
        levels = np.vstack([columns, np.zeros(columns.shape[1])])[pieces.labels]
        return pieces.seen(levels, readings.t_s - at[-2], float(at[-1]), readings.window_s)

    def _linearised(self, at: Array) -> tuple[Array, Array]:
        """Return the derivatives of the readings with respect to the unknowns, and residuals."""
        power_w = at[: self._powers]
        here = self._seen(at, self._basis)
        fitted_w, piece_w = here @ power_w, (self._basis @ power_w)[:, None]
        slopes = [
            (self._seen(near, piece_w)[:, 0] - fitted_w) / _NUDGE_S
            for near in at + _NUDGE_S * np.eye(len(at))[self._powers :]
        ]
        return np.column_stack([here, *slopes]), self._readings.power_w - fitted_w

    def _phase_powers(self, at: Array) -> tuple[Array, Array]:
        """Return the power of each group of phases, and its derivatives by the unknowns."""
        count = self._spans.count
        times_s = self._moved(at).times_s()
        energy_j = at[:count] * times_s
        gradient = np.zeros((count, len(at)))  # of the energies
        gradient[:, :count] = np.diag(times_s)
        for unknown in range(self._powers, self._powers + self._edges):
            near = at + _NUDGE_S * (np.arange(len(at)) == unknown)
            change = (self._moved(near).times_s() - times_s) / _NUDGE_S
            gradient[:, unknown] = at[:count] * change
        sums = np.arange(self._group_of.max() + 1)[:, None] == self._group_of
        sums = sums / (sums @ self._spans.times_s())[:, None]
        return sums @ energy_j, sums @ gradient


def _inside(at: Array) -> Array:
    """Return the unknowns with lag and response within their bounds."""
    lowest, highest = np.array(BOUNDS_S).T
    return np.append(at[:-2], np.clip(at[-2:], lowest, highest))


def _piece_counts(spans: Spans) -> Numbers:
    """Return the number of pieces of each phase, at least two."""
    occurrences = np.bincount(spans.labels[spans.labels >= 0], minlength=spans.count)
    lengths_s = spans.times_s() / np.maximum(occurrences, 1)
    piece_s = max(_PIECE_S, float(lengths_s.sum()) / _MOST_PIECES)
    return np.maximum(np.rint(lengths_s / piece_s), 2).astype(np.intp)


def _basis(counts: Numbers) -> Array:
    """Return the power of each piece per unit of each mean power and shape, (pieces, unknowns).

    The shapes of a phase are orthogonal to each other and to its mean.
    """
    from scipy.linalg import block_diag

    means = block_diag(*[np.ones((count, 1)) for count in counts])
    contrasts = [np.linalg.svd(np.eye(count) - 1.0 / count)[0][:, :-1] for count in counts]
    return np.column_stack([means, block_diag(*contrasts)])


def _scaled(curvature: Array) -> tuple[Array, Array]:
    """Return a symmetric matrix scaled to a diagonal of ones, and the scale."""
    scale = np.sqrt(np.diag(curvature))
    scale[scale == 0.0] = 1.0
    return curvature / np.outer(scale, scale), scale


def _log_determinant(curvature: Array) -> float:
    """Return the logarithm of a determinant; minus infinity for a singular matrix."""
    normal, scale = _scaled(curvature)
    with np.errstate(divide="ignore"):
        return float(np.linalg.slogdet(normal)[1] + 2.0 * np.log(scale).sum())


def _solved(curvature: Array, slope: Array) -> Array:
    """Return the solution of a symmetric system whose unknowns have different units."""
    normal, scale = _scaled(curvature)
    inverse = np.linalg.pinv(normal, rcond=1e-12, hermitian=True) / np.outer(scale, scale)
    solution: Array = inverse @ slope
    return solution
