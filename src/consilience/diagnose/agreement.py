"""Do the shards agree? What their draws say before, and without, a run on all rows.

Under the hypothesis that shards differ only by which rows fell into them, their means scatter around one parameter
as far as their spreads say (`heterogeneity`, with the formulas and the reference). Against this are held: all shards
together, each shard and each parameter against the others, shards two by two (`overlap`), what leaving a shard out
would change, how far shards are from Gaussian (`shape`), what the choice of the rule matters (`rulespread`), and
what estimating the shards' covariances from draws costs.

The last: rules that weigh shards by precisions estimated from draws move the combined mean by their noise, about

    |z| sqrt(d) / sqrt(J)   posterior standard deviations,

|z| the distance of shards from the combined mean in their sub-posterior standard deviations, J the effective draws
of a shard; exactly, `combine.moments._weights_error`. By chance |z| is sqrt(d), which makes d / sqrt(J) in all, and
sqrt(d / J) for each parameter.

Everything is measured in the coordinates in which draws are combined. Cost: one pass over the draws for the moments,
another for the shapes, and O(B d^3); the rules cost what they cost.

Fails. Nothing here sees a mistake that all shards share: a wrong model, a wrong prior, a mode that no chain found.
Shards that lie as chance has it may still be combined wrongly when they are far from Gaussian.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consilience.combine.inputs import gather
from consilience.combine.moments import gaussian_product, shard_moments
from consilience.diagnose.agreementwords import lines, spread_warning, weights_warning
from consilience.diagnose.heterogeneity import (
    AgainstOthers,
    Heterogeneity,
    all_together,
    each_against_others,
    holm,
    whitened,
)
from consilience.diagnose.overlap import Pairs, compare_pairs
from consilience.diagnose.rulespread import RuleSpread, rule_spread
from consilience.diagnose.shape import Shape, shard_shape
from consilience.draws import Subposteriors
from consilience.errors import DrawsError, InputError, must_be
from consilience.progress import Progress, is_shown

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

# At most one report in twenty names a shard by chance: half of that for shards in all parameters together, half for
# shards in single parameters, each adjusted for how many there are.
LEVEL = 0.05
# Rules that weigh shards by precisions estimated from draws, which the warning on covariances is about.
WEIGHED_BY_PRECISION = ("swiss", "consensus", "gaussian-product")


@dataclass(frozen=True, eq=False)
class Agreement:
    """How far shards agree. Printing it says so in a few lines.

    Attributes
    ----------
    names, labels : of the coordinates that are combined, and of the shards
    kind, weights : of the draws
    draws, effective_draws : (B,) of every shard
    heterogeneity : do all shards tell of one parameter: statistic, expected, p_value, ratio
    against_others : each shard against all others: distances, p_values, shifts, influence (see `by_shard`)
    pairs : shards two by two: distance, overlap, overlap_by_chance
    shape : skewness, kurtosis and distance from Gaussian, (B, d) each
    weights_error : (d,) expected error of each combined mean because covariances were estimated, in posterior
        standard deviations
    rules : differences between rules, or None where none were run
    warnings : what a reader has to know
    """

    names: tuple[str, ...]
    labels: tuple[str, ...]
    kind: str
    weights: Floats
    draws: Floats
    effective_draws: Floats
    heterogeneity: Heterogeneity
    against_others: AgainstOthers
    pairs: Pairs
    shape: Shape
    weights_error: Floats
    rules: RuleSpread | None = None
    warnings: tuple[str, ...] = ()

    @property
    def p_value(self) -> float:
        """Probability that shards lie so far apart by chance alone."""
        return self.heterogeneity.p_value

    def standing_out(self) -> list[int]:
        """Shards that differ from the others by more than chance, the least likely first.

        By chance alone, at most one report in twenty names any.
        """
        single = holm(self.against_others.p_values).min(axis=1)
        joint = holm(self.against_others.joint_p_values)
        order = np.argsort(self.against_others.joint_p_values, kind="stable")
        return [int(b) for b in order if min(single[b], joint[b]) <= LEVEL / 2]

    def standing_out_in(self, shard: int) -> list[int]:
        """Parameters in which a shard differs from the others by more than chance, the least likely first."""
        adjusted = holm(self.against_others.p_values)[shard]
        return [int(j) for j in np.argsort(adjusted, kind="stable") if adjusted[j] <= LEVEL / 2]

    def by_shard(self) -> pd.DataFrame:
        """One row per shard: how it stands to the others, and what it changes.

        `distance` is squared distance in all parameters over its average by chance, `p_value` that of the test
        (`adjusted` by Holm for the number of shards), `largest` the largest distance in one parameter,
        `parameter`; `influence` what leaving it out moves the posterior mean by in posterior standard deviations,
        `by_chance` the usual size of that; `gaussian_distance` the IAD to a Gaussian, mean over parameters.
        """
        import pandas as pd

        others = self.against_others
        worst = np.abs(others.distances).argmax(axis=1)
        rows = np.arange(len(worst))
        return pd.DataFrame(
            {
                "weight": self.weights,
                "effective_draws": self.effective_draws,
                "distance": others.squared,
                "p_value": others.joint_p_values,
                "adjusted": holm(others.joint_p_values),
                "largest": others.distances[rows, worst],
                "parameter": [self.names[j] for j in worst],
                "influence": others.influence,
                "by_chance": others.influence_by_chance,
                "gaussian_distance": self.shape.distance.mean(axis=1),
            },
            index=pd.Index(self.labels, name="shard"),
        )

    def by_parameter(self) -> pd.DataFrame:
        """One row per parameter: the shard furthest from the others, the largest influence, the worst shape."""
        import pandas as pd

        others, shape = self.against_others, self.shape
        columns = np.arange(len(self.names))
        far, moves = np.abs(others.distances).argmax(axis=0), np.abs(others.shifts).argmax(axis=0)
        crooked = shape.distance.argmax(axis=0)
        return pd.DataFrame(
            {
                "furthest": [self.labels[b] for b in far],
                "distance": others.distances[far, columns],
                "p_value": others.p_values[far, columns],
                "adjusted": holm(others.p_values)[far, columns],
                "most_influential": [self.labels[b] for b in moves],
                "shift": others.shifts[moves, columns],
                "least_gaussian": [self.labels[b] for b in crooked],
                "skewness": shape.skewness[crooked, columns],
                "kurtosis": shape.kurtosis[crooked, columns],
                "gaussian_distance": shape.distance[crooked, columns],
                "weights_error": self.weights_error,
            },
            index=pd.Index(self.names, name="parameter"),
        )

    def distances(self) -> pd.DataFrame:
        """Each shard's mean minus that of the others, in standard deviations expected by chance."""
        return self._frame(self.against_others.distances)

    def influence(self) -> pd.DataFrame:
        """What leaving each shard out moves every mean by, in posterior standard deviations."""
        return self._frame(self.against_others.shifts)

    def overlap(self) -> pd.DataFrame:
        """Overlap of the sub-posteriors of every two shards, from 0 to 1."""
        return self._square(self.pairs.overlap)

    def pairwise_distance(self) -> pd.DataFrame:
        """Distance of the means of every two shards; 1 is usual by chance."""
        return self._square(self.pairs.distance)

    def between_rules(self) -> pd.DataFrame:
        """Differences between rules in noise floors, one row per pair; empty where no rules were run."""
        import pandas as pd

        spread = self.rules
        if spread is None:
            return pd.DataFrame()
        index = pd.MultiIndex.from_tuples(spread.pairs, names=["rule", "other"]) if spread.pairs else None
        return pd.DataFrame(list(spread.in_floors), index=index)

    def weights_warning(self) -> tuple[str, ...]:
        """The warning on estimated covariances, where there is one."""
        return weights_warning(self)

    def _frame(self, values: Floats) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(values, index=pd.Index(self.labels, name="shard"), columns=list(self.names))

    def _square(self, values: Floats) -> pd.DataFrame:
        import pandas as pd

        labels = [self.labels[b] for b in self.pairs.shards]
        return pd.DataFrame(values, index=pd.Index(labels, name="shard"), columns=labels)

    def __str__(self) -> str:
        return "\n".join([*lines(self), *(f"WARNING: {text}" for text in self.warnings)])


