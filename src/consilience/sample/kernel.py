"""What a sampler must bring: its randomness, and one transition of one chain in whitened coordinates.

Random numbers are made outside the compiled program and handed in. They are then the same on every machine
and under every plan, and a program without generators in it compiles in half the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from consilience.errors import must_be


class Step(NamedTuple):
    """What a transition tells of itself."""

    acceptance: Any
    divergent: Any
    gradients: Any


class Kernel(NamedTuple):
    """`init(position) -> state` and `step(noise, state, step_size, length) -> (state, Step)`."""

    init: Callable[[Any], Any]
    step: Callable[[Any, Any, Any, Any], tuple[Any, Step]]


class Sampler(Protocol):
    """A frozen configuration with a name and a kernel."""

    name: ClassVar[str]
    reference: ClassVar[str]

    @property
    def chains(self) -> int: ...

    @property
    def warmup(self) -> int: ...

    @property
    def target_acceptance(self) -> float: ...

    def lengths(self, start: int, count: int) -> np.ndarray:
        """Trajectory lengths, shared by all chains and shards."""
        ...

    def noise(self, generator: np.random.Generator, iterations: int, dimension: int) -> Any:
        """Random numbers of so many iterations: arrays (iterations, chains, ...), at least float32."""
        ...

    def kernel(self, log_density: Callable[[Any], Any], dimension: int) -> Kernel:
        """One transition of one chain."""
        ...


def check_settings(sampler: Any, **lowest: int) -> None:
    """Refuse settings that no sampler can run with.

    Examples
    --------
    >>> from consilience.sample.hmc import HMC
    >>> HMC(warmup=0)
    Traceback (most recent call last):
    ...
    consilience.errors.InputError: hmc: `warmup` must be a whole number, at least 1. Got 0. Use 25, the ...
    """
    defaults = type(sampler)
    for field, least in lowest.items():
        value = getattr(sampler, field)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            advice = f"Use {getattr(defaults, field)}, the default."
            raise must_be(sampler.name, field, f"a whole number, at least {least}", value, advice)
    target = sampler.target_acceptance
    if not isinstance(target, int | float) or not 0 < target < 1:
        advice = f"Use {defaults.target_acceptance}, the default."
        raise must_be(sampler.name, "target_acceptance", "between 0 and 1", target, advice)
