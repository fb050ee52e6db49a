"""Fits a step's phases, with departures from one power per phase and from the reported edges.

A phase has a mean power. It is cut into pieces whose powers may differ from the mean, and its edges
may be earlier or later than reported. Both departures are the same in each step, and both have a
normal prior. The sizes of the priors are not known, so that several are tried: 0 is the model with
one power per phase. A Laplace approximation of the likelihood of the readings tells how plausible
each size is, and the result is the mean over all sizes, weighted by it (Bayesian model averaging).
"""

import itertools
from dataclasses import dataclass
from typing import Final

import numpy as np

from energy_callbacks.profiling.phases.exposure import Numbers, Spans
from energy_callbacks.profiling.phases.fit import BOUNDS_S, PRIOR_S, Fit, Readings, cut
from energy_callbacks.sensing.estimation.series import Array

# Sizes of the departures to try, as shares of the two sizes below.
SIZES: Final = tuple(itertools.product((0.01, 0.1, 0.3, 1.0), repeat=2))
# Standard deviation of the power within a phase, as a share of the mean power of the step.
_SHAPE: Final = 0.3
# Standard deviation of an edge, in seconds.
_EDGE_S: Final = 0.004
# Length of a piece: about half of the response of an H200.
_PIECE_S: Final = 0.008
_MOST_PIECES: Final = 48
# Change of an edge, the lag or the response, in seconds, in numerical derivatives.
_NUDGE_S: Final = 1e-4
_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """A fit, linearised at its solution.

    Attributes:
        pieces: spans between the fitted edges, whose labels are pieces of phases.
        phase_of: phase of each piece.
        piece_w: power of each piece.
        power_w: mean power of each phase; the energy is that between the fitted edges, the time
            that between the reported edges.
        weights: change of each phase's power with each reading, (phases, m), followed by
            the change with each prior in units of its standard deviation.
        rest_w: residuals of the readings, (m,).
        lag_s: delay of the sensor.
        response_s: time constant of the sensor.
        cost: twice the negative logarithm of the evidence.
        unknowns: number of fitted values.
    """

    pieces: Spans
    phase_of: Numbers
    piece_w: Array
    power_w: Array
    weights: Array
    rest_w: Array
    lag_s: float
    response_s: float
    cost: float
    unknowns: int


