"""Who goes where: sizes, strata, groups, sites, time, and whether random is random."""

from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from consilience.data import (
    GroupPartition,
    Partition,
    RandomPartition,
    SitePartition,
    StratifiedPartition,
    TimePartition,
    open_source,
    split,
)
from consilience.errors import DataError

from .tables import make_columns, write_parquet

PARTITIONS = (
    RandomPartition(7),
    StratifiedPartition(7),
    StratifiedPartition(7, ("carrier", "late")),
    GroupPartition(7, "school"),
    SitePartition("carrier"),
    TimePartition(7, "when"),
)
FORMS = ("pandas", "polars", "arrow", "parquet", "folder", "glob", "csv", "csv.gz", "csv folder")


def rows_of(data: Any, partition: Partition, seed: int = 11, **options: Any) -> list[np.ndarray]:
    """Return the numbers of the rows in every shard."""
    shards = split(open_source(data), partition, columns=["row", "x", "y", "carrier"], seed=seed, **options)
    read = [shards.reference(shard).read()["row"] for shard in range(shards.num_shards)]
    assert tuple(map(len, read)) == shards.sizes
    return read


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda one: str(one.describe()))
def test_shards_are_the_same_from_every_form(
    partition: Partition, forms: dict[str, Any], columns: dict[str, np.ndarray]
) -> None:
    wanted = rows_of(columns, partition, outcome="y")
    assert sorted(np.concatenate(wanted).tolist()) == list(range(140_003))
    # All forms once; for the other partitions one file and one frame that is not NumPy.
    for form in FORMS if isinstance(partition, RandomPartition) else ("parquet", "polars"):
        for one, two in zip(wanted, rows_of(forms[form], partition, outcome="y"), strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda one: str(one.describe()))
def test_partitions_are_plain_values(partition: Partition) -> None:
    assert pickle.loads(pickle.dumps(partition)) == partition
    assert json.loads(json.dumps(partition.describe())) == partition.describe()


