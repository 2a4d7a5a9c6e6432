"""Wu and Robert, example 3: one success probability, with a posterior in closed form.

N = 100,000 Bernoulli(p) rows, prior Beta(.01, .01), K shards, 10^5 draws of every target. Every shard's
targets are Beta laws, drawn exactly. The text says that p is .1 or .01, table 3 that it is .1 or .001: all
three are run. The paper's L2 distances fit no unit of p (a density of standard deviation 1e-3 has L2 distances
around 1e-2 of two samples); in units of the posterior's standard deviation they are of the size that its
samples give, and ours are in these.

Draws are combined as p itself, as the paper does, and as logit p, the unconstrained coordinate that this
package chooses. Rules that keep every draw return K times 10^5; all results are thinned to 10^5, so that one
noise floor serves all. The refined row is a fit from rows (10,000 draws, with a floor of its own); at p = .001 a
third of 100 shards have no success and no mode, and it is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.measuring import ExactLaw, Reference, measured
from papers.regression import fit
from papers.rules import combine_all
from papers.tables import Collected, Table

ROWS, DRAWS, PRIOR = 100_000, 100_000, 0.01
REFINED_DRAWS, LEAST_REFINED = 10_000, 0.01
CASES = ((0.1, 50), (0.1, 100), (0.01, 50), (0.01, 100), (0.001, 50), (0.001, 100))
# Columns CMC, AR, WS and MP of table 3.
RULES = ("consensus", "recentering", "weierstrass", "median-posterior")
PAPER = {
    (0.1, 50): ("1.1e-4", "2.9e-5", "1.4e-4", "2.7e-4"),
    (0.1, 100): ("2.3e-4", "3.7e-5", "3.6e-4", "8.4e-5"),
    (0.001, 50): ("1.6e-4", "3.5e-6", "1.9e-4", "2.7e-5"),
    (0.001, 100): ("4.8e-4", "4.0e-6", "3.4e-4", "1.2e-4"),
}


def beta_law(a: float, b: float) -> ExactLaw:
    """Beta(a, b), as a law of one parameter."""
    from scipy.stats import beta

    mean, variance, skew = (np.atleast_1d(x) for x in beta.stats(a, b, moments="mvs"))
    return ExactLaw(mean, variance[:, None], skew, lambda x: beta.cdf(x, a, b))


def shard_draws(
    successes: np.ndarray, size: int, draws: int, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """(K, draws, 1) exact draws of p from either kind of target of every shard."""
    failures, number = size - successes, len(successes)
    share = (PRIOR - 1) / number + 1  # (p (1 - p))^(PRIOR - 1) to the power 1 / K
    shape = {
        "subposterior": (successes + share, failures + share),
        "inflated": (number * successes + PRIOR, number * failures + PRIOR),
    }
    return {
        kind: rng.beta(a[:, None, None], b[:, None, None], size=(number, draws, 1))
        for kind, (a, b) in shape.items()
    }


def one_run(p: float, number: int, draws: int, rows: int, rng: np.random.Generator, found: Collected) -> None:
    """One data set: the exact posterior, a floor, every rule."""
    successes = rng.binomial(rows // number, p, size=number)
    a, b = successes.sum() + PRIOR, rows - successes.sum() + PRIOR
    reference = Reference(rng.beta(a, b, size=(draws, 1)), beta_law(a, b))
    column = column_of(p, number)
    found.add(
        f"floor, {draws:,} exact draws", {column: measured(rng.beta(a, b, size=(draws, 1)), reference)["l2"]}
    )
    drawn = shard_draws(successes, rows // number, draws, rng)
    for kind, array in drawn.items():
        # A shard without a success has draws that are 0 in floating point, whose logit is not finite.
        drawn[kind] = np.clip(array, 1e-300, 1 - 1e-16)
    for suffix, forward, back in (("", _same, _same), (", logit", _logit, _expit)):
        kinds = {kind: cs.Subposteriors.of(forward(x), kind=kind) for kind, x in drawn.items()}
        for name, posterior in combine_all(kinds, seed=number):
            weights = posterior.weights()
            chosen = rng.choice(
                len(weights), size=draws, p=None if posterior.log_weights is None else weights
            )
            found.add(name + suffix, {column: measured(back(posterior.array[chosen]), reference)["l2"]})
    if p >= LEAST_REFINED:
        few = min(draws, REFINED_DRAWS)
        exact = rng.beta(a, b, size=(few, 1))
        found.add(f"floor, {few:,} exact draws", {column: measured(exact, reference)["l2"]})
        array = refined(successes, rows // number, few)
        found.add("swiss, logit, refined (auto)", {column: measured(array, reference)["l2"]})


def refined(successes: np.ndarray, size: int, draws: int) -> np.ndarray:
    """A fit of the same rows in the same shards, refined by another look at them."""
    import numpyro.distributions as dist

    rows = {
        "y": (np.arange(size) < successes[:, None]).astype(np.float64).ravel(),
        "shard": np.repeat(np.arange(len(successes)), size),
    }
    model = cs.Model({"p": dist.Beta(PRIOR, PRIOR)}, _bernoulli, columns=["y"])
    posterior = fit(model, rows, shards="shard", draws=draws, seed=0, refine="auto").posterior
    return np.asarray(posterior.array[:draws])


def _bernoulli(params: dict[str, Any], rows: dict[str, Any]) -> Any:
    import jax.numpy as jnp

    return rows["y"] * jnp.log(params["p"]) + (1 - rows["y"]) * jnp.log1p(-params["p"])


def _logit(p: np.ndarray) -> np.ndarray:
    return np.log(p) - np.log1p(-p)


def _expit(x: np.ndarray) -> np.ndarray:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _same(x: np.ndarray) -> np.ndarray:
    return x


def column_of(p: float, number: int) -> str:
    """What the column of a case is called."""
    return f"p = {p:g}, K = {number}"


def tables(settings: Settings) -> Sequence[Table]:
    """L2 distances, one column per case."""
    draws, rows = (500, 10_000) if settings.small else (DRAWS, ROWS)
    cases = ((0.1, 10), (0.1, 20)) if settings.small else CASES
    found = Collected()
    for p, number in cases:
        for repetition in range(settings.runs):
            rng = np.random.default_rng([settings.seed, repetition, number, round(1000 * p)])
            one_run(p, number, draws, rows, rng, found)
            print(f"p = {p}, K = {number}, repetition {repetition + 1}", file=sys.stderr, flush=True)
    paper: dict[str, dict[str, str]] = {rule: {} for rule in RULES}
    for (p, number), values in PAPER.items():
        for rule, value in zip(RULES, values, strict=True):
            paper[rule][column_of(p, number)] = value
    columns = [column_of(p, number) for p, number in cases]
    return [found.table("L2 distance to the exact posterior, in its standard deviations", columns, paper)]


EXPERIMENT = Experiment("wu_robert_beta", "Wu and Robert, example 3, table 3", 3, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
