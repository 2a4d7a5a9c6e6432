"""All shards' draws to a posterior, with the words that go with them."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from consilience.combine import combine
from consilience.data import Shards
from consilience.draws import Posterior, Subposteriors
from consilience.fitted import Cost, Fit
from consilience.preparation import Ready
from consilience.request import Request
from consilience.sample.shard import ShardDraws
from consilience.versions import versions

# How many shards a sentence names before it only counts them.
NAMED = 5


def combined(request: Request, ready: Ready, rows: Shards, sampled: Sequence[ShardDraws]) -> Fit:
    """Combine the draws by the rule that was asked for."""
    records = tuple(shard.record for shard in sampled)
    subposteriors = Subposteriors.of(
        [shard.draws for shard in sampled],
        kind=request.kind,
        weights=rows.weights,
        space=ready.model.space,
        labels=rows.labels,
        chain_lengths=[shard.chain_lengths for shard in sampled],
        log_densities=[shard.log_density for shard in sampled],
        curvatures=np.stack([shard.curvature for shard in sampled]),
    )
    options = asdict(request.combiner)  # type: ignore[call-overload]
    with python_warnings.catch_warnings():
        # They are in the posterior's record, and come out once, with the fit's own.
        python_warnings.simplefilter("ignore")
        posterior = combine(subposteriors, method=request.combiner.name, seed=request.seed, **options)
    posterior = thinned(posterior, request.draws)
    settings = {
        **request.settings(),
        "shards": len(sampled),
        "partition": ready.partition.describe(),
        "rows": int(sum(rows.sizes)),
        "dropped_rows": int(rows.dropped_rows),
        "engine": "vectorised" if request.engine is None else request.engine.name,
        "versions": versions(),
    }
    return Fit(
        posterior=posterior,
        subposteriors=subposteriors,
        cost=Cost(full_data_gradients=sum(r["row_evaluations"] for r in records) / sum(rows.sizes)),
        shard_records=records,
        model=ready.model.describe(),
        settings=settings,
        notes=(
            *ready.notes,
            *_new(rows.notes, ready.notes),
            *posterior.info["notes"],
            *_shard_notes(records),
        ),
        warnings=(*_convergence_warnings(records), *posterior.info["warnings"]),
    )


def thinned(posterior: Posterior, draws: int) -> Posterior:
    """As many draws as were asked for, evenly from those that there are."""
    number = len(posterior.array)
    if number <= draws:
        return posterior
    kept = np.linspace(0, number - 1, draws).round().astype(int)
    sizes = posterior.effective_sizes
    return replace(
        posterior,
        array=posterior.array[kept],
        coordinates=None if posterior.coordinates is None else posterior.coordinates[kept],
        log_weights=None if posterior.log_weights is None else posterior.log_weights[kept],
        effective_sizes=None if sizes is None else np.minimum(sizes, draws),
        chain_lengths=None,
    )


def _new(notes: Sequence[str], known: Sequence[str]) -> list[str]:
    return [note for note in notes if note not in known]


def _convergence_warnings(records: Sequence[dict[str, Any]]) -> list[str]:
    bad = [record for record in records if record["status"] != "converged"]
    if not bad:
        return []
    named = "; ".join(f"shard {r['index']} ({r['label']}): {', '.join(r['problems'])}" for r in bad[:NAMED])
    more = f"; and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    many = f"{len(bad)} of {len(records)} shards have not converged"
    return [f"{many}, so the posterior may be wrong. {named}{more}."]


def _shard_notes(records: Sequence[dict[str, Any]]) -> list[str]:
    repeated = [record["label"] for record in records if record["repeats"]]
    notes = []
    if repeated:
        shown = ", ".join(repeated[:NAMED]) + (", ..." if len(repeated) > NAMED else "")
        notes.append(f"{len(repeated)} of {len(records)} shards were given more draws to converge: {shown}.")
    for note in sorted({note for record in records for note in record["notes"]})[:NAMED]:
        labels = [record["label"] for record in records if note in record["notes"]]
        notes.append(f"{note} ({len(labels)} of {len(records)} shards, first {labels[0]}).")
    return notes
