"""What must hold of a page: it asks nothing of a network, and nothing from the data became markup."""

from __future__ import annotations

import re
from html.parser import HTMLParser

FETCHING = {
    "src",
    "srcset",
    "poster",
    "data",
    "action",
    "formaction",
    "background",
    "cite",
    "ping",
    "manifest",
}
FORBIDDEN = {
    "script",
    "iframe",
    "object",
    "embed",
    "img",
    "b",
    "c",
    "i2",
    "base",
    "form",
    "input",
    "video",
    "audio",
}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.references: list[str] = []
        self.elements: list[str] = []
        self.handlers: list[str] = []
        self.ids: list[str] = []
        self.text: list[str] = []
        self.in_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.in_style = tag == "style"
        for name, value in attrs:
            value = value or ""
            if name.startswith("on"):
                self.handlers.append(f"{tag} {name}")
            if name == "id":
                self.ids.append(value)
            local = value.startswith(("#", "data:"))
            if (name in FETCHING or name.endswith("href")) and not local:
                self.references.append(f"{tag} {name}={value}")
            if name == "style":
                self.references += outside_urls(value)

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.references += outside_urls(data)
            self.in_style = False
        else:
            self.text.append(data)


def outside_urls(style: str) -> list[str]:
    """Fetches that a piece of CSS asks for."""
    urls = re.findall(r"url\(\s*[\"']?([^)\"']*)", style)
    return [url for url in urls if not url.startswith(("#", "data:"))] + re.findall(r"@import[^;]*", style)


def read_page(html: str) -> _Reader:
    """Parse a page."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


def complaints(html: str) -> list[str]:
    """Everything wrong with a page; empty for a good one."""
    page = read_page(html)
    found = [f"fetches {reference}" for reference in page.references]
    found += [f"element <{tag}>" for tag in page.elements if tag in FORBIDDEN]
    found += [f"handler {handler}" for handler in page.handlers]
    found += [f"id twice: {name}" for name in set(page.ids) if page.ids.count(name) > 1]
    return found
