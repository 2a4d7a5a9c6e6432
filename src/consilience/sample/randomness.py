"""Random numbers of a shard's stages.

Every stage of every shard has its own stream, found from (seed, shard, stage) alone: results do not depend
on the engine, on the order of shards, or on a stage being done again.
"""

from __future__ import annotations

import numpy as np


def stage_generator(seed: int, index: int, stage: int) -> np.random.Generator:
    """Generator of one stage of shard `index`.

    Examples
    --------
    >>> first, again = (stage_generator(0, 3, 1).integers(100, size=4) for _ in range(2))
    >>> bool((first == again).all()), bool((first == stage_generator(0, 4, 1).integers(100, size=4)).all())
    (True, False)
    """
    sequence = np.random.SeedSequence(seed, spawn_key=(index, stage))
    return np.random.Generator(np.random.Philox(sequence))
