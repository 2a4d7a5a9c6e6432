"""Do the shards tell of one parameter? A test of all shards, and each shard against the others.

Model. The mean m_b of shard b's draws estimates the parameter that all shards share. If shards differ only by
which rows fell into them, then, for shards near Gaussian under a weak prior,

    m_b ~ N(theta, T_b),   T_b = S_b + V_b / n_b = V_b (1 / a_b + 1 / n_b),

S_b = V_b / a_b the covariance of its *sub*-posterior (a_b = w_b for inflated draws, 1 for sub-posterior draws),
V_b that of its draws, n_b its effective draws. With W_b = T_b^-1 and m the mean weighted by W = sum W_b,

    Q = sum (m_b - m)' W_b (m_b - m)

has a chi-squared law with d (B - 1) degrees of freedom when T_b is known.

It is not: V_b comes from n_b draws, and W_b is its unbiased inverse (`numerics.estimate_precision`). To second
order in that noise, with K_b = W^-1/2 W_b W^-1/2, M_b = I - K_b and t(.) the trace,

    E Q   = d (B - 1) - sum c_b,    c_b = [t(K_b M_b) + t(K_b) t(M_b)] / r_b,
    Var Q = 2 d (B - 1) + 2 sum [t(M_b)^2 + 2 t(M_b^2)] / s_b - 4 sum c_b,

where r_b and s_b are the denominators that make both exact when a shard's share of the information vanishes (the
inverse Wishart's second moment, and the variance of Hotelling's T^2): s_b = n_b - d - 4, r_b about n_b - d - 3. Q is
referred to the scaled F law with these two moments. For one shard against a known parameter this is Hotelling's
test exactly; for n_b >> d it is Johansen's.

Each shard against the others is the same test of two groups, b and the product of all others, whose draws count
as Satterthwaite has it; parameter by parameter it is Welch's t test. Leaving shard b out moves the combined mean
by -K_b (I - K_b)^-1 z_b in whitened coordinates (z_b that of m_b - m), with covariance (I - K_b)^-1 - I by chance.

Fails: a strong prior pulls all shards to one point, and p-values are then too large, never too small. Shards far
from Gaussian (a rare event seen three times) have means that are correlated with their spread, and p-values are
rough. Chains that got stuck claim a precision that they do not have, and stand out for it.

Reference. Johansen (1980), The Welch-James approximation to the distribution of the residual sum of squares in a
weighted linear regression, Biometrika 67(1), 85-92; Holm (1979), Scandinavian Journal of Statistics 6(2), 65-70.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consilience.combine.moments import ShardMoments

Floats = NDArray[np.float64]

# Added to I - K_b, so that a shard that holds all the information can be left out of the sum without a NaN.
RIDGE = 1e-10


@dataclass(frozen=True)
class Heterogeneity:
    """The test of all shards at once.

    Attributes
    ----------
    statistic : float
        Q: squared distances of the shards' means from their common mean, in units of chance.
    expected : float
        What Q is on average when shards differ by chance alone.
    deviation : float
        Its standard deviation then.
    p_value : float
        Probability of so large a Q by chance.
    degrees_of_freedom : int
        d (B - 1).
    """

    statistic: float
    expected: float
    deviation: float
    p_value: float
    degrees_of_freedom: int

    @property
    def ratio(self) -> float:
        """How many times as far apart as by chance the shards' means lie."""
        return float(np.sqrt(self.statistic / self.expected))


@dataclass(frozen=True, eq=False)
class AgainstOthers:
    """Each shard against the product of all others.

    Attributes
    ----------
    distances : (B, d) mean minus that of the others, in standard deviations expected by chance
    p_values : (B, d) of Welch's t tests, one for each distance
    squared : (B,) squared distance in all parameters together, divided by what it is on average by chance
    joint_p_values : (B,) of the test of all parameters together
    shifts : (B, d) how far leaving the shard out moves each mean, in posterior standard deviations
    influence : (B,) the same in all parameters together (Mahalanobis)
    influence_by_chance : (B,) its root mean square when shards differ by chance alone
    widening : (B, d) posterior standard deviation without the shard over that with it
    """

    distances: Floats
    p_values: Floats
    squared: Floats
    joint_p_values: Floats
    shifts: Floats
    influence: Floats
    influence_by_chance: Floats
    widening: Floats


