"""One shard from rows to draws: mode, tuning, draws, diagnosis, and more of each where that is not enough."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from consilience.errors import ConsilienceError, DataError, ShardError
from consilience.sample.compiling import in_precision
from consilience.sample.convergence import Convergence, judge
from consilience.sample.kernel import Sampler
from consilience.sample.newton import DECREMENT_TOLERANCE
from consilience.sample.program import Block, Chains, Frame, Plan, Programs, programs
from consilience.sample.randomness import stage_generator
from consilience.sample.rows import pad_rows
from consilience.sample.search import NUM_CANDIDATES, Modes, curvature_at, found, search
from consilience.sample.target import ShardData, powers
from consilience.sample.trace import Trace, rewhiten

# A shard whose chains disagree is tuned and drawn again this many times, each time this much longer.
MAX_REPEATS = 2
REPEAT_FACTOR = 4
# Rounding of the log density (standard deviation) beyond which float32 is given up.
ROUNDING_LIMIT = 0.25


@dataclass(frozen=True)
class ShardTask:
    """Which shard, and where its rows are.

    Examples
    --------
    >>> ShardTask(index=0, label="north", weight=0.5, reference=None).label
    'north'
    """

    index: int
    label: str
    weight: float
    reference: Any


@dataclass(frozen=True)
class ShardDraws:
    """A shard's draws in unconstrained coordinates, chain after chain, and how they came about.

    `log_density` is that of the shard's target less its value at a point of the shard's own; `curvature` the inverse
    of its negative Hessian at the mode, NaN where the search met several modes, or none that is sharp.
    """

    index: int
    draws: np.ndarray
    log_density: np.ndarray
    chain_lengths: tuple[int, ...]
    curvature: np.ndarray
    record: dict[str, Any]


@dataclass
class Work:
    """A shard's arrays as the programs take them, and what has been spent on them."""

    task: ShardTask
    data: ShardData
    num_rows: int
    evaluated_rows: int
    started: float = field(default_factory=time.perf_counter)
    gradients: float = 0.0
    notes: list[str] = field(default_factory=list)


@contextmanager
def blamed_on(task: ShardTask) -> Iterator[None]:
    """Make whatever goes wrong name the shard it went wrong with."""
    who = f"shard {task.index} ({task.label})"
    try:
        yield
    except ConsilienceError as error:
        raise type(error)(f"{who}: {error}") from error
    except Exception as error:
        first = (str(error).strip().splitlines() or ["no message"])[0]
        raise ShardError(f"{who}: {type(error).__name__}: {first}") from error


@contextmanager
def on_device(data: Any, precision: str) -> Iterator[Any]:
    """Rows where the programs run, for no longer than they are needed."""
    with in_precision(precision):
        placed = jax.device_put(data)
    try:
        yield placed
    finally:
        for leaf in jax.tree.leaves(placed):
            leaf.delete()