def agreement(
    draws: Any,
    *,
    kind: str | None = None,
    weights: Any = None,
    names: Sequence[str] | None = None,
    rules: Sequence[str] | str | None = "auto",
    seed: int = 0,
) -> Agreement:
    """Measure how far shards agree, from their draws alone.

    Parameters
    ----------
    draws, kind, weights, names
        As in `combine`.
    rules : "auto", sequence of str or None
        Rules to run on the same draws and compare: some cheap ones for this kind of draws, those named, or none.
    seed : int
        Seed of rules that permute or draw.

    Returns
    -------
    Agreement
        Printing it says the main things; `by_shard()` and `by_parameter()` are pandas frames.

    Raises
    ------
    DrawsError
        With one shard, with columns that depend on each other, or with no more than d + 4 effective draws in a
        shard.

    Examples
    --------
    Ten shards that lie as chance has it, and then one of them elsewhere:

    >>> rng = np.random.default_rng(3)
    >>> shards = rng.normal(size=(10, 500, 2)) + 3.0 * rng.normal(size=(10, 1, 2))
    >>> found = agreement(shards, kind="inflated", rules=None)
    >>> found.p_value > 0.05, found.standing_out()
    (True, [])
    >>> shards[4, :, 1] += 20.0
    >>> found = agreement(shards, kind="inflated", names=["a", "b"], rules=None)
    >>> found.p_value < 0.001, found.standing_out(), found.standing_out_in(4)
    (True, [4], [1])
    """
    if isinstance(rules, str) and rules != "auto":
        rules = [rules]
    subposteriors = gather(draws, kind=kind, weights=weights, names=names).subposteriors
    if subposteriors.num_shards < 2:
        raise must_be(
            "agreement",
            "draws",
            "those of two shards or more",
            "one shard",
            "There is nothing to agree with.",
            DrawsError,
        )
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise must_be("agreement", "seed", "a whole number, 0 or more", seed, "Leave it out.", InputError)
    with nullcontext() if is_shown() else Progress(patience=1.0) as shown:
        if shown is not None:
            shown.stage("agreement of shards")
        return _measured(subposteriors, rules, int(seed))


