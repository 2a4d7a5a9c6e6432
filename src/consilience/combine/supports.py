"""Declared supports: draws of bounded parameters are combined in an unconstrained space and mapped back.

A parameter theta that lives on a support S is combined as u = t^-1(theta), with t: R^k -> S NumPyro's bijection
(`biject_to`), the same as models of this package use: log on the positive half-line, logit on (0, 1), stick-breaking
on the simplex, the first element and the logs of the steps for an ordered vector, canonical partial correlations of
the Cholesky factor for a correlation matrix. A log density of the draws becomes one of u by adding log |dt/du|.

Assumption: every draw lies inside its support. Draws written with few digits may not: sums of a simplex and the
diagonal and symmetry of a correlation matrix are accepted within 1e-4 and put right, a draw on the edge is refused.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.draws.checks import shapes_from_names, split_index
from consilience.errors import DrawsError, must_be

from .base import Floats
from .bijections import SUPPORTS, backward, forward, log_jacobian, outside


def check_supports(supports: Any) -> dict[str, str]:
    """Refuse what is not a support by parameter, before anything is read.

    Examples
    --------
    >>> check_supports({"sigma": "positiv"})
    Traceback (most recent call last):
        ...
    consilience.errors.InputError: combine: `supports['sigma']` must be one of 'positive', ... Got 'positiv'. ...
    """
    if supports is None:
        return {}
    if not isinstance(supports, Mapping):
        advice = "For example supports={'sigma': 'positive'}."
        raise must_be("combine", "supports", "a dict of parameters and their supports", supports, advice)
    for name, support in supports.items():
        if support not in SUPPORTS:
            close = difflib.get_close_matches(str(support), SUPPORTS, n=1)
            advice = f"Did you mean {close[0]!r}?" if close else "Leave it out for the whole line."
            listed = ", ".join(map(repr, SUPPORTS))
            raise must_be("combine", f"supports[{name!r}]", f"one of {listed}", support, advice)
    return {str(name): str(support) for name, support in supports.items()}


@dataclass(frozen=True)
class _Block:
    """Columns that are mapped together: one declared parameter, or neighbours without a declaration."""

    name: str
    support: str | None
    columns: tuple[int, ...]  # in row-major order of `shape`
    shape: tuple[int, ...]
    free_shape: tuple[int, ...]
    start: int

    @property
    def coordinates(self) -> slice:
        return slice(self.start, self.start + math.prod(self.free_shape))


class SupportSpace:
    """Bijections between the user's columns and unconstrained coordinates, by declared supports.

    Parameters
    ----------
    names : sequence of str
        The user's columns.
    supports : dict of str to str
        A parameter (all its entries) or a single column, and its support.

    Examples
    --------
    >>> space = SupportSpace(["mu", "sigma"], {"sigma": "positive"})
    >>> space.coordinate_names, space.to_user(np.array([[2.0, 0.0]]))
    (('mu', 'log(sigma)'), array([[2., 1.]]))
    """

    def __init__(self, names: Sequence[str], supports: Mapping[str, str]) -> None:
        self.names = tuple(names)
        self.shapes = shapes_from_names(self.names)
        self.supports = dict(supports)
        self._blocks = tuple(_blocks(self.names, supports))

    @property
    def dimension(self) -> int:
        """Number of unconstrained coordinates."""
        return self._blocks[-1].coordinates.stop

    @property
    def declared_columns(self) -> tuple[int, ...]:
        """The user's columns whose support was declared."""
        return tuple(c for block in self._blocks if block.support is not None for c in block.columns)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """One name per unconstrained coordinate."""
        return tuple(name for block in self._blocks for name in _free_names(block, self.names))

    def to_user(self, coordinates: Floats) -> Floats:
        """(N, dimension) coordinates to (N, len(names)) columns."""
        flat = np.asarray(coordinates, dtype=np.float64)
        user = np.empty((len(flat), len(self.names)))
        for block in self._blocks:
            free = flat[:, block.coordinates].reshape(len(flat), *block.free_shape)
            user[:, block.columns] = forward(block.support, free).reshape(len(flat), -1)
        return user

    def to_coordinates(self, arrays: Sequence[Floats], labels: Sequence[str]) -> tuple[Floats, ...]:
        """Each shard's columns to coordinates; a draw outside its support is refused by shard and parameter."""
        return tuple(
            self._coordinates(array, f"shard {b}" + (f" ({label})" if label != str(b) else ""))
            for b, (array, label) in enumerate(zip(arrays, labels, strict=True))
        )

    def _coordinates(self, array: Floats, shard: str) -> Floats:
        flat = np.empty((len(array), self.dimension))
        for block in self._blocks:
            values = array[:, block.columns].reshape(len(array), *block.shape)
            if block.support is None:
                flat[:, block.coordinates] = values
                continue
            wrong = outside(block.support, values)
            if wrong.any():
                raise _not_inside(block, wrong, values, shard)
            free = backward(block.support, values).reshape(len(array), -1)
            lost = ~np.isfinite(free).all(axis=1)
            if lost.any():
                raise _not_inside(block, lost, values, shard)
            flat[:, block.coordinates] = free
        return flat

    def log_jacobian(self, coordinates: Floats) -> Floats:
        """(N,) log |d user / d coordinates|, which turns a log density of the draws into one of coordinates.

        Examples
        --------
        >>> SupportSpace(["sigma"], {"sigma": "positive"}).log_jacobian(np.array([[1.5]]))
        array([1.5])
        """
        total = np.zeros(len(coordinates))
        for block in self._blocks:
            if block.support is not None:
                free = np.ascontiguousarray(coordinates[:, block.coordinates])
                total += log_jacobian(block.support, free.reshape(len(free), *block.free_shape))
        return total


