"""What one shard answers: sums over its rows at S points, all points in one compiled program.

    values      sum_i m_i (log f(y_i | u_s) - log f(y_i | u_0))          s = 1 ... S
    gradients   sum_i m_i grad log f(y_i | u_s)
    precision   - sum_i m_i Hessian log f(y_i | u_1)                      at one point

u_0 is the reference point. Rows go through the program block by block, each block small enough for a cache,
and every block meets all S points at once, so that S points are one matrix product. Blocks are summed in
the rows' precision and added in float64: no sum in float32 is ever longer than a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import ConsilienceError, ShardError
from consilience.sample.compiling import Program, ProgramCache, in_precision
from consilience.sample.rows import pad_rows

if TYPE_CHECKING:
    from consilience.sample.shard import ShardTask

Want = Literal["densities", "scores", "precision"]

# Points that share one program; more are taken in turn. Fewer are filled up to a power of two.
MOST_POINTS = 128
# Row-by-point numbers in one block: 2 MB of float32, which stays in a core's cache; far more on accelerators.
BLOCK_NUMBERS = 1 << 19
ACCELERATOR_BLOCK_NUMBERS = 1 << 26


@dataclass(frozen=True, eq=False)
class ShardSums:
    """A shard's share of the full-data quantities, in float64."""

    values: np.ndarray
    gradients: np.ndarray | None
    precision: np.ndarray | None
    rows: int
    evaluated_rows: int

    def plus(self, other: ShardSums) -> ShardSums:
        """The share of both shards."""
        return ShardSums(
            values=self.values + other.values,
            gradients=None if self.gradients is None else self.gradients + other.gradients,
            precision=None if self.precision is None else self.precision + other.precision,
            rows=self.rows + other.rows,
            evaluated_rows=self.evaluated_rows + other.evaluated_rows,
        )


class SumInOrder:
    """The shards' shares added in the order of shards, so that the sum does not depend on who finished first.

    Shares that came too early are held until their turn; hundreds of shards' gradients at thousands of points,
    held to the end, would need more memory than the rows.
    """

    def __init__(self) -> None:
        self.total: ShardSums | None = None
        self._next = 0
        self._early: dict[int, ShardSums] = {}

    def add(self, index: int, share: ShardSums) -> None:
        """Take the share of shard `index`."""
        self._early[index] = share
        while self._next in self._early:
            share = self._early.pop(self._next)
            self.total = share if self.total is None else self.total.plus(share)
            self._next += 1

    def missing(self, number: int) -> list[int]:
        """Those of `number` shards that have not come."""
        return [index for index in range(self._next, number) if index not in self._early]


@dataclass(frozen=True, eq=False)
class PassBackTask:
    """The task an engine maps over shards: pure, and picklable with its model.

    Attributes
    ----------
    points : (S, d) array
        In the unconstrained space.
    reference : (d,) array
        The point that log densities are differences from.
    want : str
        ``"densities"``, ``"scores"`` (densities too) or ``"precision"``.
    """

    model: Any
    fingerprint: str
    points: np.ndarray
    reference: np.ndarray
    want: Want
    precision: str = "float32"

    def __call__(self, task: ShardTask) -> ShardSums:
        """Read one shard's rows and sum over them."""
        try:
            rows = self.model.rows(task.reference.read())
            number = len(next(iter(rows.values())))
            arrays, weight = pad_rows(self.model.compress(rows), self.precision)
            return self.sums(arrays, weight, number)
        except ConsilienceError as error:
            raise type(error)(f"shard {task.index} ({task.label}): {error}") from error
        except Exception as error:
            raise ShardError(f"shard {task.index} ({task.label}): {type(error).__name__}: {error}") from error

    def program(self) -> Program:
        """Compiled once for a fingerprint, whichever copy of the model it came with."""
        key = (self.fingerprint, self.want, self.precision)
        made: Program = _programs.get(key, lambda: make_program(self.model, self.want, self.precision))
        return made

    def sums(self, arrays: dict[str, np.ndarray], weight: np.ndarray, number: int) -> ShardSums:
        """Evaluate padded rows at all points, chunk after chunk of them."""
        program, size = self.program(), points_per_program(len(self.points))
        block = block_rows(len(weight), size)
        with in_precision(self.precision):
            folded = {name: fold(values, block) for name, values in arrays.items()}
            data, weights = jax.device_put((folded, fold(weight, block)))
            reference = self.reference.astype(weight.dtype)
            parts = []
            for chunk in in_chunks(self.points, size):
                answer = program(data, weights, chunk.astype(weight.dtype), reference)
                parts.append([np.asarray(a, np.float64).sum(axis=0) for a in answer])
        values, *rest = (np.concatenate(pieces)[: len(self.points)] for pieces in zip(*parts, strict=True))
        return ShardSums(
            values=values,
            gradients=rest[0] if self.want == "scores" else None,
            precision=rest[0][0] if self.want == "precision" else None,
            rows=number,
            evaluated_rows=int(np.count_nonzero(weight)),
        )


