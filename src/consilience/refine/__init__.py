"""ANOTHER LOOK AT THE DATA: the pass-back, and one file per refinement."""

from consilience.refine.base import Refined, Refinement
from consilience.refine.pass_back import Evaluation, Ledger, PassBack
from consilience.refine.registry import REFINEMENTS, get_refinement

__all__ = ["REFINEMENTS", "Evaluation", "Ledger", "PassBack", "Refined", "Refinement", "get_refinement"]
