"""The words under the pictures: what is drawn, on which scale, and how to read it."""

from __future__ import annotations

from consilience.report.text import significant


def _key(colour: str) -> str:
    return f'<span class=key style="border-color:var(--{colour})"></span>'


SUMMARY = (
    "<p class=caption>Estimates are shown to the first digit that Monte Carlo error reaches. MCSE: Monte "
    "Carlo standard error of the mean. ESS: effective number of draws, for the bulk and for the 5&nbsp;% and "
    "95&nbsp;% quantiles; values under 400 are marked.</p>"
)
FOREST = (
    "Means with 50&nbsp;% (thick) and 95&nbsp;% (thin) central intervals. Parameters of very different size, "
    "or far from the others, are drawn on axes of their own."
)
RULES = (
    "<p class=caption>Mean ± standard deviation, to the digit that Monte Carlo error reaches. Apart: the largest "
    "difference between two rules' means, in their standard deviations, with its Monte Carlo error; sd ratio: the "
    "largest standard deviation over the smallest. Marked where a difference is more than 0.2 sd and four errors. "
    "Rules that agree may still be wrong together, and which of several is right these numbers do not say.</p>"
)
COST = (
    "<p class=caption>Full-data gradients: evaluations of the gradient at one row, divided by the number of "
    "rows; they do not depend on the machine.</p>"
)
ADVICE = (
    "<p>A difference that chance does not explain is a difference between shards: another population, a "
    "mistake in the data, or a chain that has not converged. The combined posterior averages over it. Look "
    "at those rows, or let the model say how shards differ.</p>"
)
_SCALES = {
    "inflated": (
        " The shards were sampled from inflated sub-posteriors, prior × likelihood<sup>1/w</sup> with w the "
        "shard's share of the rows: their draws are on the posterior's scale, as wide as the posterior but "
        "not centred where it is."
    ),
    "subposterior": (
        " The shards were sampled from sub-posteriors, prior<sup>w</sup> × likelihood with w the shard's "
        "share of the rows: each knows only its own rows and is wider than the posterior, by about 1/√w."
    ),
}


def _which(num_shards: int, drawn: int, highlighted: int) -> str:
    text = ""
    if drawn < num_shards:
        also = "those that stand out and an even spread of the others" if highlighted else "spread evenly"
        text = f" Of {significant(num_shards)} shards {drawn} are drawn ({also})."
    if highlighted:
        text += f" {_key('alarm')}shards that stand out."
    return text


def densities(kind: str, num_shards: int, drawn: int, highlighted: int) -> str:
    """Under the densities."""
    if num_shards == 0:
        return f"{_key('ink')}posterior density of each parameter."
    return (
        f"{_key('ink')}combined posterior, {_key('shard')}shards.{_which(num_shards, drawn, highlighted)}"
        f"{_SCALES.get(kind, '')} An axis leaves out the tails of a few far shards where the combined "
        "density would otherwise vanish. The line of a constant parameter stands at its value."
    )


def rule_densities(kind: str, num_shards: int) -> str:
    """Under the densities of several rules."""
    shards = f" {_key('shard')}shards.{_SCALES.get(kind, '')}" if num_shards else ""
    return f"Density of each parameter by each rule.{shards}"


def ellipses(kind: str, num_shards: int, drawn: int, highlighted: int, asked: bool) -> str:
    """Under the ellipses."""
    chosen = (
        ""
        if asked
        else " The pairs are those where shards disagree most and those that are most strongly correlated."
    )
    return (
        f"Mean and 2-sd ellipse (86&nbsp;% of a Gaussian) of {_key('ink')}the combined posterior and "
        f"{_key('shard')}each shard.{_which(num_shards, drawn, highlighted)}{chosen}{_SCALES.get(kind, '')}"
    )


def disagreement(kind: str, num_shards: int, shown: int, transformed: bool) -> str:
    """Under the ranking of shards."""
    if kind == "inflated":
        equal = significant((num_shards - 1) ** 0.5, 2)
        rule = (
            "By chance alone the mean of an inflated shard with a share w of the rows lies about √(1/w − 1) "
            f"posterior standard deviations from the combined mean ({equal} for {num_shards} equal shards). "
            "Distances are divided by that, with the shard's own spread in it: by "
            "√(V<sub>b</sub>/w<sub>b</sub> − V), where V<sub>b</sub> is the shard's variance and V the "
            "combined one."
        )
    else:
        rule = (
            "Distances are divided by what chance alone gives a shard's mean: √(V<sub>b</sub> − V), where "
            "V<sub>b</sub> is the shard's own variance and V the combined one."
        )
    most = f"The {shown} furthest of {significant(num_shards)} shards. " if num_shards > shown else ""
    where = (
        " Distances are taken in the unconstrained space where shards were combined." if transformed else ""
    )
    return (
        f"{most}For every shard its furthest parameter. {rule} The grey band holds nine shards in ten when "
        "they differ by chance only and parameters are independent. A coloured dot lies beyond the dashed "
        "limit, or stands out in all parameters together though in none alone; by chance that happens in at "
        f"most one report of twenty.{where}"
    )


def convergence(rhat_limit: float, ess_limit: float | None) -> str:
    """Under the diagnostics."""
    asked = "" if ess_limit is None else f" and {significant(ess_limit)} effective draws"
    return (
        "Worst parameter of each shard, in orange where it has not converged by the sampler's judgement. "
        f"Dashed: R-hat of {rhat_limit:g}{asked}. R-hat of short chains exceeds 1.01 by chance, which this "
        "judgement allows for. Effective draws of all shards add up in the combined posterior: few in one "
        "shard weaken that shard's diagnostics more than the result."
    )


def agreement_maps(kind: str, shown: int, num_shards: int, parameters: int, num_parameters: int) -> str:
    """Under the maps."""
    which = f" {shown} of {significant(num_shards)} shards are drawn." if shown < num_shards else ""
    those = (
        f" The {parameters} of {significant(num_parameters)} parameters in which shards are furthest apart."
        if parameters < num_parameters
        else ""
    )
    drawn_out = " (inflated draws are drawn out about their mean)" if kind == "inflated" else ""
    return (
        "Left: how much of their mass the sub-posteriors of two shards share, mean over parameters, from the means "
        f"and spreads of their draws{drawn_out}; equal shards that differ by chance alone share 0.61 on average. "
        "Right: distance of a shard's mean from that of all others, in standard deviations expected by chance; cells "
        f"within one are left empty. In orange: shards that stand out.{which}{those}"
    )


def influence(shown: int, num_shards: int) -> str:
    """Under the bars."""
    most = f"The {shown} most influential of {significant(num_shards)} shards. " if shown < num_shards else ""
    return (
        f"{most}Left: how far the mean of the shards' Gaussian product moves when a shard is left out, in all "
        "parameters together; the upright mark is the usual size of that when shards differ by chance alone, larger "
        "for shards with more information. Right: integrated absolute distance of a shard's marginals from Gaussians "
        "of the same mean and spread, predicted from skewness and kurtosis with Monte Carlo noise taken off: 0 for "
        "Gaussian shards, for which combination rules are exact."
    )


RULE_SPREAD = (
    "<p class=caption>Differences between rules on the same draws, in noise floors: 1 is the usual difference between "
    "two independent runs of full MCMC with as many draws (2,000 at most). Where exact rules differ by more than 3, "
    "shards are too far from Gaussian for the choice not to matter. Agreement of rules does not show that they are "
    "right.</p>"
)
