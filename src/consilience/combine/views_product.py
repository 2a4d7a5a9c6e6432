"""The product of the shards' densities along a view, and psi integrated out of it.

Formula. With P_b(theta) the precision of g_b and mu_b(theta) its mean, for any psi*,

    log integral prod_b g_b(psi | theta) dpsi = sum_b log g_b(psi*) - log|P| / 2 + eta' P⁻¹ eta / 2 + constant,
    P = sum P_b,   eta = sum P_b (mu_b - psi*),

which is Proposition 3.1, and its last two terms are - log of the product Gaussian at psi*. The thesis takes
log g~(psi* | theta) for these: a constant, and right where conditional means are linear in theta and conditional
covariances constant. Where local moments show otherwise the constant is wrong by any amount (a product whose mean
lies off psi*), so the terms are kept. A machine that holds the draws can hold them: M p² / 2 numbers, which the thesis
avoids to send.

They are left out where nothing local is left of the conditionals (they are constant then), and, with a note, where
they would take more memory than the draws.

Reference. Vyner's thesis, Proposition 3.1, (3.4), (3.6) and (3.8).
"""

from __future__ import annotations

import numpy as np

from .base import Floats
from .views_density import Terms, factored


class Product:
    """Sums over shards at M points, for G versions of the draws.

    Examples
    --------
    >>> product = Product(1, 2, 0, integrate=False)
    >>> product.add(Terms(np.array([[1.0, 2.0]])))
    >>> product.log_density()
    array([[1., 2.]])
    """

    def __init__(self, versions: int, points: int, p: int, *, integrate: bool) -> None:
        self._log = np.zeros((versions, points))
        self._precision: Floats | None = None
        self._pull: Floats | None = None
        if integrate and p:
            self._precision = np.zeros((versions, p * (p + 1) // 2, points))
            self._pull = np.zeros((versions, p, points))

    @property
    def integrates(self) -> bool:
        """Whether precisions are wanted."""
        return self._precision is not None

    def add(self, terms: Terms, first: int = 0) -> None:
        """Add what a shard says at points [first, first + len(terms))."""
        stop = first + terms.log.shape[1]
        self._log[:, first:stop] += terms.log
        if self._precision is not None and self._pull is not None:
            assert terms.precision is not None
            assert terms.pull is not None
            self._precision[:, :, first:stop] += terms.precision
            self._pull[:, :, first:stop] += terms.pull

    def log_density(self) -> Floats:
        """The estimated log density of the posterior of theta, up to a constant: (G, M)."""
        if self._precision is None or self._pull is None:
            return self._log
        log_determinant, scaled, _ = factored(self._precision, self._pull)
        return self._log + 0.5 * (np.sum(scaled**2, axis=1) - log_determinant)
