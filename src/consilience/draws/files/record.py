"""What a file of draws holds, apart from its format, and the JSON that our own files carry."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from consilience.draws import default_names
from consilience.errors import DrawsError, InputError, must_be

KEY = "consilience"
FORMAT_VERSION = 1


@dataclass(frozen=True, eq=False)
class DrawFile:
    """The content of one file of draws.

    Attributes
    ----------
    array : (N, d) float64, chains one after the other
    names : names of the columns, or None when the file has none
    chains : lengths of the chains, or None when the file does not tell
    kind, weight : the target sampled and the shard's weight, when the file is ours; else None
    log_weights, log_densities, coordinates : (N,), (N,), (N, d_u), when the file has them
    unconstrained_densities : the log densities are those of the sampler's own unconstrained coordinates (all
        samplers that ArviZ reads, and CmdStan, write these), and not those of the draws as they stand
    shapes : {parameter: shape}, empty when the file does not tell
    divergences : number of divergent transitions, when the sampler wrote it
    run : the rows' file and the chain's number, when the sampler wrote them
    info : what else our files record
    """

    array: np.ndarray
    names: tuple[str, ...] | None = None
    chains: tuple[int, ...] | None = None
    kind: str | None = None
    weight: float | None = None
    log_weights: np.ndarray | None = None
    log_densities: np.ndarray | None = None
    coordinates: np.ndarray | None = None
    effective_sizes: np.ndarray | None = None
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    label: str | None = None
    info: dict[str, Any] = field(default_factory=dict)
    content: str = "draws"  # "posterior" and "subposterior" in our own files
    unconstrained_densities: bool = False
    divergences: int | None = None
    run: tuple[str, str] | None = None

    @property
    def column_names(self) -> tuple[str, ...]:
        return self.names or default_names(self.array.shape[1])

    def per_draw(self) -> dict[str, np.ndarray]:
        """What there is one of per draw beside the parameters, by the name it has in files."""
        found = {
            "log_weight": self.log_weights,
            "log_density": self.log_densities,
            "coordinates": self.coordinates,
        }
        return {name: value for name, value in found.items() if value is not None}


def metadata_text(record: DrawFile) -> str:
    """Everything that is not one number per draw, as one line of JSON."""
    content = {
        "version": FORMAT_VERSION,
        "content": record.content,
        "names": list(record.column_names),
        "shapes": {name: list(shape) for name, shape in record.shapes.items()},
        "chains": record.chains,
        "kind": record.kind,
        "weight": record.weight,
        "label": record.label,
        "effective_sizes": None if record.effective_sizes is None else record.effective_sizes.tolist(),
        "info": record.info,
    }
    try:
        return json.dumps(content, default=_plain)
    except (TypeError, ValueError) as error:
        raise must_be(
            "save", "info", "made of text, numbers, lists and dicts", str(error), "Convert it.", InputError
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def from_metadata(text: str, array: np.ndarray, extras: dict[str, np.ndarray], path: Path | str) -> DrawFile:
    """Rebuild a record from the JSON and the arrays of one of our files."""
    try:
        content = json.loads(text)
        if content["version"] > FORMAT_VERSION:
            raise bad_file(
                path, f"of version {FORMAT_VERSION} or older", content["version"], "Update consilience."
            )
        sizes = content["effective_sizes"]
        return DrawFile(
            array=array,
            names=tuple(content["names"]),
            chains=None if content["chains"] is None else tuple(content["chains"]),
            kind=content["kind"],
            weight=content["weight"],
            log_weights=extras.get("log_weight"),
            log_densities=extras.get("log_density"),
            coordinates=extras.get("coordinates"),
            effective_sizes=None if sizes is None else np.asarray(sizes, dtype=np.float64),
            shapes={name: tuple(shape) for name, shape in content["shapes"].items()},
            label=content["label"],
            info=content["info"],
            content=content["content"],
        )
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise bad_file(path, "whole", f"a damaged description ({error})", "Write the file again.") from None


def bad_file(path: Path | str, constraint: str, value: Any, next_step: str) -> Exception:
    """The error for a file (or an object) that cannot be used: it names it."""
    return must_be(f"read {path}", "draws", constraint, value, next_step, DrawsError)


def lengths_of_chains(chain: np.ndarray, path: Path | str) -> tuple[int, ...]:
    """Lengths of the runs of a column that numbers chains; every chain must be one run."""
    edges = np.flatnonzero(np.diff(chain) != 0) + 1
    starts = np.concatenate([[0], edges])
    if len(np.unique(chain[starts])) != len(starts):
        raise bad_file(
            path, "sorted by chain", "chains that alternate", "Sort the rows by chain, then by draw."
        )
    return tuple(int(n) for n in np.diff(np.concatenate([starts, [len(chain)]])))


def scalar_names(name: str, shape: tuple[int, ...]) -> list[str]:
    """Names of the entries of a parameter in row-major order, counted from 0: beta[0], beta[1].

    Examples
    --------
    >>> scalar_names("L", (1, 2)), scalar_names("sigma", ())
    (['L[0,0]', 'L[0,1]'], ['sigma'])
    """
    return [f"{name}[{','.join(map(str, index))}]" if index else name for index in np.ndindex(*shape)]
