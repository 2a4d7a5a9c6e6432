"""Thesis section 3.3.4, table 3.6: shards with two modes.

Sub-posteriors of theta are N(mu_1b, s^2) / 2 + N(mu_2b, s^2) / 2 with s = 1/10, mu_1b ~ N(0, 1/100),
mu_2b ~ N(1, 1/100), and ten shards; beside theta nine independent parameters have N((-1)^(i - 1), s^2) in every
shard. The posterior of theta is the product, exact here on a grid, as its inflated sub-posteriors are; the
thesis ran independence samplers. 10,000 draws of every shard and kind. All are measured on theta.

The thesis writes normal laws with variances and with standard deviations by turns. With 1/100 a variance the shards'
modes lie a shard's standard deviation apart, and the posterior's two modes get unequal weights by chance; with 1/100
a standard deviation they stay nearly equal. Both are run.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import consilience as cs
from papers.experiment import Experiment, Settings, main
from papers.measuring import ExactLaw, Reference, measured
from papers.rules import combine_linear
from papers.tables import Collected, Table

SHARDS, DRAWS, OTHERS, SD = 10, 10_000, 9, 0.1
COLUMNS = ("iad", "spread")
PAPER = {
    "marginal-views": "0.08 (0.01)",
    "consensus": "0.89 (0.01)",
    "semiparametric-product": "0.91 (0.01)",
    "pie": "0.01 (<0.01)",
    "gaussian-barycenter": "0.66 (<0.01)",
    "recentering": "0.01 (<0.01)",
}
GRID = np.linspace(-2.0, 3.0, 200_001)


@dataclass(frozen=True, eq=False)
class OnGrid:
    """A density of one parameter, known on a grid."""

    log_density: np.ndarray

    @property
    def below(self) -> np.ndarray:
        """Distribution function at the grid's points."""
        density = np.exp(self.log_density - self.log_density.max())
        total = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
        return np.asarray(total / total[-1])

    def sample(self, number: int, rng: np.random.Generator) -> np.ndarray:
        return np.interp(rng.random(number), self.below, GRID)

    def law(self) -> ExactLaw:
        """Moments and distribution function."""
        below = self.below
        mass, middle = np.diff(below), (GRID[1:] + GRID[:-1]) / 2
        mean = mass @ middle
        variance = mass @ (middle - mean) ** 2
        skew = mass @ (middle - mean) ** 3 / variance**1.5
        return ExactLaw(
            np.array([mean]), np.array([[variance]]), np.array([skew]), lambda x: np.interp(x, GRID, below)
        )


def log_mixture(first: float, second: float) -> np.ndarray:
    """Log density of a shard's theta, on the grid."""
    parts = [-0.5 * ((GRID - mean) / SD) ** 2 for mean in (first, second)]
    return np.asarray(np.logaddexp(*parts))


def shards_and_posterior(
    number: int, scatter: float, rng: np.random.Generator
) -> tuple[dict[str, cs.Subposteriors], OnGrid]:
    """`number` draws of every shard, whose modes scatter so much, of either kind, and the posterior of theta."""
    names = ("theta", *(f"psi[{i}]" for i in range(OTHERS)))
    centres = np.array([(-1.0) ** (i + 1) for i in range(OTHERS)])
    logs = [log_mixture(rng.normal(0.0, scatter), rng.normal(1.0, scatter)) for _ in range(SHARDS)]
    draws = {}
    for kind, power in (("subposterior", 1.0), ("inflated", float(SHARDS))):
        arrays = [
            np.column_stack(
                [
                    OnGrid(power * log).sample(number, rng),
                    centres + rng.normal(size=(number, OTHERS)) * SD / np.sqrt(power),
                ]
            )
            for log in logs
        ]
        draws[kind] = cs.Subposteriors.of(arrays, kind=kind, names=names)
    return draws, OnGrid(np.sum(logs, axis=0))


def tables(settings: Settings) -> Sequence[Table]:
    """One table for each reading: theta under every rule."""
    return [
        one_table(settings, 0.01, "Modes scattered with a standard deviation of 1/100", PAPER),
        one_table(settings, 0.1, "Modes scattered with a variance of 1/100", {}),
    ]


def one_table(settings: Settings, scatter: float, caption: str, numbers: Mapping[str, str]) -> Table:
    """Theta under every rule, with the modes scattered so much."""
    draws = 400 if settings.small else DRAWS
    found = Collected()
    for repetition in range(settings.runs):
        rng = np.random.default_rng([settings.seed, repetition])
        kinds, posterior = shards_and_posterior(draws, scatter, rng)
        reference = Reference(posterior.sample(draws, rng)[:, None], posterior.law())
        found.add(f"floor, {draws:,} exact draws", measured(posterior.sample(draws, rng)[:, None], reference))
        for name, combined in combine_linear(kinds, {"theta": 1.0}, repetition):
            found.add(name, measured(combined, reference))
        print(f"scatter {scatter:g}, repetition {repetition + 1}", file=sys.stderr, flush=True)
    paper = {rule: {"iad": iad} for rule, iad in numbers.items()}
    return found.table(f"{caption}; theta against its exact law", COLUMNS, paper)


EXPERIMENT = Experiment("thesis_bimodal", "Vyner's thesis, section 3.3.4, table 3.6", 5, tables)

if __name__ == "__main__":
    sys.exit(main(EXPERIMENT))
