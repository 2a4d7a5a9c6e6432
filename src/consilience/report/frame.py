"""What all pages have in common: one self-contained file, its head, its contents, its sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Template
from typing import Any

from consilience.report.style import style_sheet
from consilience.report.text import escape, significant

# The policy forbids scripts and every request, so that a page made of hostile names could still do nothing.
_PAGE = Template(
    """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>$title</title>
<style>
$style
</style>
</head>
<body>
<div class="frame">
<nav aria-label="Contents"><ol>
$contents
</ol></nav>
<main>
<header>
<p class="kicker">Consilience report</p>
<h1>$title</h1>
$facts
</header>
$sections
<footer>Made by consilience. This page needs no network and runs no script.</footer>
</main>
</div>
</body>
</html>
"""
)


def framed(title: str, sections: Sequence[tuple[str, str, str]], facts: str) -> str:
    """A page of sections (key, heading, HTML); empty ones are left out.

    The section "verdict" brings a frame of its own.

    Examples
    --------
    >>> page = framed("a < b", [("one", "First", "<p>x</p>"), ("two", "Second", "")], "")
    >>> "a &lt; b" in page, "<h2>First</h2>" in page, "Second" in page
    (True, True, False)
    """
    shown = [(key, heading, body) for key, heading, body in sections if body]
    html = [
        body if key == "verdict" else f'<section id="{key}"><h2>{escape(heading)}</h2>\n{body}</section>'
        for key, heading, body in shown
    ]
    return _PAGE.substitute(
        title=escape(title),
        style=style_sheet(),
        contents="\n".join(f'<li><a href="#{key}">{escape(heading)}</a></li>' for key, heading, _ in shown),
        facts=facts,
        sections="\n".join(html),
    )


def fact_list(facts: Mapping[str, Any]) -> str:
    """What stands under the title; what is None is left out."""
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{escape(significant(value))}</dd></div>"
        for name, value in facts.items()
        if value is not None
    )
    return f"<dl class=facts>{cells}</dl>"


def paged(pages: Sequence[tuple[str, str]], caption: str) -> str:
    """Pictures of many parameters: the first with its caption, the others to be opened."""
    first = f"<figure><div class=picture>{pages[0][1]}</div><figcaption>{caption}</figcaption></figure>"
    rest = "".join(
        f"<details><summary>{escape(words)}</summary>"
        f"<figure><div class=picture>{picture}</div></figure></details>"
        for words, picture in pages[1:]
    )
    return first + rest
