"""A whole fit in shards against NUTS on all rows.

Run `python -m benchmarks.logistic_vs_nuts [--rows 1000000]`. Logistic regression with an intercept and 28
features of correlation 0.7^|i - j|, one prior for all. Ours makes 10,000 draws; the peer is NumPyro's NUTS
with its default settings, 500 iterations of warm-up and 1,000 draws of one chain, on all rows and all cores.
Each side runs in a fresh process, one after the other; the clock starts when the rows are in memory, so
imports and compilation count for both.

NUTS is driven step by step (as NumPyro does while it shows progress), so that every leapfrog step, which is one
gradient of all rows, is counted, and so that it can be stopped: with `--limit` seconds over, the rest is
extrapolated from what its iterations have cost, and the output says so.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import Verdict, in_fresh_process, load, machine, parser, stages, table
from benchmarks.simulated import logistic_rows

FEATURES, WARMUP, PEER_DRAWS, DRAWS = 28, 500, 1_000, 10_000
PRIOR_SD = 10.0
TARGET = 30.0
# Iterations of one phase after which their mean cost says something about the others.
ENOUGH = 20


def write_rows(directory: str, rows: int) -> dict[str, Any]:
    """Leave the rows where both sides find them."""
    x, y = logistic_rows(rows, FEATURES, seed=1)
    np.save(Path(directory) / "x.npy", x.astype(np.float32))
    np.save(Path(directory) / "y.npy", y.astype(np.float32))
    return {}


def read_rows(directory: str) -> dict[str, np.ndarray]:
    return {name: np.load(Path(directory) / f"{name}.npy") for name in ("x", "y")}


def run_ours(directory: str, refine: str | None, draws: int) -> dict[str, Any]:
    """The fit as a user would write it."""
    rows = read_rows(directory)
    start = time.perf_counter()
    import numpyro.distributions as dist

    import consilience as cs

    def log_likelihood(params: Any, rows: Any) -> Any:
        logits = params["intercept"] + rows["x"] @ params["beta"]
        return dist.Bernoulli(logits=logits).log_prob(rows["y"])

    prior = {
        "intercept": dist.Normal(0, PRIOR_SD),
        "beta": dist.Normal(0, PRIOR_SD).expand([rows["x"].shape[1]]).to_event(1),
    }
    model = cs.Model(prior=prior, log_likelihood=log_likelihood)
    fit = cs.fit(model, rows, method="swiss", refine=refine, draws=draws, seed=2, progress=False)
    seconds = time.perf_counter() - start
    found = fit.posterior.draws
    together = np.column_stack([found["intercept"], found["beta"]])
    path = Path(directory) / f"ours-{refine}.npy"
    np.save(path, together)
    sizes = fit.posterior.effective_sizes
    return {
        "seconds": seconds,
        "stages": fit.cost.seconds,
        "gradients": fit.cost.full_data_gradients,
        "draws": len(together),
        "ess": float(np.min(fit.summary()["ess"] if sizes is None else sizes)),
        "shards": fit.settings["shards"],
        "path": str(path),
        "warnings": list(fit.warnings),
    }


def run_nuts(directory: str, warmup: int, draws: int, limit: float) -> dict[str, Any]:
    """NumPyro's NUTS on all rows, until it is done or the time is over."""
    rows = read_rows(directory)
    start = time.perf_counter()
    import jax
    import numpyro
    import numpyro.distributions as dist
    from numpyro.infer import NUTS

    def model(x: Any, y: Any) -> None:
        intercept = numpyro.sample("intercept", dist.Normal(0, PRIOR_SD))
        beta = numpyro.sample("beta", dist.Normal(0, PRIOR_SD).expand([x.shape[1]]).to_event(1))
        numpyro.sample("y", dist.Bernoulli(logits=intercept + x @ beta), obs=y)

    held = tuple(jax.device_put(rows[name]) for name in ("x", "y"))
    kernel = NUTS(model)
    state = kernel.init(jax.random.key(0), warmup, None, held, {})
    step = jax.jit(lambda state, x, y: kernel.sample(state, (x, y), {}))
    steps, ends, kept = [], [], []
    for iteration in range(warmup + draws):
        state = step(state, *held)
        steps.append(int(state.num_steps))
        ends.append(time.perf_counter() - start)
        if iteration >= warmup:
            kept.append(np.append(np.asarray(state.z["intercept"]), np.asarray(state.z["beta"])))
        if ends[-1] > limit:
            break
    path = Path(directory) / "nuts.npy"
    np.save(path, np.array(kept))
    return {"steps": steps, "ends": ends, "path": str(path), "step_size": float(state.adapt_state.step_size)}


