"""Every refinement, in the order in which they are listed to users."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any

from consilience.errors import must_be
from consilience.refine.auto import Auto
from consilience.refine.base import Refinement
from consilience.refine.calibrate import Calibrate
from consilience.refine.jackknife import Jackknife
from consilience.refine.newton import Newton
from consilience.refine.polish import Polish
from consilience.refine.reweight import Reweight
from consilience.refine.surrogate import Surrogate

REFINEMENTS: tuple[type[Refinement], ...] = (Auto, Calibrate, Newton, Surrogate, Reweight, Polish, Jackknife)


def get_refinement(name: str, **options: Any) -> Refinement:
    """Make a refinement from its name and options.

    Examples
    --------
    >>> get_refinement("calibrate", max_rounds=2).max_rounds
    2
    >>> get_refinement("nothing")
    Traceback (most recent call last):
    ...
    consilience.errors.InputError: refine: `refine` must be one of 'auto', 'calibrate', ... Got 'nothing'. ...
    """
    by_name = {kind.name: kind for kind in REFINEMENTS}
    if not isinstance(name, str) or name not in by_name:
        close = difflib.get_close_matches(str(name), by_name, n=1)
        advice = f"Did you mean {close[0]!r}?" if close else "Leave it out for 'auto', or pass None for none."
        listed = ", ".join(repr(known) for known in by_name)
        raise must_be("refine", "refine", f"one of {listed}", name, advice)
    kind = by_name[name]
    known_options = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for option, value in options.items():
        if option not in known_options:
            listed = ", ".join(known_options) or "none"
            raise must_be(f"refine {name!r}", option, f"one of its options ({listed})", value, "Check it.")
    return kind(**options)
