"""How far results can be trusted: agreement of shards, distance to a reference, and the certificate that needs none."""

from consilience.diagnose.agreement import Agreement, agreement
from consilience.diagnose.certificate import Certificate, certify
from consilience.diagnose.comparison import compare
from consilience.diagnose.discrepancy import Discrepancy

__all__ = ["Agreement", "Certificate", "Discrepancy", "agreement", "certify", "compare"]
