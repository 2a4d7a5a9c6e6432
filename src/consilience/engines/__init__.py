"""WHERE TASKS RUN: an engine owns placement, order and repetition of tasks, and nothing else.

Each engine is a small frozen configuration with one method, ``map``. All of them share one loop (`_driver`)
and one form of a task on its way (`_tasks`); an engine's own file only says where a task goes.
"""

from ._tasks import Event, TaskFailure
from .registry import ENGINES, Engine, get_engine

__all__ = ["ENGINES", "Engine", "Event", "TaskFailure", "get_engine"]
