"""Tables of draws, one row per draw: CSV (plain, CmdStan's, ours) and Parquet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from consilience.draws.checks import row_major
from consilience.draws.files.record import (
    KEY,
    DrawFile,
    bad_file,
    from_metadata,
    lengths_of_chains,
    metadata_text,
)

if TYPE_CHECKING:
    import pyarrow

_OWN_LINE = f"# {KEY} ".encode()
_EXTRA = re.compile(r"^(log_weight|log_density|coordinates)(?:\.(\d+))?__$")
_BOOKKEEPING = {".chain", ".iteration", ".draw"}  # R's posterior
_STAN_INDEX = re.compile(r"\.(\d+(?:\.\d+)*)$")


# ------------------------------------------------------------------------------------------
# Parquet
# ------------------------------------------------------------------------------------------


def read_parquet(path: Path) -> DrawFile:
    import pyarrow
    import pyarrow.parquet

    try:
        # One file, read as a file: the names of its folders are no columns.
        with pyarrow.parquet.ParquetFile(path) as file:
            table = file.read()
    except (pyarrow.ArrowException, OSError) as error:
        raise bad_file(path, "a whole Parquet file", str(error), "Write the file again.") from None
    metadata = table.schema.metadata or {}
    text = metadata.get(KEY.encode())
    return _from_table(table, path, None if text is None else text.decode())


def write_parquet(record: DrawFile, temporary: Path) -> None:
    import pyarrow.parquet

    table = _to_table(record)
    metadata = {KEY.encode(): metadata_text(record).encode()}
    pyarrow.parquet.write_table(table.replace_schema_metadata(metadata), temporary)


# ------------------------------------------------------------------------------------------
# CSV
# ------------------------------------------------------------------------------------------


def read_csv(path: Path) -> DrawFile:
    import pyarrow
    import pyarrow.csv

    lines = path.read_bytes().split(b"\n")
    comments = [line for line in lines if line.startswith(b"#")]
    content = b"\n".join(line for line in lines if not line.startswith(b"#"))
    if not content.strip():
        raise bad_file(path, "a header and one row per draw", "an empty file", "Write the draws again.")
    try:
        table = pyarrow.csv.read_csv(pyarrow.BufferReader(content))
    except pyarrow.ArrowException as error:
        odd = _ragged(lines, error)
        raise bad_file(path, "a table with a value for every name in every line", odd, "Mend it.") from None
    own = [line for line in comments if line.startswith(_OWN_LINE)]
    if own:
        return _from_table(table, path, own[0].removeprefix(_OWN_LINE).decode())
    if all(_is_number(name) for name in table.column_names):
        raise bad_file(
            path, "named in the first line", table.column_names[:5], "Put the parameters' names on top."
        )
    if _is_stan(table.column_names, comments):
        return _from_stan(table, comments, path)
    return _from_table(table, path, None)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _ragged(lines: list[bytes], error: Exception) -> str:
    """Name the first line of another length; where names are quoted, leave it to Arrow's words."""
    numbered = enumerate(lines, 1)
    rows = [(number, line) for number, line in numbered if line.strip() and not line.startswith(b"#")]
    if rows and b'"' not in rows[0][1]:
        expected = rows[0][1].count(b",") + 1
        for number, line in rows:
            if line.count(b",") + 1 != expected:
                return f"{line.count(b',') + 1} values in line {number}, {expected} names in the header"
    return str(error).splitlines()[0]


def write_csv(record: DrawFile, temporary: Path) -> None:
    import pyarrow.csv

    with open(temporary, "wb") as handle:
        handle.write(_OWN_LINE + metadata_text(record).encode() + b"\n")
        pyarrow.csv.write_csv(_to_table(record), handle)


# ------------------------------------------------------------------------------------------
# CmdStan
# ------------------------------------------------------------------------------------------


def _is_stan(names: list[str], comments: list[bytes]) -> bool:
    return "lp__" in names or any(b"stan_version" in line for line in comments)


def _from_stan(table: pyarrow.Table, comments: list[bytes], path: Path) -> DrawFile:
    """Leave out the sampler's own columns and saved warm-up; index as Stan does: beta.2 is beta[2].

    Stan writes matrices by column; here their entries are put by row, as everywhere else.
    """
    said = b"\n".join(comments).decode(errors="replace")
    method = re.search(r"^#\s*method\s*=\s*(\w+)", said, flags=re.MULTILINE)
    if method and method[1] != "sample":
        advice = "Run CmdStan's `sample`; only its draws follow the target."
        raise bad_file(path, "what CmdStan's sampler wrote", f"method = {method[1]}", advice)
    table = table.slice(_saved_warmup(said))
    kept = [name for name in table.column_names if not name.endswith("__")]
    if not kept or table.num_rows == 0:
        raise bad_file(
            path, "draws of at least one parameter", "none", "Run the sampler to its end, and save its draws."
        )
    density = _column(table, "lp__", path) if "lp__" in table.column_names else None
    names = [_STAN_INDEX.sub(lambda match: f"[{match[1].replace('.', ',')}]", name) for name in kept]
    order = row_major(names)
    array = np.stack([_column(table, kept[i], path) for i in order], axis=1)
    divergent = _column(table, "divergent__", path) if "divergent__" in table.column_names else None
    return DrawFile(
        array,
        names=tuple(names[i] for i in order),
        chains=(len(array),),
        log_densities=density,
        unconstrained_densities=density is not None,
        divergences=None if divergent is None else int(divergent.sum()),
        run=_run(said),
    )


