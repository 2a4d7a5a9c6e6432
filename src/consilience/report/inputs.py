"""What a report is written from: plain things, gathered by whoever ran the work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from consilience.draws import Posterior, Subposteriors


@dataclass(frozen=True)
class ReportInput:
    """Everything that a report shows.

    Parameters
    ----------
    title
        The headline, for example the formula.
    posterior
        The combined posterior.
    subposteriors
        The shards' draws. Where they carry a ``space`` they are mapped to the user's parameters by it.
    shard_table
        One row per shard, indexed by its label: any of ``rows``, ``weight``, ``draws``, ``rhat``,
        ``ess_bulk``, ``ess_tail``, ``divergences``, ``acceptance``, ``step_size``, ``seconds``, ``status``.
    cost
        ``seconds`` and ``full_data_gradients`` (each a number or a dict by stage), and anything else worth
        saying.
    model
        What ``Model.describe()`` returned.
    settings
        Method, kind, draws, seed, shards, versions, command... ``rhat_limit`` and ``ess_limit``, where given,
        are the limits that the convergence section draws (else R-hat's 1.01 alone).
    notes, warnings
        Sentences for the reader; warnings are shown first and in red.
    verdict
        The certificate's text, which starts with its verdict.
    discrepancy
        A comparison with reference draws: has ``per_parameter`` (a data frame) and a text form.
    pairs
        Which pairs of parameters to draw the shards' ellipses for; chosen from the draws when not given.

    Examples
    --------
    >>> report = ReportInput(title="late ~ distance", posterior=None)
    >>> report.title, report.warnings
    ('late ~ distance', ())
    """

    title: str
    posterior: Posterior
    subposteriors: Subposteriors | None = None
    shard_table: pd.DataFrame | None = None
    cost: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    verdict: str | None = None
    discrepancy: Any | None = None
    pairs: Sequence[tuple[str, str]] | None = None


@dataclass(frozen=True)
class RulesInput:
    """Several combination rules on the same draws, to be shown side by side.

    Parameters
    ----------
    title
        The headline.
    posteriors
        What each rule made of the draws, by the rule's name, in the order in which they are shown.
    subposteriors
        The shards' draws.
    seconds
        How long each rule took.
    refused
        Rules that could not be used on these draws, each with its reason.
    shard_table
        As in `ReportInput`.
    settings, notes, warnings
        As in `ReportInput`; notes and warnings of one rule only are taken from its posterior.
    agreement
        What the shards say of each other without any rule: anything with a text form.

    Examples
    --------
    >>> RulesInput("3 shards", {}).refused
    {}
    """

    title: str
    posteriors: Mapping[str, Posterior]
    subposteriors: Subposteriors | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    shard_table: pd.DataFrame | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    agreement: Any | None = None
