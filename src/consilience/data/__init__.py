"""WHERE rows live: sources (arrays, frames, Parquet, CSV), and partitions of them into shards."""

from consilience.data.autoshards import automatic_shards
from consilience.data.bytime import TimePartition
from consilience.data.byvalue import GroupPartition, SitePartition
from consilience.data.columns import BLOCK_ROWS, Columns
from consilience.data.missing import FilteredSource
from consilience.data.opening import open_source
from consilience.data.partition import Partition, RandomPartition
from consilience.data.reference import ShardReference
from consilience.data.source import Source
from consilience.data.split import Shards, split
from consilience.data.stratified import StratifiedPartition

__all__ = [
    "BLOCK_ROWS",
    "Columns",
    "FilteredSource",
    "GroupPartition",
    "Partition",
    "RandomPartition",
    "ShardReference",
    "Shards",
    "SitePartition",
    "Source",
    "StratifiedPartition",
    "TimePartition",
    "automatic_shards",
    "open_source",
    "split",
]