def _run(comments: str) -> tuple[str, str] | None:
    """The file of the rows and the number of the chain."""
    data = re.search(r"^#\s*data\b.*\n#\s*file\s*=\s*(\S+)", comments, flags=re.MULTILINE)
    chain = re.search(r"^#\s*id\s*=\s*(\d+)", comments, flags=re.MULTILINE)
    return (data[1], chain[1]) if data and chain else None


def _saved_warmup(comments: str) -> int:
    """How many of the first rows are warm-up."""
    settings = dict(re.findall(r"(save_warmup|num_warmup|thin)\s*=\s*(\w+)", comments))
    if settings.get("save_warmup") not in ("1", "true"):
        return 0
    return -(-int(settings.get("num_warmup", 0)) // max(1, int(settings.get("thin", 1))))


# ------------------------------------------------------------------------------------------
# What they have in common
# ------------------------------------------------------------------------------------------


def from_table(value: Any, where: str) -> DrawFile:
    """Draws in a table in memory: pandas', Polars' or Arrow's.

    Examples
    --------
    >>> import pandas as pd
    >>> from_table(pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}), "draws[0]").names
    ('a', 'b')
    """
    import pyarrow

    try:
        if type(value).__module__.partition(".")[0] == "pandas":
            table = pyarrow.Table.from_pandas(value, preserve_index=False)  # row numbers are no parameter
        else:
            table = pyarrow.table(value)
    except (pyarrow.ArrowException, TypeError, ValueError) as error:
        said = str(error).splitlines()[0]
        raise bad_file(where, "numbers in every column", said, "Leave other columns out.") from None
    return _from_table(table, where, None)


def _to_table(record: DrawFile) -> Any:
    import pyarrow

    columns = dict(zip(record.column_names, record.array.T, strict=True))
    for name, value in record.per_draw().items():
        if value.ndim == 1:
            columns[f"{name}__"] = value
        else:
            columns.update({f"{name}.{i}__": column for i, column in enumerate(value.T)})
    return pyarrow.table({name: np.ascontiguousarray(column) for name, column in columns.items()})


def _from_table(table: pyarrow.Table, path: Path | str, text: str | None) -> DrawFile:
    names = [str(name) for name in table.column_names]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise bad_file(path, "columns with different names", twice, "Rename the columns.")
    if not names or table.num_rows == 0:
        raise bad_file(path, "a header and one row per draw", "no rows", "Write the draws again.")
    if text is not None:
        extras = _extras(table, names, path)
        array = np.stack([_column(table, n, path) for n in names if not _EXTRA.match(n)], axis=1)
        return from_metadata(text, array, extras, path)
    chains = None
    chain_column = ".chain" if ".chain" in names else "chain" if {"chain", "draw"} <= set(names) else None
    if chain_column:
        chains = lengths_of_chains(_column(table, chain_column, path), path)
    dropped = _BOOKKEEPING | ({"chain", "draw"} if chain_column == "chain" else set())
    kept = [name for name in names if name not in dropped and not _is_row_index(table, name, path)]
    if not kept:
        raise bad_file(path, "at least one column of a parameter", names, "Write the parameters too.")
    array = np.stack([_column(table, name, path) for name in kept], axis=1)
    return DrawFile(array, names=tuple(kept), chains=chains)


def _is_row_index(table: pyarrow.Table, name: str, path: Path | str) -> bool:
    """The row numbers that pandas writes as a column without a name, or under this one in Parquet."""
    if name not in ("", "__index_level_0__", "Unnamed: 0"):
        return False
    values = _column(table, name, path)
    if np.array_equal(values - values[0], np.arange(len(values))):
        return True
    raise bad_file(path, "named in every column", f"a column called {name!r}", "Name it or leave it out.")


def _extras(table: pyarrow.Table, names: list[str], path: Path | str) -> dict[str, np.ndarray]:
    found: dict[str, list[np.ndarray]] = {}
    for name in names:
        if match := _EXTRA.match(name):
            finite = match[1] == "coordinates"
            found.setdefault(match[1], []).append(_column(table, name, path, finite=finite))
    return {k: np.stack(v, axis=1) if k == "coordinates" else v[0] for k, v in found.items()}


def _column(table: pyarrow.Table, name: str, path: Path | str, finite: bool = True) -> np.ndarray:
    """One column as float64; what is not a number is refused by name."""
    import pyarrow
    import pyarrow.types

    column = table.column(name)
    kind = column.type
    if not (pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind) or pyarrow.types.is_null(kind)):
        raise bad_file(
            path,
            "numbers in every column",
            f"{kind} in column {name!r}, such as {_first_odd(column)!r}",
            "Leave that column out.",
        )
    if column.null_count:
        raise bad_file(
            path,
            "complete",
            f"{column.null_count} missing values in column {name!r}",
            "Remove those draws or sample again.",
        )
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    bad = ~np.isfinite(values) if finite else np.isnan(values)
    if bad.any():
        raise bad_file(
            path,
            "finite",
            f"{int(bad.sum())} NaN or infinite values in column {name!r}",
            "Remove those draws or sample again.",
        )
    return values


def _first_odd(column: Any) -> Any:
    """The first entry that kept a column from being numbers."""
    values = (value.as_py() for value in column)
    return next((value for value in values if not _is_number(str(value))), column[0].as_py())
