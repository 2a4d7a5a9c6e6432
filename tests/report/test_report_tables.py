"""Numbers and names as a reader sees them."""

from __future__ import annotations

import pandas as pd
import pytest

from consilience.report.tables import frame_table, summary_cells, summary_table
from consilience.report.text import clean, escape, fixed, shorten, shorten_all, significant


def test_digits_end_where_monte_carlo_error_begins() -> None:
    frame = pd.DataFrame(
        {"mean": [1.234567, 123456.7], "sd": [0.5, 5e4], "mcse": [0.005, 500.0], "ess": [10_000.0, 399.0]},
        index=["a", "b"],
    )
    cells = summary_cells(frame)
    assert [text for text, _, _ in cells[0]] == ["1.235", "0.500", "0.0050", "10,000"]
    assert [text for text, _, _ in cells[1]] == ["123500", "50000", "500", "399"]
    assert [low for _, _, low in cells[0]][-1] is False
    assert [low for _, _, low in cells[1]][-1] is True


def test_numbers_that_are_hard_to_write() -> None:
    assert fixed(float("inf"), 2) == "∞"
    assert fixed(-0.0001, 2) == "0.00"
    assert fixed(1.5e12, 3).endswith("e+12")
    assert fixed(0.0, 12) == "0.000000e+00"
    assert significant(float("nan")) == "–"
    assert significant(True) == "yes"
    assert significant("007") == "007"


def test_constant_parameters_have_a_row() -> None:
    nan = float("nan")
    frame = pd.DataFrame({"mean": [2.0], "sd": [0.0], "mcse": [0.0], "ess": [nan]}, index=["k"])
    assert [text for text, _, _ in summary_cells(frame)[0]] == ["2.000", "0.000", "0", "–"]
    assert "nan" not in summary_table(frame)


@pytest.mark.parametrize("name", ["a\u202eb", "a\x00b", "a\ud800b"])
def test_characters_that_would_hide_or_break_text_are_replaced(name: str) -> None:
    assert clean(name) == "a�b"
    assert escape(name).encode("utf-8") == "a�b".encode()


def test_short_names_stay_different() -> None:
    names = [f"C(carrier)[T.Very long airline number {k}]:log(distance)" for k in range(20)]
    assert len(set(shorten_all(names, 30))) == 20
    assert all(len(name) <= 30 for name in shorten_all(names, 30))
    assert len({shorten(name, 30) for name in names}) == 1


def test_bad_rows_are_shown_even_when_not_all_are() -> None:
    frame = pd.DataFrame({"rhat": range(700)}, index=[f"s{k}" for k in range(700)])
    text = frame_table(frame, bad={690})
    assert "<tr class=bad><th scope=row>s690</th>" in text
    assert "200 more rows are not shown" in text
