"""The cheapest refinement that reaches the floor, chosen from what was measured.

Scores at a few draws decide: where mean and covariance already agree with them, nothing is done; where they
do not, the draws are calibrated. Afterwards R^2 says whether an affine map could have been enough.

Fails where scores at the draws cannot see what is wrong: a mode or a tail without draws. The certificate
says what it could not see.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from consilience.draws import Subposteriors
from consilience.refine.base import Floats, Need, Refined
from consilience.refine.calibrate import Calibrate
from consilience.refine.pass_back import PassBack

# Under this share of predictable scores an affine map cannot be expected to be enough.
NEAR_GAUSSIAN = 0.9


@dataclass(frozen=True)
class Auto:
    """Choose a refinement and say why.

    Examples
    --------
    >>> Auto().needs
    ('draws', 'pass-back')
    """

    name: ClassVar[str] = "auto"
    reference: ClassVar[str] = "DESIGN section 1 of this project"
    needs: ClassVar[tuple[Need, ...]] = ("draws", "pass-back")
    exact_for_gaussian: ClassVar[bool] = True

    def refine(
        self,
        draws: Floats,
        log_weights: Floats | None,
        pass_back: PassBack,
        subposteriors: Subposteriors | None = None,
        *,
        seed: int = 0,
    ) -> Refined:
        """Calibrate, which begins by measuring whether there is anything to do."""
        refined = Calibrate().refine(draws, log_weights, pass_back, subposteriors, seed=seed)
        history = refined.record["history"]
        r_squared = history[-1]["r_squared"] if history else None
        note = refined.notes[0]
        if r_squared is not None and r_squared < NEAR_GAUSSIAN:
            note += "; not Gaussian enough for an affine map alone to mend every error"
        chosen = "calibrate" if refined.record["rounds"] and refined.record["kept"] else "nothing"
        record = {**refined.record, "name": self.name, "chosen": chosen, "reason": note}
        return replace(refined, notes=(note, *refined.notes[1:]), record=record)