@pytest.mark.parametrize("partition", PARTITIONS[:3], ids=lambda one: str(one.describe()))
def test_the_seed_decides(partition: Partition, columns: dict[str, np.ndarray]) -> None:
    first, again, other = (rows_of(columns, partition, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    assert not any(np.array_equal(one, two) for one, two in zip(first, other, strict=True))


@pytest.mark.parametrize("shards", [1, 2, 7, 1000, 65_537, 140_003])
def test_random_sizes_differ_by_one_at_most(shards: int) -> None:
    source = open_source({"row": np.arange(140_003)})
    found = split(source, RandomPartition(shards), columns=None, seed=0)
    assert sum(found.sizes) == 140_003
    assert max(found.sizes) - min(found.sizes) <= 1
    assert np.isclose(found.weights.sum(), 1)
    assert found.labels[-1] == str(shards - 1)


def dependence_on_order(shards: list[np.ndarray], pieces: int = 20) -> float:
    """Return the p-value of independence between a row's shard and its position (in pieces of the table)."""
    total = sum(map(len, shards))
    table = np.array([np.bincount(rows * pieces // total, minlength=pieces) for rows in shards])
    return float(stats.chi2_contingency(table).pvalue)


def test_random_shards_of_sorted_rows_are_random() -> None:
    # Within one block, where rows are free to go anywhere; 12 seeds, limit Bonferroni-corrected at 1 in
    # 1,000.
    table = make_columns(40_000)
    p_values = [dependence_on_order(rows_of(table, RandomPartition(10), seed)) for seed in range(12)]
    assert min(p_values) > 1e-3 / 12
    # Neither are they too even: dealt in turn, the rows would give p = 1 every time.
    assert min(p_values) < 0.999
    means = np.array([table["x"][rows].mean() for rows in rows_of(table, RandomPartition(10))])
    assert np.abs(means - table["x"].mean()).max() < 4.5 * table["x"].std() / np.sqrt(4000)


def test_that_test_rejects_contiguous_blocks_and_rows_dealt_in_turn() -> None:
    assert dependence_on_order(np.array_split(np.arange(40_000), 10)) < 1e-12
    assert dependence_on_order([np.arange(shard, 40_000, 10) for shard in range(10)]) > 0.999


def test_neighbours_are_independent() -> None:
    """Adjacent rows share a shard as often as chance has it: rejects blocks (always) and dealing (never)."""

    def together(shards: list[np.ndarray]) -> int:
        label = np.empty(40_000, int)
        for shard, rows in enumerate(shards):
            label[rows] = shard
        return int((label[1:] == label[:-1]).sum())

    expected, sd = 39_999 / 10, np.sqrt(39_999 * 0.1 * 0.9)
    assert abs(together(rows_of(make_columns(40_000), RandomPartition(10))) - expected) < 4 * sd
    assert abs(together(np.array_split(np.arange(40_000), 10)) - expected) > 4 * sd
    assert abs(together([np.arange(shard, 40_000, 10) for shard in range(10)]) - expected) > 4 * sd


def counts(shards: list[np.ndarray], *keys: np.ndarray) -> np.ndarray:
    """Return rows per shard and stratum."""
    numbered = np.array([np.unique(key, return_inverse=True)[1] for key in keys])
    codes = np.unique(numbered, axis=1, return_inverse=True)[1].ravel()
    return np.array([np.bincount(codes[rows], minlength=codes.max() + 1) for rows in shards])


def test_strata_are_balanced(columns: dict[str, np.ndarray]) -> None:
    by_hand = rows_of(columns, StratifiedPartition(60, ("carrier", "late")))
    assert np.ptp(counts(by_hand, columns["carrier"], columns["late"]), axis=0).max() <= 1
    by_default = rows_of(columns, StratifiedPartition(60), outcome="y")
    rare = columns["carrier"] == "rare"  # about 1,400 rows: 23 per shard
    assert np.ptp(counts(by_default, columns["y"], rare), axis=0).max() <= 1
    assert np.ptp([len(rows) for rows in by_default]) <= 1
    at_random = rows_of(columns, RandomPartition(60))
    assert np.ptp(counts(at_random, columns["y"], rare), axis=0).max() > 1


def test_strata_say_what_they_are(columns: dict[str, np.ndarray]) -> None:
    def note(outcome: str | None, data: dict[str, np.ndarray]) -> str:
        partition, used = StratifiedPartition(60), ["x", "carrier"]
        return split(open_source(data), partition, columns=used, seed=0, outcome=outcome).notes[0]

    assert note("y", columns) == "Strata: y, 1 rare levels of carrier."
    assert note("x", columns) == "Strata: 1 rare levels of carrier."
    constant = columns | {"carrier": columns["carrier"][:1].repeat(140_003)}
    assert note(None, constant) == "No strata: plain random shards."


def test_strata_are_random_inside() -> None:
    table = make_columns(40_000)
    partition = StratifiedPartition(10, ("y",))
    p_values = [dependence_on_order(rows_of(table, partition, seed)) for seed in range(12)]
    assert 1e-3 / 12 < min(p_values) < 0.999


def test_strata_of_identifiers_are_refused(columns: dict[str, np.ndarray]) -> None:
    with pytest.raises(DataError, match="row with more than 10,000 values"):
        rows_of(columns, StratifiedPartition(3, ("row",)))
    with pytest.raises(DataError, match="more than 10,000 combinations"):
        rows_of(columns, StratifiedPartition(3, ("school", "carrier", "late")))


def test_groups_stay_whole_and_shards_even(columns: dict[str, np.ndarray]) -> None:
    shards = rows_of(columns, GroupPartition(25, "school"))
    homes = [set(columns["school"][rows].tolist()) for rows in shards]
    assert sum(map(len, homes)) == len(set.union(*homes))
    sizes = np.array([len(rows) for rows in shards])
    assert np.ptp(sizes) <= 0.01 * sizes.mean()


def test_a_group_larger_than_a_shard_is_named() -> None:
    school = np.repeat(["small", "big"], [50, 50]).astype(object)
    school[:50] = [f"s{i % 10}" for i in range(50)]
    table = {"row": np.arange(100), "school": school}
    message = "one group larger than a shard.*school = 'big' with 50 rows. Use at most 3"
    with pytest.raises(DataError, match=message):
        split(open_source(table), GroupPartition(4, "school"), columns=["row"], seed=0)
    assert split(open_source(table), GroupPartition(3, "school"), columns=["row"], seed=0).num_shards == 3


def test_sites_are_the_values(columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    shards = split(open_source(columns), SitePartition("carrier"), columns=["x"], seed=0)
    assert shards.labels == ("AA", "DL", "UA", "rare")
    assert shards.sizes == tuple(int((columns["carrier"] == site).sum()) for site in shards.labels)
    assert list(shards.reference(0).read()) == ["x"]
    days = {"day": np.array(["2020-02-01", "2020-01-01"], "datetime64[D]")}
    labels = split(open_source(days), SitePartition("day"), columns=None, seed=0).labels
    assert labels[0].startswith("2020-01-01T")


def test_time_blocks(columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    for data in (columns, write_parquet(columns, tmp_path / "a.parquet")):
        shards = split(open_source(data), TimePartition(12, "when"), columns=["row"], seed=0)
        times = [columns["when"][shards.reference(shard).read()["row"]] for shard in range(12)]
        assert all((np.diff(one) >= np.timedelta64(0)).all() for one in times)
        assert all(one[-1] < two[0] for one, two in itertools.pairwise(times))
        # About 28 rows share a time, so a cut is off by half of that at most.
        assert np.ptp(shards.sizes) <= 60
        assert shards.labels[0].startswith("2020-01-01T00:00:00")


def test_time_blocks_with_heavy_ties() -> None:
    table = {"t": np.repeat([0, 1, 2, 3], [1, 97, 1, 1]), "row": np.arange(100)}
    shards = split(open_source(table), TimePartition(4, "t"), columns=["row"], seed=0)
    assert shards.sizes == (1, 97, 1, 1)
    assert split(open_source(table), TimePartition(2, "t"), columns=["row"], seed=0).sizes in (
        (98, 2),
        (1, 99),
    )


SMALL = {
    "x": np.array([1.0, 2.0, 3.0]),
    "gap": np.array(["a", None, "b"], object),
    "nan": np.array([1.0, np.nan, 2]),
}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomPartition(0), "whole number of at least 1. Got 0"),
        (lambda: RandomPartition(2.5), "whole number"),
        (lambda: RandomPartition(True), "whole number"),
        (lambda: RandomPartition(4), "at most the number of rows. Got 4 shards for 3 rows"),
        (lambda: StratifiedPartition(4), "at most the number of rows"),
        (lambda: TimePartition(4, "x"), "at most the number of rows"),
        (lambda: GroupPartition(2, "gap"), "column without missing values"),
        (lambda: SitePartition("gap"), "column without missing values"),
        (lambda: TimePartition(2, "nan"), "column without missing values"),
        (lambda: TimePartition(2, "gap"), "column of dates or numbers"),
        (lambda: GroupPartition(2, "y"), "among the columns of the data. Got 'y'"),
        (lambda: StratifiedPartition(2, "y"), "among the columns of the data. Got 'y'"),
        (lambda: SitePartition("y"), "among the columns of the data. Got 'y'"),
    ],
)
def test_partitions_that_do_not_fit(make: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        split(open_source(SMALL), make(), columns=["x"], seed=0)


def test_fewer_groups_or_times_than_shards() -> None:
    table = {"x": np.zeros(9)}
    with pytest.raises(DataError, match="2 shards for 1 groups"):
        split(open_source(table), GroupPartition(2, "x"), columns=["x"], seed=0)
    with pytest.raises(DataError, match="2 shards for 1 different times"):
        split(open_source(table), TimePartition(2, "x"), columns=["x"], seed=0)


def test_site_of_an_identifier_is_refused(columns: dict[str, np.ndarray]) -> None:
    with pytest.raises(DataError, match=r"at most 10,000 different values.*GroupPartition"):
        split(open_source(columns), SitePartition("row"), columns=["x"], seed=0)


def test_bad_seeds() -> None:
    for seed in (-1, 1.5, None):
        with pytest.raises(DataError, match="`seed` must be a whole number"):
            split(open_source(SMALL), RandomPartition(1), columns=["x"], seed=seed)  # type: ignore[arg-type]