class Model:
    """The readings as a function of powers, edges, lag and response.

    The unknowns are the mean powers of the phases, the shapes (one less than pieces for each
    phase), an offset of the edges at which each phase begins, the lag and the response.
    """

    def __init__(self, spans: Spans, readings: Readings, *, has_misfit: bool) -> None:
        self._spans, self._readings, self._has_misfit = spans, readings, has_misfit
        counts = _counts(spans) if has_misfit else np.ones(spans.count, dtype=np.intp)
        self._counts = tuple(counts.tolist())
        self._basis = _basis(counts)
        self._edges = spans.count if has_misfit else 0
        sensor = (readings.lag_s, readings.response_s)
        self._centre = np.zeros(self._basis.shape[1] + self._edges + 2)
        self._centre[-2:] = [known or 0.0 for known in sensor]

    def _spread(self, shape: float, edge: float) -> Array:
        readings, count = self._readings, self._spans.count
        sensor = (readings.lag_s, readings.response_s)
        return np.concatenate(
            [
                np.full(count, np.inf),
                np.full(self._basis.shape[1] - count, _SHAPE * shape * readings.power_w.mean()),
                np.full(self._edges, _EDGE_S * edge),
                [np.inf if known is None else PRIOR_S for known in sensor],
            ]
        )

    def solve(self, fit: Fit) -> list[Solution]:
        """Return the solution by Gauss-Newton steps that begin at a fit of one power per phase."""
        at = self._centre.copy()
        at[: self._spans.count] = fit.power_w
        at[-2:] = fit.lag_s, fit.response_s
        if not self._has_misfit:
            return [self._solution(at, *self._linearised(at), self._spread(1.0, 1.0))]
        rigid = self._minimum(at, self._spread(SIZES[0][0], 1.0))
        loose = self._spread(1.0, 1.0)
        solutions = []
        for at in (rigid, self._minimum(rigid, loose), self._minimum(at, loose)):
            jacobian, rest_w = self._linearised(at)
            solutions += [self._solution(at, jacobian, rest_w, self._spread(*size)) for size in SIZES]
        return solutions

    def _minimum(self, at: Array, spread: Array) -> Array:
        for _ in range(_ROUNDS):
            jacobian, rest_w = self._linearised(at)
            noise_w2 = float(rest_w @ rest_w) / len(rest_w)
            at = at + self._step(at, jacobian.T @ jacobian, jacobian.T @ rest_w, noise_w2, spread)
            at[-2:] = np.clip(at[-2:], *zip(*BOUNDS_S, strict=True))
        return at

    def _step(self, at, square, product, noise_w2, spread):
        curvature = square / noise_w2 + np.diag(spread**-2.0)
        return _solved(curvature, product / noise_w2 + (self._centre - at) / spread**2)

    def _solution(self, at: Array, jacobian: Array, rest_w: Array, spread: Array) -> Solution:
        count = len(rest_w)
        square, product = jacobian.T @ jacobian, jacobian.T @ rest_w
        noise_w2 = float(rest_w @ rest_w) / count
        here, here_rest_w = at, rest_w
        for _ in range(3 if self._has_misfit else 0):
            curvature = square / noise_w2 + np.diag(spread**-2.0)
            step = _solved(curvature, product / noise_w2 + (self._centre - at) / spread**2)
            here, here_rest_w = at + step, rest_w - jacobian @ step
            noise_w2 = float(here_rest_w @ here_rest_w) / count
        curvature = square / noise_w2 + np.diag(spread**-2.0)
        off = (here - self._centre) / spread
        is_prior = np.isfinite(spread)
        scale = np.sqrt(np.diag(curvature))
        scale[scale == 0.0] = 1.0
        cost = (
            count * np.log(max(noise_w2, 1e-12))
            + off @ off
            + np.linalg.slogdet(curvature / np.outer(scale, scale))[1]
            + 2.0 * np.log(scale).sum()
            + 2.0 * np.log(spread[is_prior]).sum()
        )
        pieces, phase_of = self._pieces(here)
        power_w, gradient = self._powers(here)
        share = _solved(curvature, gradient.T).T
        return Solution(
            pieces=pieces,
            phase_of=phase_of,
            piece_w=self._basis @ here[: self._basis.shape[1]],
            power_w=power_w,
            weights=np.column_stack([share @ jacobian.T / noise_w2, share / spread]),
            rest_w=here_rest_w,
            lag_s=float(here[-2]),
            response_s=float(here[-1]),
            cost=float(cost),
            unknowns=len(at),
        )

    def _moved(self, at: Array) -> Spans:
        if not self._edges:
            return self._spans
        off_s = np.append(at[-2 - self._edges : -2], 0.0)  # label -1 is the last element
        edges_s = self._spans.edges_s.copy()
        edges_s[:-1] += off_s[self._spans.labels]
        edges_s = np.maximum.accumulate(edges_s)
        return Spans(edges_s=edges_s, labels=self._spans.labels, count=self._spans.count)

    def _pieces(self, at: Array) -> tuple[Spans, Numbers]:
        return cut(self._moved(at), self._counts)

    def _seen(self, at: Array, columns: Array) -> Array:
        readings = self._readings
        pieces, _ = self._pieces(at)
        levels = np.vstack([columns, np.zeros(columns.shape[1])])[pieces.labels]
        return pieces.seen(levels, readings.t_s - at[-2], at[-1], readings.window_s)

    def _linearised(self, at: Array) -> tuple[Array, Array]:
        """Return the derivatives of the readings with respect to the unknowns, and the residuals."""
        linear = self._basis.shape[1]
        here = self._seen(at, self._basis)
        fitted_w = here @ at[:linear]
        piece_w = (self._basis @ at[:linear])[:, None]
        slopes = []
        for unknown in range(linear, len(at)):
            near = at.copy()
            near[unknown] += _NUDGE_S
            slopes.append((self._seen(near, piece_w)[:, 0] - fitted_w) / _NUDGE_S)
        return np.column_stack([here, *slopes]), self._readings.power_w - fitted_w

    def _powers(self, at: Array) -> tuple[Array, Array]:
        """Return the power of each phase, and its derivatives with respect to the unknowns."""
        count, linear = self._spans.count, self._basis.shape[1]
        reported_s, here_s = self._spans.times_s(), self._moved(at).times_s()
        gradient = np.zeros((count, len(at)))
        gradient[:, :count] = np.diag(here_s / reported_s)
        for unknown in range(linear, linear + self._edges):
            near = at.copy()
            near[unknown] += _NUDGE_S
            change = (self._moved(near).times_s() - here_s) / _NUDGE_S
            gradient[:, unknown] = at[:count] * change / reported_s
        return at[:count] * here_s / reported_s, gradient


def _counts(spans: Spans) -> Numbers:
    """Return the number of pieces of each phase, about one for each 8 ms."""
    lengths_s = spans.times_s() / np.maximum(np.bincount(spans.labels + 1)[1:], 1)
    piece_s = max(_PIECE_S, lengths_s.sum() / _MOST_PIECES)
    return np.maximum(np.rint(lengths_s / piece_s), 2).astype(np.intp)


def _basis(counts: Numbers) -> Array:
    """Return the powers of pieces for each mean power and each shape, (pieces, unknowns).

    The shapes of a phase are orthogonal to each other and to its mean.
    """
    first = np.cumsum(counts) - counts
    means, shapes = np.zeros((2, counts.sum(), 0)), []
    for start, count in zip(first, counts, strict=True):
        full = np.zeros((counts.sum(), count))
        full[start : start + count] = np.linalg.qr(
            np.column_stack([np.ones(count), np.eye(count)[:, 1:]])
        )[0]
        shapes.append(full[:, 1:])
    means = np.equal.outer(np.repeat(np.arange(len(counts)), counts), np.arange(len(counts)))
    return np.column_stack([means.astype(float), *shapes])


def _solved(curvature: Array, slope: Array) -> Array:
    """Return the solution of a symmetric system whose unknowns have different units."""
    scale = np.sqrt(np.diag(curvature))
    scale[scale == 0.0] = 1.0
    normal = np.linalg.pinv(curvature / np.outer(scale, scale), rcond=1e-12, hermitian=True)
    solution: Array = ((normal @ (slope.T / scale).T).T / scale).T
    return solution
