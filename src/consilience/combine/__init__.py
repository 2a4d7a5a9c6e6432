"""Many sets of draws to one posterior: one file per rule, a literal registry, one driver."""

import inspect
import sys
from types import ModuleType

from .base import Combined, Combiner
from .driver import combine
from .registry import COMBINERS, MethodRecord, get_combiner, methods

__all__ = ["COMBINERS", "Combined", "Combiner", "MethodRecord", "combine", "get_combiner", "methods"]


class _CallableRoom(ModuleType):
    """This room, which may be called as the function that it is named for.

    Python puts a submodule under its name into the package once it is imported, over the function
    `consilience.combine` that is promised there.
    """

    __call__ = staticmethod(combine)
    __signature__ = inspect.signature(combine)


sys.modules[__name__].__class__ = _CallableRoom
