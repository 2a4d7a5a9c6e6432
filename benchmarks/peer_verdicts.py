"""What is found of a rule beside its peers, with the Monte Carlo error of the answer.

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

from benchmarks.measuring import Verdict, table

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


@dataclass(frozen=True)
class Beside:
    """IAD of a rule over that of the best of its peers.

    Attributes
    ----------
    peer : the one of least mean
    ratio, error : on the data sets that both saw, and its standard error
    sets : how many these are
    """

    peer: str
    ratio: float
    error: float | None
    sets: int


def beside_best(name: str, peers: Sequence[str], found: Found) -> Beside | None:
    """Set a rule beside the best of the peers that were measured, if any was."""
    present = [peer for peer in peers if peer in found.iad]
    if not present:
        return None
    best = min(present, key=lambda peer: mean_and_error(list(found.iad[peer].values()))[0])
    common = sorted(found.iad[name].keys() & found.iad[best].keys())
    ours, theirs = ([found.iad[who][seed] for seed in common] for who in (name, best))
    return Beside(best, *ratio_and_error(ours, theirs), len(common))


def judge(d: int, name: str, peers: Sequence[str], found: Found) -> list[Verdict | str]:
    """IAD of ours beside that of the best of its peers, and speed where a speed was promised."""
    from scipy.stats import t as student

    beside = beside_best(name, peers, found)
    if beside is None:
        return []
    verdicts: list[Verdict | str] = []
    what = f"IAD of {name} beyond that of {beside.peer}, d = {d}"
    excess = beside.ratio - 1
    if beside.error is None:
        verdicts.append(f"not judged: {what} is {excess:.1%} on one data set, which does not tell its error")
    else:
        what += f" (standard error {beside.error:.2%}, {beside.sets} data sets)"
        noise = float(student.isf(NOISE, beside.sets - 1)) * beside.error
        verdicts.append(Verdict(what, 100 * excess, 100 * noise, unit=" %"))
    for peer in peers:
        if peer in LEAST_SPEED and peer in found.seconds:
            faster = min(found.seconds[peer]) / min(found.seconds[name])
            what = f"{peer}'s time over {name}'s, d = {d}"
            verdicts.append(Verdict(what, faster, LEAST_SPEED[peer], at_least=True))
    return verdicts


def number(value: float) -> str:
    """Three digits, in figures that a table can line up."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cells(name: str, peers: Sequence[str], found: Found) -> tuple[str, str, str, str]:
    """Time, error, error beside the best peer's, and memory in one dimension."""
    if name in found.refused:
        return ("refuses", "refuses", "", "")
    if name not in found.seconds:
        return ("",) * 4
    seconds = min(found.seconds[name])
    mean, error = mean_and_error(list(found.iad[name].values()))
    relative = ""
    if best := beside_best(name, peers, found):
        relative = (
            f"{best.ratio:.3f}" + ("" if best.error is None else f" ± {best.error:.3f}") + f" ({best.sets})"
        )
    return (
        f"{number(seconds)} ({seconds / min(found.seconds['copy']):,.0f})",
        f"{mean:.3f}" if error is None else f"{mean:.3f} ± {error:.3f}",
        relative,
        f"{found.peak[name]:.1f}" if name in found.peak else "",
    )


def tables(found: dict[int, Found], rules: dict[str, tuple[str, ...]]) -> list[str]:
    """A table for each measure, with a column for each dimension: our rules, each before its peers."""
    lines: dict[str, list[tuple[str, str, str, str]]] = {}
    for name, peers in rules.items():
        lines[name] = [cells(name, peers, values) for values in found.values()]
        lines |= {peer: [cells(peer, (), values) for values in found.values()] for peer in peers}
    measures = ("s (in copies)", "IAD", "IAD over the best peer's (data sets)", "peak memory, copies")
    out = []
    for place, measure in enumerate(measures):
        rows = [
            (f"**{who}**" if who in rules else who, *(line[place] for line in several))
            for who, several in lines.items()
            if any(line[place] for line in several)
        ]
        out.append(table([measure, *(f"d = {d}" for d in found)], rows))
    return out
