"""Tables inside docs/experiments.md, between a pair of comments that name their experiment."""

from __future__ import annotations

import os
import re
from pathlib import Path

PAGE = Path("docs/experiments.md")


def refresh(page: Path, name: str, text: str) -> None:
    """Put `text` between the marks of experiment `name`; the words around them are written by hand."""
    whole = page.read_text(encoding="utf-8")
    begin, end = f"<!-- table: {name} -->", f"<!-- end: {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if len(pattern.findall(whole)) != 1:
        raise SystemExit(f"{page}: needs the lines {begin} and {end} once, in this order. Add them.")
    changed = pattern.sub(lambda _: f"{begin}\n\n{text.strip()}\n\n{end}", whole)
    temporary = page.with_suffix(".part")
    temporary.write_text(changed, encoding="utf-8")
    os.replace(temporary, page)
