"""What is printed."""

from __future__ import annotations

import dataclasses
import io

import pandas as pd
from report_samples import sample_report

from consilience.report import ReportInput, print_summary


def printed(report: ReportInput) -> str:
    out = io.StringIO()
    print_summary(report, out)
    return out.getvalue()


def test_plain_text_with_verdict_first_and_names_as_they_are() -> None:
    text = printed(sample_report(verdict="usable\nMahalanobis 0.2", warnings=["look [here]"], moved=30.0))
    assert text.startswith("Usable\nMahalanobis 0.2\nWARNING: look [here]\n")
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "<script>alert(1)</script>" in text
    assert "shard 7 (site 7) stands out" in text
    assert "Cost: 12 s (sample 12 s, prepare 0.5 s), 480 full-data gradients." in text


def test_unconverged_shards_are_named() -> None:
    report = sample_report()
    assert isinstance(report.shard_table, pd.DataFrame)
    table = report.shard_table.assign(status="converged")
    table.loc["site 2", "status"] = "not converged"
    text = printed(dataclasses.replace(report, shard_table=table))
    assert text.startswith("Not converged\n")
    assert "WARNING: 1 of 10 shards has not converged: shard 2 (site 2) (R-hat 1.002, ESS 350)." in text
    assert "WARNING" not in printed(report)


def test_many_parameters_are_cut_with_a_note() -> None:
    text = printed(sample_report(dimension=60, num_shards=3))
    assert "20 more parameters" in text
    assert "x33" in text
    assert "x34" not in text
