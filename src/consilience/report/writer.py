"""Write the page, whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from consilience.errors import StoreError, must_be
from consilience.report.page import render_page
from consilience.report.rules_page import render_rules_page

if TYPE_CHECKING:
    from consilience.report.inputs import ReportInput, RulesInput


def write_report(path: str | os.PathLike[str], report: ReportInput) -> Path:
    """Write one self-contained HTML file that opens without a network.

    Parameters
    ----------
    path
        Where to; its folder is made if it is not there. A file of that name is replaced once the new one is
        whole.
    report
        What to show.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from consilience.draws import Posterior
    >>> from consilience.report.inputs import ReportInput
    >>> posterior = Posterior(np.random.default_rng(0).normal(size=(200, 2)), names=("a & b", "<c>"))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     text = write_report(folder + "/report.html", ReportInput("y ~ x", posterior)).read_text("utf-8")
    >>> "a &amp; b" in text, "<c>" in text
    (True, False)
    """
    return write_page(path, render_page(report))


def write_rules_report(path: str | os.PathLike[str], report: RulesInput) -> Path:
    """Write the page of several rules side by side, as self-contained as the other."""
    return write_page(path, render_rules_page(report))


def write_page(path: str | os.PathLike[str], text: str) -> Path:
    """Write a page that is made already; what stood there is replaced once the new one is whole."""
    target = Path(path)
    temporary: str | None = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace", newline="\n") as stream:
            stream.write(text)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's files are private; a report is like any other file
        os.replace(temporary, target)
    except OSError as error:
        raise must_be(
            "write_report",
            "path",
            "a file that can be written",
            f"{target} ({error.strerror or error})",
            "Choose another place, change its permissions, or free some space.",
            StoreError,
        ) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
    return target
