"""The section on agreement: it says what was measured, warns where it must, and is left out where it cannot."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
from page_checks import complaints
from report_samples import sample_report

from consilience.draws import Subposteriors
from consilience.report.agreementplots import MOST_COLUMNS, MOST_ROWS, shown_parameters, shown_shards
from consilience.report.page import all_warnings, findings, render_page


def section(page: str) -> str:
    start = page.index('<section id="agreement"')
    return page[start : page.index("</section>", start)]


def test_words_pictures_and_rules() -> None:
    found = section(render_page(sample_report(dimension=3, num_shards=6)))
    assert "Agreement of 6 shards in 3 parameters" in found
    assert found.count("<svg") == 2
    assert "overlap of sub-posteriors</text>" in found
    assert "influence</text>" in found
    assert "swiss and recentering" in found


def test_a_shard_that_stands_out_is_orange_in_both_pictures() -> None:
    calm, loud = (section(render_page(sample_report(dimension=3, moved=moved))) for moved in (0.0, 40.0))
    for page, expected in ((loud, True), (calm, False)):
        _, maps, bars = page.split("<svg")
        assert bool(re.search(r"var\(--alarm\)\"[^<]*>shard 7", maps)) == expected
        assert ("var(--alarm)" in bars) == expected


@pytest.mark.parametrize("verdict", [None, "usable"])
def test_estimated_covariances_warn_where_nothing_corrected_them(verdict: str | None) -> None:
    report = sample_report(dimension=6, num_shards=4, num_draws=60, verdict=verdict)
    warned = [text for text in all_warnings(findings(report)) if "Covariances estimated" in text]
    assert len(warned) == (verdict is None)
    other = dataclasses.replace(report, settings={"method": "pool"})
    assert all_warnings(findings(other)) == []  # it does not weigh by precision
    many = sample_report(dimension=6, num_shards=4, num_draws=2_000, verdict=verdict)
    assert all_warnings(findings(many)) == []


def test_left_out_where_it_cannot_be_measured() -> None:
    few = render_page(sample_report(dimension=5, num_shards=3, num_draws=8))
    assert 'id="agreement"' not in few
    report = sample_report(dimension=2, num_shards=3)
    column = np.random.default_rng(0).normal(size=(3, 50, 1))
    twice = Subposteriors.of(
        np.concatenate([column, column], axis=2), kind="inflated", names=report.posterior.names
    )
    assert 'id="agreement"' not in render_page(dataclasses.replace(report, subposteriors=twice))


def test_many_shards_and_parameters_are_chosen_from() -> None:
    known = findings(sample_report(dimension=40, num_shards=70, num_draws=150, moved=60.0))
    assert known.agreement is not None
    shards, parameters = shown_shards(known.agreement), shown_parameters(known.agreement)
    assert (len(shards), len(parameters)) == (MOST_ROWS, MOST_COLUMNS)
    assert 7 in shards
    assert 1 in parameters
    assert complaints(render_page(sample_report(dimension=1, num_shards=2))) == []
