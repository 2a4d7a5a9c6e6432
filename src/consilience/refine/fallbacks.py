"""Steps for draws whose scores are too crooked to be fitted: Newton's, from nearer to the middle or from the mode.

They propose and nothing else: `calibrate` takes such a step only if the evidence bound rises.
"""

from __future__ import annotations

import numpy as np

from consilience.refine.base import Floats
from consilience.refine.newton import find_mode
from consilience.refine.pass_back import Evaluation, PassBack
from consilience.refine.stein import Cloud, fit_scores
from consilience.refine.steps import Step, propose, whitened

# How much nearer to their mean the draws are taken.
SHRUNKEN = 0.25
NEWTON_STEPS = 12
# Depth under the mode, in nats, from which draws are given up: this, and half of it for each coordinate.
HOPELESS_DEPTH = 5.0


def step_from_shrunken_cloud(pass_back: PassBack, cloud: Cloud, draws: Floats, floor: float) -> Step | None:
    """The step that the scores ask for at draws pulled towards their mean, as Newton's method would."""
    evaluation = pass_back.scores(cloud.centre + SHRUNKEN * (draws - cloud.centre)).kept()
    if len(evaluation.points) < 2 * len(cloud.centre):
        return None
    step = propose(fit_scores(*whitened(cloud, evaluation)), floor)
    return None if step.idle else step


def step_to_mode(pass_back: PassBack, cloud: Cloud, evaluation: Evaluation) -> Step | None:
    """The step to the mode and its curvature, for draws that lie hopelessly far out.

    Draws of a posterior lie about d / 2 below its mode in log density. Only where they lie many times deeper
    is the mode trusted more than the draws: with several modes this would fall into one of them.
    """
    hopeless = HOPELESS_DEPTH * (1.0 + evaluation.points.shape[1] / 2.0)
    median = float(np.median(evaluation.log_density))
    if float(np.max(evaluation.log_density)) - median < hopeless / 2.0:
        return None
    peak = find_mode(pass_back, evaluation.points[int(np.argmax(evaluation.log_density))], NEWTON_STEPS)
    if not peak.found or peak.log_density - median < hopeless:
        return None
    covariance = cloud.inverse_root @ peak.covariance @ cloud.inverse_root.T
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return Step(cloud.inverse_root @ (peak.point - cloud.centre), values, vectors) if values[0] > 0 else None
