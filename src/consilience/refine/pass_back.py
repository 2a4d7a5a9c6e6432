"""Another look at the data: full-data log density, score and curvature at S points, as sums over shards.

    log p(u | y) - log p(u_0 | y)
        = [log p0(u) - log p0(u_0)] + sum_b sum_i m_i (log f(y_i | u) - log f(y_i | u_0))

The differences are taken row by row, blocks of rows are summed where they lie, shards are added in float64,
and the prior comes in once, in float64. Points are sent to the shards, S numbers or S x d numbers come back;
no row leaves its shard, and a shard's rows are read where its task runs and let go with it.

Points are rounded to the precision of the rows before anything is evaluated there, and the rounded ones are
handed back: a score is then exactly the score at the point it is said to belong to.

It fails with the shard that fails: which one is named, and nothing is returned for the others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import jax
import numpy as np
from numpy.typing import ArrayLike

from consilience.errors import InputError, ShardError, must_be
from consilience.machine import release_freed_memory, usable_cores
from consilience.model.space import double_precision
from consilience.refine.shard_sums import (
    MOST_POINTS,
    PassBackTask,
    ShardSums,
    SumInOrder,
    Want,
    in_chunks,
    prior_program,
)

if TYPE_CHECKING:
    from consilience.sample.shard import ShardTask

Run = Callable[[Any, Iterable[Any]], Iterable[tuple[int, Any]]]

# A density without its gradient costs about half of one with it: one matrix product instead of two.
DENSITY_SHARE = 0.5
_NUMBER = 8  # bytes of a float64 on its way


@dataclass(frozen=True)
class Ledger:
    """What looking at the data has cost so far.

    Attributes
    ----------
    rounds : int
        Times that every shard was asked.
    full_data_gradients : float
        S for S scores, S / 2 for S densities, d for a Hessian, and 1/2 for the reference in each round.
    row_evaluations : float
        The same with the rows that were really evaluated, after equal rows were merged.
    bytes_per_shard : int
        Sent to and received from each shard, 8 per number.
    seconds : float
        Wall time.
    non_finite : int
        Points at which the log density or the score was not finite.
    """

    rounds: int = 0
    full_data_gradients: float = 0.0
    row_evaluations: float = 0.0
    bytes_per_shard: int = 0
    seconds: float = 0.0
    non_finite: int = 0

    def since(self, earlier: Ledger) -> Ledger:
        """What was spent after `earlier`."""
        return Ledger(**{name: getattr(self, name) - getattr(earlier, name) for name in self.to_dict()})

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Full-data quantities at S points.

    Attributes
    ----------
    points : (S, d) the points as they were evaluated
    log_density : (S,) log posterior density less that at the reference point
    scores : (S, d) its gradients, or None where only densities were asked for
    """

    points: np.ndarray
    log_density: np.ndarray
    scores: np.ndarray | None = None

    @property
    def finite(self) -> np.ndarray:
        """(S,) where everything that was asked for is finite."""
        good = np.isfinite(self.log_density)
        return good if self.scores is None else good & np.all(np.isfinite(self.scores), axis=1)

    def kept(self) -> Evaluation:
        """Only the finite ones."""
        good = self.finite
        if good.all():
            return self
        scores = None if self.scores is None else self.scores[good]
        return Evaluation(self.points[good], self.log_density[good], scores)

    def joined(self, other: Evaluation) -> Evaluation:
        """Both sets of points."""
        scores = None
        if self.scores is not None and other.scores is not None:
            scores = np.concatenate([self.scores, other.scores])
        return Evaluation(
            np.concatenate([self.points, other.points]),
            np.concatenate([self.log_density, other.log_density]),
            scores,
        )


class ShardAnswer(Protocol):
    """What a shard answers to a refinement's own task: whatever it is, with what it cost.

    `gradients` are those over the shard's rows, `evaluated_rows` what is left of `rows` after merging.
    """

    @property
    def gradients(self) -> float: ...

    @property
    def rows(self) -> int: ...

    @property
    def evaluated_rows(self) -> int: ...


