"""ArviZ's InferenceData and DataTree: in memory, as netCDF and as zarr.

All three are groups of labelled arrays (chain, draw, …). The posterior group holds the draws; of sample_stats, `lp`
is the log density of the sampler's own unconstrained coordinates, and `diverging` counts. Variables that end in
"__" are left out, as CmdStan's columns are: PyMC keeps its transformed copies under such names (`sigma_log__`).

netCDF is read by ArviZ. zarr is read by xarray, because ArviZ 0.x refuses zarr 3; both formats of zarr are read, 2
and 3. A zarr array may name "pickle" as its codec; not every release of zarr refuses to follow it. Every description
in the store is looked at first, and such a store is refused before it is opened.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from consilience.draws import Posterior
from consilience.draws.files.binary import from_variables, numbers
from consilience.draws.files.record import KEY, DrawFile, bad_file, from_metadata, metadata_text
from consilience.draws.posterior import arviz_from_dict
from consilience.errors import InputError, must_be

# netCDF allows no "/" in the name of a variable; formulas do ("x / y").
_SLASH, _STAND_IN = "/", "\N{DIVISION SLASH}"
_UNREADABLE = (ValueError, EOFError, LookupError, OSError, AttributeError, TypeError, RuntimeError)
_ZARR_DESCRIPTIONS = ("zarr.json", ".zarray", ".zmetadata")
_WRITE_NETCDF, _WRITE_ZARR = (
    "Write it with ArviZ's to_netcdf.",
    "Write it with ArviZ's to_zarr, or a DataTree's.",
)


def require_arviz(path: Path) -> Any:
    """Import what netCDF needs, or say what to install."""
    try:
        import arviz
    except ImportError:
        raise _not_installed(path, "arviz", "netCDF") from None
    return arviz


def _not_installed(path: Path, package: str, form: str) -> Exception:
    advice = 'Run `pip install "consilience[arviz]"`.'
    return must_be(
        f"file {path}", package, f"installed to read or write {form}", "no such package", advice, InputError
    )


def is_inference_data(value: Any) -> bool:
    """InferenceData, or the DataTree that ArviZ 1 returns; both are mappings too, of groups."""
    if isinstance(value, np.ndarray | dict):
        return False
    return hasattr(value, "posterior") or (isinstance(value, Mapping) and hasattr(value, "groups"))


def from_inference_data(data: Any, where: str) -> DrawFile:
    """Draws of an object of ArviZ, or of PyMC and others that return one.

    Examples
    --------
    >>> from consilience.draws import Posterior
    >>> data = Posterior(np.eye(4)[:, :2], names=("a", "b"), chain_lengths=(2, 2)).to_arviz()
    >>> file = from_inference_data(data, "draws[0]")
    >>> file.names, file.chains
    (('a', 'b'), (2, 2))
    """
    try:
        statistics = data["sample_stats"] if "sample_stats" in _groups(data) else None
        return _from_groups(data.posterior, statistics, where)
    except (KeyError, AttributeError, TypeError) as error:
        raise bad_file(where, "an InferenceData with a posterior", str(error), "Pass such a one.") from None


def read_netcdf(path: Path) -> DrawFile:
    """Read what ArviZ (`to_netcdf`) or we wrote."""
    arviz = require_arviz(path)
    try:
        data = arviz.from_netcdf(str(path))
    except _UNREADABLE as error:
        raise bad_file(
            path, "a netCDF file of ArviZ with a posterior", _first_line(error), _WRITE_NETCDF
        ) from None
    try:
        statistics = data["sample_stats"] if "sample_stats" in _groups(data) else None
        return _from_groups(data["posterior"], statistics, path)
    except (LookupError, OSError, AttributeError, TypeError, RuntimeError) as error:
        raise bad_file(
            path, "a netCDF file of ArviZ with a posterior", _first_line(error), _WRITE_NETCDF
        ) from None
    finally:
        if hasattr(data, "close"):
            data.close()


def read_zarr(path: Path) -> DrawFile:
    """Read a folder that ArviZ's or a DataTree's `to_zarr` wrote."""
    try:
        import xarray  # noqa: F401
        import zarr  # noqa: F401 (xarray's own message does not name the extra)
    except ImportError:
        raise _not_installed(path, "zarr", "zarr") from None
    _refuse_pickles(path)
    wrong = "a zarr folder of ArviZ with a posterior"
    try:
        posterior = _zarr_group(path, "posterior")
        # Folders have no order of their own.
        posterior = posterior[sorted(map(str, posterior.data_vars))]
        try:
            statistics = _zarr_group(path, "sample_stats")
        except (KeyError, FileNotFoundError):
            statistics = None
    except _UNREADABLE as error:
        raise bad_file(path, wrong, _first_line(error), _WRITE_ZARR) from None
    return _from_groups(posterior, statistics, path)


def _zarr_group(path: Path, group: str) -> Any:
    import xarray

    # Not by the summary that some writers leave: it may be older than the arrays, and was not looked at for each.
    with xarray.open_dataset(path, group=group, engine="zarr", chunks=None, consolidated=False) as data:
        return data.load()


def is_zarr(path: Path) -> bool:
    """A folder that describes itself as zarr, or is called so."""
    described = any((path / name).is_file() for name in ("zarr.json", ".zgroup", ".zmetadata"))
    return path.suffix.lower() == ".zarr" or described


def _refuse_pickles(path: Path) -> None:
    for description in sorted(path.rglob("*")):
        if description.name not in _ZARR_DESCRIPTIONS:
            continue
        try:
            content = json.loads(description.read_text("utf-8"))
        except (ValueError, OSError) as error:
            raise bad_file(path, "a whole zarr folder", f"{description.name}: {error}", _WRITE_ZARR) from None
        if any("pickle" in codec.lower() for codec in _codecs(content)):
            advice = "Write numbers only, with the usual compression."
            raise bad_file(path, "free of pickled objects", f"a pickle codec in {description}", advice)


def _codecs(content: Any) -> Iterator[str]:
    """Names of all codecs in a description, wherever they are; attributes are the user's own words."""
    if isinstance(content, dict):
        for key, value in content.items():
            if key in ("id", "name") and isinstance(value, str):
                yield value
            elif key != "attributes" and not key.endswith(".zattrs"):
                yield from _codecs(value)
    elif isinstance(content, list):
        for value in content:
            yield from _codecs(value)


