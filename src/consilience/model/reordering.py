"""Products of rows and coefficients, `x @ beta`, carried out as `beta @ x.T`.

The two are equal, but not to a machine. For several chains or points at once the first comes out as (rows,
chains), and its gradient as a product of matrices that XLA hands to a library which cuts the sum over rows among
the threads that there are: the bits then depend on their number, and a worker that is allowed one thread gives
other draws than a process that is allowed four. The second comes out as (chains, rows), has no such product in
its gradient, and takes two thirds of the time on a CPU, because every chain's numbers lie together.

So that nobody has to know this, a log-likelihood is traced and its products of a matrix and a vector are turned
round. Products of two matrices stay as they are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import Literal

INLINED = ("jit", "pjit", "closed_call")


def vectors_first(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, with `matrix @ vector` carried out as `vector @ matrix.T`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> turned = vectors_first(lambda x, beta: {"eta": x @ beta})
    >>> turned(jnp.eye(2), jnp.array([3.0, 4.0]))["eta"].tolist()
    [3.0, 4.0]
    >>> several = jax.make_jaxpr(jax.vmap(turned, in_axes=(None, 0)))(jnp.ones((7, 2)), jnp.ones((4, 2)))
    >>> several.eqns[0].outvars[0].aval.shape
    (4, 7)
    """

    @functools.wraps(function)
    def turned(*arguments: Any) -> Any:
        program, shape = jax.make_jaxpr(function, return_shape=True)(*arguments)
        values = _evaluate(program.jaxpr, program.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shape), values)

    return turned


def _evaluate(program: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    """Carry out a traced program, step by step, as its tracer would have."""
    values = dict(zip(program.constvars, constants, strict=True))
    values.update(zip(program.invars, arguments, strict=True))

    def known(variable: Any) -> Any:
        return variable.val if isinstance(variable, Literal) else values[variable]

    for step in program.eqns:
        given = [known(variable) for variable in step.invars]
        inner = step.params.get("jaxpr") if step.primitive.name in INLINED else None
        if inner is not None:
            found = _evaluate(inner.jaxpr, inner.consts, given)
        elif step.primitive is jax.lax.dot_general_p and _matrix_by_vector(step):
            found = [_turned_round(step, *given)]
        else:
            bound = step.primitive.get_bind_params(step.params)
            # Older releases of JAX give functions within a step apart from its other parameters.
            functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
            answer = step.primitive.bind(*functions, *given, **parameters)
            found = list(answer) if step.primitive.multiple_results else [answer]
        values.update(zip(step.outvars, found, strict=True))
    return [known(variable) for variable in program.outvars]


def _matrix_by_vector(step: Any) -> bool:
    left, right = (variable.aval for variable in step.invars)
    return left.ndim > 1 and right.ndim == 1


def _turned_round(step: Any, matrix: Any, vector: Any) -> Any:
    """The product with its operands exchanged; a vector leaves no axis of its own, so the result is the same."""
    (left, right), batch = step.params["dimension_numbers"]
    precision = step.params["precision"]
    if isinstance(precision, tuple):
        precision = precision[::-1]
    return jax.lax.dot_general(
        vector,
        matrix,
        ((right, left), batch),
        precision=precision,
        preferred_element_type=step.params["preferred_element_type"],
    )