def run_in_threads(task: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Map in this process: as many shards at once as there are cores; no other rows are in memory."""
    workers = usable_cores() if jax.default_backend() == "cpu" else 1
    with ThreadPoolExecutor(workers) as pool:
        yield from enumerate(pool.map(task, items))
    release_freed_memory()


class PassBack:
    """Answers for S points at once, over all shards.

    Parameters
    ----------
    model : Model
        Ready.
    fingerprint : str
        Stands for the model where compiled programs are kept.
    tasks : sequence of ShardTask
        Where each shard's rows are.
    run : callable, optional
        `run(task, items)` yields (index, result or failure) in any order: an engine's `map`. Threads of this
        process by default.
    precision : "float32" or "float64"
        Of rows and points.
    reference_point : (d,) array, optional
        What log densities are differences from: the nearer to the draws, the more digits. The mean of the
        first points that are asked for by default.

    Examples
    --------
    >>> import jax.numpy as jnp, numpyro.distributions as dist
    >>> from consilience.model.model import Model
    >>> from consilience.sample.shard import ShardTask
    >>> class Rows:
    ...     def __init__(self, y): self.y = y
    ...     def read(self): return {"y": self.y}
    >>> model = Model({"mu": dist.Normal(0, 10)}, lambda p, rows: -0.5 * (rows["y"] - p["mu"]) ** 2)
    >>> tasks = [ShardTask(b, str(b), 0.5, Rows(np.array([b, b + 1.0]))) for b in (0, 1)]
    >>> pass_back = PassBack(model, "example", tasks, precision="float64", reference_point=[0.0])
    >>> found = pass_back.scores([[0.0], [1.0]])
    >>> found.log_density.round(2), found.scores[:, 0].round(2)
    (array([0., 2.]), array([ 4.  , -0.01]))
    >>> pass_back.ledger.rounds, pass_back.ledger.full_data_gradients
    (1, 2.5)
    """

    def __init__(
        self,
        model: Any,
        fingerprint: str,
        tasks: Sequence[ShardTask],
        run: Run | None = None,
        precision: str = "float32",
        reference_point: ArrayLike | None = None,
    ) -> None:
        if not tasks:
            raise must_be("pass-back", "tasks", "at least one shard", tasks, "Split the rows first.")
        if precision not in ("float32", "float64"):
            choices = "'float32' or 'float64'"
            raise must_be("pass-back", "precision", choices, precision, "Choose one of them.")
        self.model, self.fingerprint, self.tasks = model, fingerprint, tuple(tasks)
        self.run: Run = run or run_in_threads
        self.precision = precision
        self._reference: np.ndarray | None = None
        self._ledger = Ledger()
        self._lock = threading.Lock()
        self._prior_hessian: Callable[[Any], Any] | None = None
        self._reference_prior = 0.0
        if reference_point is not None:
            self._refer_to(np.asarray(reference_point, np.float64))

    @property
    def dimension(self) -> int:
        return int(self.model.space.dimension)

    @property
    def reference(self) -> np.ndarray:
        """The point that log densities are differences from."""
        if self._reference is None:
            self._refer_to(np.asarray(self.model.space.start, np.float64))
        assert self._reference is not None
        return self._reference

    def _refer_to(self, point: np.ndarray) -> None:
        self._reference = self._rounded(np.atleast_2d(point))[0]
        self._reference_prior = float(self._prior(self._reference[None])[0][0])

    @property
    def ledger(self) -> Ledger:
        """What has been spent so far."""
        return self._ledger

    def densities(self, points: ArrayLike) -> Evaluation:
        """Log densities at (S, d) points; costs half of `scores`."""
        points = self._points(points)
        found = self._ask(points, "densities", DENSITY_SHARE * len(points))
        prior = self._prior(points)[0] - self._reference_prior
        return self._counted(Evaluation(points, prior + found.values))

    def scores(self, points: ArrayLike) -> Evaluation:
        """Log densities and their gradients at (S, d) points."""
        points = self._points(points)
        found = self._ask(points, "scores", float(len(points)))
        prior, slope = self._prior(points)
        values = prior - self._reference_prior + found.values
        assert found.gradients is not None
        scores = slope + found.gradients
        return self._counted(Evaluation(points, values, scores))

    def negative_hessian(self, point: ArrayLike) -> np.ndarray:
        """(d, d) negative second derivatives of the log density at one point."""
        points = self._points(np.atleast_2d(np.asarray(point, np.float64)))
        found = self._ask(points, "precision", float(self.dimension))
        with double_precision():
            if self._prior_hessian is None:
                self._prior_hessian = jax.jit(jax.hessian(self.model.space.log_prior))
            prior = -np.asarray(self._prior_hessian(points[0]), np.float64)
        assert found.precision is not None
        hessian = prior + found.precision
        return np.asarray((hessian + hessian.T) / 2)

    def _points(self, points: ArrayLike) -> np.ndarray:
        """Checked and rounded; the first ones say where the reference is, if nobody did."""
        rounded = self._rounded(points)
        if self._reference is None:
            self._refer_to(rounded.mean(axis=0))
        return rounded

    def _rounded(self, points: ArrayLike) -> np.ndarray:
        points = np.asarray(points, np.float64)
        if points.ndim != 2 or points.shape[1] != self.model.space.dimension or not len(points):
            shape = f"of shape (S, {self.model.space.dimension}) with S of at least 1"
            raise must_be("pass-back", "points", shape, points.shape, "Use the unconstrained coordinates.")
        if not np.all(np.isfinite(points)):
            count = int(np.count_nonzero(~np.isfinite(points)))
            raise must_be("pass-back", "points", "finite", f"{count} NaN or infinite", "Look at the draws.")
        return points.astype(self.precision).astype(np.float64)

    def _ask(self, points: np.ndarray, want: Want, cost: float) -> ShardSums:
        """Send the points to every shard, and add up all answers."""
        begun = time.perf_counter()
        task = PassBackTask(self.model, self.fingerprint, points, self.reference, want, self.precision)
        answers = SumInOrder()
        failures: dict[int, Any] = {}
        for index, answer in self.run(task, self.tasks):
            if isinstance(answer, ShardSums):
                answers.add(index, answer)
            else:
                failures[index] = answer
        missing = answers.missing(len(self.tasks))
        if missing:
            raise self._failed(missing, failures)
        assert answers.total is not None
        cost += DENSITY_SHARE
        count, dimension = points.shape
        back = {"densities": count, "scores": count * (dimension + 1), "precision": dimension**2 + 1}[want]
        self._spend(cost, cost * answers.total.evaluated_rows, (count + 1) * dimension + back, begun)
        return answers.total

    def each(self, task: Callable[[Any], ShardAnswer], answers: type, numbers: int) -> list[Any]:
        """What every shard answers to a task that a refinement brings, in the order of shards.

        Parameters
        ----------
        task : callable
            From a `ShardTask` to an answer; picklable, and pure.
        answers : type
            Of the answers: whatever else comes back is a failure.
        numbers : int
            How many of them go to a shard and come back.
        """
        begun = time.perf_counter()
        found: dict[int, Any] = dict(self.run(task, self.tasks))
        failures = {index: answer for index, answer in found.items() if not isinstance(answer, answers)}
        missing = [b for b in range(len(self.tasks)) if b in failures or b not in found]
        if missing:
            raise self._failed(missing, failures)
        everyone = [found[b] for b in range(len(self.tasks))]
        rows = sum(answer.rows for answer in everyone)
        gradients = sum(answer.gradients * answer.rows for answer in everyone) / rows
        evaluations = sum(answer.gradients * answer.evaluated_rows for answer in everyone)
        self._spend(gradients, evaluations, numbers, begun)
        return everyone

    def _spend(self, gradients: float, row_evaluations: float, numbers: int, begun: float) -> None:
        with self._lock:
            spent = self._ledger
            self._ledger = replace(
                spent,
                rounds=spent.rounds + 1,
                full_data_gradients=spent.full_data_gradients + gradients,
                row_evaluations=spent.row_evaluations + row_evaluations,
                bytes_per_shard=spent.bytes_per_shard + _NUMBER * numbers,
                seconds=spent.seconds + time.perf_counter() - begun,
            )

    def _failed(self, missing: Sequence[int], failures: dict[int, Any]) -> Exception:
        first = self.tasks[missing[0]]
        failure = failures.get(missing[0])
        said = "nothing came back" if failure is None else str(getattr(failure, "message", failure))
        named = ", ".join(f"{self.tasks[i].index} ({self.tasks[i].label})" for i in missing[:5])
        kind = InputError if getattr(failure, "wrong_input", False) else ShardError
        return kind(
            f"pass-back: {len(missing)} of {len(self.tasks)} shards gave no answer: {named}. "
            f"Shard {first.index} said: {said}. Run the refinement again; the draws before it are unharmed."
        )

    def _prior(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Log density of the prior and its gradient, by one program for any number of points."""
        program = prior_program(self.model, self.fingerprint)
        found = [program(chunk) for chunk in in_chunks(points, MOST_POINTS)]
        values, slopes = (
            np.concatenate([np.asarray(x, np.float64) for x in xs]) for xs in zip(*found, strict=True)
        )
        return values[: len(points)], slopes[: len(points)]

    def _counted(self, evaluation: Evaluation) -> Evaluation:
        bad = int(np.count_nonzero(~evaluation.finite))
        if bad:
            with self._lock:
                self._ledger = replace(self._ledger, non_finite=self._ledger.non_finite + bad)
        return evaluation
