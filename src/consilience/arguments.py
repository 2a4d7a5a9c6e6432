"""What the command line says as text, turned into what Python takes."""

from __future__ import annotations

import re
from typing import Any

from consilience.errors import InputError, must_be

_CALL = re.compile(r"^\s*(?P<name>[A-Za-z]\w*)\s*\((?P<arguments>[^()]*)\)\s*$")
_PARTITIONS = "random, stratified, stratified:COLUMN,..., group:COLUMN or time:COLUMN"


def parse_value(text: str) -> Any:
    """A number or a truth value where the text is one, else the text.

    Examples
    --------
    >>> parse_value("3"), parse_value("0.5"), parse_value("true"), parse_value("full")
    (3, 0.5, True, 'full')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_settings(pairs: list[str]) -> dict[str, Any]:
    """Read NAME=VALUE pairs.

    Examples
    --------
    >>> parse_settings(["weighting=diagonal"])
    {'weighting': 'diagonal'}
    """
    settings = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.isidentifier():
            raise must_be(
                "command line", "--option", "NAME=VALUE", pair, "For example --option weighting=diagonal."
            )
        settings[name] = parse_value(value)
    return settings


def parse_shards(text: str) -> int | str:
    """A number of shards, "auto", or the name of a column."""
    try:
        return int(text)
    except ValueError:
        return text


def parse_weights(text: str | None) -> list[float] | None:
    """Numbers separated by commas."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        advice = "For example --weights 0.5,0.25,0.25."
        raise must_be("command line", "--weights", "numbers separated by commas", text, advice) from None


def parse_partition(how: str, shards: int | str) -> Any:
    """What `fit` takes as `shards`, from the two options that decide it."""
    name, _, columns = how.partition(":")
    if name == "random" and not columns:
        return shards
    if name not in ("stratified", "group", "time") or (name != "stratified" and not columns):
        raise must_be(
            "command line", "--partition", f"one of {_PARTITIONS}", how, "Write it in one of these ways."
        )
    if not isinstance(shards, int):
        raise must_be(
            "command line", "--shards", f"a number with --partition {name}", shards, "Say how many."
        )
    from consilience.data import GroupPartition, StratifiedPartition, TimePartition

    if name == "stratified":
        return StratifiedPartition(shards, columns=tuple(columns.split(",")) if columns else None)
    return GroupPartition(shards, columns) if name == "group" else TimePartition(shards, columns)


def parse_priors(texts: list[str]) -> Any:
    """Read priors: one for all coefficients, or some by coefficient's name.

    Examples
    --------
    >>> parse_priors(["distance=Normal(0, 2)"])["distance"].scale
    2.0
    """
    if not texts:
        return None
    if len(texts) == 1 and _CALL.match(texts[0]):
        return parse_prior(texts[0])
    priors = {}
    for text in texts:
        # A coefficient's name may hold "=", as in C(a, levels=...): the prior is what follows the last one.
        name, equals, prior = text.rpartition("=")
        if not equals:
            raise _wrong_prior(text)
        priors[name.strip()] = parse_prior(prior)
    return priors


def parse_prior(text: str) -> Any:
    """Read one NumPyro distribution with numbers for arguments, such as Normal(0, 10)."""
    import numpyro.distributions as dist

    match = _CALL.match(text)
    kind = getattr(dist, match["name"], None) if match else None
    if match is None or not (isinstance(kind, type) and issubclass(kind, dist.Distribution)):
        raise _wrong_prior(text)
    positional: list[float] = []
    named: dict[str, float] = {}
    try:
        for part in filter(None, (part.strip() for part in match["arguments"].split(","))):
            key, equals, value = part.partition("=")
            if equals:
                named[key.strip()] = float(value)
            else:
                positional.append(float(part))
        return kind(*positional, **named, validate_args=True)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"command line: `--prior` {text!r} cannot be made: {str(error).rstrip('.')}. See NumPyro's documentation."
        ) from None


def _wrong_prior(text: str) -> Exception:
    advice = "For example --prior 'Normal(0, 10)' or --prior 'distance=Normal(0, 1)'."
    return must_be("command line", "--prior", "a NumPyro distribution with numbers", text, advice)
