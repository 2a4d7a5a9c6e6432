"""Every combination rule, in the order in which they are listed to users."""

from __future__ import annotations

import dataclasses
import difflib
from dataclasses import dataclass
from typing import Any

from consilience.errors import InputError, must_be

from .base import Combiner
from .consensus import Consensus
from .fusion import Fusion
from .gaussian_barycenter import GaussianBarycenter
from .gaussian_product import GaussianProduct
from .gp_product import GaussianProcessProduct
from .kernel_product import KernelProduct
from .marginal_views import MarginalViews
from .median_posterior import MedianPosterior
from .partition_trees import PartitionTrees
from .pie import Pie
from .pool import Pool
from .recentering import Recentering
from .semiparametric_product import SemiparametricProduct
from .swiss import Swiss
from .wasp import Wasp
from .weierstrass import Weierstrass

COMBINERS: tuple[type[Combiner], ...] = (
    Swiss,
    Consensus,
    Recentering,
    GaussianBarycenter,
    GaussianProduct,
    GaussianProcessProduct,
    KernelProduct,
    SemiparametricProduct,
    Weierstrass,
    PartitionTrees,
    Pie,
    MarginalViews,
    Wasp,
    MedianPosterior,
    Pool,
    Fusion,
)


@dataclass(frozen=True)
class MethodRecord:
    """What there is to know about a combination rule before using it."""

    name: str
    kind: str
    reference: str
    exact_for_gaussian: bool
    needs: tuple[str, ...]
    options: tuple[str, ...] = ()


def methods() -> list[MethodRecord]:
    """List the combination rules.

    Examples
    --------
    >>> [record.name for record in methods() if record.kind == "inflated"][:3]
    ['swiss', 'recentering', 'gaussian-barycenter']
    """
    return [
        MethodRecord(
            name=rule.name,
            kind=rule.kind,
            reference=rule.reference,
            exact_for_gaussian=rule.exact_for_gaussian,
            needs=tuple(rule.needs),
            options=option_names(rule),
        )
        for rule in COMBINERS
    ]


def option_names(rule: type[Combiner]) -> tuple[str, ...]:
    """Name the options of a rule.

    Examples
    --------
    >>> option_names(Consensus)
    ('weighting',)
    """
    return tuple(field.name for field in dataclasses.fields(rule))  # type: ignore[arg-type]


def get_combiner(name: str, /, **options: Any) -> Combiner:
    """Make a rule from its name and options.

    Examples
    --------
    >>> get_combiner("consensus", weighting="diagonal")
    Consensus(weighting='diagonal')
    >>> get_combiner("consenus")
    Traceback (most recent call last):
        ...
    consilience.errors.InputError: combine: `method` must be the name
    of a rule. Got 'consenus'. Did you mean 'consensus'?
    """
    rules = {rule.name: rule for rule in COMBINERS}
    if name not in rules:
        close = difflib.get_close_matches(str(name), rules, n=3, cutoff=0.5)
        hint = (
            f"Did you mean {' or '.join(map(repr, close))}?" if close else f"Known rules: {', '.join(rules)}."
        )
        raise must_be("combine", "method", "the name of a rule", name, hint, error=InputError)
    rule = rules[name]
    known = option_names(rule)
    unknown = sorted(set(options) - set(known))
    if unknown:
        constraint = (
            f"an option of {name!r} ({', '.join(known)})" if known else f"left out: {name!r} has no options"
        )
        raise must_be(
            "combine", unknown[0], constraint, options[unknown[0]], "Check the spelling.", error=InputError
        )
    return rule(**options)
