"""What travels between the rooms: the draws of every shard (`Subposteriors`) and of the whole (`Posterior`).

The kind of target that a shard's draws follow and the shard's weight travel with the draws, because feeding a
rule the other kind is a silent error of a factor sqrt(B) in scale:

- ``"subposterior"``: prior^w_b x likelihood_b; the posterior is the product over shards;
- ``"inflated"``: prior x likelihood_b^(1/w_b); the posterior is the product of their w_b-th powers.
"""

from consilience.draws.checks import KINDS, default_names, shapes_from_names
from consilience.draws.posterior import Posterior
from consilience.draws.subposteriors import Subposteriors

__all__ = ["KINDS", "Posterior", "Subposteriors", "default_names", "shapes_from_names"]
