"""How far results can be trusted: distance to a reference, and the certificate that needs none."""

from consilience.diagnose.certificate import Certificate, certify
from consilience.diagnose.comparison import compare
from consilience.diagnose.discrepancy import Discrepancy

__all__ = ["Certificate", "Discrepancy", "certify", "compare"]
