"""formulaic's evaluation of single factors on some rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from consilience.errors import ModelError, must_be

__all__ = ["Evaluator", "frame_of", "identity", "is_categorical", "unusable", "unwrapped"]

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
