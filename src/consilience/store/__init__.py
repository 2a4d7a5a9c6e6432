"""The run directory, where a run keeps what it has done. See `directory`."""

from .directory import RunDirectory

__all__ = ["RunDirectory"]
