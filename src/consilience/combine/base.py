"""What a combination rule is, what it returns, and the small things that several rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from consilience.draws import Subposteriors
from consilience.errors import InputError, must_be

Floats = NDArray[np.float64]

Kind = Literal["subposterior", "inflated", "any"]
Need = Literal["draws", "log densities", "pass-back", "targets"]
# The maps x -> T x + c that a rule commutes with, with its default options: every invertible T, or only
# similarities (rotation, one scale), or only diagonal ones.
Equivariance = Literal["affine", "similarity", "diagonal"]


@dataclass(frozen=True, eq=False)
class Combined:
    """What a rule returns, in the coordinates of the draws that it was given.

    Attributes
    ----------
    array : (N, d) draws of the posterior
    log_weights : (N,) unnormalised, or None when all draws count the same
    effective_sizes : (d,) independent draws that the posterior means are worth, found from the Monte Carlo
        covariance of the rule's own mean, because after a permutation the order of draws says nothing
    chain_lengths : lengths of the chains that the array still consists of, or None
    names : names of the columns where they are functions of the parameters, or None where they are the
        coordinates that were combined
    notes : what a reader may want to know
    warnings : what a reader has to know
    """

    array: Floats
    log_weights: Floats | None = None
    effective_sizes: Floats | None = None
    chain_lengths: tuple[int, ...] | None = None
    names: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Combiner(Protocol):
    """A frozen dataclass of options with these class variables and two methods."""

    name: ClassVar[str]
    reference: ClassVar[str]
    kind: ClassVar[Kind]
    needs: ClassVar[tuple[Need, ...]]
    exact_for_gaussian: ClassVar[bool]
    joint: ClassVar[bool]
    equivariance: ClassVar[Equivariance]

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        """Combine draws of the shards into draws of the posterior."""

    def draws_per_shard(self, total: int, num_shards: int) -> int:
        """How many draws every shard must bring so that `total` combined ones come out."""


def require_choice(rule: str, option: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value of an option that is not among its choices."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise must_be(rule, option, f"one of {listed}", value, "Choose one of them.", error=InputError)


def require_targets(rule: Combiner) -> None:
    """Refuse a rule that needs the shards' densities and was not given them."""
    if "targets" not in rule.needs or getattr(rule, "targets", None) is not None:
        return
    raise must_be(
        rule.name,
        "targets",
        "the density that each shard sampled",
        None,
        "Declare one per shard as the rule's page says, or use a rule that needs draws only.",
        error=InputError,
    )


def shared_out(total: int, num_shards: int) -> int:
    """Draws per shard when every shard's draws are kept: total / B, rounded up."""
    return -(-total // num_shards)


def stacked_chain_lengths(subposteriors: Subposteriors) -> tuple[int, ...]:
    """Chains of the combined draws when the shards' draws are laid one after the other."""
    return tuple(length for lengths in subposteriors.chain_lengths for length in lengths)


def mixture_log_weights(subposteriors: Subposteriors) -> Floats | None:
    """Log weights under which the stacked draws are a mixture of the shards with shares w_b.

    Each draw of shard b weighs w_b / J_b; None when that is the same for all of them.
    """
    sizes = np.array(subposteriors.num_draws)
    each = np.log(np.asarray(subposteriors.weights) / sizes)
    if np.ptp(each) < 1e-12:
        return None
    return np.repeat(each, sizes)


def effective_sizes(covariance: Floats, mean_error: Floats) -> Floats:
    """Independent draws that a mean with Monte Carlo covariance `mean_error` is worth, per coordinate."""
    variance = np.diagonal(covariance)
    return variance / np.maximum(np.diagonal(mean_error), 1e-16 * variance)


def floor_warning(floored: int) -> tuple[str, ...]:
    """Say that a spectrum had to be floored, if it had to."""
    if not floored:
        return ()
    return (
        f"{floored} eigenvalues of the shards' covariances were raised to a floor of 1e-12 of the largest: "
        "some direction hardly moves in a shard. Look for nearly dependent parameters.",
    )
