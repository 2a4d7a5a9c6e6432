"""Draws in files: reading what any sampler wrote, writing ours whole or not at all.

- ``.npy``: (draws, d) or (chains, draws, d).
- ``.npz``: ours; or one array per parameter, (draws, …).
- ``.csv``: a header and one row per draw; comment lines start with "#". Of CmdStan's files, columns that end
  in "__" are left out (lp__ is kept as the log density), saved warm-up is dropped, and ``beta.2.1`` is called
  ``beta[2,1]``, counted from 1 as Stan does.
- ``.parquet``: one column per scalar.
- ``.nc``: netCDF of ArviZ (the extra ``arviz``).
- ``.zarr``: a folder of ArviZ or of a DataTree (the same extra).

In tables (.csv, .parquet) chains are told by a column ``.chain`` (R's posterior) or ``chain`` beside ``draw``
(ArviZ). Our own files carry kind, weight, names, shapes, log weights and how the draws came about, in every
format. No reader unpickles anything.
"""

from consilience.draws.files.access import (
    check_destination,
    check_record,
    load,
    read_draws,
    readable,
    write_posterior,
    write_subposterior,
)
from consilience.draws.files.atomic import write_atomically
from consilience.draws.files.record import DrawFile

__all__ = [
    "DrawFile",
    "check_destination",
    "check_record",
    "load",
    "read_draws",
    "readable",
    "write_atomically",
    "write_posterior",
    "write_subposterior",
]
