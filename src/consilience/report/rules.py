"""Rules side by side as numbers: what each says of every parameter, and where they differ most.

Two rules' means are compared in units of s, the root mean square of their standard deviations, and beside the
difference stands its Monte Carlo error, sqrt(MCSE_1^2 + MCSE_2^2) / s. A difference of more than four errors and of
more than 0.2 s is marked: it is no chance, and large enough to matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from consilience.report.text import decimals_for, fixed, listing

if TYPE_CHECKING:
    import pandas as pd

    from consilience.report.inputs import RulesInput

Array = np.ndarray
ERRORS, SIZE = 4.0, 0.2
LEVELS = (0.025, 0.25, 0.75, 0.975)
MOST_NAMED = 3


@dataclass(frozen=True)
class SideBySide:
    """What rules say of the columns that all of them have.

    Attributes
    ----------
    rules : (R) names
    names : (d) columns
    means, sds, errors : (R, d) means, standard deviations, and Monte Carlo errors of the means
    quantiles : (R, 4, d) of 2.5, 25, 75 and 97.5 %
    missing : per rule, columns of others that it has not
    """

    rules: tuple[str, ...]
    names: tuple[str, ...]
    means: Array
    sds: Array
    errors: Array
    quantiles: Array
    missing: dict[str, tuple[str, ...]]

    @cached_property
    def apart(self) -> tuple[Array, Array, list[tuple[int, int]]]:
        """Per column: the largest difference between two rules' means, its error, and which two these are."""
        pairs = list(itertools.combinations(range(len(self.rules)), 2))
        if not pairs:
            nothing = np.zeros(len(self.names))
            return nothing, nothing, [(0, 0)] * len(self.names)
        first, second = (np.array(side) for side in zip(*pairs, strict=True))
        scale = np.sqrt((self.sds[first] ** 2 + self.sds[second] ** 2) / 2)
        scale = np.where(scale > 0, scale, 1.0)
        gaps = np.abs(self.means[first] - self.means[second]) / scale
        errors = np.sqrt(self.errors[first] ** 2 + self.errors[second] ** 2) / scale
        worst = gaps.argmax(axis=0)
        columns = np.arange(len(self.names))
        return gaps[worst, columns], errors[worst, columns], [pairs[k] for k in worst]

    @cached_property
    def spread_ratio(self) -> Array:
        """(d,) the largest of the rules' standard deviations over the smallest."""
        smallest = self.sds.min(axis=0)
        return np.where(smallest > 0, self.sds.max(axis=0) / np.where(smallest > 0, smallest, 1.0), 1.0)

    def differing(self) -> list[int]:
        """Columns in which rules differ by more than chance and more than a little, furthest first."""
        gaps, errors, _ = self.apart
        marked = (gaps > ERRORS * errors) & (gaps > SIZE)
        return [int(j) for j in np.argsort(-gaps, kind="stable") if marked[j]]

    def sentence(self) -> str:
        """Say in a line where the rules differ."""
        if len(self.rules) < 2 or not self.names:
            return ""
        gaps, _, pairs = self.apart
        ratio = float(self.spread_ratio.max())
        widths = self.names[int(self.spread_ratio.argmax())]
        spread = f"standard deviations differ by a factor of up to {fixed(ratio, 2)} ({widths})"
        marked = self.differing()
        if not marked:
            return f"No two rules' means differ by more than {SIZE:g} sd and chance; {spread}."
        named = [
            f"{self.names[j]} ({fixed(float(gaps[j]), 1)} sd, {self.rules[pairs[j][0]]} and {self.rules[pairs[j][1]]})"
            for j in marked[:MOST_NAMED]
        ]
        more = f" and {len(marked) - MOST_NAMED} more" if len(marked) > MOST_NAMED else ""
        return f"Rules differ in {listing(named, MOST_NAMED)}{more}; {spread}."


