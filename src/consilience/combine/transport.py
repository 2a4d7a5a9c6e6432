"""Wasserstein-2 barycenters of samples: one linear programme, or a free support moved by exact couplings.

Exact. The barycenter of B samples of J_1, …, J_B points lies on their weighted averages sum w_b x_b, one point of
each sample. How much mass each combination of points gets is the linear programme (Agueh and Carlier 2011,
section 4, for samples)

    min sum_c p_c sum_b w_b |x_{b,c_b} - m_c|²,   m_c = sum_b w_b x_{b,c_b},

with the p_c of each point of sample b summing to 1 / J_b. It has J_1 ··· J_B variables. For two samples it is the
transport problem, which POT's network simplex solves for hundreds of points in well under a second; for more, SciPy's
HiGHS does (POT's own barycenter programme only chooses weights for points that must be given).

Free support (Cuturi and Doucet 2014, Algorithm 2, weights held equal). N points y_i: couple them to each sample
at least cost (an exact linear programme each, by POT's network simplex), move every y_i to the average

    y_i <- sum_b w_b N sum_j P_b[i, j] x_{b,j},

and go on until they rest. The objective falls at every step, to a local minimum.

Cost. Network simplex on N x N: about N² log N, 4 ms for N = 256. Memory: one N x N cost matrix and its coupling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from consilience.errors import InputError, RunError, must_be

from .base import Floats

# Combined points have come to rest when they moved by less than this share of their spread, root mean square.
AT_REST = 0.02
MOST_ROUNDS = 50
# Masses under this share of a point's come from rounding in the linear programme.
NO_MASS = 1e-9
MOST_PIVOTS = 10_000_000


def require_transport(rule: str) -> None:
    """Refuse a rule that needs POT where that is not installed.

    Examples
    --------
    >>> require_transport("wasp")
    """
    from importlib.util import find_spec

    if find_spec("ot") is None:
        raise must_be(
            "combine",
            "method",
            "one whose packages are installed",
            rule,
            "It needs POT: run pip install 'consilience[transport]'.",
            error=InputError,
        )


def squared_distances(x: Floats, y: Floats) -> Floats:
    """(n, m) squared distances between the rows of x (n, d) and y (m, d).

    Examples
    --------
    >>> squared_distances(np.array([[0.0], [1.0]]), np.array([[3.0]]))
    array([[9.],
           [4.]])
    """
    found = x @ (-2.0 * y.T)
    found += np.einsum("ij,ij->i", x, x)[:, None]
    found += np.einsum("ij,ij->i", y, y)
    return np.maximum(found, 0.0, out=found)


def exact_barycenter(samples: Sequence[Floats], weights: Floats) -> tuple[Floats, Floats]:
    """Solve the linear programme.

    Returns
    -------
    points : array, shape (n, d)
    masses : array, shape (n,)

    Examples
    --------
    >>> points, masses = exact_barycenter([np.array([[0.0], [1.0]]), np.array([[9.0], [5.0]])], np.array([0.5, 0.5]))
    >>> points.ravel(), masses
    (array([2.5, 5. ]), array([0.5, 0.5]))
    """
    if len(samples) == 2:
        chosen, masses = _coupled(*samples)
    else:
        chosen, masses = _combinations(samples, weights)
    points = sum(w * x[index] for w, x, index in zip(weights, samples, chosen, strict=True))
    return np.asarray(points), masses


def _coupled(first: Floats, second: Floats) -> tuple[tuple[np.ndarray, ...], Floats]:
    plan = _coupling(first, second)
    chosen = np.nonzero(plan > NO_MASS / len(first))
    return chosen, plan[chosen] / plan[chosen].sum()


def _combinations(samples: Sequence[Floats], weights: Floats) -> tuple[tuple[np.ndarray, ...], Floats]:
    """Rows of each sample that are combined, and the mass of each combination."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_array

    sizes = [len(x) for x in samples]
    variables = prod(sizes)
    indices = np.unravel_index(np.arange(variables), sizes)
    average = sum(w * x[index] for w, x, index in zip(weights, samples, indices, strict=True))
    cost = np.zeros(variables)
    for w, x, index in zip(weights, samples, indices, strict=True):
        cost += w * np.square(x[index] - average).sum(axis=1)
    rows = np.concatenate([index + start for index, start in zip(indices, _starts(sizes), strict=True)])
    columns = np.tile(np.arange(variables), len(samples))
    marginals = csr_array((np.ones(len(rows)), (rows, columns)), shape=(sum(sizes), variables))
    masses = np.concatenate([np.full(size, 1.0 / size) for size in sizes])
    solved = linprog(cost, A_eq=marginals, b_eq=masses, method="highs-ds")
    if solved.x is None:
        raise RunError(f"wasp: the linear programme of the barycenter was not solved: {solved.message}")
    used = np.flatnonzero(solved.x > NO_MASS / max(sizes))
    return tuple(index[used] for index in indices), solved.x[used] / solved.x[used].sum()


def _starts(sizes: Sequence[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)[:-1]])


def free_support_barycenter(
    samples: Sequence[Floats],
    weights: Floats,
    start: Floats,
    tell: Callable[[int, int], None] = lambda _round, _sample: None,
) -> tuple[Floats, bool]:
    """Move the points `start` (N, d) to a barycenter of the samples.

    Parameters
    ----------
    tell : callable
        Told the round and how many samples are coupled in it.

    Returns
    -------
    points : array, shape (N, d)
    rested : bool
        Whether the points came to rest.

    Examples
    --------
    >>> samples = [np.array([[0.0], [1.0]]), np.array([[9.0], [5.0]])]
    >>> free_support_barycenter(samples, np.array([0.5, 0.5]), np.array([[0.0], [1.0]]))[0].ravel()
    array([2.5, 5. ])
    """
    points, number = start, len(start)
    for step in range(1, MOST_ROUNDS + 1):
        following = np.zeros_like(points)
        for b, (w, x) in enumerate(zip(weights, samples, strict=True)):
            following += (w * number) * (_coupling(points, x) @ x)
            tell(step, b + 1)
        moved = np.square(following - points).sum()
        points = following
        if moved <= AT_REST**2 * np.square(points - points.mean(axis=0)).sum():
            return points, True
    return points, False


def _coupling(first: Floats, second: Floats) -> Floats:
    """The least costly coupling of two samples, points of each weighing the same."""
    from ot import emd

    masses = (np.full(len(x), 1.0 / len(x)) for x in (first, second))
    return np.asarray(emd(*masses, squared_distances(first, second), numItermax=MOST_PIVOTS))
