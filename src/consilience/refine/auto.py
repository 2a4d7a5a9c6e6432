"""The cheapest refinements that reach the floor, chosen from what was measured.

Scores at a few draws decide: where mean and covariance already agree with them, nothing is done; where they do not,
the draws are calibrated. Afterwards R^2, the share of the scores that a Gaussian explains, says whether an affine map
could have been enough. Where it could not, a polynomial is fitted to scores and sampled (`surrogate`), in no more
dimensions than its few hundred points were tried in; it judges for itself whether it is nearer than the calibrated
draws, which are returned if not.

Fails where scores at the draws cannot see what is wrong: a mode or a tail without draws. The certificate
says what it could not see. Shapes that no polynomial has are left as they were, and it is said: `reweight` and `polish`
are for these.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from consilience.draws import Subposteriors
from consilience.refine.base import Floats, Need, Refined
from consilience.refine.calibrate import Calibrate
from consilience.refine.pass_back import PassBack
from consilience.refine.surrogate import Surrogate

# Under this share of predictable scores an affine map cannot be expected to be enough.
NEAR_GAUSSIAN = 0.9
# Dimensions in which a surrogate from a few hundred scores was measured.
MOST_DIMENSIONS = 20


@dataclass(frozen=True)
class Auto:
    """Choose refinements and say why.

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
        """Calibrate, which begins by measuring whether there is anything to do; then mend the shape if it must be."""
        begun = pass_back.ledger
        moved = Calibrate().refine(draws, log_weights, pass_back, subposteriors, seed=seed)
        history = moved.record["history"]
        r_squared = history[-1]["r_squared"] if history else None
        chosen = "calibrate" if moved.record["rounds"] and moved.record["kept"] else "nothing"
        note, last = moved.notes[0], moved
        if r_squared is not None and r_squared < NEAR_GAUSSIAN:
            note += "; not Gaussian enough for an affine map alone"
            if draws.shape[1] <= MOST_DIMENSIONS:
                shaped = Surrogate().refine(
                    moved.array, moved.log_weights, pass_back, subposteriors, seed=seed
                )
                note += f", so {shaped.notes[0]}"
                if shaped.record["kept"]:
                    chosen = "surrogate" if chosen == "nothing" else f"{chosen}, surrogate"
                    last = shaped
        record = {**moved.record, "name": self.name, "chosen": chosen, "reason": note}
        record["cost"] = pass_back.ledger.since(begun).to_dict()
        if last is not moved:
            record["surrogate"] = last.record
        return replace(last, notes=(note, *moved.notes[1:]), warnings=moved.warnings, record=record)