def in_chunks(points: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Chunks of `size` points, the last one filled up with copies.

    Examples
    --------
    >>> [chunk[:, 0].tolist() for chunk in in_chunks(np.arange(3.0)[:, None], 2)]
    [[0.0, 1.0], [2.0, 2.0]]
    """
    for start in range(0, len(points), size):
        chunk = points[start : start + size]
        yield np.concatenate([chunk, np.repeat(chunk[:1], size - len(chunk), axis=0)])


def points_per_program(number: int) -> int:
    """How many points share a program: a power of two, so that few programs are compiled.

    Examples
    --------
    >>> [points_per_program(number) for number in (1, 5, 64, 300)]
    [1, 8, 64, 128]
    """
    return int(min(MOST_POINTS, 1 << max(0, number - 1).bit_length()))


def block_rows(length: int, points: int) -> int:
    """Rows in a block: the largest power of two that divides the padded length and stays in the cache.

    Examples
    --------
    >>> block_rows(13312, 64), block_rows(1 << 20, 64)
    (1024, 8192)
    """
    numbers = BLOCK_NUMBERS if jax.default_backend() == "cpu" else ACCELERATOR_BLOCK_NUMBERS
    most = max(64, min(numbers // points, 8192 if jax.default_backend() == "cpu" else numbers))
    return min(length & -length, 1 << (most.bit_length() - 1))


def fold(values: np.ndarray, block: int) -> np.ndarray:
    """Rows (n, ...) as blocks of rows (n / block, block, ...)."""
    return values.reshape(len(values) // block, block, *values.shape[1:])


_programs = ProgramCache()


def prior_program(model: Any, fingerprint: str) -> Program:
    """Log prior and its gradient in float64, at `MOST_POINTS` points at once."""
    log_prior = model.space.log_prior
    made: Program = _programs.get(
        (fingerprint, "prior"), lambda: Program(jax.vmap(jax.value_and_grad(log_prior)), "float64")
    )
    return made


def make_program(model: Any, want: Want, precision: str) -> Program:
    """The function from blocks of rows and all points to sums per block."""

    def evaluate(rows: Any, weights: Any, points: Any, reference: Any) -> Any:
        def one_block(item: Any) -> Any:
            block, weight = item
            base = model.log_likelihood(model.space.to_params(reference), block)

            def total(u: Any) -> Any:
                values = model.log_likelihood(model.space.to_params(u), block)
                return jnp.sum(weight * (values - base))

            if want == "scores":
                return jax.vmap(jax.value_and_grad(total))(points)
            if want == "precision":
                return jax.vmap(total)(points), -jax.vmap(jax.hessian(total))(points)
            return (jax.vmap(total)(points),)

        return jax.lax.map(one_block, (rows, weights))

    return Program(evaluate, precision)
