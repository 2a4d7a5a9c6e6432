"""How far results can be trusted: distance to a reference."""

from consilience.diagnose.comparison import compare
from consilience.diagnose.discrepancy import Discrepancy

__all__ = ["Discrepancy", "compare"]
