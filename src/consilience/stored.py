"""Read a finished run directory back."""

from __future__ import annotations

import os
from pathlib import Path

from consilience.diagnose import Certificate
from consilience.draws import Subposteriors
from consilience.draws.files import load
from consilience.errors import StoreError, must_be
from consilience.fitted import Cost, Fit
from consilience.store import RunDirectory


def posterior_path(path: str | os.PathLike[str]) -> Path:
    """The file with the draws: the path itself, or the posterior of a run directory."""
    path = Path(path)
    if not path.exists():
        raise must_be("compare", "draws", "an existing file or run directory", str(path), "Check the path.")
    if not path.is_dir():
        return path
    posterior = path / "posterior.npz"
    if not posterior.is_file():
        advice = f"Run `consilience fit ... --out {path}` to its end, or name a file of draws."
        raise must_be("compare", "draws", "the directory of a finished run", str(path), advice, StoreError)
    return posterior


def load_fit(path: str | os.PathLike[str]) -> Fit:
    """Read the result of a finished run.

    The shards' draws come back in the user's parameters: how they map to the unconstrained space is the
    model's, and models are not stored.
    """
    path = Path(path)
    if not (path / "posterior.npz").is_file() or not (path / "diagnostics.json").is_file():
        raise StoreError(
            f"report: {path} is not the directory of a finished run. Run `consilience fit ... --out {path}` to its end."
        )
    store = RunDirectory.existing(path)
    posterior = load(path / "posterior.npz")
    found = store.read_json("diagnostics.json")
    loaded = [store.load_shard(record["index"]) for record in found["shards"]]
    missing = [
        str(record["index"]) for record, shard in zip(found["shards"], loaded, strict=True) if shard is None
    ]
    if missing:
        raise StoreError(
            f"report: shards {', '.join(missing[:5])} of {path} are damaged. Run the fit again; it redoes only them."
        )
    shards = [arrays for arrays, _ in (shard for shard in loaded if shard is not None)]
    subposteriors = Subposteriors.of(
        [arrays["user"] for arrays in shards],
        kind=found["settings"]["kind"],
        weights=[record["weight"] for record in found["shards"]],
        names=posterior.names,
        labels=[record["label"] for record in found["shards"]],
        chain_lengths=[tuple(int(n) for n in arrays["chain_lengths"]) for arrays in shards],
    )
    certificate = found.get("certificate")
    return Fit(
        posterior=posterior,
        subposteriors=subposteriors,
        cost=Cost(**found["cost"]),
        shard_records=tuple(found["shards"]),
        model=found["model"],
        settings=found["settings"],
        certificate=None if certificate is None else Certificate.from_dict(certificate),
        notes=tuple(found["notes"]),
        warnings=tuple(found["warnings"]),
    )
