"""Outcomes: their checks, the coding of two-level ones, and what the default priors need to know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from consilience.errors import DataError, must_be
from consilience.model.families import Family
from consilience.model.moments import Moments

__all__ = ["Outcome", "OutcomePass", "OutcomeSummary", "find_outcome"]


@dataclass(frozen=True)
class Outcome:
    """How the outcome's column becomes numbers; of two `levels` the second is modelled as 1."""

    name: str
    family: Family
    levels: tuple[Any, ...] | None = None

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The outcome as float64."""
        if self.levels is not None:
            unknown = ~np.isin(values, list(self.levels))
            if unknown.any():
                allowed = f"one of {list(self.levels)}"
                raise must_be("glm", self.name, allowed, values[unknown][0], "Mend those rows.", DataError)
            return (values == self.levels[1]).astype(np.float64)
        try:
            return np.asarray(values).astype(np.float64)
        except (TypeError, ValueError) as error:
            step = "Encode the outcome as numbers."
            raise must_be("glm", self.name, self.family.outcomes, values[0], step, DataError) from error


@dataclass(frozen=True)
class OutcomeSummary:
    """Mean and standard deviation of the outcome (of the proportion, for binomial), and the mean offset."""

    mean: float
    sd: float
    offset: float
    count: int


def find_outcome(name: str, family: Family, levels: set[Any] | None) -> Outcome:
    """Decide how the outcome is coded, from the levels met in all rows (None for a column of numbers)."""
    if levels is None:
        return Outcome(name, family)
    ordered = tuple(sorted(levels, key=lambda v: (str(type(v)), v)))
    shown = [v.item() if isinstance(v, np.generic) else v for v in ordered]
    if family.name != "bernoulli":
        step = "Strings are outcomes for family 'bernoulli' only."
        raise must_be("glm", name, family.outcomes, shown[:5], step, DataError)
    if len(ordered) != 2:
        step = "Compare two levels at a time, for example with 'I(y == \"late\") ~ x'."
        raise must_be("glm", name, "of two levels", shown[:5], step, DataError)
    return Outcome(name, family, tuple(shown))


class OutcomePass:
    """One pass over the outcome: counts what the family does not allow, and sums what the priors need."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.bad = 0
        self.example: float | None = None
        self.moments = Moments(1)
        self.successes = self.trials = self.offset = self.weight = 0.0

    def add(
        self,
        y: np.ndarray,
        trials: np.ndarray | None,
        weights: np.ndarray | None,
        offset: np.ndarray | None,
    ) -> None:
        """Take one chunk in."""
        wrong = ~self.outcome.family.allowed(y)
        if trials is not None:
            wrong |= y > trials
        if wrong.any():
            self.bad += int(wrong.sum())
            self.example = float(y[wrong][0]) if self.example is None else self.example
            return
        w = np.ones(len(y)) if weights is None else weights
        self.moments.add(y[:, None], w)
        self.weight += float(w.sum())
        self.offset += 0.0 if offset is None else float(w @ offset)
        if trials is not None:
            self.successes += float(w @ y)
            self.trials += float(w @ trials)

    def close(self) -> OutcomeSummary:
        """Refuse what cannot be modelled, else say what was found."""
        name, family = self.outcome.name, self.outcome.family
        if self.bad:
            step = (
                f"{self.bad} row(s) are outside family {family.name!r}; mend them or choose another family."
            )
            raise must_be("glm", name, family.outcomes, self.example, step, DataError)
        if self.weight <= 0:
            raise DataError("glm: the weights sum to zero. At least one row must have a positive weight.")
        mean, sd = float(self.moments.mean[0]), float(self.moments.sd[0])
        if family.name == "binomial":
            mean = self.successes / self.trials if self.trials else 0.0
            constant = mean in (0.0, 1.0)
        else:
            constant = bool(self.moments.constant[0])
        if constant:
            value = float(self.moments.low[0]) if family.name != "binomial" else mean
            step = "An outcome that never changes says nothing about the predictors; check the column."
            raise must_be("glm", name, "different in some rows", value, step, DataError)
        return OutcomeSummary(mean, sd, self.offset / self.weight, self.moments.count)
