"""All rules beside the public implementations, on the same draws and one core.

Run `python -m benchmarks.rules_against_peers --peers FOLDER`. The workload is that of SwISS 4.1 (see
papers/swiss_dimension.py): ten Gaussian shards of 5,000 draws in d dimensions, means one apart. Everyone gets the same
draws, in everyone's default settings; rules for inflated shards get the same with deviations from the shards' means
divided by sqrt(10). Seconds are processor time of the combination alone, the least of all turns: on one core and one
thread, other work on the machine then matters little. IAD is against the exact
marginals, as /papers measures it, mean over data sets with its standard error. Peak memory is what NumPy allocates
(tracemalloc), in copies of the draws; what JAX holds is not seen.

FOLDER holds the peers' sources, which are not part of this package, as their repositories have them:

- parallelMCMCcombine/R/{consensusMCcov,consensusMCindep,sampleAvg,semiparamDPE}.R of
  github.com/cran/parallelMCMCcombine, commit 2f8787fb (version 2.0); it needs R with mvtnorm
- weierstrass/R/weierstrass.r of github.com/wwrechard/weierstrass, commit 29181e09 (version 0.1); R with MASS
- random-tree-parallel-MCMC/src of github.com/richardkwo/random-tree-parallel-MCMC, commit 33d60ebe (part_options.m:
  b9c1ae82); Octave with its statistics package. Octave has no arrays of objects, so that one function whose result
  does not enter the draws is replaced (peers/octave).

NumPyro's functions run warm. Peers that are not there are left out; the slow ones see fewer data sets. `--trees` and
`--likelihood-trees` say in which dimensions partition trees cut at medians, and by likelihood, run in Octave: nothing
after it leaves them out. They take from half a minute to several minutes a run.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Verdict, in_fresh_process, machine, parser
from benchmarks.peer_verdicts import Found, judge, tables
from benchmarks.peers.programs import PEERS, run_peer, version
from benchmarks.semiparametric_speed import ONE_THREAD, copy_seconds

DRAWS = 5_000
TURNS, LIMIT = 5, 2.0
# What ours is called: the rule, its options, and whoever else has it.
Rules = dict[str, tuple[str, dict[str, Any], tuple[str, ...]]]
RULES: Rules = {
    "swiss": ("swiss", {}, ("transcription of SwISS",)),
    "consensus": ("consensus", {}, ("R consensusMCcov", "NumPyro consensus", "transcription of consensus")),
    "consensus, diagonal": (
        "consensus",
        {"weighting": "diagonal"},
        ("R consensusMCindep", "NumPyro consensus, diagonal"),
    ),
    "consensus, uniform": ("consensus", {"weighting": "uniform"}, ("R sampleAvg",)),
    "gaussian-product": ("gaussian-product", {}, ("NumPyro parametric_draws",)),
    "semiparametric-product": ("semiparametric-product", {}, ("R semiparamDPE",)),
    "weierstrass": ("weierstrass", {}, ("R weierstrass, rejection",)),
    "weierstrass, importance": ("weierstrass", {"choice": "importance"}, ("R weierstrass, importance",)),
    "partition-trees": ("partition-trees", {}, ("PART kd, pairwise", "PART ml, pairwise")),
    "partition-trees, the paper's blocks": (
        "partition-trees",
        {"within": "block-gaussian"},
        ("PART kd, pairwise", "PART ml, pairwise"),
    ),
    "partition-trees, one stage": (
        "partition-trees",
        {"aggregation": "one-stage"},
        ("PART kd, one stage", "PART ml, one stage"),
    ),
    **{
        name: (name, {}, ())
        for name in (
            "kernel-product",
            "gp-product",
            "marginal-views",
            "recentering",
            "gaussian-barycenter",
            "pie",
            "wasp",
            "median-posterior",
            "pool",
            "fusion",
        )
    },
}
MOST_COPIES = 3.0


class Workload:
    """One data set: the exact posterior, and draws of its shards of both kinds."""

    def __init__(self, d: int, seed: int, draws: int) -> None:
        from papers.swiss_dimension import gaussian_shards

        import consilience as cs

        rng = np.random.default_rng([0, d, seed])
        self.shards = gaussian_shards(d, rng)
        self.reference = self.shards.reference(draws, rng)
        self.draws = np.array(self.shards.draws(draws, rng)["subposterior"].draws)
        away = self.draws - self.shards.means[:, None]
        exponents = np.einsum("bji,bik,bjk->bj", away, np.linalg.inv(self.shards.covariances), away)
        inflated = self.shards.means[:, None] + away / np.sqrt(len(away))
        self.kinds = {
            "subposterior": cs.Subposteriors.of(
                self.draws, kind="subposterior", log_densities=list(-exponents / 2)
            ),
            "inflated": cs.Subposteriors.of(inflated, kind="inflated"),
        }

    def iad(self, combined: Any) -> float:
        from papers.measuring import measured

        return measured(combined, self.reference)["iad"]


def ours(label: str, data: Workload, seed: int) -> Callable[[], Any]:
    """One of our rules on the draws of its kind; sub-posterior draws, as the peers get, where it takes either."""
    from papers.rules import combine, usable_rules

    from consilience.combine.fusion_targets import GaussianTarget

    rule, options, _ = RULES[label]
    inflated = {record.name for record in usable_rules() if record.kind == "inflated"}
    given = data.kinds["inflated" if rule in inflated else "subposterior"]
    if rule == "fusion":
        laws = zip(data.shards.means, data.shards.covariances, strict=True)
        options = {"targets": [GaussianTarget(mean, (v + v.T) / 2) for mean, v in laws]}
    return lambda: combine(rule, given, seed, **options)


def in_python(label: str, data: Workload, seed: int) -> Callable[[], Any]:
    """A peer that is called from Python, after a first call that compiles."""
    from papers.swiss_time import plain_consensus

    from benchmarks.combine_speed import plain_swiss

    if label == "transcription of SwISS":
        return lambda: plain_swiss(np.array(data.kinds["inflated"].draws))
    if label == "transcription of consensus":
        return lambda: plain_consensus(data.draws)
    import jax
    from numpyro.infer import hmc_util

    held = [jax.numpy.asarray(x) for x in data.draws]
    calls: dict[str, Callable[[], Any]] = {
        "NumPyro consensus": lambda: hmc_util.consensus(held),
        "NumPyro consensus, diagonal": lambda: hmc_util.consensus(held, diagonal=True),
        "NumPyro parametric_draws": lambda: hmc_util.parametric_draws(
            held, data.draws.shape[1], rng_key=jax.random.key(seed)
        ),
    }

    def run() -> np.ndarray:
        return np.asarray(jax.block_until_ready(calls[label]()), dtype=np.float64)

    run()
    return run


def timed(run: Callable[[], Any]) -> tuple[list[float], Any]:
    """Processor seconds of several turns, of which none is started after a while, and the last result."""
    seconds: list[float] = []
    while len(seconds) < TURNS and sum(seconds) < LIMIT:
        begun = time.process_time()
        combined = run()
        seconds.append(time.process_time() - begun)
    return seconds, combined


def copies_at_peak(run: Callable[[], Any], draws: np.ndarray) -> float:
    """The most memory that a call held beside its input, in copies of the draws."""
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / draws.nbytes


def contest(
    d: int, seed: int, draws: int, names: list[str], folder: str | None, memory: bool
) -> dict[str, Any]:
    """Everyone named, on one data set and one core: seconds, IAD, and ours' peak memory."""
    with on_one_core():
        return _contest(d, seed, draws, names, folder, memory)


