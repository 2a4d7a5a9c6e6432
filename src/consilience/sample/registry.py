"""The samplers by name."""

from __future__ import annotations

import difflib
from dataclasses import fields
from typing import Any

from consilience.errors import InputError, must_be
from consilience.sample.hmc import HMC
from consilience.sample.kernel import Sampler
from consilience.sample.nuts import NUTS

SAMPLERS: tuple[type[Any], ...] = (HMC, NUTS)


def get_sampler(sampler: str | Sampler, **options: Any) -> Sampler:
    """Look a sampler up by name, or pass a configured one through.

    Examples
    --------
    >>> get_sampler("hmc", chains=2).chains
    2
    """
    by_name = {kind.name: kind for kind in SAMPLERS}
    if not isinstance(sampler, str):
        if isinstance(sampler, type) or not callable(getattr(sampler, "kernel", None)):
            advice = "Pass a name, or an instance such as HMC(chains=4)."
            raise must_be(
                "fit", "sampler", f"one of {sorted(by_name)} or a sampler", sampler, advice, InputError
            )
        return sampler
    if sampler not in by_name:
        close = difflib.get_close_matches(sampler, by_name, n=1)
        advice = f"Did you mean {close[0]!r}?" if close else "Choose one of these."
        raise must_be("fit", "sampler", f"one of {sorted(by_name)}", sampler, advice, InputError)
    known = {setting.name for setting in fields(by_name[sampler])}
    for option in options:
        if option not in known:
            advice = f"Settings of {sampler} are {sorted(known)}."
            raise must_be(f"sampler {sampler}", "setting", "one that it has", option, advice, InputError)
    chosen: Sampler = by_name[sampler](**options)
    return chosen
