"""What is asked of a rule beside its peers, with the Monte Carlo error of the answer.

Ours and a peer's IAD on the same data sets are paired. Their ratio is that of the means, its standard error that of
the mean of

    (ours_i - ratio x peer_i) / mean peer,

and an excess over 1 is noise below as many of these errors as Student's t exceeds five times in a thousand: a run
compares thirty pairs, and most of them have the same formula on both sides.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.measuring import Verdict

NOISE = 5e-3
LEAST_SPEED = {"R semiparamDPE": 10.0}


@dataclass
class Found:
    """What was measured in one dimension, by name of who was measured.

    Attributes
    ----------
    seconds : of all turns on all data sets
    iad : by data set
    peak : most memory, in copies of the draws
    refused : what a rule said that did not combine
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    iad: dict[str, dict[int, float]] = field(default_factory=dict)
    peak: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def add(self, seed: int, results: dict[str, dict[str, Any]]) -> None:
        """Take in one data set."""
        for name, result in results.items():
            if "refused" in result:
                self.refused[name] = result["refused"]
                continue
            self.seconds.setdefault(name, []).extend(result["seconds"])
            if "iad" in result:
                self.iad.setdefault(name, {})[seed] = result["iad"]
            if "peak" in result:
                self.peak[name] = result["peak"]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and its standard error, which one value alone does not tell."""
    if len(values) < 2:
        return statistics.fmean(values), None
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


def ratio_and_error(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float | None]:
    """Ratio of the means of paired values, and its standard error."""
    whole = statistics.fmean(theirs)
    ratio = statistics.fmean(ours) / whole
    if len(ours) < 2:
        return ratio, None
    return ratio, mean_and_error([(a - ratio * b) / whole for a, b in zip(ours, theirs, strict=True)])[1]


def judge(d: int, name: str, peers: Sequence[str], found: Found) -> list[Verdict | str]:
    """IAD of ours beside that of the best of its peers, and speed where a speed was promised."""
    from scipy.stats import t as student

    present = [peer for peer in peers if peer in found.iad]
    if not present:
        return []
    verdicts: list[Verdict | str] = []
    best = min(present, key=lambda peer: mean_and_error(list(found.iad[peer].values()))[0])
    common = sorted(found.iad[name].keys() & found.iad[best].keys())
    ratio, error = ratio_and_error(
        [found.iad[name][seed] for seed in common], [found.iad[best][seed] for seed in common]
    )
    what = f"IAD of {name} beyond that of {best}, d = {d}"
    if error is None:
        verdicts.append(
            f"not judged: {what} is {ratio - 1:.1%} on one data set, which does not tell its error"
        )
    else:
        what += f" (standard error {error:.2%}, {len(common)} data sets)"
        noise = float(student.isf(NOISE, len(common) - 1)) * error
        verdicts.append(Verdict(what, 100 * (ratio - 1), 100 * noise, unit=" %"))
    for peer in present:
        if peer in LEAST_SPEED:
            faster = min(found.seconds[peer]) / min(found.seconds[name])
            verdicts.append(
                Verdict(f"{peer}'s time over {name}'s, d = {d}", faster, LEAST_SPEED[peer], at_least=True)
            )
    return verdicts