# ------------------------------------------------------------------------------------------
# Which columns a declaration is about
# ------------------------------------------------------------------------------------------


def _blocks(names: Sequence[str], supports: Mapping[str, str]) -> list[_Block]:
    declared: dict[int, tuple[str, tuple[int, ...], tuple[int, ...]]] = {}
    owner: dict[int, str] = {}
    for parameter in supports:
        columns, shape = _columns_of(parameter, names)
        for column in columns:
            if column in owner:
                both = f"{owner[column]} and {parameter}"
                raise must_be("combine", "supports", "declared once for every column", both, "Leave one out.")
            owner[column] = parameter
        declared[min(columns)] = (parameter, columns, shape)
    blocks: list[_Block] = []
    start = 0
    for column in range(len(names)):
        if column in declared:
            parameter, columns, shape = declared[column]
            free_shape = _free_shape(parameter, supports[parameter], shape)
            blocks.append(_Block(parameter, supports[parameter], columns, shape, free_shape, start))
        elif column in owner:
            continue
        elif blocks and blocks[-1].support is None:
            before = blocks.pop()
            columns = (*before.columns, column)
            blocks.append(_Block("", None, columns, (len(columns),), (len(columns),), before.start))
        else:
            blocks.append(_Block("", None, (column,), (1,), (1,), start))
        start = blocks[-1].coordinates.stop
    return blocks


def _columns_of(parameter: str, names: Sequence[str]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A parameter's columns in row-major order, and its shape."""
    if parameter in names:
        return (list(names).index(parameter),), ()
    found = sorted(
        (index, column)
        for column, (stem, index) in enumerate(map(split_index, names))
        if stem == parameter and index
    )
    if not found:
        known = list(dict.fromkeys([*(split_index(name)[0] for name in names), *names]))
        close = difflib.get_close_matches(parameter, known, n=1)
        advice = f"Did you mean {close[0]!r}?" if close else "Check the spelling."
        some = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        raise must_be("combine", "supports", f"for parameters of the draws ({some})", parameter, advice)
    indices = [index for index, _ in found]
    origin, end = indices[0], indices[-1]
    shape = tuple(last - origin[0] + 1 for last in end)
    grid = [tuple(i + origin[0] for i in place) for place in np.ndindex(*shape)]
    if len(set(origin)) != 1 or origin[0] not in (0, 1) or indices != grid:
        shown = ", ".join(names[column] for _, column in found[:6])
        advice = "Write all its entries, or declare single columns."
        raise must_be("combine", f"supports[{parameter!r}]", "for a whole parameter", shown, advice)
    return tuple(column for _, column in found), shape


def _free_shape(parameter: str, support: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    size = shape[-1] if shape else 0
    if support == "correlation":
        right = len(shape) >= 2 and shape[-1] == shape[-2] and size >= 2
        free = (*shape[:-2], size * (size - 1) // 2)
        wanted = "a square matrix"
    elif support in ("simplex", "ordered"):
        right, wanted = size >= 2, "a vector of 2 or more entries"
        free = (*shape[:-1], size - 1) if support == "simplex" else shape
    else:
        return shape
    if not right:
        got = f"shape {shape}" if shape else "a single number"
        advice = "Declare another support, or leave it out."
        raise must_be("combine", f"supports[{parameter!r}]", f"{support!r} only for {wanted}", got, advice)
    return free


def _free_names(block: _Block, names: Sequence[str]) -> list[str]:
    """Say which function of which column a coordinate is, where there is such a function."""
    function = {None: "{}", "positive": "log({})", "unit": "logit({})"}.get(block.support)
    if function is not None:
        return [function.format(names[column]) for column in block.columns]
    indices = (",".join(map(str, index)) for index in np.ndindex(*block.free_shape))
    return [f"free({block.name})[{index}]" for index in indices]


# ------------------------------------------------------------------------------------------
# Draws inside their supports
# ------------------------------------------------------------------------------------------


def _not_inside(block: _Block, wrong: Any, values: Floats, shard: str) -> Exception:
    shown = np.array2string(values[int(np.flatnonzero(wrong)[0])], precision=4).replace("\n", "")
    return must_be(
        "combine",
        f"supports[{block.name!r}]",
        f"what every draw is, {SUPPORTS[str(block.support)]}",
        f"{int(wrong.sum())} of {len(values)} draws outside in {shard}, such as {shown}",
        "Declare another support, or write the draws with more digits where they lie on the edge.",
        DrawsError,
    )
