"""Rules that are wrong on purpose, each in a way seen in the wild; the oracles must reject every one."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from consilience.combine import Combined
from consilience.combine.consensus import Consensus
from consilience.combine.gaussian_product import GaussianProduct
from consilience.combine.pool import Pool
from consilience.combine.swiss import Swiss
from consilience.draws import Subposteriors


def _moved(subposteriors: Subposteriors, maps: list[np.ndarray], mean: np.ndarray) -> Combined:
    parts = [(x - x.mean(axis=0)) @ a.T + mean for x, a in zip(subposteriors.draws, maps, strict=True)]
    return Combined(np.concatenate(parts))


def _covariances(subposteriors: Subposteriors) -> list[np.ndarray]:
    return [np.atleast_2d(np.cov(x, rowvar=False)) for x in subposteriors.draws]


def _root(matrix: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(matrix)
    return (vectors * np.sqrt(values)) @ vectors.T


def _product(subposteriors: Subposteriors) -> tuple[np.ndarray, np.ndarray]:
    precisions = [
        w * np.linalg.inv(v) for w, v in zip(subposteriors.weights, _covariances(subposteriors), strict=True)
    ]
    covariance = np.linalg.inv(sum(precisions))
    means = [x.mean(axis=0) for x in subposteriors.draws]
    return covariance @ sum(p @ m for p, m in zip(precisions, means, strict=True)), covariance


@dataclass(frozen=True)
class VarianceWeightedSwiss(Swiss):
    """Weighs the shards' means by their covariance where the precision belongs."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        right = super().combine(subposteriors, seed=seed)
        weighted = [w * v for w, v in zip(subposteriors.weights, _covariances(subposteriors), strict=True)]
        means = [x.mean(axis=0) for x in subposteriors.draws]
        mean = np.linalg.solve(sum(weighted), sum(v @ m for v, m in zip(weighted, means, strict=True)))
        return replace(right, array=right.array - right.array.mean(axis=0) + mean)


@dataclass(frozen=True)
class EqualWeightSwiss(Swiss):
    """Takes all shards for equal."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        return super().combine(Subposteriors.of(list(subposteriors.draws), kind="inflated"), seed=seed)


@dataclass(frozen=True)
class CholeskySwiss(Swiss):
    """Uses Cholesky factors as roots: exact for Gaussians, but turns the shards' shapes."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        mean, covariance = _product(subposteriors)
        root = _root(covariance)
        inverse = np.linalg.inv(root)
        maps = [
            root @ np.linalg.inv(np.linalg.cholesky(inverse @ v @ inverse)) @ inverse
            for v in _covariances(subposteriors)
        ]
        return _moved(subposteriors, maps, mean)


@dataclass(frozen=True)
class BoastfulSwiss(Swiss):
    """Promises that every draw counts."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        right = super().combine(subposteriors, seed=seed)
        return replace(right, effective_sizes=np.full(right.array.shape[1], float(len(right.array))))


@dataclass(frozen=True)
class KindlessProduct(GaussianProduct):
    """Takes inflated draws for sub-posterior draws."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        return super().combine(replace(subposteriors, kind="subposterior"), seed=seed)


@dataclass(frozen=True)
class UnpermutedConsensus(Consensus):
    """Pairs the j-th draws of all shards as they come."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        precisions = [np.linalg.inv(v) for v in _covariances(subposteriors)]
        shortest = min(subposteriors.num_draws)
        total = sum(x[:shortest] @ p.T for x, p in zip(subposteriors.draws, precisions, strict=True))
        return Combined(total @ np.linalg.inv(sum(precisions)).T)


@dataclass(frozen=True)
class PositionalConsensus(Consensus):
    """Seeds each shard's permutation by its position."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        rng = np.random.default_rng(seed)
        shuffled = replace(subposteriors, draws=tuple(rng.permutation(x) for x in subposteriors.draws))
        return UnpermutedConsensus().combine(shuffled)


@dataclass(frozen=True)
class WeightlessPool(Pool):
    """Lays draws together without weights."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        return replace(super().combine(subposteriors, seed=seed), log_weights=None)


@dataclass(frozen=True)
class Hoarder(Pool):
    """Holds the draws of every shard four times over while it works."""

    def combine(self, subposteriors: Subposteriors, *, seed: int = 0) -> Combined:
        held = [x.copy() for x in subposteriors.draws for _ in range(4)]
        assert held
        return super().combine(subposteriors, seed=seed)
