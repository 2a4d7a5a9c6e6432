"""The exception tree: what the caller did wrong (exit code 2), and what went wrong while running (exit code 1)."""

from __future__ import annotations

from typing import Any


class ConsilienceError(Exception):
    """Any error that this package raises on purpose."""


class InputError(ConsilienceError, ValueError):
    """Wrong usage or input, found before any work starts."""


class ModelError(InputError):
    """A model, formula, family or prior that cannot be used."""


class DataError(InputError):
    """Rows that cannot be used, or a partition that does not fit them."""


class DrawsError(InputError):
    """Draws that cannot be combined or compared."""


class StoreError(InputError):
    """A run directory that does not fit the command, or cannot be written."""


class RunError(ConsilienceError, RuntimeError):
    """Something failed after work had started."""


class ShardError(RunError):
    """A shard could not be finished; the message names its index and source."""


class ConsilienceWarning(UserWarning):
    """A result that needs the reader's caution."""


class ConvergenceWarning(ConsilienceWarning):
    """Chains that had not converged when they were stopped."""


def must_be(
    what: str,
    parameter: str,
    constraint: str,
    value: Any,
    next_step: str,
    error: type[ConsilienceError] = InputError,
) -> ConsilienceError:
    """Build an error of the one form that all messages have.

    Examples
    --------
    >>> print(must_be("combine", "kind", "'subposterior' or 'inflated'", None, "Say which target was sampled."))
    combine: `kind` must be 'subposterior' or 'inflated'. Got None. Say which target was sampled.
    """
    shown = repr(value)
    if len(shown) > 200:
        shown = shown[:197] + "..."
    return error(f"{what}: `{parameter}` must be {constraint}. Got {shown}. {next_step}")