def side_by_side(report: RulesInput) -> SideBySide:
    """Gather what the rules say.

    Examples
    --------
    >>> from consilience.draws import Posterior
    >>> from consilience.report.inputs import RulesInput
    >>> x = np.random.default_rng(0).normal(size=(4000, 1))
    >>> found = side_by_side(RulesInput("t", {"a": Posterior(x), "b": Posterior(x + 1)}))
    >>> found.sentence()
    'Rules differ in theta[0] (1.0 sd, a and b); standard deviations differ by a factor of up to 1.00 (theta[0]).'
    """
    posteriors = report.posteriors
    every = list(dict.fromkeys(name for posterior in posteriors.values() for name in posterior.names))
    common = [name for name in every if all(name in posterior.names for posterior in posteriors.values())]
    means, sds, errors, quantiles = [], [], [], []
    for posterior in posteriors.values():
        columns = [posterior.names.index(name) for name in common]
        means.append(posterior.mean()[columns])
        sds.append(posterior.sd()[columns])
        errors.append(posterior.mcse()[columns])
        quantiles.append(posterior.quantile(LEVELS)[:, columns])
    missing = {
        rule: tuple(name for name in every if name not in posterior.names)
        for rule, posterior in posteriors.items()
    }
    return SideBySide(
        rules=tuple(posteriors),
        names=tuple(common),
        means=np.array(means),
        sds=np.array(sds),
        errors=np.array(errors),
        quantiles=np.array(quantiles),
        missing={rule: names for rule, names in missing.items() if names},
    )


def estimate_cells(found: SideBySide) -> list[list[str]]:
    """Mean and standard deviation of every column (rows) by every rule, to the digits that Monte Carlo reaches."""
    rows = []
    for j in range(len(found.names)):
        error = float(np.nanmax(found.errors[:, j]))
        places = decimals_for(float(found.means[0, j]), error if error > 0 else float(found.sds[0, j]) / 100)
        rows.append(
            [
                f"{fixed(float(mean), places)} ± {fixed(float(sd), places)}"
                for mean, sd in zip(found.means[:, j], found.sds[:, j], strict=True)
            ]
        )
    return rows


def estimate_frame(found: SideBySide) -> pd.DataFrame:
    """The same as a frame, with the largest difference of means and of standard deviations."""
    import pandas as pd

    gaps, errors, _ = found.apart
    frame = pd.DataFrame(estimate_cells(found), index=list(found.names), columns=list(found.rules))
    if len(found.rules) > 1:
        frame["apart"] = [
            f"{fixed(float(g), 2)} (± {fixed(float(e), 2)})" for g, e in zip(gaps, errors, strict=True)
        ]
        frame["sd ratio"] = [fixed(float(ratio), 2) for ratio in found.spread_ratio]
    return frame


def rule_frame(report: RulesInput) -> pd.DataFrame:
    """One row per rule: what it brought and what it took."""
    import pandas as pd

    rows = []
    for rule, posterior in report.posteriors.items():
        rows.append(
            {
                "draws": len(posterior.array),
                "smallest ESS": round(float(np.nanmin(posterior.effective_size("bulk")))),
                "seconds": report.seconds.get(rule, float("nan")),
                "weighted": "yes" if posterior.log_weights is not None else "no",
                "options": _options(posterior.info.get("options")),
            }
        )
    return pd.DataFrame(rows, index=list(report.posteriors))


def _options(options: object) -> str:
    if not isinstance(options, dict) or not options:
        return ""
    return ", ".join(f"{name}={value}" for name, value in options.items() if value is not None)


def said_by_rules(report: RulesInput, what: str) -> list[str]:
    """Notes or warnings, those of several rules with the same words once.

    Examples
    --------
    >>> from consilience.draws import Posterior
    >>> from consilience.report.inputs import RulesInput
    >>> made = [Posterior(np.eye(2), info={"notes": notes}) for notes in (["x", "y"], ["x"])]
    >>> said_by_rules(RulesInput("t", dict(zip("ab", made))), "notes")
    ['x', 'a: y']
    """
    given: Sequence[str] = report.notes if what == "notes" else report.warnings
    by_text: dict[str, list[str]] = {str(text): [] for text in given}
    for rule, posterior in report.posteriors.items():
        for text in posterior.info.get(what, ()):
            by_text.setdefault(str(text), []).append(rule)
    everyone = len(report.posteriors)
    return [
        text if len(rules) in (0, everyone) else f"{', '.join(rules)}: {text}"
        for text, rules in by_text.items()
    ]
