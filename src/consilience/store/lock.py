"""One writer at a time."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

from ..errors import StoreError
from .files import explained

LOCK = ".lock"


def take_lock(path: Path, stack: contextlib.ExitStack) -> list[str]:
    """Hold the directory until the stack closes; return warnings. A dead process's lock ends with it."""
    try:
        import fcntl
    except ImportError:  # pragma: no cover
        return ["This system has no file locks: let no second process write to the same run."]
    lock_file = path / LOCK
    while True:
        with explained(path):
            lock = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(lock, 200).decode(errors="replace") or "another process"
            os.close(lock)
            raise StoreError(
                f"run directory {path}: {holder} is writing to it. "
                "Wait until it is done, or end it, or choose another directory with --out."
            ) from None
        except OSError as error:
            os.close(lock)
            return [f"{path} cannot be locked ({error.strerror}): let no second process write to it."]
        with contextlib.suppress(FileNotFoundError):
            if os.fstat(lock).st_ino == os.stat(lock_file).st_ino:
                break
        os.close(lock)  # its last holder removed the file while we waited for it
    stack.callback(os.close, lock)
    stack.callback(lock_file.unlink, missing_ok=True)
    with contextlib.suppress(OSError):  # who holds it is for the other's message only
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return []