@dataclass(frozen=True, eq=False)
class Whitened:
    """Shards in coordinates in which the product of all has the identity as covariance."""

    information: Floats  # (B, d, d) K_b; they sum to the identity
    apart: Floats  # (B, d) z_b
    root: Floats  # (d, d) takes whitened differences back to the parameters
    spreads: Floats  # (B, d) diagonal of T_b in the parameters' units
    draws: Floats  # (B,) effective
    mean_noise: Floats  # (B,) r_b
    variance_noise: Floats  # (B,) s_b

    @property
    def dimension(self) -> int:
        return self.apart.shape[1]


@dataclass(frozen=True, eq=False)
class Others:
    """The product of all shards but one, seen as one shard; each is (B,).

    Attributes
    ----------
    mean_noise, variance_noise : as of `Whitened`, what its precision is worth
    bias : factor that makes the inverse of its precision unbiased
    extra : what the noise of the weights inside it adds to the variance of its mean, relative
    """

    mean_noise: Floats
    variance_noise: Floats
    bias: Floats
    extra: Floats


def whitened(moments: ShardMoments, powers: Floats) -> Whitened:
    """Weigh shards by what their means and their draws leave uncertain."""
    d, precisions = moments.dimension, moments.precisions.precision
    powers = powers / (1.0 + powers / moments.effective_draws)
    n = moments.known.draws
    scale = np.sqrt(np.mean(np.diagonal(moments.covariances, axis1=1, axis2=2), axis=0))
    unit = np.outer(scale, scale)
    weights = precisions * unit * powers[:, None, None]
    factor = np.linalg.cholesky(weights.sum(axis=0))
    back = np.linalg.inv(factor)  # lower triangular: W = factor factor'
    information = back @ weights @ back.T
    # Near the means, so that no digits are lost to their size.
    centre = moments.means.mean(axis=0)
    placed = (moments.means - centre) / scale @ factor
    apart = placed - np.einsum("bij,bj->i", information, placed)
    # E[P V P] of an inverse Wishart, as in `moments`; 1 + (d + 1) / r_b of it.
    m = n - 1
    excess = (m - 1) * (m - d - 1) / ((m - d) * (m - d - 3)) - 1.0
    return Whitened(
        information=0.5 * (information + np.swapaxes(information, 1, 2)),
        apart=apart,
        root=back.T * scale[:, None],
        spreads=np.diagonal(moments.covariances, axis1=1, axis2=2) / powers[:, None],
        draws=n,
        mean_noise=(d + 1) / excess,
        variance_noise=n - d - 4.0,
    )


def all_together(shards: Whitened) -> Heterogeneity:
    """Q and its p-value."""
    d, num_shards = shards.dimension, len(shards.apart)
    statistic = float(np.einsum("bi,bij,bj->", shards.apart, shards.information, shards.apart))
    first, second = _traces(shards)
    freedom = d * (num_shards - 1)
    means, variances = _moments_of_q(
        (first, second, d - first, d - 2 * first + second), shards.mean_noise, shards.variance_noise
    )
    mean, variance = float(means.sum()) + freedom, float(variances.sum()) + 2 * freedom
    p = float(upper_tail(np.array(statistic), np.array(mean), np.array(variance), freedom))
    return Heterogeneity(statistic, mean, float(np.sqrt(variance)), p, freedom)


def each_against_others(shards: Whitened) -> AgainstOthers:
    """Each shard against the product of the others, and what leaving it out would change."""
    d, z = shards.dimension, shards.apart
    rest = np.linalg.inv((1.0 + RIDGE) * np.eye(d) - shards.information)  # covariance of the others' mean
    gaps = np.einsum("bij,bj->bi", rest, z)
    moved = -np.einsum("bij,bj->bi", shards.information, gaps)
    squared = np.einsum("bi,bij,bj->b", gaps, shards.information, z)
    others = _others(shards)
    first, second = _traces(shards)
    own = _moments_of_q(
        (first, second, d - first, d - 2 * first + second), shards.mean_noise, shards.variance_noise
    )
    other = _moments_of_q(
        (d - first, d - 2 * first + second, first, second), others.mean_noise, others.variance_noise
    )
    mean = d + own[0] + other[0] + first * others.extra
    variance = (2 * d + own[1] + other[1]) * ((d + first * others.extra) / d) ** 2
    inside = np.einsum("ij,bjk,ik->bi", shards.root, rest, shards.root, optimize=True)
    posterior = np.sum(shards.root**2, axis=1)
    of_others = inside * (others.bias * (1.0 + others.extra))[:, None]
    error = shards.spreads + of_others
    freedom = error**2 / (
        shards.spreads**2 / (shards.draws - 1)[:, None] + of_others**2 / others.mean_noise[:, None]
    )
    distances = gaps @ shards.root.T / np.sqrt(error)
    return AgainstOthers(
        distances=distances,
        p_values=two_sided(distances, freedom),
        squared=squared / mean,
        joint_p_values=upper_tail(squared, mean, variance, d),
        shifts=moved @ shards.root.T / np.sqrt(posterior),
        influence=np.linalg.norm(moved, axis=1),
        influence_by_chance=np.sqrt(np.maximum(np.trace(rest, axis1=1, axis2=2) - d, 0.0)),
        widening=np.sqrt(inside / posterior),
    )


