"""Random generators for the shards that do not depend on the shards' order.

The generator of a shard is seeded by what its draws are. Shards with the very same draws (sampled with one
seed from the same rows) are told apart by how many of them came before: whichever comes first, the set of
generators is the same.
"""

from __future__ import annotations

import hashlib
from collections import Counter

import numpy as np

from consilience.draws import Subposteriors

# So many rows, spread over the draws, tell two shards apart; all of them would cost more than combining.
FINGERPRINT_ROWS = 256


def shard_generators(subposteriors: Subposteriors, seed: int) -> list[np.random.Generator]:
    """One generator per shard, keyed by `seed` and by the content of its draws.

    Examples
    --------
    >>> x, y = np.random.default_rng(0).normal(size=(2, 50, 1))
    >>> first = [g.integers(1000) for g in shard_generators(Subposteriors.of([x, y, x], kind="inflated"), 0)]
    >>> second = [g.integers(1000) for g in shard_generators(Subposteriors.of([y, x, x], kind="inflated"), 0)]
    >>> first == [second[1], second[0], second[2]], bool(first[0] == first[2])
    (True, False)
    """
    seen: Counter[int] = Counter()
    generators = []
    for x in subposteriors.draws:
        key = _fingerprint(x)
        generators.append(np.random.default_rng([seed, key, seen[key]]))
        seen[key] += 1
    return generators


def _fingerprint(x: np.ndarray) -> int:
    rows = np.ascontiguousarray(x[:: max(1, len(x) // FINGERPRINT_ROWS)])
    digest = hashlib.blake2b(rows.tobytes(), digest_size=16)
    digest.update(str(x.shape).encode())
    return int.from_bytes(digest.digest(), "little")


def canonical_order(subposteriors: Subposteriors) -> tuple[list[int], int]:
    """An order of the shards that depends on their draws alone, and a number to seed one common generator.

    Rules that walk from shard to shard walk in this order, so that the order in which shards were given
    changes no bit.

    Examples
    --------
    >>> x, y, z = np.random.default_rng(0).normal(size=(3, 50, 1))
    >>> first, key = canonical_order(Subposteriors.of([x, y, z], kind="inflated"))
    >>> second, other = canonical_order(Subposteriors.of([z, x, y], kind="inflated"))
    >>> [[x, y, z][b][0, 0] for b in first] == [[z, x, y][b][0, 0] for b in second], key == other
    (True, True)
    """
    keys = [_fingerprint(x) for x in subposteriors.draws]
    weights = np.asarray(subposteriors.weights)
    order = sorted(range(len(keys)), key=lambda b: (keys[b], float(weights[b])))
    together = hashlib.blake2b(b"".join(keys[b].to_bytes(16, "little") for b in order), digest_size=16)
    return order, int.from_bytes(together.digest(), "little")
