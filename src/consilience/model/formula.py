"""What a formula says: its outcome, its terms, its offsets, and the data columns it needs.

formulaic parses; this file finds the columns (also those inside stateful transforms and `Q(...)`), takes
`offset(...)` terms out, and turns whatever cannot be used into one clear sentence.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from consilience.errors import ModelError, must_be

__all__ = ["ParsedFormula", "check_columns", "parse_formula"]

_EXAMPLE = "Write for example 'y ~ x + C(group)'."
_COLOURS = re.compile(r"\x1b\[[0-9;]*m|⧛\[?[0-9;]*m?|⧚")
_NAMESPACES = {"np", "contr", "Treatment", "Poly", "Sum", "Helmert", "Diff"}
_NOT_BY_ROW = {"lag": "Make the lagged column before, in the data."}


@dataclass(frozen=True)
class ParsedFormula:
    """A parsed formula; factors and terms are formulaic's."""

    text: str
    outcome: Any
    terms: Any
    offsets: tuple[Any, ...]
    columns: tuple[str, ...]

    @property
    def factors(self) -> list[Any]:
        """Every factor once, outcome and offsets included."""
        found = {factor.expr: factor for term in self.terms for factor in term.factors}
        found.update({factor.expr: factor for factor in (self.outcome, *self.offsets)})
        return list(found.values())


def parse_formula(text: Any) -> ParsedFormula:
    """Parse a formula.

    Examples
    --------
    >>> parse_formula("y ~ bs(x, df=4) + C(g):z + offset(log(e))").columns
    ('e', 'g', 'x', 'y', 'z')
    """
    from formulaic import Formula, SimpleFormula
    from formulaic.errors import FormulaicError

    if not isinstance(text, str) or not text.strip():
        raise must_be("glm", "formula", "text such as 'y ~ a + b'", text, _EXAMPLE, ModelError)
    try:
        parsed = Formula(text)
    except (FormulaicError, SyntaxError, ValueError) as error:
        if "`.` operator" in str(error):
            constraint, why = "written with the columns' names, without '.'", "List the columns."
        else:
            reason = " ".join(_COLOURS.sub("", str(error)).replace(text, "").split())
            constraint, why = "a formula that parses", f"{reason} {_EXAMPLE}".strip()
        raise must_be("glm", "formula", constraint, text, why, ModelError) from error
    outcome = _outcome(text, getattr(parsed, "lhs", None) if hasattr(parsed, "lhs") else None)
    if not isinstance(parsed.rhs, SimpleFormula):
        raise must_be("glm", "formula", "of one part on the right of '~'", text, _EXAMPLE, ModelError)
    offsets = tuple(t.factors[0] for t in parsed.rhs if len(t.factors) == 1 and _is_offset(t.factors[0]))
    kept = [t for t in parsed.rhs if not (len(t.factors) == 1 and _is_offset(t.factors[0]))]
    if any(_is_offset(factor) for term in kept for factor in term.factors):
        raise must_be(
            "glm",
            "formula",
            "free of interactions with offset()",
            text,
            "Add offset() as a term.",
            ModelError,
        )
    if not kept:
        raise must_be("glm", "formula", "with at least one term", text, "Add a predictor or '1'.", ModelError)
    factors = [factor for term in kept for factor in term.factors]
    columns = {name for factor in (outcome, *offsets, *factors) for name in _factor_columns(text, factor)}
    return ParsedFormula(text, outcome, SimpleFormula(kept), offsets, tuple(sorted(columns)))


def check_columns(needed: Iterable[str], available: Iterable[str], what: str = "formula") -> None:
    """Refuse names that the data do not have, with the nearest ones they do.

    Examples
    --------
    >>> check_columns(["y", "x"], ["x", "y", "z"])
    """
    have = [str(name) for name in available]
    for name in sorted(set(needed) - set(have)):
        close = difflib.get_close_matches(name, have, n=3)
        step = (
            f"Did you mean {' or '.join(map(repr, close))}?" if close else f"The data have {_listed(have)}."
        )
        raise must_be("glm", what, "made of columns that the data have", name, step, ModelError)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:12])
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"


def _outcome(text: str, left: Any) -> Any:
    terms = [] if left is None else list(left) if not isinstance(left, tuple) else []
    if len(terms) != 1 or len(terms[0].factors) != 1:
        raise must_be(
            "glm",
            "formula",
            "with one outcome on the left of '~'",
            text,
            "Write 'y ~ x'; for counts of successes give trials= the column of trials.",
            ModelError,
        )
    return terms[0].factors[0]


def _is_offset(factor: Any) -> bool:
    return factor.eval_method.value == "python" and factor.expr.replace(" ", "").startswith("offset(")


def _factor_columns(text: str, factor: Any) -> set[str]:
    """The data columns that a factor reads."""
    if factor.eval_method.value == "literal":
        return set()
    if factor.eval_method.value == "lookup":
        return {factor.expr}
    from formulaic.transforms import TRANSFORMS
    from formulaic.utils.code import sanitize_variable_names

    aliases: dict[str, str] = {}
    try:
        tree = ast.parse(sanitize_variable_names(factor.expr, {}, aliases), mode="eval")
    except SyntaxError as error:
        step = f"`{factor.expr}` is not an expression. {_EXAMPLE}"
        raise must_be("glm", "formula", "a formula that parses", text, step, ModelError) from error
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    functions = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    known = {*TRANSFORMS, *dir(builtins), "offset"}
    for name in sorted(functions):
        if name in _NOT_BY_ROW:
            step = _NOT_BY_ROW[name]
            raise must_be("glm", "formula", "computed row by row", f"{name}()", step, ModelError)
        if name not in known:
            close = difflib.get_close_matches(name, sorted(TRANSFORMS), n=1)
            step = (
                f"Did you mean {close[0]!r}?"
                if close
                else "See the functions of formulaic, or use np.<name>."
            )
            raise must_be("glm", "formula", "made of functions that exist", f"{name}()", step, ModelError)
    called = {id(call.func) for call in calls}
    words = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    local = {node.id for node in words if isinstance(node.ctx, ast.Store)}
    values = {node.id for node in words if id(node) not in called}
    names = {aliases.get(n, n) for n in values - local - _NAMESPACES if n not in dir(builtins)}
    return names | _quoted_columns(tree)


def _quoted_columns(tree: ast.AST) -> set[str]:
    """Columns that are named as text, in `Q('odd name')`."""
    return {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Q"
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    }