@contextmanager
def on_one_core() -> Iterator[None]:
    """One core for this process and what it starts, until the end: whoever called keeps the others."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _contest(
    d: int, seed: int, draws: int, names: list[str], folder: str | None, memory: bool
) -> dict[str, Any]:
    from consilience.errors import ConsilienceError

    data = Workload(d, seed, draws)
    found: dict[str, Any] = {"copy": {"seconds": [copy_seconds(list(data.draws))]}}
    for name in names:
        if name in PEERS:
            assert folder is not None
            seconds, combined = run_peer(name, folder, data.draws, seed, TURNS, LIMIT)
            found[name] = {"seconds": seconds, "iad": data.iad(combined)}
            continue
        run = (ours if name in RULES else in_python)(name, data, seed)
        try:
            seconds, combined = timed(run)
        except ConsilienceError as refusal:
            found[name] = {"refused": str(refusal)}
            continue
        found[name] = {"seconds": seconds, "iad": data.iad(combined)}
        if memory and name in RULES:
            found[name]["peak"] = copies_at_peak(run, data.draws)
    return found


def report(found: dict[int, Found], rules: Rules) -> None:
    """Print the tables, and what was asked for."""
    said: list[object] = []
    for d, values in found.items():
        said.append(f"a copy of the draws, d = {d}: {1e3 * min(values.seconds['copy']):.2g} ms")
        for name, (_, _, peers) in rules.items():
            if name in values.refused:
                said.append(f"refused, d = {d}: {values.refused[name]}")
            elif name in values.seconds:
                said += judge(d, name, peers, values)
                if name in values.peak:
                    what = f"peak memory of {name}, in copies, d = {d}"
                    said.append(Verdict(what, values.peak[name], MOST_COPIES))
    beside = {name: others for name, (_, _, others) in rules.items()}
    print(*tables(found, beside), sep="\n\n")
    print("", *said, sep="\n")


def chosen(names: list[str], d: int, folder: Path | None, trees: dict[str, list[int]]) -> list[str]:
    """Who of these takes part in d dimensions; those who cannot are named."""
    taking_part = []
    for name in names:
        why = PEERS[name].missing(folder) if name in PEERS else None
        if why is None and d not in trees.get(name[:7], [d]):
            why = f"not asked for in {d} dimensions"
        if why is None:
            taking_part.append(name)
        else:
            print(f"left out: {name}, d = {d}: {why}")
    return taking_part


def read_arguments() -> argparse.Namespace:
    """What was asked for on the command line, with what follows from it."""
    options = parser(__doc__)
    options.add_argument("--peers", type=Path, metavar="FOLDER", help="where the peers' sources lie")
    options.add_argument("--dimensions", type=int, nargs="+", metavar="D")
    options.add_argument("--sets", type=int, help="data sets")
    options.add_argument("--slow-sets", type=int, help="data sets that slow peers see")
    options.add_argument("--trees", type=int, nargs="*", metavar="D", help="dimensions for partition trees")
    options.add_argument(
        "--likelihood-trees", type=int, nargs="*", metavar="D", help="the same, of their slow cut"
    )
    options.add_argument("--only", nargs="+", metavar="RULE", choices=list(RULES), help="these of our rules")
    found = options.parse_args()
    found.draws = 300 if found.small else DRAWS
    found.dimensions = found.dimensions or ([2] if found.small else [5, 20, 80])
    found.sets = found.sets or (2 if found.small else 10)
    found.slow_sets = min(found.sets, found.slow_sets or (1 if found.small else 5))
    found.cuts = {
        "PART kd": found.dimensions if found.trees is None else found.trees,
        "PART ml": found.dimensions[:1] if found.likelihood_trees is None else found.likelihood_trees,
    }
    return found


def main() -> None:
    asked = read_arguments()
    rules = {name: rule for name, rule in RULES.items() if name in (asked.only or RULES)}
    everyone = list(dict.fromkeys([*rules, *(peer for _, _, peers in rules.values() for peer in peers)]))
    sets = f"{asked.sets} data sets, {asked.slow_sets} for slow peers"
    print(
        f"{machine()}; 10 shards x {asked.draws} draws, one core, {sets}; {version('R')}; {version('Octave')}"
    )
    found: dict[int, Found] = {}
    for d in asked.dimensions:
        found[d] = Found()
        present = chosen(everyone, d, asked.peers, asked.cuts)
        fast = [name for name in present if name not in PEERS or not PEERS[name].slow]
        for seed in range(asked.sets):
            print(f"d = {d}, data set {seed + 1} of {asked.sets}", file=sys.stderr, flush=True)
            results = in_fresh_process(
                "rules_against_peers:contest",
                environment=ONE_THREAD,
                d=d,
                seed=seed,
                draws=asked.draws,
                names=present if seed < asked.slow_sets else fast,
                folder=str(asked.peers) if asked.peers else None,
                memory=seed == 0,
            )
            found[d].add(seed, results)
    report(found, rules)


if __name__ == "__main__":
    main()
