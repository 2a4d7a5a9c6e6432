"""What a run was asked for, and whether another command asks for the same."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..errors import StoreError
from .files import read_json, write_json

FORMAT = 1
MANIFEST = "manifest.json"

# Another version may give other bits, but not another posterior: worth a note, no reason to refuse.
_NOTED_ONLY = ("versions",)
_MOST_DIFFERENCES_SHOWN = 8

# They say that something differs and not what: shown only where nothing else of the same part does.
_OPAQUE = ("fingerprint", "ends", "mtime_ns")
_ABSENT = object()


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write down what the run was asked for."""
    write_json(path / MANIFEST, {"format": FORMAT, "manifest": manifest})


def read_manifest(path: Path) -> dict[str, Any]:
    stored = read_json(path / MANIFEST)
    made_as = stored.get("format") if isinstance(stored, dict) else None
    if made_as != FORMAT:
        raise StoreError(
            f"run directory {path}: its format is {made_as!r}, this version of consilience reads {FORMAT}. "
            "Use the version that made it, or choose another directory with --out."
        )
    return stored["manifest"]


def compare(path: Path, stored: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """Refuse another run in the same directory, saying what differs; return notes on what may differ."""
    differences: list[str] = []
    notes: list[str] = []
    for key in sorted({*stored, *wanted}):
        found = _telling(_differences(key, stored.get(key, _ABSENT), wanted.get(key, _ABSENT)))
        (notes if key in _NOTED_ONLY else differences).extend(found)
    if differences:
        rest = len(differences) - _MOST_DIFFERENCES_SHOWN
        shown = "; ".join(differences[:_MOST_DIFFERENCES_SHOWN]) + (f"; and {rest} more" if rest > 0 else "")
        raise StoreError(
            f"run directory {path}: {shown}. "
            "Choose another directory with --out, or delete this one to start again."
        )
    if notes:
        return [
            f"{'; '.join(notes)}: draws made from now on may differ in rounding from those already there."
        ]
    return []


def _differences(name: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(f"{name}.{key}", old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, (before, now) in enumerate(zip(old, new, strict=True)):
            yield from _differences(f"{name}[{position}]", before, now)
    elif _shown(old) != _shown(new):
        if name.rpartition(".")[2] in _OPAQUE:
            yield f"{name} has changed"
        else:
            yield f"{name} was {_shortened(old)}, is {_shortened(new)}"


def _telling(differences: Iterable[str]) -> list[str]:
    every = list(differences)
    return [text for text in every if not text.endswith(" has changed")] or every


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "not set"
    if isinstance(value, float) and value.is_integer():
        return json.dumps(int(value))
    return json.dumps(value, ensure_ascii=False)


def _shortened(value: Any) -> str:
    text = _shown(value)
    return text if len(text) <= 80 else text[:77] + "..."
