"""The draws of every shard, with the kind of target they follow and the weight of their shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from consilience.draws.checks import (
    KINDS,
    check_curvatures,
    check_lengths,
    check_log_densities,
    check_names,
    check_shard,
    check_weights,
    default_names,
    evenly,
    lengths_after,
    read_only,
    shard_arrays,
)
from consilience.errors import DrawsError, must_be


@dataclass(frozen=True, eq=False)
class Subposteriors:
    """Draws of all shards, with what is needed to combine them.

    Build one with `Subposteriors.of`, which checks everything.

    Attributes
    ----------
    draws : tuple of (J_b, d) float64 arrays, read-only
    kind : "subposterior" or "inflated"
    weights : (B,) array that sums to 1
    names : names of the d coordinates in which the draws are combined
    chain_lengths : per shard, the lengths of the chains that its draws concatenate
    curvatures : (B, d, d) inverse of the negative Hessian of each shard's target at its mode, NaN for a shard that has
        none to speak of; or None where nobody looked
    log_densities : per shard, the log density of its own target at its draws (up to a constant), or None
    labels : names of the shards
    space : how coordinates map to the user's parameters (`to_user`), or None when they are the same
    """

    draws: tuple[np.ndarray, ...]
    kind: str
    weights: np.ndarray
    names: tuple[str, ...]
    chain_lengths: tuple[tuple[int, ...], ...]
    log_densities: tuple[np.ndarray, ...] | None = None
    labels: tuple[str, ...] = ()
    space: Any = None
    curvatures: np.ndarray | None = None

    @classmethod
    def of(
        cls,
        draws: Any,
        *,
        kind: str | None,
        weights: Any = None,
        names: Sequence[str] | None = None,
        space: Any = None,
        labels: Sequence[str] | None = None,
        chain_lengths: Sequence[Sequence[int]] | None = None,
        log_densities: Sequence[Any] | None = None,
        curvatures: Any = None,
    ) -> Subposteriors:
        """Check draws and bring them together.

        Parameters
        ----------
        draws
            (B, J, d) array, (B, chains, J, d) array, or a list with one (J_b, d), (chains, J, d) or (J_b,)
            array per shard.
        kind
            "subposterior" (prior^w_b x likelihood_b) or "inflated" (prior x likelihood_b^(1/w_b)).
        weights
            (B,) positive, sum 1: the shards' shares of the rows. Default: equal.
        curvatures
            (B, d, d) inverse negative Hessians of the targets at their modes, in the draws' coordinates: rules that
            invert covariances then have to guess less. Combined with `supports=` or `parameters=` they do not count.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> shards = Subposteriors.of(rng.normal(size=(3, 100, 2)), kind="inflated", names=["a", "b"])
        >>> shards.num_shards, shards.dimension, shards.num_draws
        (3, 2, (100, 100, 100))
        """
        what = "Subposteriors"
        if kind not in KINDS:
            raise must_be(
                what,
                "kind",
                "'subposterior' or 'inflated'",
                kind,
                "Say which target was sampled.",
                DrawsError,
            )
        arrays, found_lengths = shard_arrays(draws, what)
        dimension = arrays[0].shape[1]
        labels = tuple(str(x) for x in labels) if labels is not None else tuple(map(str, range(len(arrays))))
        if len(labels) != len(arrays):
            raise must_be(
                what, "labels", f"{len(arrays)} names, one per shard", labels, "Name each shard.", DrawsError
            )
        if names is None:
            names = space.coordinate_names if space is not None else default_names(dimension)
        names = check_names(names, dimension, what)
        for b, array in enumerate(arrays):
            check_shard(
                array, dimension, names, f"shard {b}" + (f" ({labels[b]})" if labels[b] != str(b) else "")
            )
        if space is not None and space.dimension != dimension:
            raise must_be(
                what,
                "space",
                f"of dimension {dimension}",
                space.dimension,
                "Use the sampled model's.",
                DrawsError,
            )
        lengths = found_lengths if chain_lengths is None else list(chain_lengths)
        if len(lengths) != len(arrays):
            raise must_be(
                what,
                "chain_lengths",
                "one tuple per shard",
                lengths,
                "Give one entry for each shard.",
                DrawsError,
            )
        return cls(
            draws=tuple(read_only(array) for array in arrays),
            kind=kind,
            weights=read_only(check_weights(weights, len(arrays), what)),
            names=names,
            chain_lengths=tuple(
                check_lengths(n, len(x), f"{what}, shard {b}")
                for b, (n, x) in enumerate(zip(lengths, arrays, strict=True))
            ),
            log_densities=check_log_densities(log_densities, arrays, what),
            labels=labels,
            space=space,
            curvatures=check_curvatures(curvatures, len(arrays), dimension, what),
        )

    @property
    def num_shards(self) -> int:
        return len(self.draws)

    @property
    def dimension(self) -> int:
        return int(self.draws[0].shape[1])

    @property
    def num_draws(self) -> tuple[int, ...]:
        """Draws of each shard."""
        return tuple(len(x) for x in self.draws)

    def shard(self, b: int) -> np.ndarray:
        """The (J_b, d) draws of shard b, its chains one after the other."""
        return self.draws[b]

    def chains(self, b: int) -> tuple[np.ndarray, ...]:
        """The draws of shard b, chain by chain.

        Examples
        --------
        >>> draws = np.random.default_rng(0).normal(size=(2, 4, 50, 3))
        >>> shards = Subposteriors.of(draws, kind="subposterior")
        >>> [chain.shape for chain in shards.chains(1)]
        [(50, 3), (50, 3), (50, 3), (50, 3)]
        """
        return tuple(np.split(self.draws[b], np.cumsum(self.chain_lengths[b])[:-1]))

    def thinned(self, num_draws: int | Sequence[int]) -> Subposteriors:
        """At most `num_draws` draws of every shard, spread evenly over its chains.

        Examples
        --------
        >>> draws = np.random.default_rng(0).normal(size=(2, 4, 50, 3))
        >>> shards = Subposteriors.of(draws, kind="subposterior")
        >>> thin = shards.thinned(20)
        >>> thin.num_draws, thin.chain_lengths[0]
        ((20, 20), (5, 5, 5, 5))
        """
        wanted = [num_draws] * self.num_shards if isinstance(num_draws, int) else list(num_draws)
        if len(wanted) != self.num_shards or min(wanted) < 1:
            raise must_be(
                "thinned",
                "num_draws",
                "positive, one number or one per shard",
                num_draws,
                "Check it.",
                DrawsError,
            )
        chosen = [evenly(len(x), min(n, len(x))) for x, n in zip(self.draws, wanted, strict=True)]
        return replace(
            self,
            draws=tuple(read_only(x[index]) for x, index in zip(self.draws, chosen, strict=True)),
            chain_lengths=tuple(lengths_after(i, n) for i, n in zip(chosen, self.chain_lengths, strict=True)),
            log_densities=None
            if self.log_densities is None
            else tuple(x[index] for x, index in zip(self.log_densities, chosen, strict=True)),
        )
