"""What `print(agreement)` says: a few lines, the most important first, and the warnings with their limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from consilience.diagnose.agreement import Agreement

MOST_NAMED = 3
# A p-value under which the sentence on all shards becomes a warning, and, on the other side, one over which shards
# lie closer together than chance has it.
WARNED = 0.01
# Root mean square error of the combined means, in posterior standard deviations, that estimated covariances may
# cause without a warning: an IAD of .08, and 95 % intervals that cover 94.5 %.
WEIGHTS_LIMIT = 0.2
# Distance from Gaussian from which p-values are said to be rough.
FAR_FROM_GAUSSIAN = 0.1


def lines(found: Agreement, *, outstanding: bool = True) -> list[str]:
    """One line for each thing that was measured; those on shards that stand out may be left away."""
    named = _outstanding(found) if outstanding else []
    said = [_spread(found), *named, _overlap(found), _influence(found), _shape(found)]
    error = float(np.sqrt(np.mean(found.weights_error**2)))
    said.append(
        f"Estimating covariances puts combined means about {error:.2g} posterior sd off before any refinement."
    )
    if found.rules is not None:
        said += [f"Rules: {found.rules}.", *found.rules.notes]
    return said


def weights_warning(found: Agreement) -> tuple[str, ...]:
    """Estimated covariances move the combined mean too far."""
    error = float(np.sqrt(np.mean(found.weights_error**2)))
    if error <= WEIGHTS_LIMIT:
        return ()
    draws = float(np.median(found.effective_draws))
    return (
        f"Covariances estimated from {draws:,.0f} effective draws of each shard put the combined means of rules that "
        f"weigh by precision about {error:.2g} posterior sd off (limit {WEIGHTS_LIMIT:g}). Draw about "
        f"{_rounded_up(draws * (error / WEIGHTS_LIMIT) ** 2):,} from each shard, or refine.",
    )


def spread_warning(found: Agreement, explained: float) -> tuple[str, ...]:
    """A p-value at either end; `explained` is that of the same draws taken for the other kind."""
    test = found.heterogeneity
    if WARNED <= test.p_value <= 1.0 - WARNED:
        return ()
    other = "subposterior" if found.kind == "inflated" else "inflated"
    hint = (
        f" Taken for {other} draws they would lie as chance has it: check what was sampled."
        if WARNED <= explained <= 1.0 - WARNED
        else ""
    )
    far = f"{test.ratio:.3g} times as far apart as chance puts them ({probability(test.p_value)})"
    if test.p_value > WARNED:
        return (
            f"Shards lie only {far}: the same rows in several shards, or a prior that outweighs the rows.{hint}",
        )
    skewed = found.shape.distance.mean() > FAR_FROM_GAUSSIAN
    rough = " Shards are far from Gaussian, so this is rough." if skewed else ""
    return (
        f"Shards lie {far}: another population, a mistake in the data, or a chain that has not converged.{hint}{rough}",
    )


def shard_name(found: Agreement, shard: int) -> str:
    """How a shard is called: its number, and its label where that says more."""
    label = found.labels[shard]
    return f"shard {shard}" if label == str(shard) else f"shard {shard} ({label})"


def outstanding_sentence(found: Agreement, shard: int) -> str:
    """Where a shard stands out."""
    places = found.standing_out_in(shard)
    others = found.against_others
    if not places:
        return (
            f"{shard_name(found, shard)} stands out in no single parameter but in all together: squared distance "
            f"{others.squared[shard]:.3g} times that by chance"
        )
    said = []
    for j in places[:MOST_NAMED]:
        distance = others.distances[shard, j]
        said.append(f"{found.names[j]}: {abs(distance):.1f} sd {'above' if distance > 0 else 'below'}")
    more = len(places) - len(said)
    tail = f" (and {more} more parameter{'s' if more > 1 else ''})" if more else ""
    return f"{shard_name(found, shard)} stands out in {'; '.join(said)}{tail}"


def probability(p_value: float) -> str:
    """A p-value in words.

    Examples
    --------
    >>> probability(0.1234), probability(1e-30), probability(0.9951), probability(0.99999)
    ('p = 0.12', 'p < 1e-06', 'p = 0.995', 'p > 0.999')
    """
    if p_value > 0.999:
        return "p > 0.999"
    return (
        "p < 1e-06" if p_value < 1e-6 else f"p = {p_value:.3f}" if p_value > 0.985 else f"p = {p_value:.2g}"
    )


def _spread(found: Agreement) -> str:
    test = found.heterogeneity
    d = len(found.names)
    return (
        f"Agreement of {len(found.labels)} shards in {d} parameter{'s' if d > 1 else ''}: means lie "
        f"{test.ratio:.3g} times as far apart as chance puts them, {probability(test.p_value)}."
    )


def _outstanding(found: Agreement) -> list[str]:
    shards = found.standing_out()
    if not shards:
        return ["No shard stands out from the others beyond chance."]
    said = []
    for b in shards[:MOST_NAMED]:
        text = outstanding_sentence(found, b)
        said.append(f"{text[0].upper()}{text[1:]}.")
    more = len(shards) - len(said)
    return [*said, f"So do {more} more shards."] if more else said


def _overlap(found: Agreement) -> str:
    average, chance = found.pairs.average()
    first, second = found.pairs.least()
    if len(found.labels) == 2:
        return f"Overlap of the two sub-posteriors: {average:.2f} ({chance:.2f} by chance)."
    least = found.pairs.overlap.min()
    return (
        f"Overlap of two sub-posteriors: {average:.2f} on average ({chance:.2f} by chance), least {least:.2f} between "
        f"{shard_name(found, first)} and {shard_name(found, second)}."
    )


def _influence(found: Agreement) -> str:
    others = found.against_others
    b = int(np.argmax(others.influence))
    return (
        f"Largest influence: without {shard_name(found, b)} the combined mean moves by {others.influence[b]:.2g} "
        f"posterior sd ({others.influence_by_chance[b]:.2g} by chance)."
    )


def _shape(found: Agreement) -> str:
    shape = found.shape
    b, j = (int(i) for i in np.unravel_index(np.argmax(shape.distance), shape.distance.shape))
    average = shape.distance.mean()
    if shape.distance[b, j] == 0.0:
        return "Shards are Gaussian as far as their draws can tell."
    return (
        f"Distance from Gaussian (IAD): {average:.2g} on average, largest {shape.distance[b, j]:.2g} in "
        f"{shard_name(found, b)}, {found.names[j]} (skewness {shape.skewness[b, j]:.2g} ± "
        f"{shape.skewness_error[b, j]:.1g}, excess kurtosis {shape.kurtosis[b, j]:.2g} ± "
        f"{shape.kurtosis_error[b, j]:.1g})."
    )


def _rounded_up(number: float) -> int:
    """Two significant digits, upwards.

    Examples
    --------
    >>> _rounded_up(12_345.0)
    13000
    """
    unit = 10 ** max(int(np.floor(np.log10(number))) - 1, 0)
    return int(np.ceil(number / unit)) * unit
