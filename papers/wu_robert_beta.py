"""Wu and Robert, example 3: one success probability, with a posterior in closed form.

N = 100,000 Bernoulli(p) rows, prior Beta(.01, .01), K shards, 10^5 draws of every target. Every shard's targets
are Beta laws, drawn exactly. The text says that p is .1 or .01, table 3 that it is .1 or .001: all three are
run. The paper's L2 distances fit no unit of p (a density of standard deviation 1e-3 has L2 distances around
1e-2 of two samples); in units of the posterior's standard deviation they are of the size that its samples give,
and ours are in these.

Draws are combined as p itself, as the paper does, and with p declared to lie between 0 and 1: in logit p, where
sub-posterior draws bring their Jacobian into the product once. Rules that keep every draw return K times 10^5;
all results are thinned to 10^5, so that one noise floor serves all. Rules that walk over draws or build trees
of them are given 10^4 of every shard, and the refined row is a fit from rows with as many draws; these have a
floor of their own. At p = .001 a third of 100 shards have no success and no mode, and it is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.measuring import ExactLaw, Reference, measured
from papers.parallel import in_processes
from papers.regression import fit
from papers.rules import SLOW, combine_all, usable_rules
from papers.tables import Collected, Table
from papers.wu_robert_gaussian import floor_of, row_of

ROWS, DRAWS, PRIOR = 100_000, 100_000, 0.01
FEW_DRAWS, LEAST_REFINED = 10_000, 0.01
FLOOR, REFINED = "floor", "swiss, logit, refined (auto)"
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


def one_part(
    seed: int, repetition: int, p: float, number: int, part: str, draws: int, rows: int
) -> dict[str, float]:
    """L2 distances of one part of the table on one data set: a rule in both coordinates, the floor, the refined row."""
    rng = np.random.default_rng([seed, repetition, number, round(1000 * p)])
    successes = rng.binomial(rows // number, p, size=number)
    a, b = successes.sum() + PRIOR, rows - successes.sum() + PRIOR
    reference = Reference(rng.beta(a, b, size=(draws, 1)), beta_law(a, b))
    few = min(draws, FEW_DRAWS)
    if part == FLOOR:
        exact = rng.beta(a, b, size=(draws, 1))
        return {floor_of(n): measured(exact[:n], reference)["l2"] for n in (draws, few)}
    if part == REFINED:
        if p < LEAST_REFINED:
            return {}
        return {REFINED: measured(refined(successes, rows // number, few), reference)["l2"]}
    drawn = shard_draws(successes, rows // number, few if part in SLOW else draws, rng)
    for kind, array in drawn.items():
        # A shard without a success has draws that are 0 in floating point, whose logit is not finite.
        drawn[kind] = np.clip(array, 1e-300, 1 - 1e-16)
    kinds = {kind: cs.Subposteriors.of(x, kind=kind, names=["p"]) for kind, x in drawn.items()}
    found = {}
    for suffix, options in (("", {}), (", logit", {"supports": {"p": "unit"}})):
        for name, posterior in combine_all(kinds, seed=number, rules=[part], **options):
            weights = posterior.weights()
            wanted, weighted = few if part in SLOW else draws, posterior.log_weights is not None
            again = weighted or len(weights) < wanted
            chosen = rng.choice(len(weights), size=wanted, replace=again, p=weights if weighted else None)
            found[row_of(name, few) + suffix] = measured(posterior.array[chosen], reference)["l2"]
    return found


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


def column_of(p: float, number: int) -> str:
    """What the column of a case is called."""
    return f"p = {p:g}, K = {number}"


def tables(settings: Settings) -> Sequence[Table]:
    """L2 distances, one column per case."""
    draws, rows = (500, 10_000) if settings.small else (DRAWS, ROWS)
    cases = ((0.1, 10), (0.1, 20)) if settings.small else CASES
    rules = [record.name for record in usable_rules()]
    tasks = [
        (settings.seed, repetition, p, number, part, draws, rows)
        for (p, number), repetition, part in product(cases, range(settings.runs), [FLOOR, *rules, REFINED])
    ]
    few = min(draws, FEW_DRAWS)
    order = [row_of(name, few) for name in sorted(rules, key=lambda name: name in SLOW)]
    fast, slow = order[: -len(SLOW)], order[-len(SLOW) :]
    rows_of_fast = [floor_of(draws), *fast, *(f"{name}, logit" for name in fast)]
    rows_of_slow = [floor_of(few), *slow, *(f"{name}, logit" for name in slow)]
    found = Collected([*rows_of_fast, *rows_of_slow, REFINED])
    for task, values in zip(tasks, in_processes(one_part, tasks, settings.jobs), strict=True):
        for name, value in values.items():
            found.add(name, {column_of(task[2], task[3]): value})
    paper: dict[str, dict[str, str]] = {rule: {} for rule in RULES}
    for (p, number), values in PAPER.items():
        for rule, value in zip(RULES, values, strict=True):
            paper[rule][column_of(p, number)] = value
    columns = [column_of(p, number) for p, number in cases]
    return [found.table("L2 distance to the exact posterior, in its standard deviations", columns, paper)]


EXPERIMENT = Experiment("wu_robert_beta", "Wu and Robert, example 3, table 3", 3, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
