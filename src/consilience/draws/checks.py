"""What draws, names, shapes and weights must satisfy before anything is computed from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from consilience.errors import DrawsError, must_be

KINDS = ("subposterior", "inflated")
_INDEXED = re.compile(r"^(?P<stem>.+)\[(?P<index>\d+(?:,\s*\d+)*)\]$")


def default_names(dimension: int) -> tuple[str, ...]:
    """Names for draws that came without any.

    Examples
    --------
    >>> default_names(2)
    ('theta[0]', 'theta[1]')
    """
    return tuple(f"theta[{i}]" for i in range(dimension))


def shapes_from_names(names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Group scalars into parameters: a full run of ``beta[0], beta[1], …`` becomes ``beta`` with its shape.

    Indices may start at 0 (Python) or 1 (Stan) and must run in row-major order; any other scalar stays alone.

    Examples
    --------
    >>> shapes_from_names(["Intercept", "beta[0]", "beta[1]"])
    {'Intercept': (), 'beta': (2,)}
    """
    shapes: dict[str, tuple[int, ...]] = {}
    start = 0
    while start < len(names):
        match = _INDEXED.match(names[start])
        stop = start + 1
        shape: tuple[int, ...] | None = None
        if match:
            stem = match["stem"]
            while stop < len(names) and (other := _INDEXED.match(names[stop])) and other["stem"] == stem:
                stop += 1
            shape = _full_shape([_INDEXED.sub(r"\g<index>", name) for name in names[start:stop]])
        if match and shape is not None and match["stem"] not in shapes and match["stem"] not in names:
            shapes[match["stem"]] = shape
        else:
            shapes.update(dict.fromkeys(names[start:stop], ()))
        start = stop
    return shapes


def split_index(name: str) -> tuple[str, tuple[int, ...]]:
    """A scalar's parameter and its place in it; a name without an index is a parameter of its own.

    Examples
    --------
    >>> split_index("L[2,1]"), split_index("sigma"), split_index("C(x)[T.2]")
    (('L', (2, 1)), ('sigma', ()), ('C(x)[T.2]', ()))
    """
    match = _INDEXED.match(name)
    if match is None:
        return name, ()
    return match["stem"], tuple(int(i) for i in match["index"].split(","))


def row_major(names: Sequence[str]) -> list[int]:
    """Positions that put the entries of every parameter in row-major order; parameters keep theirs.

    Examples
    --------
    >>> row_major(["mu", "L[1,1]", "L[2,1]", "L[1,2]", "L[2,2]"])
    [0, 1, 3, 2, 4]
    """
    parts = [split_index(name) for name in names]
    first: dict[str, int] = {}
    for position, (stem, _) in enumerate(parts):
        first.setdefault(stem, position)
    return sorted(range(len(names)), key=lambda i: (first[parts[i][0]], parts[i][1]))


def _full_shape(indices: Sequence[str]) -> tuple[int, ...] | None:
    """The shape whose row-major indices, from 0 or from 1, are exactly these, if there is one."""
    table = [tuple(int(i) for i in text.split(",")) for text in indices]
    if len({len(row) for row in table}) != 1:
        return None
    origin, end = table[0], table[-1]
    if len(set(origin)) != 1 or origin[0] not in (0, 1):
        return None
    shape = tuple(last - first + 1 for first, last in zip(origin, end, strict=True))
    if min(shape) < 1 or int(np.prod(shape)) != len(table):
        return None
    expected = [tuple(i + origin[0] for i in index) for index in np.ndindex(*shape)]
    return shape if expected == table else None


def read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def as_float(value: Any, what: str, parameter: str, where: str) -> np.ndarray:
    """Any real array as float64; integers are converted, not truncated into."""
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiub":
            raise TypeError
        return np.ascontiguousarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise must_be(
            what, parameter, f"an array of real numbers{where}", value, "Pass numbers only.", DrawsError
        ) from None


def check_finite(array: np.ndarray, names: Sequence[str], what: str, parameter: str, where: str) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        columns = np.flatnonzero(bad.any(axis=0))
        shown = ", ".join(f"{names[int(c)]} ({int(bad[:, c].sum())})" for c in columns[:5])
        more = f" and {len(columns) - 5} more columns" if len(columns) > 5 else ""
        raise must_be(
            what,
            parameter,
            f"finite{where}",
            f"NaN or infinity in {shown}{more}",
            "Remove those draws or sample again.",
            DrawsError,
        )


def check_names(names: Sequence[str], dimension: int, what: str) -> tuple[str, ...]:
    names = tuple(str(name) for name in names)
    if len(names) != dimension:
        raise must_be(
            what, "names", f"{dimension} names, one per column", names, "Name every column once.", DrawsError
        )
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise must_be(what, "names", "different from each other", twice, "Rename the columns.", DrawsError)
    return names


def evenly(total: int, wanted: int) -> np.ndarray:
    """`wanted` indices spread evenly over `total` draws."""
    return np.floor((np.arange(wanted) + 0.5) * (total / wanted)).astype(np.int64)


def lengths_after(chosen: np.ndarray, lengths: Sequence[int]) -> tuple[int, ...]:
    """How many of the chosen draws (sorted indices) fall into each chain; chains left empty are dropped."""
    edges = np.concatenate([[0], np.cumsum(lengths)])
    counts = np.diff(np.searchsorted(chosen, edges))
    return tuple(int(count) for count in counts if count)


