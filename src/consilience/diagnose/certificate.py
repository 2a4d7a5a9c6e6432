"""The certificate: how far draws are from the full posterior, from full-data scores at some of them.

Formulas. With draws theta of mean m, covariance V = M M', standard deviations sd, and full-data scores g, the
whitened regression M' g = a - Q z + noise (see `refine.stein`) gives

    error of the mean     m - (true mean) = -M Q^-1 a,        Mahalanobis^2 = a' Q^-1 a,
    true covariance       M Q^-1 M',

and each marginal's integrated absolute distance is predicted from its own Stein residuals (see `marginals`).

Assumptions: scores near linear over the draws. R^2, the share of them that the regression predicts at points
it has not seen, says how near; under 0.5 these numbers are no estimates, and no verdict is better than
`usable`.

Fails, and no score at the draws can tell: a mode or a tail in which there are no draws; wrong weights of
modes that are far apart; a wrong joint shape whose marginals agree. `escape` looks for the first.

Reference. Stein (1981), The Annals of Statistics 9(6), Lemma 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from consilience.diagnose.escape import Escape, escape_check
from consilience.diagnose.marginals import marginal_iad, noise_floor
from consilience.diagnose.verdict import Findings, judged
from consilience.draws import Subposteriors
from consilience.draws.checks import default_names
from consilience.errors import must_be
from consilience.refine.base import FreshDraws, checked_draws
from consilience.refine.pass_back import Evaluation, Ledger, PassBack
from consilience.refine.stein import Cloud, SteinFit, fit_scores

Floats = NDArray[np.float64]

MAX_POINTS = 512
# Eigenvalues of Q are kept above this: a mean is never said to be further off than the scores can see.
LEAST_PRECISION = 1.0 / 16.0


@dataclass(frozen=True, eq=False)
class Certificate:
    """How far draws can be trusted. Printing it begins with the verdict.

    Attributes
    ----------
    verdict : "indistinguishable from full MCMC", "usable" or "do not use"
    text : the verdict, what it rests on, and what it cannot see
    names : of the unconstrained coordinates, which all the rest is about
    mean_error, mean_error_noise : (d,) estimated error of each mean in posterior sd, and its Monte Carlo error
    sd_error, sd_error_noise : (d,) estimated relative error of each standard deviation, the same
    mahalanobis, mahalanobis_noise : distance of the mean from the true one, noise taken off; the noise
    covariance_error, covariance_noise : relative error of the covariance, the same
    iad, iad_noise : estimated integrated absolute distance, mean over parameters, the same
    iad_per_parameter : (d,)
    r_squared : how nearly linear the scores are
    noise_floor : {"mahalanobis", "iad"}: what two full MCMC runs with as many draws would differ by
    points, non_finite : how many scores it rests on, and how many more were not finite
    escape : the search for mass outside the draws, or None
    cost : what it added to the ledger
    """

    verdict: str
    text: str
    names: tuple[str, ...]
    mean_error: Floats
    mean_error_noise: Floats
    sd_error: Floats
    sd_error_noise: Floats
    mahalanobis: float
    mahalanobis_noise: float
    covariance_error: float
    covariance_noise: float
    iad: float
    iad_noise: float
    iad_per_parameter: Floats
    r_squared: float
    noise_floor: dict[str, float]
    points: int
    non_finite: int
    escape: Escape | None
    cost: dict[str, Any]

    def __str__(self) -> str:
        return self.text

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Certificate:
        """Read back what `to_dict` gave."""

        def number(value: float | None) -> float:
            return np.nan if value is None else value

        values: dict[str, Any] = dict(stored)
        for name, value in stored.items():
            if name == "names":
                values[name] = tuple(value)
            elif name == "escape":
                values[name] = None if value is None else Escape(**value)
            elif isinstance(value, list):
                values[name] = np.array([number(x) for x in value])
            elif value is None:
                values[name] = np.nan
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """JSON-able: arrays become lists, numbers that are not finite None."""
        out: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                out[name] = [_number(x) for x in value]
            elif isinstance(value, float):
                out[name] = _number(value)
            elif isinstance(value, Escape):
                out[name] = value.to_dict()
            else:
                out[name] = list(value) if isinstance(value, tuple) else value
        return out


def certify(
    draws: Floats,
    pass_back: PassBack,
    *,
    log_weights: Floats | None = None,
    names: Sequence[str] | None = None,
    evaluation: Evaluation | None = None,
    raw: Floats | None = None,
    subposteriors: Subposteriors | None = None,
    max_points: int = MAX_POINTS,
    seed: int = 0,
) -> Certificate:
    """Certify draws by full-data scores at some of them.

    Parameters
    ----------
    draws : (N, d)
        Unconstrained coordinates (`Posterior.coordinates`).
    pass_back : PassBack
        The full data.
    evaluation : Evaluation, optional
        Scores at some of these very draws that nothing was fitted to (`Refined.evaluation`); more are asked
        for only where they do not suffice.
    raw, subposteriors : optional
        Combined draws before refinement, and the shards' inflated draws: where else mass could be. Without
        them nothing is said about mass outside the draws.
    max_points : int
        Scores at most.

    Examples
    --------
    >>> import numpyro.distributions as dist
    >>> from consilience.model.model import Model
    >>> from consilience.sample.shard import ShardTask
    >>> class Rows:
    ...     def read(self): return {"y": np.array([0.3, 0.5])}
    >>> model = Model({"mu": dist.Normal(0, 1)}, lambda p, rows: -0.5 * (rows["y"] - p["mu"]) ** 2)
    >>> pass_back = PassBack(model, "certificate", [ShardTask(0, "all", 1.0, Rows())])
    >>> exact = 0.8 / 3 + np.random.default_rng(0).normal(size=(1000, 1)) / np.sqrt(3)
    >>> certify(exact, pass_back).verdict, certify(exact + 1.0, pass_back).verdict
    ('indistinguishable from full MCMC', 'do not use')
    """
    array, weights = checked_draws("certificate", draws, log_weights, pass_back.dimension)
    if not isinstance(max_points, int | np.integer) or max_points < 2 * array.shape[1]:
        constraint = f"at least 2 d = {2 * array.shape[1]}"
        raise must_be("certificate", "max_points", constraint, max_points, f"Use {MAX_POINTS}.")
    begun = pass_back.ledger
    rng = np.random.default_rng((seed, 0xCE87))
    floor = noise_floor(len(array) if weights is None else kish(weights), array.shape[1])
    cloud = Cloud.of(array, weights)
    gathered, lost = gather(array, weights, cloud, pass_back, evaluation, floor, int(max_points), rng)
    label = tuple(names) if names is not None else default_names(array.shape[1])
    if len(gathered.points) < 2 * array.shape[1]:
        return refused(label, floor, len(gathered.points), lost, pass_back.ledger.since(begun))
    fit = fit_scores(cloud.whiten(gathered.points), cloud.whiten_scores(_scores(gathered)))
    escape = None
    if raw is not None or subposteriors is not None:
        escape = escape_check(
            array, pass_back, log_weights=weights, raw=raw, subposteriors=subposteriors, rng=rng
        )
    everywhere = cloud.whiten(array)
    if weights is not None:
        everywhere = everywhere[FreshDraws(weights, len(array), rng).take(len(array))]
    found = findings(cloud, fit, cloud.whiten(gathered.points), everywhere, floor, lost, label, escape, rng)
    verdict, text = judged(found)
    return Certificate(
        verdict=verdict,
        text=text,
        **{name: value for name, value in vars(found).items() if name in Certificate.__dataclass_fields__},
        cost=pass_back.ledger.since(begun).to_dict(),
    )


def kish(log_weights: Floats) -> float:
    """Effective number of weighted draws."""
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / np.sum(weights**2))


def gather(
    draws: Floats,
    log_weights: Floats | None,
    cloud: Cloud,
    pass_back: PassBack,
    evaluation: Evaluation | None,
    floor: dict[str, float],
    max_points: int,
    rng: np.random.Generator,
) -> tuple[Evaluation, int]:
    """As many scores as it takes to see an error of the floor's size, and how many were not finite."""
    fresh = FreshDraws(log_weights, len(draws), rng)
    first = min(max_points, max(64, 4 * draws.shape[1]))
    found = evaluation if evaluation is not None else pass_back.scores(draws[fresh.take(first)])
    while True:
        kept = found.kept()
        lost = len(found.points) - len(kept.points)
        room = min(max_points, len(draws)) - len(found.points)
        if room <= 0:
            return kept, lost
        wanted = first
        if len(kept.points) >= 2 * draws.shape[1]:
            fit = fit_scores(cloud.whiten(kept.points), cloud.whiten_scores(_scores(kept)))
            noise = float(np.trace(fit.intercept_noise)) / (0.5 * floor["mahalanobis"]) ** 2
            if noise <= 1.0:
                return kept, lost
            wanted = max(32, min(len(found.points), int(len(kept.points) * (noise - 1.0))))
        found = found.joined(pass_back.scores(draws[fresh.take(min(room, wanted))]))


