"""A file is there whole or not at all: written beside its name, then renamed."""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Callable
from pathlib import Path

from consilience.errors import StoreError, must_be

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_atomically(
    path: str | os.PathLike[str], write: Callable[[Path], None], *, keep: bool = True
) -> None:
    """Let `write` fill a temporary file beside `path`, then give it its name; leave nothing behind when it
    fails. Without `keep` this is only a trial, and nothing is left behind in any case.

    Raises
    ------
    StoreError
        When the directory cannot be written or the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_atomically(folder / "a.txt", lambda temporary: temporary.write_text("whole") and None)
    >>> [p.name for p in folder.iterdir()]
    ['a.txt']
    """
    target = Path(path)
    # The suffix stays last: some writers choose their format by it.
    temporary = target.with_name(f".{target.stem}-{uuid.uuid4().hex[:8]}{target.suffix}")
    try:
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        write(temporary)
        with open(temporary, "rb+") as handle:
            os.fsync(handle.fileno())
        if keep:
            os.replace(temporary, target)
        else:
            temporary.unlink()
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _refusal(target, error) from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _refusal(target: Path, error: OSError) -> Exception:
    reason = error.strerror or str(error)
    next_step = "Choose another place, or change its permissions."
    if error.errno in _FULL or "No space left" in str(error):
        reason = "a full disk" if error.errno != errno.EFBIG else reason
        next_step = "Free some space and start again; nothing partial was left."
    elif not target.parent.exists():
        reason, next_step = "a directory that does not exist", "Make the directory first."
    return must_be(
        "save", "path", "a file that can be written", f"{target} ({reason})", next_step, StoreError
    )
