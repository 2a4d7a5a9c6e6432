"""The page as text: what is there, in which order, escaped, and asking for nothing."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from page_checks import complaints, read_page
from report_samples import HOSTILE_LABEL, HOSTILE_NAMES, sample_report

from consilience.draws import Posterior, Subposteriors
from consilience.errors import StoreError
from consilience.report import ReportInput, write_report
from consilience.report.forest import scale_groups
from consilience.report.page import render_page

SECTIONS = [
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
]


@pytest.fixture(scope="module")
def page() -> str:
    return render_page(sample_report(moved=30.0))


def test_sections_come_in_order(page: str) -> None:
    assert re.findall(r'<section id="(\w+)"', page) == SECTIONS
    assert re.findall(r'<a href="#(\w+)">', page)[: len(SECTIONS)] == SECTIONS


def test_page_asks_for_nothing_and_holds_no_markup_from_data(page: str) -> None:
    assert complaints(page) == []
    assert re.search(r"https?:", page) is None


@pytest.mark.parametrize(
    "broken",
    [
        '<img src="https://example.org/x.png">',
        '<link rel="stylesheet" href="https://example.org/x.css">',
        "<style>p{background:url(https://example.org/x.png)}</style>",
        "<style>@import 'x.css';</style>",
        '<p style="background:url(x.png)">',
        HOSTILE_NAMES[0],
        HOSTILE_NAMES[3],
        HOSTILE_LABEL,
        '<p onclick="x()">',
        '<p id="summary">',
    ],
)
def test_the_checks_reject_broken_pages(page: str, broken: str) -> None:
    assert complaints(page.replace("</main>", broken + "</main>")) != []


def test_names_are_there_as_text(page: str) -> None:
    text = " ".join(read_page(page).text)
    for name in HOSTILE_NAMES[:4]:
        assert name in text
    assert "line break �" in text
    assert HOSTILE_LABEL in text
    pictures = "".join(re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;</text>" in pictures
    assert "a &amp; b</text>" in pictures
    assert "price in $US$ and $x_1^2$</text>" in pictures


def test_unconverged_shards_and_warnings_come_first_and_red() -> None:
    report = sample_report(warnings=["Shard 3 was given more & still has not converged."])
    table = report.shard_table
    assert table is not None
    table = table.copy()
    table.loc["site 3", ["rhat", "status"]] = [1.2, "not converged"]
    page = render_page(dataclasses.replace(report, shard_table=table, verdict="usable\nMahalanobis 0.2"))
    box = page[page.index('<section id="verdict"') : page.index('<section id="summary"')]
    assert 'class="verdict bad"' in box
    assert "<h2>Usable</h2>" in box
    assert "1 of 10 shards has not converged: shard 3 (site 3) (R-hat 1.200, ESS 350)" in box
    assert "more &amp; still" in box
    assert page.count("class=red") >= 3
    assert "<tr class=bad><th scope=row>site 3</th>" in page


@pytest.mark.parametrize(
    ("fields", "grade"),
    [
        ({"verdict": "indistinguishable from full MCMC"}, "good"),
        ({"verdict": "usable: Mahalanobis 0.2"}, "caution"),
        ({"verdict": "do not use: a mode is missing"}, "bad"),
        ({"verdict": None}, "plain"),
        ({"warnings": ["careful"]}, "bad"),
        ({"verdict": "indistinguishable from full MCMC", "warnings": ["careful"]}, "caution"),
    ],
)
def test_the_first_box_is_as_loud_as_the_verdict(fields: dict[str, Any], grade: str) -> None:
    assert f'class="verdict {grade}"' in render_page(sample_report(dimension=2, num_shards=4, **fields))


def test_bare_draws_are_enough() -> None:
    page = render_page(ReportInput("bare", Posterior(np.random.default_rng(0).normal(size=(300, 1)))))
    assert re.findall(r'<section id="(\w+)"', page) == ["verdict", "summary", "glance", "densities"]
    assert complaints(page) == []


def test_single_shard_constant_and_weighted_draws() -> None:
    rng = np.random.default_rng(0)
    draws = np.column_stack([rng.normal(size=400), np.full(400, 2.0), rng.exponential(size=400)])
    posterior = Posterior(draws, names=("a", "k", "s"), log_weights=draws[:, 0])
    space = SimpleNamespace(
        dimension=2,
        names=("a", "k", "s"),
        coordinate_names=("a", "log(s)"),
        to_user=lambda u: np.column_stack([u[:, 0], np.full(len(u), 2.0), np.exp(u[:, 1])]),
    )
    for count in (1, 3):
        shards = Subposteriors.of(rng.normal(size=(count, 200, 2)), kind="inflated", space=space)
        page = render_page(ReportInput("t", posterior, shards))
        assert complaints(page) == []
        assert "nan" not in page.lower()
        assert ('id="disagreement"' in page) == (count > 1)


def test_distances_are_taken_where_shards_were_combined() -> None:
    rng = np.random.default_rng(0)
    shards_draws = rng.normal(size=(4, 300, 1)) + rng.normal(size=(4, 1, 1)) * np.sqrt(3)
    space = SimpleNamespace(dimension=1, names=("s",), coordinate_names=("log(s)",), to_user=np.exp)
    shards = Subposteriors.of(shards_draws, kind="inflated", space=space)
    coordinates = rng.normal(size=(500, 1))
    posterior = Posterior(np.exp(coordinates), names=("s",), coordinates=coordinates)
    page = render_page(ReportInput("t", posterior, shards))
    assert "log(s)</text>" in page
    assert "unconstrained space" in page


def test_reference_and_chosen_pairs() -> None:
    class Told:
        per_parameter = pd.DataFrame({"iad": [0.01, 0.02]}, index=["Intercept", "<b>"])

        def __str__(self) -> str:
            return "Mahalanobis 0.02 (standard error 0.01) < floor"

    page = render_page(
        sample_report(discrepancy=Told(), pairs=[("Intercept", "a & b"), ("no such", "a & b")])
    )
    assert 'id="reference"' in page
    assert "0.01) &lt; floor" in page
    ellipses = page[page.index('<section id="ellipses"') : page.index('<section id="disagreement"')]
    assert ellipses.count('id="pairs-axes_') == 1


@pytest.mark.parametrize(
    ("kind", "words"), [("inflated", "on the posterior's scale"), ("subposterior", "about 1/√w")]
)
def test_captions_say_on_which_scale_shards_are(kind: str, words: str) -> None:
    assert words in render_page(sample_report(dimension=3, num_shards=8, kind=kind))


def test_size_stays_small_and_many_parameters_are_paged() -> None:
    page = render_page(sample_report(dimension=30, num_shards=50))
    assert len(page.encode()) < 3_000_000
    many = render_page(sample_report(dimension=120, num_shards=80, num_draws=200))
    assert len(many.encode()) < 3_000_000
    assert "<summary>Parameters 25 to 48: " in many
    assert "Of 80 shards 20 are drawn" in many


def test_same_input_same_bits(page: str) -> None:
    assert render_page(sample_report(moved=30.0)) == page


def test_parameters_of_different_size_get_axes_of_their_own() -> None:
    low = np.array([-4.02, -0.2, 0.1, -0.001, 0.002])
    high = np.array([-3.98, 0.1, 0.4, 0.001, 0.003])
    groups = scale_groups(np.array([low, low, high, high]))
    assert [group.tolist() for group in groups] == [[0], [1, 2], [3, 4]]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = sample_report(dimension=2, num_shards=3)
    target = tmp_path / "new" / "report.html"
    assert write_report(target, report) == target
    before = target.read_bytes()

    def no_space(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", no_space)
    with pytest.raises(StoreError, match="No space left on device"):
        write_report(target, dataclasses.replace(report, title="other"))
    assert target.read_bytes() == before
    assert os.listdir(target.parent) == ["report.html"]


def test_pyplot_stays_out() -> None:
    code = (
        "import sys, numpy as np\n"
        "from consilience.draws import Posterior\n"
        "from consilience.report import ReportInput\n"
        "assert 'matplotlib' not in sys.modules and 'pandas' not in sys.modules\n"
        "from consilience.report.page import render_page\n"
        "render_page(ReportInput('t', Posterior(np.random.default_rng(0).normal(size=(99, 1)))))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