def findings(
    cloud: Cloud,
    fit: SteinFit,
    z: Floats,
    everywhere: Floats,
    floor: dict[str, float],
    lost: int,
    names: tuple[str, ...],
    escape: Escape | None,
    rng: np.random.Generator,
) -> Findings:
    """All estimates with their noise."""
    values, vectors = np.linalg.eigh(fit.precision)
    inverse = (vectors / np.maximum(values, LEAST_PRECISION)) @ vectors.T
    covariance = cloud.root @ inverse @ cloud.root.T
    scale = np.sqrt(np.diagonal(covariance))
    move = cloud.root @ inverse / scale[:, None]
    mean_noise = np.sqrt(np.diagonal(move @ fit.intercept_noise @ move.T))
    size = float(fit.intercept @ inverse @ fit.intercept)
    size_noise = float(np.trace(inverse @ fit.intercept_noise))
    units = cloud.root / cloud.scale[:, None]
    slope = float(np.sum(fit.slope**2))
    dimension = len(scale)
    slope_noise = float(np.trace(fit.intercept_noise)) * (dimension + 1) / 2
    iad, iad_noise = marginal_iad(fit, z, everywhere, units, rng)
    return Findings(
        names=names,
        mean_error=-(move @ fit.intercept),
        mean_error_noise=mean_noise,
        sd_error=cloud.scale / scale - 1.0,
        sd_error_noise=0.5 * fit.slope_noise(units.T),
        mahalanobis=float(np.sqrt(max(0.0, size - size_noise))),
        mahalanobis_noise=float(np.sqrt(size_noise)),
        covariance_error=float(np.sqrt(max(0.0, slope - slope_noise) / dimension)),
        covariance_noise=float(np.sqrt(slope_noise / dimension)),
        iad=float(np.mean(np.sqrt(np.maximum(0.0, iad**2 - iad_noise**2)))),
        iad_noise=float(np.mean(iad_noise)),
        iad_per_parameter=iad,
        r_squared=fit.r_squared,
        noise_floor=floor,
        points=fit.num_points,
        non_finite=lost,
        escape=escape,
        least_precision=float(values.min()),
    )


def refused(
    names: tuple[str, ...], floor: dict[str, float], points: int, lost: int, spent: Ledger
) -> Certificate:
    """The certificate of draws whose scores are not finite."""
    unknown = np.full(len(names), np.nan)
    text = (
        f"do not use: the log density or score is NaN or infinite at {lost} of {points + lost} draws, so nothing "
        "can be said of them. Look for a log or a division in the model, and at the draws themselves."
    )
    return Certificate(
        verdict="do not use",
        text=text,
        names=names,
        mean_error=unknown,
        mean_error_noise=unknown,
        sd_error=unknown,
        sd_error_noise=unknown,
        mahalanobis=np.nan,
        mahalanobis_noise=np.nan,
        covariance_error=np.nan,
        covariance_noise=np.nan,
        iad=np.nan,
        iad_noise=np.nan,
        iad_per_parameter=unknown,
        r_squared=np.nan,
        noise_floor=floor,
        points=points,
        non_finite=lost,
        escape=None,
        cost=spent.to_dict(),
    )


def _scores(evaluation: Evaluation) -> Floats:
    assert evaluation.scores is not None
    return evaluation.scores


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