def _measured(subposteriors: Subposteriors, rules: Sequence[str] | str | None, seed: int) -> Agreement:
    moments = shard_moments(subposteriors)
    weights = np.asarray(subposteriors.weights)
    powers = weights if subposteriors.kind == "inflated" else np.ones_like(weights)
    product = gaussian_product(moments, powers)
    shards = whitened(moments, powers)
    together, each = all_together(shards), each_against_others(shards)
    deviations = np.sqrt(np.diagonal(product.covariance))
    found = Agreement(
        names=tuple(subposteriors.names),
        labels=subposteriors.labels,
        kind=subposteriors.kind,
        weights=weights,
        draws=moments.sizes,
        effective_draws=moments.effective_draws,
        heterogeneity=together,
        against_others=each,
        pairs=compare_pairs(moments, powers, each.joint_p_values),
        shape=shard_shape(subposteriors, moments),
        weights_error=np.sqrt(np.diagonal(product.weights_error)) / deviations,
        rules=None if rules is None else rule_spread(subposteriors, None if rules == "auto" else rules, seed),
    )
    other_powers = np.ones_like(weights) if subposteriors.kind == "inflated" else weights
    explained = all_together(whitened(moments, other_powers)).p_value
    warnings = (*spread_warning(found, explained), *weights_warning(found), *product.warnings)
    return replace(found, warnings=warnings)