def extrapolated(found: dict[str, Any], warmup: int, draws: int) -> dict[str, Any]:
    """Seconds and gradients of the whole run; what was not measured costs what the latest iterations did."""
    steps, ends = np.array(found["steps"]), np.array(found["ends"])
    done = len(steps)
    sampling = max(0, done - warmup)
    # While it still warms up, the second half of what there is stands for all that is to come.
    known = sampling if sampling >= ENOUGH else max(1, done // 2)
    left = warmup + draws - done
    per_iteration = (ends[-1] - ends[-1 - known]) / known if done > known else ends[-1] / done
    return {
        "measured_seconds": float(ends[-1]),
        "measured_iterations": done,
        "first_seconds": float(ends[0]),
        "seconds": float(ends[-1] + left * per_iteration),
        "gradients": float(steps.sum() + left * steps[-known:].mean()),
        "seconds_per_gradient": float((ends[-1] - ends[0]) / max(1, steps[1:].sum())),
        "steps_per_draw": float(steps[-known:].mean()),
        "draws": sampling,
        "left": left,
    }


def effective(path: str) -> float:
    """The smallest bulk effective size of some draws; nan where there are next to none."""
    from consilience.chains import effective_sample_size

    array = np.load(path)
    return float(effective_sample_size(array).min()) if len(array) > 8 else float("nan")


def discrepancies(path: str, reference: str) -> dict[str, Any]:
    """How far ours is from NUTS, beside what noise would do."""
    import consilience as cs

    ours, peer = np.load(path), np.load(reference)
    if len(peer) < 2 * peer.shape[-1] + 20:
        return {"text": f"NUTS made {len(peer)} draws in its time: too few to compare with."}
    found = cs.compare(ours, peer[None])
    return {"text": str(found), "mahalanobis": found.mahalanobis, "limit": found.limits["mahalanobis"]}


def measure(rows: int, warmup: int, peer_draws: int, draws: int, limit: float) -> dict[str, Any]:
    """Both sides, one after the other."""
    with tempfile.TemporaryDirectory(prefix="benchmark-") as directory:
        in_fresh_process("logistic_vs_nuts:write_rows", directory=directory, rows=rows)
        found: dict[str, Any] = {}
        for refine in (None, "auto"):
            busy = load()
            answer = in_fresh_process(
                "logistic_vs_nuts:run_ours", directory=directory, refine=refine, draws=draws
            )
            found[f"ours, refine={refine!r}"] = {**answer, "load": busy}
        busy = load()
        arguments: dict[str, Any] = {"warmup": warmup, "draws": peer_draws, "limit": limit}
        peer = in_fresh_process("logistic_vs_nuts:run_nuts", directory=directory, **arguments)
        found["nuts"] = {
            **extrapolated(peer, warmup, peer_draws),
            "load": busy,
            "ess": effective(peer["path"]),
        }
        for name in list(found)[:2]:
            found[name]["distance"] = discrepancies(found[name]["path"], peer["path"])
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int)
    options.add_argument("--limit", type=float, default=900.0, help="seconds after which NUTS is stopped")
    arguments = options.parse_args()
    rows = arguments.rows or (4_000 if arguments.small else 400_000)
    warmup, peer_draws, draws = (50, 100, 2_000) if arguments.small else (WARMUP, PEER_DRAWS, DRAWS)
    print(
        f"{machine()}; {rows:,} rows x {FEATURES} features; NUTS: {warmup} warm-up, {peer_draws} draws, 1 chain"
    )
    found = measure(rows, warmup, peer_draws, draws, arguments.limit)
    report(found)


def report(found: dict[str, Any]) -> None:
    """Print the tables, the distances and the ratios."""
    peer = found["nuts"]
    ours = {name: run for name, run in found.items() if name != "nuts"}
    lines = [
        (
            name,
            f"{run['seconds']:.1f}",
            f"{peer['seconds'] / run['seconds']:.1f}",
            f"{run['gradients']:.0f}",
            f"{run['draws']:,}",
            f"{run['ess']:,.0f}",
            f"{1e3 * run['seconds'] / run['ess']:.1f}",
            f"{run['load']:.1f}",
        )
        for name, run in [*ours.items(), ("NumPyro NUTS", peer)]
    ]
    headers = ["", "s", "NUTS / this", "full-data gradients", "draws", "least ESS", "ms per ESS", "load"]
    print(table(headers, lines))
    print(
        f"NUTS: {peer['steps_per_draw']:.1f} leapfrog steps per draw, {1e3 * peer['seconds_per_gradient']:.1f} ms per "
        f"gradient, {peer['first_seconds']:.1f} s until the first iteration."
    )
    if peer["left"]:
        print(
            f"NUTS was stopped: {peer['measured_iterations']} iterations measured in {peer['measured_seconds']:.0f} s, "
            f"the other {peer['left']} EXTRAPOLATED at the cost of the latest ones. Seconds and gradients in its "
            "line are extrapolated totals."
        )
    for name, run in ours.items():
        print(f"\n{name}: {run['shards']} shards; {stages(run['stages'])} s; {len(run['warnings'])} warnings")
        for warning in run["warnings"]:
            print(f"  {warning}")
        print(run["distance"]["text"])
    print()
    for name, run in ours.items():
        what = f"wall time of NUTS over {name}" + (" (NUTS extrapolated)" if peer["left"] else "")
        print(Verdict(what, peer["seconds"] / run["seconds"], TARGET, at_least=True))
        if peer["left"]:
            print(f"  measured so far alone: {peer['measured_seconds'] / run['seconds']:.1f} times")


if __name__ == "__main__":
    main()
