"""Generalised linear models from a formula.

Row i has the linear predictor eta_i = x_i' beta + offset_i and an outcome of the family with mean
link^-1(eta_i). Columns of the design are standardised inside (centred when there is an intercept, divided
by their standard deviation over all rows), so that float32 keeps its digits and samplers a round posterior;
users see raw coefficients. Reference: McCullagh & Nelder (1989), chapter 2.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from consilience.errors import DataError, ModelError, must_be
from consilience.model.design import Design, Evaluated, find_design
from consilience.model.families import Family, get_family, get_link
from consilience.model.fingerprints import json_fingerprint, plain_content, program_fingerprint
from consilience.model.formula import check_columns, parse_formula
from consilience.model.merging import merge_identical_rows
from consilience.model.model import Model, prior_text
from consilience.model.moments import Moments, check_full_rank
from consilience.model.outcome import Outcome, OutcomePass, OutcomeSummary, find_outcome
from consilience.model.priors import (
    CoefficientSpace,
    Standardisation,
    check_prior_argument,
    default_prior,
    given_priors,
)

__all__ = ["GLM", "glm"]

Columns = dict[str, np.ndarray]
Scan = Callable[[Sequence[str] | None], Iterator[Columns]]


def glm(
    formula: str,
    family: str = "gaussian",
    prior: Any = None,
    link: str | None = None,
    trials: str | None = None,
    weights: str | None = None,
    offset: str | None = None,
) -> GLM:
    """Describe a generalised linear model; what it must know about the data is found when it is fitted.

    Parameters
    ----------
    formula : str
        Such as ``"late ~ distance + C(carrier) + bs(hour, df=5) + offset(log(exposure))"``, in formulaic's
        grammar.
    family : str
        gaussian, bernoulli, binomial, poisson, negative-binomial, gamma or student-t.
    prior : numpyro Distribution or dict, optional
        One distribution for every raw coefficient (the intercept too, at zero of the predictors), or a dict
        by coefficient name, where sigma, dispersion, shape and degrees_of_freedom may be named as well.
        Weakly informative when left out.
    link : str, optional
        The family's usual one when left out.
    trials : str, optional
        For binomial: the column with the numbers of trials; the outcome counts successes.
    weights, offset : str, optional
        Columns with row weights, and with a known part of the linear predictor.

    Examples
    --------
    >>> import numpy as np
    >>> data = {"y": np.array([0, 1, 1, 0, 1]), "x": np.array([0.1, 2.0, 1.5, 0.3, -1.0])}
    >>> model = glm("y ~ x", family="bernoulli").prepare(lambda columns: iter([data]))
    >>> model.space.names
    ('Intercept', 'x')
    >>> model.rows(data)["X"].shape
    (5, 2)
    """
    found = get_family(family)
    if (trials is not None) != (found.name == "binomial"):
        step = "Give trials= the column with the numbers of trials, for family 'binomial' only."
        raise must_be("glm", "trials", "given for family 'binomial' and no other", trials, step, ModelError)
    for name, column in {"trials": trials, "weights": weights, "offset": offset}.items():
        if column is not None and not isinstance(column, str):
            step = "Put the numbers into the data and give the column's name."
            raise must_be("glm", name, "the name of a column", column, step, ModelError)
    return GLM(
        formula, found, get_link(found, link), check_prior_argument(prior, found), trials, weights, offset
    )


@dataclass(frozen=True)
class _Ready:
    """What `prepare` found over all rows."""

    design: Design
    outcome: Outcome
    standardisation: Standardisation
    summary: OutcomeSummary
    space: CoefficientSpace


class GLM(Model):
    """A generalised linear model; make one with `glm`."""

    def __init__(
        self,
        formula: str,
        family: Family,
        link: str,
        prior: Any,
        trials: str | None,
        weights: str | None,
        offset: str | None,
    ) -> None:
        self.formula = parse_formula(formula)
        self.family, self.link = family, link
        self.prior = prior
        self.trials, self.weights, self.offset = trials, weights, offset
        others = [name for name in (trials, weights, offset) if name is not None]
        self._columns = tuple(sorted({*self.formula.columns, *others}))
        self._ready: _Ready | None = None

    @property
    def ready(self) -> _Ready:
        """What was found over all rows; an error before `prepare`."""
        if self._ready is None:
            raise ModelError(
                "glm: the model has not seen the data yet. Use what `model.prepare(source.scan)` returns."
            )
        return self._ready

    @property
    def space(self) -> CoefficientSpace:
        """The coefficients and extra parameters."""
        return self.ready.space

    @property
    def outcome_column(self) -> str | None:
        """The outcome's column when the outcome is just a column; what a stratified partition looks at."""
        factor = self.formula.outcome
        return str(factor.expr) if factor.eval_method.value == "lookup" else None

    def prepare(self, scan: Scan) -> GLM:
        """Find levels, means, knots and standardisation over all rows; the model itself is left as it is."""
        assert self._columns is not None
        first = next(iter(scan(None)), None)
        if first is None:
            raise DataError("glm: the data have no rows. Check the path or the filter that made them.")
        check_columns(self.formula.columns, first)
        for name, column in {"trials": self.trials, "weights": self.weights, "offset": self.offset}.items():
            check_columns([] if column is None else [column], first, name)
        design = find_design(self.formula, scan, self._columns)
        outcome = find_outcome(self.formula.outcome.expr, self.family, design.outcome_levels)
        clash = set(design.names) & set(self.family.extra)
        if clash:
            step = "Rename that column of the data: the family has a parameter of this name."
            raise must_be("glm", "formula", "free of reserved names", sorted(clash)[0], step, ModelError)
        moments, summary = self._second_pass(scan, design, outcome)
        standardisation = self._standardisation(design, moments, summary)
        default = default_prior(self.family, self.link, standardisation, summary)
        given = given_priors(self.prior, design.names, self.family.extra)
        prepared = copy.copy(self)
        space = CoefficientSpace(standardisation, default, given)
        prepared._ready = _Ready(design, outcome, standardisation, summary, space)
        return prepared

    def _second_pass(self, scan: Scan, design: Design, outcome: Outcome) -> tuple[Moments, OutcomeSummary]:
        """Moments of the design and of the outcome, and every check that needs all rows."""
        moments, outcomes = Moments(len(design.names)), OutcomePass(outcome)
        for chunk in scan(self._columns):
            for part, evaluated in design.slices(chunk):
                weights, trials = self._column(chunk, "weights", part), self._column(chunk, "trials", part)
                y, offset = outcome.encode(evaluated.outcome), self._offset(chunk, part, evaluated)
                moments.add(evaluated.matrix, weights)
                outcomes.add(y, trials, weights, offset)
        summary = outcomes.close()
        check_full_rank(moments, design.names, design.intercept)
        return moments, summary

    def _standardisation(self, design: Design, moments: Moments, summary: OutcomeSummary) -> Standardisation:
        intercept = design.intercept
        sds = np.where(moments.constant, np.maximum(np.abs(moments.mean), 1e-300), moments.sd)
        means = moments.mean.copy() if intercept is not None else np.zeros_like(moments.mean)
        if intercept is not None:
            means[intercept], sds[intercept] = 0.0, 1.0
        linear = self.link == "identity" and self.family.name in ("gaussian", "student-t")
        shift = summary.mean if linear and intercept is not None else 0.0
        return Standardisation(design.names, intercept, means, sds, shift)

    def rows(self, columns: Columns) -> dict[str, np.ndarray]:
        """The standardised design, outcome and the rest for some rows, in float32."""
        ready = self.ready
        total = len(next(iter(columns.values())))
        rows = {
            "X": np.empty((total, len(ready.design.names)), dtype=np.float32),
            "y": np.empty(total, dtype=np.float32),
        }
        for part, evaluated in ready.design.slices(columns):
            y = ready.outcome.encode(evaluated.outcome)
            trials = self._column(columns, "trials", part)
            constant = None if self.family.constant is None else self.family.constant(y, trials)
            pieces = {
                "X": ready.standardisation.standardise(evaluated.matrix),
                "y": y - ready.standardisation.shift,
                "trials": trials,
                "offset": self._offset(columns, part, evaluated),
                "row_weight": self._column(columns, "weights", part),
                "constant": constant,
            }
            for name, piece in pieces.items():
                if piece is not None:
                    rows.setdefault(name, np.empty(total, dtype=np.float32))[part] = piece
        return rows

    def _column(self, columns: Columns, role: str, part: slice) -> np.ndarray | None:
        """The trials or weights of some rows, checked."""
        name = getattr(self, role)
        if name is None:
            return None
        values = _numbers(columns[name][part], name)
        bad = (values < 0) | ~np.isfinite(values)
        if role == "trials":
            bad |= values != np.floor(values)
        if bad.any():
            kind = "whole numbers from 0 up" if role == "trials" else "finite numbers from 0 up"
            step = f"{int(bad.sum())} row(s) of these are not; mend or drop them."
            raise must_be("glm", name, kind, float(values[bad][0]), step, DataError)
        return values

    def _offset(self, columns: Columns, part: slice, evaluated: Evaluated) -> np.ndarray | None:
        if self.offset is None:
            return evaluated.offset
        values = _numbers(columns[self.offset][part], self.offset)
        if not np.isfinite(values).all():
            bad = values[~np.isfinite(values)]
            step = f"{bad.size} row(s) are not; mend or drop them."
            raise must_be("glm", self.offset, "finite numbers", float(bad[0]), step, DataError)
        return values if evaluated.offset is None else values + evaluated.offset

    def log_likelihood(self, params: dict[str, Any], rows: dict[str, Any]) -> Any:
        """Log-likelihood of every row, without row weights."""
        # Coefficients first, for the reason that `reordering` gives.
        eta = jnp.matmul(params["coefficients"], rows["X"].T, precision=jax.lax.Precision.HIGHEST)
        if "offset" in rows:
            eta = eta + rows["offset"]
        value = self.family.log_likelihood(self.link, eta, rows, params)
        return value + rows["constant"] if "constant" in rows else value

    def compress(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Merge identical rows into weighted ones when that at least halves their number; exact."""
        return merge_identical_rows(rows)

    @property
    def notes(self) -> list[str]:
        """Sentences worth a reader's attention."""
        if self._ready is None:
            return []
        notes = []
        levels = self.ready.outcome.levels
        if levels is not None:
            notes.append(f"Modelled is the probability that {self.ready.outcome.name} is {levels[1]!r}.")
        priors = "; ".join(f"{name} ~ {text}" for name, text in list(self.space.prior_texts().items())[:40])
        notes.append(f"Priors on the raw scale: {priors}.")
        return notes

    def fingerprint(self, rows: Mapping[str, np.ndarray] | None = None) -> str:
        """Hash of the formula, family and priors and, when prepared, of everything found over all rows."""
        content: dict[str, Any] = {"description": self.describe()}
        if self._ready is not None:
            spec, standard = self.ready.design.spec, self.ready.standardisation
            point = jax.ShapeDtypeStruct((self.space.dimension,), np.dtype(np.float32))
            content["prior"] = program_fingerprint(self.space.log_prior, point)
            content["state"] = plain_content(spec.transform_state)
            levels = {name: state[1].get("categories") for name, state in spec.encoder_state.items()}
            content["levels"] = plain_content(levels)
            content["scale"] = plain_content([standard.means, standard.sds, standard.shift])
        return json_fingerprint(content)

    def describe(self) -> dict[str, Any]:
        """What the model is, in JSON-able form, with every prior in words."""
        described: dict[str, Any] = {
            "model": "glm",
            "formula": self.formula.text,
            "family": self.family.name,
            "link": self.link,
            "trials": self.trials,
            "weights": self.weights,
            "offset": self.offset,
            "columns": list(self._columns or ()),
        }
        if self._ready is None:
            given = self.prior if isinstance(self.prior, dict) else {"every coefficient": self.prior}
            described["prior"] = {name: prior_text(prior) for name, prior in given.items()}
            return described
        described["prior"] = self.space.prior_texts()
        described["coefficients"] = list(self.ready.design.names)
        described["levels"] = plain_content(self.ready.outcome.levels)
        described["num_rows"] = self.ready.summary.count
        return described


def _numbers(values: np.ndarray, name: str) -> np.ndarray:
    try:
        return np.asarray(values).astype(np.float64)
    except (TypeError, ValueError) as error:
        step = "Give a column of numbers."
        raise must_be("glm", name, "numbers", values[0], step, DataError) from error
