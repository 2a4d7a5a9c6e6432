"""What runs inside a worker process of the `processes` engine.

The process is a fresh interpreter started from a command line, not by `multiprocessing`: neither fork (which
JAX's threads do not survive) nor spawn (which imports the caller's script again, and so runs a script without
an ``if __name__ == "__main__"`` guard again in each worker) is involved.
"""

from __future__ import annotations

import os
import pickle
import queue
import struct
import threading
from typing import BinaryIO

from ._tasks import Outcome, describe, run_packed

# A Ctrl-C in a terminal reaches the parent too; the parent ends its workers, so they leave the signal to it.
BOOTSTRAP = (
    "import json, os, signal, sys; "
    "signal.signal(signal.SIGINT, signal.SIG_IGN); "
    "inbox = os.fdopen(os.dup(0), 'rb'); "
    "sys.path[:] = json.loads(inbox.readline()); "
    "from consilience.engines._child import serve; "
    "serve(inbox)"
)
READY = b"ready"
_LENGTH = struct.Struct(">Q")


def write_frame(stream: BinaryIO, payload: bytes) -> None:
    """Send one message, preceded by its length."""
    stream.write(_LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes:
    """Receive one message; `EOFError` when the other side is gone."""
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    return _read_exactly(stream, length)


def _read_exactly(stream: BinaryIO, length: int) -> bytes:
    data = stream.read(length)
    if data is None or len(data) < length:
        raise EOFError
    return data


def serve(inbox: BinaryIO) -> None:
    """Run items until the parent closes its end: first the task comes, then one item after the other."""
    outbox = _take_standard_streams()
    messages: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbox, messages), daemon=True).start()
    write_frame(outbox, READY)
    packed_task = messages.get()
    while True:
        packed_item = messages.get()
        try:
            outcome = run_packed(packed_task, packed_item)
        except BaseException as error:
            outcome = Outcome(problem=describe(error))
        write_frame(outbox, pickle.dumps(outcome, protocol=pickle.HIGHEST_PROTOCOL))


def _take_standard_streams() -> BinaryIO:
    """Keep the pipes for ourselves: a task that prints writes to stderr, a task that reads finds nothing."""
    outbox = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return outbox


def _listen(inbox: BinaryIO, messages: queue.SimpleQueue[bytes]) -> None:
    # The end of the stream means that the parent is done or dead. Going at once, in the middle of a task too,
    # is what leaves no orphans when the parent was killed.
    try:
        while True:
            messages.put(read_frame(inbox))
    except EOFError:
        os._exit(0)
