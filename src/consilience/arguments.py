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


def parse_methods(text: str) -> list[str]:
    """Names of rules separated by commas.

    Examples
    --------
    >>> parse_methods("swiss, pool")
    ['swiss', 'pool']
    """
    methods = [part.strip() for part in text.split(",")]
    if not all(methods) or len(set(methods)) != len(methods):
        advice = "For example --method swiss,pool."
        raise must_be("command line", "--method", "rules separated by commas, each once", text, advice)
    return methods


def parse_rule_settings(pairs: list[str], methods: list[str]) -> dict[str, dict[str, Any]]:
    """Read NAME=VALUE, for every rule that has such an option, and RULE.NAME=VALUE, for one of several rules.

    Examples
    --------
    >>> parse_rule_settings(["consensus.weighting=diagonal"], ["consensus", "gaussian-product"])
    {'consensus': {'weighting': 'diagonal'}, 'gaussian-product': {}}
    """
    settings: dict[str, dict[str, Any]] = {method: {} for method in methods}
    for pair in pairs:
        rule, point, rest = pair.partition(".")
        if point and rule in settings:
            settings[rule].update(parse_settings([rest]))
            continue
        ((name, value),) = parse_settings([pair]).items()
        for method in [m for m in methods if len(methods) == 1 or name in _options_of(m)] or methods[:1]:
            settings[method][name] = value
    return settings


def _options_of(method: str) -> tuple[str, ...]:
    from consilience.combine import methods

    return next((record.options for record in methods() if record.name == method), ())


def parse_supports(pairs: list[str]) -> dict[str, str]:
    """Read PARAMETER=SUPPORT pairs.

    Examples
    --------
    >>> parse_supports(["sigma=positive"])
    {'sigma': 'positive'}
    """
    supports = {}
    for pair in pairs:
        name, equals, support = pair.rpartition("=")
        if not equals or not name:
            advice = "For example --support sigma=positive."
            raise must_be("command line", "--support", "PARAMETER=SUPPORT", pair, advice)
        supports[name.strip()] = support.strip()
    return supports


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
