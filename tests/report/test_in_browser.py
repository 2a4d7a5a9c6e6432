"""The report in a real browser: it renders, nothing goes wrong, nothing overlaps, nothing escapes.

Each check is also run on a page that was broken on purpose and must be rejected.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from page_checks import complaints, read_page
from report_samples import HOSTILE_LABEL, HOSTILE_NAMES, sample_report, sample_rules

from consilience.report import write_report, write_rules_report

SECTIONS = (
    "verdict",
    "summary",
    "glance",
    "densities",
    "ellipses",
    "disagreement",
    "agreement",
    "convergence",
    "cost",
    "made",
)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--v=0",
    "--window-size=1280,6000",
)
# Added to a copy of the page, never to the report: opens all pages of pictures and measures the labels there.
MEASURE = """<script>
document.querySelectorAll("details").forEach(d => d.open = true);
const found = {pictures: 0, labels: 0, overlaps: [], outside: []};
for (const svg of document.querySelectorAll("svg")) {
  const frame = svg.getBoundingClientRect();
  if (frame.width < 100 || frame.height < 40) continue;
  found.pictures++;
  const boxes = [...svg.querySelectorAll("text")].map(t => [t.textContent, t.getBoundingClientRect()]);
  found.labels += boxes.length;
  boxes.forEach(([text, a], i) => {
    if (a.left < frame.left - 2 || a.right > frame.right + 2
        || a.top < frame.top - 2 || a.bottom > frame.bottom + 2)
      found.outside.push(text);
    for (const [other, b] of boxes.slice(i + 1)) {
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (wide > 1 && high > 4) found.overlaps.push(text + " / " + other);
    }
  });
}
found.wide = document.documentElement.scrollWidth > window.innerWidth + 1;
document.documentElement.dataset.found = JSON.stringify(found);
</script>"""


@dataclass(frozen=True)
class Visit:
    """What the browser made of a page."""

    dom: str
    errors: list[str]

    @property
    def measured(self) -> dict:
        said = re.search(r'data-found="([^"]*)"', self.dom)
        assert said is not None, "the measuring script did not run"
        return json.loads(said.group(1).replace("&quot;", '"').replace("&lt;", "<").replace("&amp;", "&"))


Browse = Callable[..., Visit]


@pytest.fixture(scope="module")
def browse(tmp_path_factory: pytest.TempPathFactory) -> Browse:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is installed, the report was NOT looked at")

    def visit(page: str, *extra: str) -> Visit:
        folder = tmp_path_factory.mktemp("visit")
        file = folder / "page.html"
        file.write_text(page, encoding="utf-8")
        command = [
            browser,
            *FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            *extra,
            "--dump-dom",
            file.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        log = done.stderr.decode(errors="replace").splitlines()
        return Visit(done.stdout.decode("utf-8"), [line for line in log if ":CONSOLE" in line])

    return visit


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    report = sample_report(
        dimension=30, num_shards=12, moved=40.0, warnings=["Look & see."], verdict="usable"
    )
    return write_report(tmp_path_factory.mktemp("report") / "report.html", report).read_text("utf-8")


@pytest.fixture(scope="module")
def visit(browse: Browse, page: str) -> Visit:
    return browse(page)


@pytest.fixture(scope="module")
def measured(browse: Browse, page: str) -> dict:
    return browse(with_script(page)).measured


def with_script(page: str) -> str:
    """A copy that may run the measuring script; the report itself forbids all scripts."""
    unlocked = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    assert unlocked != page
    return unlocked.replace("</body>", MEASURE + "</body>")


def test_it_renders_with_all_sections_and_no_errors(visit: Visit) -> None:
    assert visit.errors == []
    for section in SECTIONS:
        assert f'<section id="{section}"' in visit.dom
    assert visit.dom.count("<svg") == 8
    assert complaints(visit.dom) == []


def test_names_are_text_in_the_document_that_the_browser_built(visit: Visit) -> None:
    text = " ".join(read_page(visit.dom).text)
    for name in (*HOSTILE_NAMES[:4], HOSTILE_LABEL, "Look & see."):
        assert name in text


def test_labels_neither_overlap_nor_leave_their_picture(measured: dict) -> None:
    assert measured["pictures"] == 8  # the pages of densities are two
    assert measured["labels"] > 150
    assert measured["overlaps"] == []
    assert measured["outside"] == []
    assert not measured["wide"], "the page scrolls sideways"


def test_the_page_of_rules(browse: Browse, tmp_path: Path) -> None:
    """More rules than colours, more parameters than a page of pictures holds."""
    report = sample_rules(dimension=30, num_rules=8, warnings=["Look & see."])
    page = write_rules_report(tmp_path / "rules.html", report).read_text("utf-8")
    seen = browse(page)
    assert seen.errors == []
    assert complaints(seen.dom) == []
    text = " ".join(read_page(seen.dom).text)
    for name in (*HOSTILE_NAMES[:4], "rule-7 <b>", "Look & see.", "A <note>."):
        assert name in text
    measured = browse(with_script(page)).measured
    assert measured["pictures"] == 4
    assert measured["overlaps"] == []
    assert measured["outside"] == []
    assert not measured["wide"]


def test_a_narrow_window_does_not_scroll_sideways(browse: Browse, page: str) -> None:
    assert not browse(with_script(page), "--window-size=500,900").measured["wide"]


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ('<img src="https://localhost:9/x.png">', "Content Security Policy"),
        ("<script>alert(1)</script>", "Content Security Policy"),
        (
            '<p onclick="x()" style="background:url(https://localhost:9/x.png)">x</p>',
            "Content Security Policy",
        ),
    ],
)
def test_a_page_with_an_outside_picture_or_an_unescaped_name_is_rejected(
    browse: Browse, page: str, broken: str, told: str
) -> None:
    seen = browse(page.replace("</main>", broken + "</main>"))
    assert complaints(seen.dom) != []
    assert any(told in line for line in seen.errors)


def test_script_errors_are_seen(browse: Browse, page: str) -> None:
    seen = browse(with_script(page).replace("</body>", "<script>no_such_function()</script></body>"))
    assert any("no_such_function" in line for line in seen.errors)


def test_overlapping_labels_are_seen(browse: Browse, page: str) -> None:
    crowded = with_script(page).replace("</head>", "<style>svg text{font-size:22px!important}</style></head>")
    seen = browse(crowded).measured
    assert seen["overlaps"]
    assert seen["outside"]


def test_print_has_every_page_of_pictures(browse: Browse, page: str, tmp_path: Path) -> None:
    target, folded = tmp_path / "report.pdf", tmp_path / "folded.pdf"
    browse(page, f"--print-to-pdf={target}")
    browse(page.replace("details::details-content", "nothing"), f"--print-to-pdf={folded}")
    assert target.stat().st_size > folded.stat().st_size + 10_000