def check_lengths(lengths: Sequence[int] | None, total: int, what: str) -> tuple[int, ...]:
    checked = (total,) if lengths is None else tuple(int(n) for n in lengths)
    if sum(checked) != total or min(checked, default=0) < 1:
        raise must_be(
            what,
            "chain_lengths",
            f"positive and sum to the {total} draws",
            checked,
            "Give the length of each chain in the order in which they are concatenated.",
            DrawsError,
        )
    return checked


def shard_arrays(draws: Any, what: str) -> tuple[list[np.ndarray], list[tuple[int, ...]]]:
    """One (J_b, d) array per shard and the lengths of its chains."""
    shape = getattr(draws, "shape", None)
    if shape is not None and len(shape) not in (3, 4):
        raise must_be(
            what,
            "draws",
            "a (shards, draws, parameters) array or a list with one array per shard",
            f"an array of shape {tuple(shape)}",
            "For one parameter pass draws[:, :, None].",
            DrawsError,
        )
    if isinstance(draws, str | bytes | Mapping) or not hasattr(draws, "__len__") or len(draws) == 0:
        raise must_be(
            what, "draws", "one array of draws per shard", draws, "Pass at least one shard.", DrawsError
        )
    arrays, lengths = [], []
    for b, value in enumerate(draws):
        array = as_float(value, what, "draws", f" in shard {b}")
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim not in (2, 3) or array.size == 0:
            raise must_be(
                what,
                "draws",
                f"(draws, parameters) or (chains, draws, parameters) in shard {b}",
                f"an array of shape {array.shape}",
                "Give one row per draw and one column per parameter.",
                DrawsError,
            )
        lengths.append((len(array),) if array.ndim == 2 else (array.shape[1],) * array.shape[0])
        arrays.append(array.reshape(-1, array.shape[-1]))
    return arrays, lengths


def check_shard(array: np.ndarray, dimension: int, names: Sequence[str], shard: str) -> None:
    what = "Subposteriors"
    if array.shape[1] != dimension:
        raise must_be(
            what,
            "draws",
            f"of the same dimension in every shard ({dimension} in shard 0)",
            f"{array.shape[1]} columns in {shard}",
            "Give every shard the same parameters in the same order.",
            DrawsError,
        )
    check_finite(array, names, what, "draws", f" in {shard}")
    if len(array) <= dimension:
        raise must_be(
            what,
            "draws",
            f"at least {dimension + 1} per shard for {dimension} parameters",
            f"{len(array)} draws in {shard}",
            "Draw more: a covariance needs more draws than dimensions.",
            DrawsError,
        )
    constant = [names[int(i)] for i in np.flatnonzero(np.ptp(array, axis=0) == 0)]
    if constant:
        raise must_be(
            what,
            "draws",
            f"moving in every column; {shard} has a constant one",
            ", ".join(constant),
            "Leave that column out, or sample that shard again.",
            DrawsError,
        )


def check_weights(weights: Any, num_shards: int, what: str) -> np.ndarray:
    if weights is None:
        return np.full(num_shards, 1.0 / num_shards)
    array = as_float(weights, what, "weights", "")
    if array.shape != (num_shards,) or not np.all(array > 0) or not abs(array.sum() - 1.0) < 1e-6:
        raise must_be(
            what,
            "weights",
            f"{num_shards} positive numbers that sum to 1",
            array.tolist(),
            "Divide each shard's row count by their total.",
            DrawsError,
        )
    return np.asarray(array / array.sum())


def check_log_densities(
    values: Sequence[Any] | None, arrays: Sequence[np.ndarray], what: str
) -> tuple[np.ndarray, ...] | None:
    if values is None:
        return None
    checked = tuple(
        as_float(v, what, "log_densities", f" in shard {b}").reshape(-1) for b, v in enumerate(values)
    )
    if [len(v) for v in checked] != [len(x) for x in arrays]:
        raise must_be(
            what,
            "log_densities",
            "one number per draw of every shard",
            [len(v) for v in checked],
            "Give the log density of each shard's own target at each of its draws.",
            DrawsError,
        )
    return tuple(read_only(v) for v in checked)


def check_curvatures(values: Any, num_shards: int, dimension: int, what: str) -> np.ndarray | None:
    """Covariances at the modes, one per shard; a shard may have NaN throughout."""
    if values is None:
        return None
    array = as_float(values, what, "curvatures", "")
    advice = "Give the inverse negative Hessian at each shard's mode, or NaN for a shard without one."
    if array.shape != (num_shards, dimension, dimension):
        constraint = f"of shape ({num_shards}, {dimension}, {dimension})"
        raise must_be(what, "curvatures", constraint, array.shape, advice, DrawsError)
    for b, matrix in enumerate(array):
        if np.isnan(matrix).all():
            continue
        if not np.allclose(matrix, matrix.T, rtol=1e-6) or not _is_positive_definite(matrix):
            constraint = "symmetric and positive definite"
            raise must_be(what, "curvatures", constraint, f"another matrix in shard {b}", advice, DrawsError)
    return read_only(array)


def _is_positive_definite(matrix: np.ndarray) -> bool:
    variances = np.diagonal(matrix)
    if not np.isfinite(matrix).all() or not (variances > 0).all():
        return False
    deviations = np.sqrt(variances)
    try:
        np.linalg.cholesky(matrix / np.outer(deviations, deviations))
    except np.linalg.LinAlgError:
        return False
    return True


def check_log_weights(values: Any, number: int) -> np.ndarray:
    array = as_float(values, "Posterior", "log_weights", "")
    if array.shape != (number,) or np.isnan(array).any() or not np.isfinite(array.max()):
        raise must_be(
            "Posterior",
            "log_weights",
            f"{number} numbers, not NaN or plus infinity, and not all minus infinity",
            array,
            "Give one log weight per draw.",
            DrawsError,
        )
    return array