def _traces(shards: Whitened) -> tuple[Floats, Floats]:
    """Traces of K_b and of its square."""
    information = shards.information
    return np.trace(information, axis1=1, axis2=2), np.einsum("bij,bij->b", information, information)


def _moments_of_q(
    traces: tuple[Floats, Floats, Floats, Floats], mean_noise: Floats, variance_noise: Floats
) -> tuple[Floats, Floats]:
    """What each shard's noise adds to the mean and to the variance of Q, from t(K), t(K^2), t(M), t(M^2)."""
    k, k_squared, m, m_squared = traces
    lost = (k - k_squared + k * m) / mean_noise
    return -lost, 2.0 * (m**2 + 2.0 * m_squared) / variance_noise - 4.0 * lost


def _others(shards: Whitened) -> Others:
    """How well the product of all but shard b is known, for shards whose covariances are proportional."""
    d = shards.dimension
    shares, _ = _traces(shards)
    left = np.maximum(d - shares, RIDGE)

    def worth(size: Floats) -> Floats:
        weighed = shares**2 / size
        # Never more than all shards with equal shares would be worth, whatever rounding leaves of the sum.
        return np.asarray(
            1.0 / np.maximum((weighed.sum() - weighed) / left**2, 1.0 / (len(size) * size.max()))
        )

    mean_noise = worth(shards.mean_noise)
    linear = shares / shards.mean_noise
    of_weights = (linear.sum() - linear) / left - 1.0 / mean_noise
    return Others(
        mean_noise=mean_noise,
        variance_noise=worth(shards.variance_noise),
        bias=1.0 / (1.0 + (d + 1) / mean_noise),
        extra=(d + 1) * np.maximum(of_weights, 0.0),
    )


def upper_tail(value: Floats, mean: Floats, variance: Floats, freedom: int) -> Floats:
    """Upper tail of the scaled F law with `freedom` degrees above, this mean and this variance.

    Examples
    --------
    >>> from scipy.stats import chi2
    >>> bool(np.isclose(upper_tail(np.array(9.0), np.array(4.0), np.array(8.0), 4), chi2.sf(9.0, 4)))
    True
    """
    from scipy.special import chdtrc, fdtrc

    excess = variance / mean**2 * freedom / 2.0 - 1.0
    noisy = excess > 1e-9
    below = (freedom + 2.0 + 4.0 * excess) / np.where(noisy, excess, 1.0)
    of_f = fdtrc(freedom, below, value / mean * below / (below - 2.0))
    return np.asarray(np.where(noisy, of_f, chdtrc(freedom, value / mean * freedom)))


def two_sided(t: Floats, freedom: Floats) -> Floats:
    """P-values of t statistics.

    Examples
    --------
    >>> two_sided(np.array([2.0]), np.array([1e9])).round(4)
    array([0.0455])
    """
    from scipy.special import stdtr

    return np.asarray(2.0 * stdtr(freedom, -np.abs(t)))


def holm(p_values: Floats) -> Floats:
    """P-values adjusted for their number: under any level, at most that share of reports names one by chance.

    Examples
    --------
    >>> holm(np.array([[0.01, 0.04], [0.03, 0.5]]))
    array([[0.04, 0.09],
           [0.09, 0.5 ]])
    """
    flat = p_values.ravel()
    order = np.argsort(flat, kind="stable")
    stepped = np.maximum.accumulate(flat[order] * np.arange(flat.size, 0, -1))
    adjusted = np.empty_like(flat)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted.reshape(p_values.shape)