@dataclass(frozen=True)
class ShardSampler:
    """The task an engine maps over shards: pure, and picklable with its model.

    Parameters
    ----------
    model : Model
        Ready, with whatever had to be known about all rows.
    fingerprint : str
        Stands for the model where compiled programs are kept.
    kind : str
        ``"inflated"`` or ``"subposterior"``.
    sampler : Sampler
        Such as ``HMC()``.
    draws : int
        Draws wanted of each shard.
    seed : int
        Root of all random numbers; every stage of every shard has its own stream.
    precision : str
        ``"float32"``, or ``"float64"`` where the rows' log-likelihoods need it.

    Examples
    --------
    >>> import numpy as np, numpyro.distributions as dist
    >>> from consilience.model.model import Model
    >>> from consilience.sample.hmc import HMC
    >>> def log_likelihood(params, rows):
    ...     return dist.Normal(params["mu"], 1.0).log_prob(rows["y"])
    >>> class Rows:
    ...     def read(self):
    ...         return {"y": np.array([1.0, 2.0, 3.0])}
    >>> model = Model({"mu": dist.Normal(0, 10)}, log_likelihood)
    >>> sample = ShardSampler(model, model.fingerprint(), "inflated", HMC(), draws=400, seed=0)
    >>> result = sample(ShardTask(0, "all", 1.0, Rows()))
    >>> result.draws.shape, result.record["status"]
    ((400, 1), 'converged')
    """

    model: Any
    fingerprint: str
    kind: str
    sampler: Sampler
    draws: int
    seed: int
    precision: str = "float32"

    @property
    def iterations(self) -> int:
        """Draws of each chain."""
        return max(4, -(-self.draws // self.sampler.chains))

    @property
    def real(self) -> Any:
        return np.float64 if self.precision == "float64" else np.float32

    def programs(self, data: ShardData, *, vectorised: bool = False) -> Programs:
        """The compiled programs for shards whose rows look like these."""
        rows = data.rows if not vectorised else {name: values[0] for name, values in data.rows.items()}
        return programs(
            self.model, self.fingerprint, self.sampler, self.precision, rows=rows, vectorised=vectorised
        )

    def __call__(self, task: ShardTask) -> ShardDraws:
        """Sample one shard."""
        with blamed_on(task):
            return self.sample(self.read(task))

    def read(self, task: ShardTask) -> Work:
        """Load the shard's rows and make them rectangular."""
        started = time.perf_counter()
        rows = self.model.rows(task.reference.read())
        num_rows = len(next(iter(rows.values()))) if rows else 0
        if not num_rows:
            raise DataError("there are no rows. Make fewer shards, or leave this one out.")
        arrays, row_weight = pad_rows(self.model.compress(rows), self.precision)
        prior_power, likelihood_power = powers(self.kind, task.weight)
        data = ShardData(arrays, row_weight, self.real(prior_power), self.real(likelihood_power))
        return Work(task, data, num_rows, int(np.count_nonzero(row_weight)), started)

    def sample(self, work: Work) -> ShardDraws:
        """Mode, tuning, draws, diagnosis."""
        with on_device(work.data, self.precision) as data:
            compiled, plan = self.programs(data), self.first_plan(work)
            compiled.run.prepare(data, *self.blank_start(), *plan)
            modes = search(compiled, data, self.start(), self.generator(work, 0))
            chains, block = jax.device_get(
                compiled.run(data, modes.frame, self.first_chains(work, modes), *plan)
            )
            trace = Trace(modes.frame, chains, [block], [self.plan(0, self.sampler.warmup).tuning])
        return self.finish(work, modes, trace)

    def start(self) -> np.ndarray:
        return np.asarray(self.model.space.start, self.real)

    def generator(self, work: Work, stage: int) -> np.random.Generator:
        return stage_generator(self.seed, work.task.index, stage)

    def first_chains(self, work: Work, modes: Modes) -> Chains:
        """Chains spread by the mode's curvature, with a step that suits a Gaussian."""
        dimension = self.model.space.dimension
        noise = self.generator(work, 1).standard_normal((self.sampler.chains, dimension), np.float32)
        return Chains(modes.positions(noise).astype(self.real), self.real(1.3 * dimension**-0.25))

    def blank_start(self) -> tuple[Frame, Chains]:
        """Arrays of the shapes that a run starts from, to compile it before its start is known."""
        dimension, real = self.model.space.dimension, self.real
        frame = Frame(np.zeros(dimension, real), np.zeros((dimension, dimension), real))
        return frame, Chains(np.zeros((self.sampler.chains, dimension), real), real(1.0))

    def first_plan(self, work: Work) -> tuple[Any, Plan]:
        return self.noise(work, 2), self.plan(0, self.sampler.warmup)

    def noise(self, work: Work, stage: int) -> Any:
        """Random numbers of one run of the program."""
        length = self.sampler.warmup + self.iterations
        return self.sampler.noise(self.generator(work, stage), length, self.model.space.dimension)

    def plan(self, start: int, tuned: int) -> Plan:
        """One run of the program, from iteration `start` on; the step is tuned before iteration `tuned`."""
        length = self.sampler.warmup + self.iterations
        return Plan(self.sampler.lengths(start, length), np.arange(start, start + length) < tuned)

    def finish(self, work: Work, modes: Modes, trace: Trace) -> ShardDraws:
        """Diagnose; while the chains disagree, whiten by what they have found and give them more."""
        work.gradients += modes.gradients + trace.gradients
        verdict = self.verdict(trace)
        repeats = 0
        while not verdict.converged and repeats < MAX_REPEATS:
            if self.precision == "float32" and not repeats and (again := self._in_double(work, trace)):
                return again
            repeats += 1
            with on_device(work.data, self.precision) as data:
                trace = self._repeat(work, data, trace, repeats)
            work.gradients += trace.gradients
            verdict = self.verdict(trace)
        u, log_density = trace.coordinates(), trace.log_density()
        if not (np.all(np.isfinite(u)) and np.all(np.isfinite(log_density))):
            raise ShardError(
                "the chains met infinite log densities: the posterior may not exist; " + _named(verdict)
            )
        num_chains, length, dimension = u.shape
        return ShardDraws(
            work.task.index,
            u.reshape(num_chains * length, dimension),
            log_density.reshape(-1),
            (length,) * num_chains,
            curvature_at(modes),
            self._record(work, modes, trace, verdict, num_chains * length, repeats),
        )

    def verdict(self, trace: Trace) -> Convergence:
        names = self.model.space.coordinate_names
        asked = self.iterations * self.sampler.chains
        u, log_density = trace.coordinates(), trace.log_density()
        return judge(u, log_density, trace.acceptance, trace.divergences, names, asked)

    def _repeat(self, work: Work, data: Any, trace: Trace, repeat: int) -> Trace:
        """Tune and draw again, `REPEAT_FACTOR` times as long as before, in the draws' own covariance."""
        compiled = self.programs(data)
        frame, positions = rewhiten(trace, self.generator(work, 1000 * repeat), self.real)
        chains = Chains(positions, np.asarray(trace.chains.step_size, self.real))
        runs = REPEAT_FACTOR**repeat
        length = self.sampler.warmup + self.iterations
        blocks: list[Block] = []
        tunings = []
        for run in range(runs):
            plan = self.plan(run * length, runs * self.sampler.warmup)
            noise = self.noise(work, 1000 * repeat + 1 + run)
            chains, block = jax.device_get(compiled.run(data, frame, chains, noise, plan))
            blocks.append(block)
            tunings.append(plan.tuning)
        return Trace(frame, chains, blocks, tunings)

    def _in_double(self, work: Work, trace: Trace) -> ShardDraws | None:
        """Start over in float64 where rounding is what keeps the chains apart."""
        double = replace(self, precision="float64")
        again = double.read(work.task)
        points, rounded = trace.some(NUM_CANDIDATES)
        exact = np.asarray(double.programs(again.data).values(again.data, points))
        finite = np.isfinite(exact) & np.isfinite(rounded)
        error = float(np.std(exact[finite] - rounded[finite])) if finite.any() else 0.0
        if error < ROUNDING_LIMIT:
            return None
        again.started, again.gradients = work.started, work.gradients + 2 * NUM_CANDIDATES
        again.notes.append(f"float32 rounds the log density by {error:.2g}; sampled in float64")
        return double.sample(again)

    def _record(
        self, work: Work, modes: Modes, trace: Trace, verdict: Convergence, num_draws: int, repeats: int
    ) -> dict[str, Any]:
        mode = modes.main
        notes = [*work.notes, *verdict.cautions]
        if not found(mode):
            notes.append(f"Newton stopped {float(np.sqrt(mode.decrement)):.3g} posterior sd from a mode")
        if mode.flat:
            notes.append("the log density is flat in some direction at the mode")
        if modes.others:
            notes.append(f"Newton found {1 + len(modes.others)} modes; the chains start from each of them")
        return {
            "index": work.task.index,
            "label": work.task.label,
            "rows": work.num_rows,
            "weight": work.task.weight,
            "draws": num_draws,
            "rhat": verdict.rhat,
            "ess_bulk": verdict.ess_bulk,
            "ess_tail": verdict.ess_tail,
            "divergences": verdict.divergences,
            "acceptance": verdict.acceptance,
            "step_size": float(trace.chains.step_size),
            "newton_iterations": int(mode.iterations),
            "at_mode": bool(float(mode.decrement) < DECREMENT_TOLERANCE),
            "modes": 1 + len(modes.others),
            "precision": self.precision,
            "gradients": work.gradients,
            "row_evaluations": work.gradients * work.evaluated_rows,
            "seconds": time.perf_counter() - work.started,
            "repeats": repeats,
            "status": "converged" if verdict.converged else "not converged",
            "problems": list(verdict.problems),
            "notes": notes,
        }


def _named(verdict: Convergence) -> str:
    return "; ".join(verdict.problems) + "."
