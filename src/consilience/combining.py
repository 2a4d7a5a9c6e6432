"""The command `consilience combine`: read every shard, run one rule or several, print, save and picture."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience import chains
from consilience.combine import Combiner, get_combiner
from consilience.combine.driver import check_kind, check_needs, combine_gathered
from consilience.combine.inputs import Gathered, gather
from consilience.draws import Posterior, Subposteriors
from consilience.draws.files import check_destination, write_atomically
from consilience.errors import InputError, RunError, must_be
from consilience.report import ReportInput, RulesInput, print_rules, write_report, write_rules_report
from consilience.report.agreement import told_agreement

if TYPE_CHECKING:
    import pandas as pd

NO_REPORT = "none"
DEFAULT_REPORT = "consilience-combine.html"


@dataclass(frozen=True)
class Results:
    """What the rules made of the draws, how long it took, and which of them could not be used."""

    posteriors: dict[str, Posterior]
    seconds: dict[str, float]
    refused: dict[str, str]


def combine_files(
    files: Sequence[str],
    *,
    methods: Sequence[str],
    options: Mapping[str, Mapping[str, Any]],
    kind: str | None = None,
    weights: Sequence[float] | None = None,
    supports: Mapping[str, str] | None = None,
    parameters: Sequence[str] | None = None,
    seed: int = 0,
    out: str | None = None,
    report: str | None = None,
) -> None:
    """Do what the command line asks; everything that can be wrong with it is found before any rule runs.

    Parameters
    ----------
    files
        One per shard: a file, a folder or a pattern.
    methods, options
        Names of rules, and their options by rule.
    kind, weights, supports, parameters, seed
        As in `combine`.
    out
        Where to save draws; with several rules each rule's name goes before the suffix.
    report
        Where to write a page with pictures; with several rules there is one unless this is "none".
    """
    rules = [get_combiner(name, **options.get(name, {})) for name in methods]
    destinations = _destinations(methods, out)
    page = _page(methods, report)
    if seed < 0:
        raise must_be("combine", "seed", "a whole number, 0 or more", seed, "Leave it out for 0.")
    gathered = gather(list(files), kind=kind, weights=weights, supports=supports, parameters=parameters)
    for rule in rules:
        check_kind(rule, gathered.subposteriors.kind)
        check_needs(rule, gathered.subposteriors)
    results = _run(rules, gathered, seed)
    told = _told(gathered, results, files, seed, page)
    print_rules(told)
    for name, destination in destinations.items():
        if name in results.posteriors:
            results.posteriors[name].save(destination)
            print(f"Saved to {destination}")
    if page is not None:
        print(f"Report: {_write_page(page, told)}")
    if results.refused:
        names = ", ".join(results.refused)
        raise RunError(
            f"combine: {names} could not be used on these draws; the other rules' results stand above."
        )


# ------------------------------------------------------------------------------------------
# Places
# ------------------------------------------------------------------------------------------


def _destinations(methods: Sequence[str], out: str | None) -> dict[str, str]:
    """Where each rule's draws go: posterior.nc, or posterior.swiss.nc and so on."""
    if out is None:
        return {}
    if len(methods) == 1:
        places = {methods[0]: out}
    else:
        path = Path(out)
        places = {name: str(path.with_name(f"{path.stem}.{name}{path.suffix}")) for name in methods}
    check_destination(out)
    for place in places.values():
        check_destination(place)
    return places


def _page(methods: Sequence[str], report: str | None) -> str | None:
    if report == NO_REPORT or (report is None and len(methods) == 1):
        return None
    page = report or DEFAULT_REPORT
    write_atomically(page, lambda temporary: temporary.touch(), keep=False)
    return page


def _write_page(page: str, told: RulesInput) -> Path:
    if len(told.posteriors) > 1:
        return write_rules_report(page, told)
    ((rule, posterior),) = told.posteriors.items()
    single = ReportInput(
        title=told.title,
        posterior=posterior,
        subposteriors=told.subposteriors,
        shard_table=told.shard_table,
        cost={"seconds": dict(told.seconds)},
        settings={"method": rule, **told.settings},
        notes=told.notes,
        warnings=told.warnings,
    )
    return write_report(page, single)


# ------------------------------------------------------------------------------------------
# Work
# ------------------------------------------------------------------------------------------


