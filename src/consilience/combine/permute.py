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
