"""Other looks at the data: refinements, one after the other, and the certificate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from consilience.diagnose import certify
from consilience.fitted import Fit
from consilience.preparation import Ready
from consilience.refine import PassBack, get_refinement
from consilience.request import Request
from consilience.sample.shard import ShardTask


def refined(request: Request, ready: Ready, tasks: Sequence[ShardTask], result: Fit) -> Fit:
    """Refine the posterior and certify what came out; each refinement says what it did."""
    posterior, space = result.posterior, ready.model.space
    raw, log_weights = posterior.coordinates, posterior.log_weights
    assert raw is not None
    coordinates, evaluation = raw, None
    notes, warnings, records = list(result.notes), list(result.warnings), []
    worth: float | None = None
    # Short tasks on rows within reach are cheaper in this process than workers started anew for each round.
    engine = request.engine if request.engine is not None and request.engine.elsewhere else None
    pass_back = PassBack(
        ready.model,
        ready.fingerprint,
        tasks,
        run=None if engine is None else engine.map,
        precision=request.precision,
        reference_point=raw.mean(axis=0),
    )
    for name in request.refinements:
        step = get_refinement(name).refine(
            coordinates, log_weights, pass_back, result.subposteriors, seed=request.seed
        )
        coordinates, log_weights, evaluation = step.array, step.log_weights, step.evaluation
        notes += step.notes
        warnings += step.warnings
        records.append(step.record)
        worth = worth if step.effective_draws is None else step.effective_draws
    certificate = certify(
        coordinates,
        pass_back,
        log_weights=log_weights,
        names=space.coordinate_names,
        evaluation=evaluation,
        raw=raw,
        subposteriors=result.subposteriors,
        seed=request.seed,
    )
    changed = coordinates is not raw
    array = space.to_user(coordinates) if changed else posterior.array
    # How well the rule knew its own mean no longer matters once the mean comes from the data's scores.
    sizes = None if changed else posterior.effective_sizes
    posterior = replace(
        posterior,
        array=array,
        coordinates=coordinates,
        log_weights=log_weights,
        # New draws are not in the chains that the shards' were.
        effective_sizes=sizes if worth is None else np.full(array.shape[1], worth),
        chain_lengths=posterior.chain_lengths if worth is None else None,
        info={**posterior.info, "refinements": records, "certificate": certificate.to_dict()},
    )
    spent = pass_back.ledger.row_evaluations / result.settings["rows"]
    return replace(
        result,
        posterior=posterior,
        certificate=certificate,
        cost=replace(result.cost, full_data_gradients=result.cost.full_data_gradients + spent),
        notes=tuple(notes),
        warnings=tuple(warnings),
    )