def _run(rules: Sequence[Combiner], gathered: Gathered, seed: int) -> Results:
    """Every rule in turn; among several, one that refuses these draws is named and the others go on."""
    results = Results({}, {}, {})
    for rule in rules:
        begun = time.perf_counter()
        try:
            results.posteriors[rule.name] = combine_gathered(rule, gathered, seed=seed)
        except InputError as error:
            if len(rules) == 1:
                raise
            results.refused[rule.name] = str(error)
            continue
        results.seconds[rule.name] = time.perf_counter() - begun
    if not results.posteriors:
        raise InputError(next(iter(results.refused.values())))
    return results


# ------------------------------------------------------------------------------------------
# Words
# ------------------------------------------------------------------------------------------


def _told(
    gathered: Gathered, results: Results, files: Sequence[str], seed: int, page: str | None
) -> RulesInput:
    shards = gathered.subposteriors
    notes = [] if shards.space is None else [_unconstrained_words(shards.space.supports)]
    said = {text for posterior in results.posteriors.values() for text in posterior.info["warnings"]}
    return RulesInput(
        title=_what_was_read(gathered),
        posteriors=results.posteriors,
        subposteriors=shards,
        seconds=results.seconds,
        agreement=told_agreement(shards, seed, said),
        refused=results.refused,
        shard_table=None if page is None else _shard_table(gathered),
        settings={
            "kind": shards.kind,
            "weights": [float(w) for w in shards.weights],
            "seed": seed,
            "files": [os.fspath(file) for file in files],
        },
        notes=notes,
    )


def _what_was_read(gathered: Gathered) -> str:
    """One line on shards, chains, draws, parameters, kind and weights.

    Examples
    --------
    >>> _what_was_read(gather(np.random.default_rng(0).normal(size=(3, 4, 50, 2)), kind="inflated"))
    '3 shards of equal weights with 4 chains and 200 draws each, 2 parameters, inflated sub-posteriors'
    """
    shards = gathered.subposteriors
    weights = np.asarray(shards.weights)
    equal = np.ptp(weights) < 1e-9
    weighed = "of equal weights" if equal else f"with weights {weights.min():.3g} to {weights.max():.3g},"
    num_chains = [len(lengths) for lengths in shards.chain_lengths]
    kind = "inflated sub-posteriors" if shards.kind == "inflated" else "sub-posteriors"
    number = len(gathered.user_names)
    return (
        f"{shards.num_shards} shard{'s' * (shards.num_shards > 1)} {weighed} with "
        f"{_counted(num_chains, 'chain')} and {_counted(shards.num_draws, 'draw')} each, "
        f"{number} parameter{'s' * (number > 1)}, {kind}"
    )


def _counted(numbers: Sequence[int], what: str) -> str:
    low, high = min(numbers), max(numbers)
    return (f"{low:,} {what}" if low == high else f"{low:,} to {high:,} {what}") + "s" * (high > 1)


def _unconstrained_words(supports: Mapping[str, str]) -> str:
    declared = ", ".join(f"{name} ({support})" for name, support in supports.items())
    return f"combined unconstrained and mapped back: {declared}."


def _shard_table(gathered: Gathered) -> pd.DataFrame:
    """What is known of every shard's chains; R-hat is judged by what chains of that length show by chance."""
    import pandas as pd

    shards = gathered.subposteriors
    divergences = gathered.divergences or (None,) * shards.num_shards
    rows: list[dict[str, Any]] = []
    for b in range(shards.num_shards):
        rows.append(
            {
                "weight": float(shards.weights[b]),
                "chains": len(shards.chain_lengths[b]),
                "draws": len(shards.draws[b]),
                **_convergence(shards, b),
                "divergences": float("nan") if divergences[b] is None else divergences[b],
            }
        )
    frame = pd.DataFrame(rows, index=pd.Index(shards.labels, name="shard"))
    return frame.dropna(axis=1, how="all")


def _convergence(shards: Subposteriors, b: int) -> dict[str, Any]:
    parts = shards.chains(b)
    length = min(map(len, parts))
    together = np.stack([part[:length] for part in parts])
    rhat = chains.rhat(together)
    converged = bool(np.all(np.isfinite(rhat)))
    if converged and rhat.max() > 1.01:
        from consilience.sample.convergence import rhat_limits

        converged = bool(np.all(rhat <= rhat_limits(together)))
    return {
        "rhat": float(np.nanmax(rhat)) if np.isfinite(rhat).any() else float("nan"),
        "ess_bulk": float(np.min(chains.effective_sample_size(together))),
        "status": "converged" if converged else "not converged",
    }
