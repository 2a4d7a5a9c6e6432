"""The design matrix of a formula, the same for every shard.

Whatever a formula must know about all rows (levels, means, knots, and with them the columns' names and
order) is found while the rows stream by; afterwards `Design.build` turns any chunk into the same columns, a
missing level into a column of zeros. formulaic does the encoding: it is shown the found transform state and
a small frame that holds each level once.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import DataError, ModelError, must_be
from consilience.model.evaluation import (
    Evaluator,
    frame_of,
    identity,
    is_categorical,
    refuse_spoilt_numbers,
    unusable,
    unwrapped,
)
from consilience.model.formula import ParsedFormula
from consilience.model.transforms import NotReady, Recorder, fixed_context

__all__ = ["Design", "Evaluated", "find_design"]

Columns = dict[str, np.ndarray]
Scan = Callable[[Sequence[str] | None], Iterator[Columns]]

_MAX_LEVELS = 2_000
_MAX_PASSES = 200
_SLICE = 65_536
_PROBE = 200


@dataclass(frozen=True)
class Evaluated:
    """One slice of rows: the raw design, the outcome as it stands in the data, the formula's offset."""

    matrix: np.ndarray
    outcome: np.ndarray
    offset: np.ndarray | None


@dataclass(frozen=True)
class Design:
    """A formula with everything it had to know about all rows."""

    formula: ParsedFormula
    spec: Any
    outcome_levels: set[Any] | None = None  # of an outcome that is not a number

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, as formulaic writes them."""
        return tuple(str(name) for name in self.spec.column_names)

    @property
    def intercept(self) -> int | None:
        """Position of the constant column."""
        for index, row in enumerate(self.spec.structure):
            if row.term.degree == 0 and "Intercept" in row.columns:
                return int(sum(len(r.columns) for r in self.spec.structure[:index]))
        return None

    def slices(self, columns: Columns) -> Iterator[tuple[slice, Evaluated]]:
        """Build in slices, so that no more than one wide slice of floats is held."""
        total = len(next(iter(columns.values())))
        for begin in range(0, total, _SLICE):
            part = slice(begin, min(begin + _SLICE, total))
            yield part, self.build({name: value[part] for name, value in columns.items()})

    def build(self, columns: Columns) -> Evaluated:
        """Evaluate the formula on some rows."""
        from formulaic.errors import DataMismatchWarning

        frame = frame_of(columns)
        evaluator = Evaluator(frame, {**fixed_context(), "offset": identity}, self.spec.transform_state)
        with warnings.catch_warnings():
            # NumPy's warnings about logs and divisions: the check below names the term instead.
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.simplefilter("error", DataMismatchWarning)
            try:
                matrix = evaluator.materializer.get_model_matrix(self.spec)
            except (ModelError, DataError):
                raise
            except DataMismatchWarning as warning:
                raise DataError(
                    f"glm: {warning} Name every level in the formula, or drop those rows."
                ) from warning
            except Exception as error:
                raise unusable(self.formula.text, error) from error
            outcome = evaluator.plain(self.formula.outcome)
            offsets = [np.asarray(evaluator.plain(f), dtype=np.float64) for f in self.formula.offsets]
        values = _as_float(np.asarray(matrix), self.formula.text).reshape(len(frame), len(self.names))
        bad = np.flatnonzero(~np.isfinite(values).all(axis=0))
        if bad.size:
            rows = int((~np.isfinite(values[:, bad[0]])).sum())
            raise DataError(
                f"glm: the term `{self.names[bad[0]]}` is not a finite number in {rows:,} "
                f"of {len(frame):,} rows looked at. "
                "Look for the log, root or quotient of an impossible value, or drop those rows."
            )
        return Evaluated(values, outcome, _offset_sum(offsets))


def _offset_sum(offsets: list[np.ndarray]) -> np.ndarray | None:
    if not offsets:
        return None
    total: np.ndarray = np.sum(offsets, axis=0)
    if not np.isfinite(total).all():
        bad = int((~np.isfinite(total)).sum())
        raise DataError(
            f"glm: offset() is not a finite number in {bad} row(s). Drop them or mend the offset."
        )
    return total


def _as_float(values: np.ndarray, formula: str) -> np.ndarray:
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise unusable(formula, error) from error


def find_design(formula: ParsedFormula, scan: Scan, columns: Sequence[str]) -> Design:
    """Find levels and transform state over all rows, in as many passes as nested transforms ask for."""
    search = _Search(formula)
    for _ in range(_MAX_PASSES):
        search.one_pass(scan(columns))
        if not search.pending:
            break
    design = search.close()
    _check_row_by_row(design, search.probe)
    return design


class _Search:
    """What is known so far about a formula's factors."""

    def __init__(self, formula: ParsedFormula) -> None:
        self.formula = formula
        self.recorder = Recorder()
        self.state: dict[str, Any] = {}
        factors = [factor for factor in formula.factors if factor.eval_method.value != "literal"]
        self.pending = {factor.expr: factor for factor in factors}
        self.levels: dict[str, set[Any]] = {}
        self.examples: list[Columns] = []
        self.probe: Columns = {}

    def one_pass(self, chunks: Iterator[Columns]) -> None:
        """Feed every chunk to what is still unknown; a factor that could be evaluated throughout is done."""
        ready = dict(self.pending)
        rows = 0
        for chunk in chunks:
            frame = frame_of(chunk)
            rows += len(frame)
            if len(frame) == 0:
                continue
            if not self.probe:
                self.probe = {name: value[:_PROBE] for name, value in chunk.items()}
                self.examples.append({name: value[:2] for name, value in chunk.items()})
            self.recorder.new_chunk()
            context = {**self.recorder.context, "offset": identity}
            evaluator = Evaluator(frame, context, self.state)
            for name, factor in self.pending.items():
                if not self._try(evaluator, factor, chunk):
                    ready.pop(name, None)
        if rows == 0:
            raise DataError("glm: the data have no rows. Check the path or the filter that made them.")
        self.recorder.end_pass()
        self.pending = {
            name: factor
            for name, factor in self.pending.items()
            if name not in ready and not self._needs_no_levels(factor)
        }

    def _needs_no_levels(self, factor: Any) -> bool:
        """Whether a factor's state is complete and it is a number: then another pass would find nothing."""
        self.recorder.listening = False
        context = {**self.recorder.context, "offset": identity}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                return not is_categorical(Evaluator(frame_of(self.probe), context, self.state).value(factor))
        except NotReady:
            return False
        finally:
            self.recorder.listening = True

    def _try(self, evaluator: Evaluator, factor: Any, chunk: Columns) -> bool:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                value = evaluator.value(factor)
        except NotReady:
            return False
        except (ModelError, DataError):
            raise
        except Exception as error:
            raise unusable(self.formula.text, error) from error
        if is_categorical(value):
            self._note_levels(factor.expr, np.asarray(unwrapped(value)), chunk)
        return True

    def _note_levels(self, name: str, values: np.ndarray, chunk: Columns) -> None:
        """Keep one full row for each level not met before."""
        import pandas as pd

        known = self.levels.setdefault(name, set())
        codes, levels = pd.factorize(values)
        new = [i for i, level in enumerate(levels) if level not in known]
        if not new:
            return
        known.update(levels[i] for i in new)
        if len(known) > _MAX_LEVELS:
            raise DataError(
                f"glm: `{name}` has more than {_MAX_LEVELS} levels. "
                "Use it as a number, merge rare levels, or leave it out."
            )
        first = np.full(len(levels), -1)
        first[codes[codes >= 0][::-1]] = np.flatnonzero(codes >= 0)[::-1]
        rows = first[new]
        self.examples.append({column: value[rows] for column, value in chunk.items()})

    def close(self) -> Design:
        """Let formulaic lay the columns out on a frame that holds every level."""
        for name, levels in self.levels.items():
            if name in self.formula.columns:  # C(name) says that they are groups
                refuse_spoilt_numbers(name, levels)
        from formulaic import ModelSpec
        from formulaic.errors import DataMismatchWarning

        names = list(self.examples[0])
        together = {name: np.concatenate([part[name] for part in self.examples]) for name in names}
        evaluator = Evaluator(frame_of(together), {**fixed_context(), "offset": identity}, self.state)
        spec = ModelSpec(
            formula=self.formula.terms, na_action="ignore", output="numpy", transform_state=self.state
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.simplefilter("error", DataMismatchWarning)
            try:
                matrix = evaluator.materializer.get_model_matrix(spec)
            except (ModelError, DataError):
                raise
            except DataMismatchWarning as warning:
                raise DataError(
                    f"glm: {warning} Name every level in the formula, or drop those rows."
                ) from warning
            except Exception as error:
                raise unusable(self.formula.text, error) from error
        design = Design(self.formula, matrix.model_spec, self.levels.get(self.formula.outcome.expr))
        if not design.names:
            step = "A factor with a single level gives no column; leave it out."
            raise must_be("glm", "formula", "one that gives columns", self.formula.text, step, ModelError)
        return design


def _check_row_by_row(design: Design, probe: Columns) -> None:
    """Refuse terms such as `x - np.mean(x)`, which would differ from shard to shard without a word."""
    total = len(next(iter(probe.values())))
    if total < 4:
        return
    whole = design.build(probe)
    part = design.build({name: value[total // 2 :][::-1] for name, value in probe.items()})
    expected = whole.matrix[total // 2 :][::-1]
    scale = np.abs(expected).max(axis=0) + 1e-300
    differs = np.flatnonzero((np.abs(part.matrix - expected) > 1e-9 * scale).any(axis=0))
    names = [design.names[i] for i in differs]
    if not _same(whole.outcome[total // 2 :][::-1], part.outcome):
        names.append(design.formula.outcome.expr)
    offsets = whole.offset, part.offset
    if (
        offsets[0] is not None
        and offsets[1] is not None
        and not _same(offsets[0][total // 2 :][::-1], offsets[1])
    ):
        names.append("offset()")
    if names:
        raise must_be(
            "glm",
            "formula",
            "computed row by row",
            names[0],
            "It depends on which rows are together; use center(), scale() or another stateful transform.",
            ModelError,
        )


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    if left.dtype.kind in "fiub":
        return bool(np.allclose(left.astype(float), right.astype(float), rtol=1e-9, atol=0.0, equal_nan=True))
    return bool(np.all(left == right))
