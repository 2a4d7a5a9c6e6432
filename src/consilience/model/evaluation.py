"""formulaic's evaluation of single factors on some rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from consilience.errors import DataError, ModelError, must_be

__all__ = [
    "Evaluator",
    "frame_of",
    "identity",
    "is_categorical",
    "refuse_spoilt_numbers",
    "unusable",
    "unwrapped",
]

# A column of text with this many levels, of which this share are numbers, was meant as numbers.
_MANY_LEVELS = 20
_MOSTLY = 0.9

Columns = dict[str, np.ndarray]


def identity(data: Any) -> Any:
    return data


def frame_of(columns: Columns) -> Any:
    """A pandas frame of data columns, numbers widened so that formulas cannot overflow."""
    import pandas as pd

    series = {}
    for name, value in columns.items():
        array = np.asarray(value)
        if array.ndim != 1:
            step = "Split it into columns with names of their own."
            raise must_be("glm", "formula", "of columns with one number per row", name, step, ModelError)
        if array.dtype.kind == "M":
            step = f"Make numbers of the dates in column {name!r} first, such as days since a start."
            raise must_be("glm", "formula", "free of dates", name, step, ModelError)
        wide = {"f": np.float64, "i": np.int64, "u": np.int64}.get(array.dtype.kind)
        series[name] = pd.Series(array.astype(wide) if wide else array, dtype=None if wide else array.dtype)
    return pd.DataFrame(series, copy=False)


def unusable(formula: str, error: Exception) -> ModelError:
    reason = " ".join(str(error).split())
    step = f"{reason} Check the term against the columns' types."
    return must_be(  # type: ignore[return-value]
        "glm", "formula", "one that can be evaluated on the data", formula, step, ModelError
    )


class Evaluator:
    """formulaic's evaluation of single factors on one frame."""

    def __init__(self, frame: Any, context: dict[str, Any], state: dict[str, Any]) -> None:
        from formulaic import ModelSpec
        from formulaic.materializers import PandasMaterializer

        self.frame = frame
        self.state = state
        self.materializer = PandasMaterializer(frame, context=context)
        self.spec = ModelSpec(formula=[], na_action="ignore", output="numpy")

    def value(self, factor: Any) -> Any:
        """A factor's value, as formulaic's own functions return it."""
        from formulaic.utils.stateful_transforms import stateful_eval

        if factor.eval_method.value == "lookup":
            return self.frame[factor.expr]
        return stateful_eval(factor.expr, self.materializer.layered_context, {}, self.state, self.spec)

    def plain(self, factor: Any) -> np.ndarray:
        """A factor's value as an array with one entry per row."""
        return np.broadcast_to(np.asarray(unwrapped(self.value(factor))), (len(self.frame),))


def unwrapped(value: Any) -> Any:
    return getattr(value, "__wrapped__", value)


def is_categorical(value: Any) -> bool:
    import pandas as pd

    metadata = getattr(value, "__formulaic_metadata__", None)
    if metadata is not None and metadata.kind.value != "unknown":
        return bool(metadata.kind.value == "categorical")
    plain = unwrapped(value)
    if isinstance(plain, pd.Series):
        return plain.dtype in ("object", "str") or isinstance(plain.dtype, pd.CategoricalDtype)
    return isinstance(plain, np.ndarray) and plain.dtype.kind in "OUS"


def refuse_spoilt_numbers(name: str, levels: Collection[Any]) -> None:
    """Refuse text among numbers: one odd entry makes a column of numbers into one of hundreds of groups.

    Examples
    --------
    >>> refuse_spoilt_numbers("income", [*map(str, range(50)), "unknown"])
    Traceback (most recent call last):
        ...
    consilience.errors.DataError: glm: `income` must be numbers in every row, or groups.
    Got 'unknown' besides 50 different numbers. Mend such entries, or write C(income) if these are groups.
    """
    odd = sorted(str(level) for level in levels if not _is_number(level))
    numbers = len(levels) - len(odd)
    if odd and len(levels) > _MANY_LEVELS and numbers >= _MOSTLY * len(levels):
        raise DataError(
            f"glm: `{name}` must be numbers in every row, or groups. Got {odd[0]!r} besides {numbers:,} different "
            f"numbers. Mend such entries, or write C({name}) if these are groups."
        )


def _is_number(level: Any) -> bool:
    try:
        float(level)
    except (TypeError, ValueError):
        return False
    return True
