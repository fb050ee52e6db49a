"""Sums of products of exposures for the points of a grid, and the fit of powers to them.

Symbols are those of ``phase_fit``. A candidate is a row of weights, one for each point. Its
exposures are the weighted sum of those of the points, so its M, T and b follow from the sums.

The exposures of an interval to all phases sum to its width. So M_pp, the product of a phase with
itself, is T_p minus the products with all other phases, and is not stored.
"""

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from energy_callbacks.core.yielding import pieces
from energy_callbacks.sensing.estimation.series import Array

LEAST_RIDGE_S: Final = 1e-6
"""Least ridge, s: keeps the fit defined for phases without intervals; far below any duration."""
# Number of products of points that are summed for some candidates at once: less than 1 ms. Below
# twice 65536 * 4, OpenBLAS uses one thread (interface/gemm.c: get_gemm_optimal_nthreads).
# With fewer candidates than _LEAST, most of the time would be spent on reading the products.
_PRODUCTS: Final = 5.2e5
_LEAST: Final = 8
# Number of elements of M for which equations are solved at once: less than 1 ms.
_ELEMENTS: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Fits of powers for n candidates.

    Attributes:
        products: M, (n, P, P).
        rates: b, (n, P).
        durations_s: D, (n, P).
        levels_w: P, (n, P).
        misfit: weighted sum of squares that the fit leaves, J^2/s, (n,).
    """

    products: Array
    rates: Array
    durations_s: Array
    levels_w: Array
    misfit: Array

    @property
    def energy_j(self) -> Array:
        """Energies of the phases, E, (n, P)."""
        return divided_j(self.products, self.rates, self.durations_s, self.levels_w)

    @property
    def best(self) -> int:
        """Place of the candidate with the smallest misfit."""
        return int(self.misfit.argmin())

    @property
    def jumps_w(self) -> Array:
        """Differences of power between each two phases in the best fit, W, (P, P)."""
        levels_w = self.levels_w[self.best]
        jumps_w: Array = np.abs(levels_w[:, None] - levels_w)
        return jumps_w


class GridSums:
    """Sums over intervals for a grid of G points.

    x_kp is the exposure of interval k to phase p, w_k its width, and e_k its energy.

    Args:
        size: number of points, G.

    Attributes:
        count: number of phases so far, P.
        products: sum of x_kp x_kq / w_k for two points of the grid, (G, G), by p and q with p < q.
            Pairs of phases without a common interval may have none.
        exposed_s: sum of x_kp, s, (G, P).
        durations_s: D, s, (G, P).
        rates: sum of x_kp e_k / w_k, J, (G, P).
        square: sum of e_k^2 / w_k, J^2/s.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.products: dict[tuple[int, int], Array] = {}
        self.exposed_s = np.zeros((size, 0))
        self.durations_s = np.zeros((size, 0))
        self.rates = np.zeros((size, 0))
        self.square = 0.0

    def fits(self, weights: Array, ridge_s: float, mean_w: float) -> Fits:
        """Fit the powers of n candidates, some of them at a time.

        Args:
            weights: weights of the grid's points, (n, G).
            ridge_s: duration whose readings are worth as much as ``mean_w``.
            mean_w: power of a phase before any reading.
        """
        at_once = max(_ELEMENTS // self.count**2, 1)
        parts = [self._fits(part, ridge_s, mean_w) for part in pieces(weights, at_once)]
        names = [field.name for field in fields(Fits)]
        return Fits(
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        )

    def _fits(self, weights: Array, ridge_s: float, mean_w: float) -> Fits:
        products, rates = self._products(weights), weights @ self.rates
        right = (rates + ridge_s * mean_w)[..., None]
        matrix = products + ridge_s * np.eye(self.count)
        levels_w = np.asarray(np.linalg.solve(matrix, right)[..., 0], np.float64)
        misfit = np.einsum("np,npq,nq->n", levels_w, products, levels_w)
        misfit += self.square - 2.0 * (levels_w * rates).sum(axis=1)
        misfit += ridge_s * ((levels_w - mean_w) ** 2).sum(axis=1)
        misfit = np.maximum(misfit, 0.0)
        return Fits(
            products=products,
            rates=rates,
            durations_s=weights @ self.durations_s,
            levels_w=levels_w,
            misfit=misfit,
        )

    def energies_j(self, weights: Array, levels_w: Array) -> Array:
        """Return E of n candidates, or of one, for n sets of powers, (n, P)."""
        products, durations_s = self._products(weights), weights @ self.durations_s
        return divided_j(products, weights @ self.rates, durations_s, levels_w)

    def _products(self, weights: Array) -> Array:
        products = np.zeros((len(weights), self.count, self.count))
        points = _used(weights)
        at_once = max(int(_PRODUCTS / (points.stop - points.start) ** 2), _LEAST)
        for (p, q), pairs in self.products.items():
            parts = pieces(weights[:, points], at_once)
            sums = [_quadratic(part, pairs[points, points]) for part in parts]
            products[:, p, q] = products[:, q, p] = np.concatenate(sums)
        of_others = products.sum(axis=2)
        phases = np.arange(self.count)
        products[:, phases, phases] = weights @ self.exposed_s - of_others
        return products


def _used(weights: Array) -> slice:
    """Return the points of the grid from the first to the last with a weight."""
    used = np.flatnonzero(weights.any(axis=0))
    return slice(int(used[0]), int(used[-1]) + 1)


def _quadratic(weights: Array, matrix: Array) -> Array:
    """Return w A w for each row w of weights, (n,)."""
    values: Array = np.einsum("ng,ng->n", weights @ matrix, weights)
    return values


def mixing(products: Array) -> Array:
    """Return T - M for n products M, (n, P, P)."""
    unit = np.eye(products.shape[-1])
    mixed: Array = products.sum(axis=-1)[..., None] * unit - products
    return mixed


def divided_j(products: Array, rates: Array, durations_s: Array, levels_w: Array) -> Array:
    """Return the energies of the phases, E = b + (D - M) P + D c, (n, P).

    Args:
        products: M, (n, P, P) or (P, P).
        rates: b, (n, P) or (P,).
        durations_s: D, (n, P) or (P,).
        levels_w: P, (n, P).
    """
    fitted_j = (products @ levels_w[..., None])[..., 0]
    energy_j = rates - fitted_j + durations_s * levels_w
    surplus_j = energy_j.sum(axis=-1, keepdims=True) - rates.sum(axis=-1, keepdims=True)
    divided: Array = energy_j - surplus_j * durations_s / durations_s.sum(axis=-1, keepdims=True)
    return divided
