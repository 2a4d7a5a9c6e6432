"""What was asked of a fit, checked before any work starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from consilience.combine import Combiner, get_combiner
from consilience.combine.base import require_targets
from consilience.combine.functions import recorded_options
from consilience.data import SitePartition
from consilience.data.autoshards import MOST_SHARDS
from consilience.engines import Engine, get_engine
from consilience.errors import InputError, must_be
from consilience.sample import Sampler, get_sampler

# A shard's covariance is inverted: it needs several draws for each coordinate, however many shards there are.
DRAWS_PER_COORDINATE = 5
LEAST_DRAWS = 100
PRECISIONS = ("float32", "float64")
MISSING = ("refuse", "drop")


@dataclass(frozen=True)
class Request:
    """Checked settings of one fit."""

    combiner: Combiner
    sampler: Sampler
    engine: Engine | None
    refinements: tuple[str, ...]
    shards: Any
    draws: int
    seed: int
    missing: str
    precision: str
    workers: int | None

    @property
    def kind(self) -> str:
        """The target that shards are sampled from."""
        return "inflated" if self.combiner.kind == "any" else self.combiner.kind

    def draws_per_shard(self, num_shards: int, dimension: int) -> int:
        """What the rule asks of every shard, and never too few to know its covariance."""
        wanted = self.combiner.draws_per_shard(self.draws, num_shards)
        return max(wanted, LEAST_DRAWS + DRAWS_PER_COORDINATE * dimension)

    def enough_shards(self, dimension: int) -> int:
        """Shards beyond which each brings more draws than are wanted of it."""
        least = LEAST_DRAWS + DRAWS_PER_COORDINATE * dimension
        if self.combiner.draws_per_shard(self.draws, MOST_SHARDS) >= least:
            return MOST_SHARDS
        return max(1, self.draws // least)

    def settings(self) -> dict[str, Any]:
        """What a finished run's bits depend on, JSON-able."""
        shards = self.shards if isinstance(self.shards, int | str) else self.shards.describe()
        return {
            "method": self.combiner.name,
            "options": recorded_options(self.combiner),
            "kind": self.kind,
            "sampler": {"name": self.sampler.name, **asdict(self.sampler)},  # type: ignore[call-overload]
            "refine": list(self.refinements),
            "shards": shards,
            "draws": self.draws,
            "seed": self.seed,
            "missing": self.missing,
            "precision": self.precision,
        }


def checked_request(
    *,
    shards: Any,
    method: str,
    options: dict[str, Any],
    refine: Any,
    draws: int,
    seed: int,
    engine: Any,
    missing: str,
    sampler: Any,
    precision: str,
    workers: int | None,
) -> Request:
    """Check every setting that can be judged without the data."""
    _check_whole("draws", draws, 1, "The default is 10000.")
    _check_whole("seed", seed, 0, "Leave it out for 0.")
    if workers is not None:
        _check_whole("workers", workers, 1, "Leave it out for one per core.")
    if seed >= 2**32:
        raise must_be("fit", "seed", "below 2^32", seed, "Choose a smaller one.")
    if missing not in MISSING:
        raise must_be("fit", "missing", "'refuse' or 'drop'", missing, "'drop' leaves such rows out.")
    if precision not in PRECISIONS:
        raise must_be("fit", "precision", "'float32' or 'float64'", precision, "The default is 'float32'.")
    combiner, refinements = get_combiner(method, **options), _refinements(refine)
    require_targets(combiner)
    if getattr(combiner, "functions", None) is not None and refinements:
        raise must_be(
            "fit",
            "refine",
            "None where functions of the parameters are combined",
            refine,
            "A refinement needs the parameters themselves.",
        )
    return Request(
        combiner=combiner,
        sampler=get_sampler(sampler),
        engine=None if engine is None else get_engine(engine, workers=workers),
        refinements=refinements,
        shards=_checked_shards(shards),
        draws=int(draws),
        seed=int(seed),
        missing=missing,
        precision=precision,
        workers=workers,
    )


def _check_whole(name: str, value: Any, least: int, advice: str) -> None:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise must_be("fit", name, f"a whole number, {least} or more", value, advice, InputError)


def _checked_shards(shards: Any) -> Any:
    if shards == "auto" or hasattr(shards, "describe"):
        return shards
    if isinstance(shards, str):
        return SitePartition(shards)
    advice = "Give a number, 'auto', the name of a column, or a partition such as cs.StratifiedPartition(32)."
    if isinstance(shards, bool) or not hasattr(shards, "__index__") or shards.__index__() < 1:
        raise must_be("fit", "shards", "a number of shards, 1 or more", shards, advice)
    return int(shards)


def _refinements(refine: Any) -> tuple[str, ...]:
    from consilience.refine import get_refinement

    if refine is None:
        return ()
    names = (refine,) if isinstance(refine, str) else refine
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise must_be(
            "fit", "refine", "a name, a list of names, 'auto' or None", refine, "Leave it out for 'auto'."
        )
    for name in names:
        get_refinement(name)
    return tuple(names)
