"""Words and numbers: cleaning and escaping what comes from data, and digits that mean something."""

from __future__ import annotations

import html
import itertools
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

MINUS = "−"
# Characters that would reverse, hide or break the text around them when they occur in a name.
_DIRECTION_MARKS = set("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def clean(value: Any) -> str:
    """Text on one line without control characters, whatever a name from the data held.

    Examples
    --------
    >>> clean("two\\nlines"), clean("bell\\x07")
    ('two lines', 'bell�')
    """
    characters = []
    for character in str(value):
        if character in "\n\r\t\u2028\u2029":
            characters.append(" ")
        elif character in _DIRECTION_MARKS or unicodedata.category(character) in ("Cc", "Cs"):
            characters.append("�")
        else:
            characters.append(character)
    return "".join(characters)


def escape(value: Any) -> str:
    """Text that is safe inside an element or a quoted attribute.

    Examples
    --------
    >>> escape("a & <b>")
    'a &amp; &lt;b&gt;'
    """
    return html.escape(clean(value), quote=True)


def shorten(value: Any, limit: int = 32) -> str:
    """Text of at most ``limit`` characters; the middle goes, because ends tell similar names apart.

    Examples
    --------
    >>> shorten("C(carrier)[T.Hawaiian Airlines]:distance", 20)
    'C(carrier)…:distance'
    """
    text = clean(value)
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = limit - 1 - head
    return text[:head] + "…" + text[len(text) - tail :]


def shorten_all(values: Sequence[Any], limit: int = 32) -> list[str]:
    """Short forms that stay different from each other where the names are.

    Levels of one factor often share both ends; where two short forms would be equal, each keeps the part in
    which its name leaves the others.

    Examples
    --------
    >>> shorten_all(["C(carrier)[T.Hawaiian 1]:log(x)", "C(carrier)[T.Hawaiian 2]:log(x)"], 15)
    ['C(carr…ian 1]:…', 'C(carr…ian 2]:…']
    """
    texts = [clean(value) for value in values]
    short = [shorten(text, limit) for text in texts]
    groups: dict[str, list[int]] = {}
    for place, form in enumerate(short):
        groups.setdefault(form, []).append(place)
    for places in groups.values():
        if len({texts[place] for place in places}) < 2:
            continue
        together = zip(*(texts[place] for place in places), strict=False)
        leaves = len(list(itertools.takewhile(lambda letters: len(set(letters)) == 1, together)))
        head = max(limit // 3 + 1, 1)
        for place in places:
            part = texts[place][max(leaves - 4, head) :]
            room = limit - head - 1
            short[place] = texts[place][:head] + "…" + (part if len(part) <= room else part[: room - 1] + "…")
    return short


def decimals_for(value: float, error: float) -> int:
    """Decimals down to the first digit of ``error``; negative when even the units are noise.

    Examples
    --------
    >>> decimals_for(1.23456, 0.003), decimals_for(123456.0, 200.0)
    (3, -2)
    """
    if math.isfinite(error) and error > 0:
        return -math.floor(math.log10(error))
    if math.isfinite(value) and value != 0:
        return 3 - math.floor(math.log10(abs(value)))
    return 3


def fixed(value: float, decimals: int) -> str:
    """A number with so many decimals; scientific notation where the plain form would be unreadable.

    Examples
    --------
    >>> fixed(-1.23456, 3), fixed(1.23456e-9, 11), fixed(float("nan"), 2)
    ('−1.235', '1.23e−09', '–')
    """
    if not math.isfinite(value):
        return "–" if math.isnan(value) else ("∞" if value > 0 else MINUS + "∞")
    if decimals > 7 or abs(value) >= 1e9:
        exponent = math.floor(math.log10(abs(value))) if value else 0
        return f"{value:.{min(max(decimals + exponent, 0), 6)}e}".replace("-", MINUS)
    text = f"{round(value, min(decimals, 0)) if decimals < 0 else value:.{max(decimals, 0)}f}"
    if float(text) == 0:  # no "−0.00"
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def significant(value: Any, digits: int = 3) -> str:
    """A number to so many significant digits; counts in full with thousands apart.

    Examples
    --------
    >>> significant(0.0123456), significant(1234567), significant(1234.5), significant("ok")
    ('0.0123', '1,234,567', '1,234', 'ok')
    """
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    try:
        number = float(value)
    except (TypeError, ValueError):
        return clean(value)
    if isinstance(value, str):
        return clean(value)
    if not math.isfinite(number):
        return fixed(number, 0)
    if number == int(number) and abs(number) < 1e15:
        return f"{int(number):,}".replace("-", MINUS)
    if abs(number) >= 10**digits and abs(number) < 1e15:
        return f"{number:,.0f}".replace("-", MINUS)
    text = f"{number:#.{digits}g}"
    return text.rstrip(".").replace("-", MINUS)


def duration(seconds: float) -> str:
    """Seconds as people say them.

    Examples
    --------
    >>> duration(0.1234), duration(75.2), duration(7322)
    ('0.12 s', '1 min 15 s', '2 h 2 min')
    """
    if not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return (
            f"{seconds:.2g} s" if seconds < 1 else f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
        )
    if seconds < 3600:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{int(seconds) // 3600} h {int(seconds) % 3600 // 60} min"


def shard_name(index: int, label: Any) -> str:
    """How a shard is called: its number, and its label where that says more.

    Examples
    --------
    >>> shard_name(7, "site Leeds"), shard_name(7, "7"), shard_name(7, "shard 7")
    ('shard 7 (site Leeds)', 'shard 7', 'shard 7')
    """
    text = clean(label).strip()
    if text.lower().removeprefix("shard").strip(" -_=").lstrip("0") in ("", str(index)):
        return f"shard {index}"
    return f"shard {index} ({shorten(text, 40)})"


def listing(items: list[str], limit: int = 12) -> str:
    """Items in one sentence, the rest counted.

    Examples
    --------
    >>> listing(["a", "b", "c"], limit=2)
    'a, b and 1 more'
    """
    if len(items) > limit:
        return ", ".join(items[:limit]) + f" and {len(items) - limit} more"
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""
