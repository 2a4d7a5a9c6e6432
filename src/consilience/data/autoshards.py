"""How many shards, where the user leaves it open."""

from __future__ import annotations

#: A shard has at least this many rows, and this many per parameter.
FEWEST_ROWS = 2_000
ROWS_PER_PARAMETER = 100
MOST_SHARDS = 1_000
#: A shard of more rows than this is cut further, whatever its draws are for: it must fit a worker's memory.
MOST_ROWS = 100_000


def automatic_shards(
    num_rows: int, num_parameters: int, num_cores: int, enough: int = MOST_SHARDS
) -> tuple[int, str]:
    """Choose the number of shards from rows, parameters and cores.

    Two forces. More shards are cheaper: the draws needed per shard fall as 1/B and the rows per draw do too,
    so the row evaluations of the whole run fall as 1/B. More shards are also less accurate: combination rules
    (and the Laplace start of the samplers) lean on shards whose posteriors are near normal. Skewness of a
    posterior from m rows with p parameters is of order sqrt(p / m) per direction, and is worse for rare
    outcomes; at m = 100 p it is about a tenth, which the refinements remove. Below some 2,000 rows fixed
    costs per shard (its mode, warm-up, files) outweigh the rows, so smaller shards save nothing whatever p
    is. Hence max(2000, 100 p) rows per shard.

    Every shard must bring some draws for each parameter, however few are wanted in all. Beyond `enough` shards
    that is what decides its number of draws: then more shards do not save a single row evaluation, and lose
    accuracy. So there are no more than that, as long as a shard stays under 100,000 rows.

    At most 1,000 shards, because every shard brings its own overhead, draws and line in the report, and rows
    beyond that make the shards larger and more normal instead. Above the number of cores the number of shards
    is rounded down to a multiple of it, so that no core idles in the last round. With rows for fewer than two
    such shards there is nothing to gain: one shard is plain full-data sampling, with no combination error.

    The rule knows no more than p: many rare levels, or a rare outcome, ask for fewer shards or stratified
    ones.

    Parameters
    ----------
    num_rows, num_parameters, num_cores : int
        Rows of the data, scalar parameters of the model, cores to run on.
    enough : int
        Shards that bring the draws which are wanted in all, if each brings the least that it must.

    Returns
    -------
    shards : int
    explanation : str
        One sentence for the output.

    Examples
    --------
    >>> shards, explanation = automatic_shards(400_000, 29, 4)
    >>> print(explanation)
    136 shards of about 2,941 rows (automatic: at least 2,900 rows per shard for 29 parameters,
    a multiple of 4 cores).
    >>> automatic_shards(400_000, 29, 4, enough=40)[0], automatic_shards(3_000, 5, 4)[0]
    (40, 1)
    """
    least = max(FEWEST_ROWS, ROWS_PER_PARAMETER * num_parameters)
    parameters = f"{num_parameters:,} parameter{'s' if num_parameters != 1 else ''}"
    reason = f"at least {least:,} rows per shard for {parameters}"
    if num_rows < 2 * least:
        return 1, f"1 shard of all {num_rows:,} rows (automatic: {reason} leaves nothing to split)."
    shards = num_rows // least
    bound = max(enough, num_cores, num_rows // MOST_ROWS)
    if shards > bound and bound <= MOST_SHARDS:
        shards, reason = bound, f"{bound:,} shards bring the draws that are wanted"
        if bound == num_rows // MOST_ROWS:
            reason = f"about {MOST_ROWS:,} rows per shard are enough"
    elif shards > MOST_SHARDS:
        shards, reason = MOST_SHARDS, f"at most {MOST_SHARDS:,} shards"
    cores = max(1, num_cores)
    if shards > cores > 1:
        shards -= shards % cores
        reason += f", a multiple of {cores} cores"
    return shards, f"{shards} shards of about {num_rows // shards:,} rows (automatic: {reason})."