def _groups(data: Any) -> list[str]:
    """Names of the groups, of an InferenceData (a method) or of a DataTree (a property with slashes)."""
    groups = data.groups() if callable(data.groups) else data.groups
    return [str(name).lstrip("/") for name in groups]


def _from_groups(posterior: Any, statistics: Any, where: Path | str) -> DrawFile:
    text = posterior.attrs.get(KEY)
    values = {
        name.replace(_STAND_IN, _SLASH): array
        for name, array in _by_chain(posterior, where).items()
        if text is not None or not name.endswith("__")
    }
    if not values:
        raise bad_file(where, "at least one parameter", "none", "Write the posterior group.")
    num_chains, num_draws = next(iter(values.values())).shape[:2]
    extras = {} if statistics is None else _by_chain(statistics, where, only=_statistics(text))
    extras = {
        name: array.reshape(num_chains * num_draws, *array.shape[2:])
        for name, array in extras.items()
        if array.shape[:2] == (num_chains, num_draws) and array.dtype.kind in "fiub"
    }
    flat = {
        name: numbers(array, where, name).reshape(num_chains * num_draws, *array.shape[2:])
        for name, array in values.items()
    }
    if text is not None:
        flat = {name: flat[name] for name in _order_of_ours(text, list(flat))}
        return from_metadata(text, from_variables(flat).array, extras, where)
    density, diverging = extras.get("lp"), extras.get("diverging")
    return from_variables(
        flat,
        chains=(num_draws,) * num_chains,
        log_densities=None if density is None else numbers(density, where, "lp"),
        unconstrained_densities=density is not None,
        divergences=None if diverging is None else int(diverging.sum()),
    )


def _order_of_ours(text: str, found: list[str]) -> list[str]:
    """The order in which we wrote parameters; other writers of our files need not keep it."""
    try:
        order = list(json.loads(text)["shapes"])
    except (ValueError, LookupError, TypeError):
        return found  # a damaged description is refused in words of its own
    return order if sorted(order) == sorted(found) else found


def _statistics(text: str | None) -> tuple[str, ...]:
    return ("lp", "diverging") if text is None else ("log_weight", "log_density", "coordinates")


def _by_chain(group: Any, where: Path | str, only: tuple[str, ...] | None = None) -> dict[str, np.ndarray]:
    """A group's variables as (chain, draw, …) arrays."""
    found = {}
    for name, variable in group.data_vars.items():
        if only is not None and str(name) not in only:
            continue
        if not {"chain", "draw"} <= set(variable.dims):
            dims = f"{', '.join(map(str, variable.dims)) or 'no dimensions'} in {name}"
            raise bad_file(where, "(chain, draw, …) in every variable", dims, "Leave that variable out.")
        found[str(name)] = np.asarray(variable.transpose("chain", "draw", ...).values)
    return found


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def write_netcdf(record: DrawFile, temporary: Path) -> None:
    """Unlike `Posterior.to_arviz`, keep draws as they are: their log weights lie in sample_stats."""
    require_arviz(temporary)
    lengths = record.chains or (len(record.array),)
    chains = len(lengths) if len(set(lengths)) == 1 else 1
    draws = Posterior(record.array, names=record.column_names, shapes=record.shapes).draws
    groups = {
        "posterior": {
            name.replace(_SLASH, _STAND_IN): v.reshape(chains, -1, *v.shape[1:]) for name, v in draws.items()
        }
    }
    if extras := record.per_draw():
        groups["sample_stats"] = {k: v.reshape(chains, -1, *v.shape[1:]) for k, v in extras.items()}
    data = arviz_from_dict(groups)
    data["posterior"].attrs[KEY] = metadata_text(record)
    data.to_netcdf(str(temporary))
