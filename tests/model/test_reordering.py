"""Products turned round are the same function, with everything else as it was."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from numpy.testing import assert_allclose

from consilience.model.reordering import vectors_first

RNG = np.random.default_rng(0)
X, W = (jnp.asarray(RNG.normal(size=shape), jnp.float32) for shape in ((50, 3), (3, 3)))
BETA = jnp.array([0.3, -0.2, 0.5])


def deep(x, beta):
    """Products inside a jitted function, a custom derivative, a loop and a branch, of tensors and of matrices."""
    inner = jax.jit(lambda b: jax.nn.softplus(x @ b))
    looped = jax.lax.fori_loop(0, 2, lambda i, total: total + x @ beta, jnp.zeros(len(x)))
    chosen = jax.lax.cond(beta[0] > 0, lambda b: x @ b, lambda b: -(x @ b), beta)
    tensor = jnp.stack([x, 2 * x], axis=1) @ beta
    exact = jnp.matmul(x, beta, precision=("high", "highest"))
    return inner(beta) + looped + chosen + tensor.sum(axis=1) + exact + (x @ W) @ beta, {"two": x @ W}


def products(function, *arguments):
    """Shapes of the left operands of all products, those in inner programs of loops and branches left out."""
    steps = jax.make_jaxpr(function)(*arguments).eqns
    return [step.invars[0].aval.shape for step in steps if step.primitive is jax.lax.dot_general_p]


def test_values_and_derivatives_are_the_same():
    turned = vectors_first(deep)
    for first, second in zip(jax.tree.leaves(turned(X, BETA)), jax.tree.leaves(deep(X, BETA)), strict=True):
        assert_allclose(first, second, rtol=1e-5, atol=1e-6)
    slopes, curvatures = (
        [derivative(lambda b, f=f: jnp.sum(f(X, b)[0] ** 2))(BETA) for f in (turned, deep)]
        for derivative in (jax.grad, jax.hessian)
    )
    assert_allclose(*slopes, rtol=1e-4)
    assert_allclose(*curvatures, rtol=1e-4)


def test_every_product_with_a_vector_is_turned_and_no_other():
    assert (50, 3) in products(deep, X, BETA)
    shapes = products(vectors_first(deep), X, BETA)
    assert shapes.count((3,)) == 4
    assert [shape for shape in shapes if len(shape) > 1] == [(50, 3), (50, 3)], "rows times W, twice"
