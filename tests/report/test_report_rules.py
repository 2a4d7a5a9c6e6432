"""Rules side by side: the numbers, the page and what is printed."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from page_checks import complaints, read_page
from report_samples import sample_rules

from consilience.draws import Posterior
from consilience.report import RulesInput, print_rules, write_rules_report
from consilience.report.rules import ERRORS, SIZE, estimate_cells, side_by_side
from consilience.report.rules_page import render_rules_page

SECTIONS = ["verdict", "rules", "estimates", "intervals", "densities", "shards", "made"]


def printed(report: RulesInput) -> str:
    out = io.StringIO()
    print_rules(report, out)
    return out.getvalue()


class TestNumbers:
    def test_differences_are_in_standard_deviations(self) -> None:
        """Rules N(0, 1) and N(3, 2^2): means are 3 / sqrt((1 + 4) / 2) apart, standard deviations a factor of 2."""
        rng = np.random.default_rng(0)
        first, second = rng.normal(size=(20_000, 2)), rng.normal(size=(20_000, 2))
        second[:, 1] = 3 + 2 * second[:, 1]
        found = side_by_side(RulesInput("t", {"a": Posterior(first), "b": Posterior(second)}))
        gaps, errors, pairs = found.apart
        scale = np.sqrt(2.5)
        expected_error = np.sqrt((1 + 4) / 20_000) / scale
        assert abs(gaps[1] - 3 / scale) < 5 * expected_error
        assert abs(errors[1] / expected_error - 1) < 0.2
        assert pairs == [(0, 1), (0, 1)]
        assert abs(found.spread_ratio[1] - 2) < 0.05
        assert found.differing() == [1]
        assert gaps[0] < ERRORS * errors[0]

    def test_a_difference_that_is_chance_is_not_marked(self) -> None:
        """Of few draws: large, but within its error; of many: beyond its error, but small."""
        rng = np.random.default_rng(0)
        few = {name: Posterior(rng.normal(size=(8, 40))) for name in "ab"}
        found = side_by_side(RulesInput("t", few))
        assert found.apart[0].max() > SIZE
        assert found.differing() == []
        many = {name: Posterior(rng.normal(k * 0.1, 1, size=(40_000, 1))) for k, name in enumerate("ab")}
        found = side_by_side(RulesInput("t", many))
        assert found.apart[0][0] > ERRORS * found.apart[1][0]
        assert found.differing() == []
        assert found.sentence().startswith("No two rules' means differ")

    def test_the_furthest_pair_of_three(self) -> None:
        rng = np.random.default_rng(0)
        made = {
            name: Posterior(rng.normal(m, 1, size=(4000, 1)))
            for name, m in zip("abc", (0, 5, 1), strict=True)
        }
        found = side_by_side(RulesInput("t", made))
        assert found.apart[2] == [(0, 1)]
        assert "theta[0] (5." in found.sentence()
        assert "a and b" in found.sentence()

    def test_columns_are_matched_by_name(self) -> None:
        rng = np.random.default_rng(0)
        x = rng.normal([0, 9], 1, size=(500, 2))
        made = {
            "all": Posterior(x, names=("a", "b")),
            "turned": Posterior(x[:, ::-1], names=("b", "a")),
            "one": Posterior(x[:, 1:], names=("b",)),
        }
        found = side_by_side(RulesInput("t", made))
        assert found.names == ("b",)
        np.testing.assert_allclose(found.means[:, 0], x[:, 1].mean())
        assert found.missing == {"one": ("a",)}

    def test_digits_are_those_that_monte_carlo_reaches(self) -> None:
        x = np.random.default_rng(0).normal(size=(10_000, 1))
        (row,) = estimate_cells(side_by_side(RulesInput("t", {"a": Posterior(x)})))
        assert re.fullmatch(r"−?0\.\d\d ± 1\.\d\d", row[0])


class TestPage:
    def test_sections(self) -> None:
        page = render_rules_page(sample_rules())
        assert re.findall(r'<section id="(\w+)"', page) == SECTIONS
        assert complaints(page) == []
        assert re.search(r"https?:", page) is None
        text = " ".join(read_page(page).text)
        assert "rule-2 <b>" in text
        assert text.count("A <note>.") == 1
        assert 'class="verdict caution"' in page
        assert "nan" not in page.lower().replace("lifespan", "")

    def test_agreement_has_its_place(self) -> None:
        page = render_rules_page(sample_rules(agreement="shards agree\n<p = 0.3>"))
        section = page[page.index('<section id="agreement"') :]
        assert "shards agree\n&lt;p = 0.3&gt;" in section
        assert "shards agree\n<p = 0.3>" in printed(sample_rules(agreement="shards agree\n<p = 0.3>"))

    def test_refused_rules_and_warnings_are_red(self) -> None:
        page = render_rules_page(sample_rules(refused={"kernel-product": "Too many <dimensions>."}))
        assert 'class="verdict bad"' in page
        assert "kernel-product was not used: Too many &lt;dimensions&gt;." in page

    def test_rules_without_a_common_parameter(self) -> None:
        x = np.random.default_rng(0).normal(size=(50, 1))
        made = {name: Posterior(x, names=(name,)) for name in ("a", "b")}
        report = RulesInput("t", made)
        page = render_rules_page(report)
        assert complaints(page) == []
        assert "no parameter in common" in page
        assert "no parameter in common" in printed(report)

    def test_without_shards_and_with_a_constant(self) -> None:
        x = np.random.default_rng(0).normal(size=(50, 2)) * [1, 0]
        page = render_rules_page(RulesInput("t", {"a": Posterior(x), "b": Posterior(x + 1)}))
        assert complaints(page) == []
        assert "nan" not in page.lower()

    def test_same_input_same_bits_and_size(self, tmp_path) -> None:
        page = render_rules_page(sample_rules(dimension=40, num_shards=60, num_rules=8))
        assert page == render_rules_page(sample_rules(dimension=40, num_shards=60, num_rules=8))
        assert len(page.encode()) < 3_000_000
        path = write_rules_report(tmp_path / "page.html", sample_rules())
        assert [file.name for file in tmp_path.iterdir()] == [path.name]


class TestPrinted:
    def test_several_rules(self) -> None:
        text = printed(sample_rules(warnings=["look [here]"]))
        assert text.startswith("5 shards & <b>rules</b>\nWARNING: look [here]\n")
        assert "Rules differ in <script>alert(1)</script> (2." in text
        assert "options" in text
        assert "A <note>." in text
        assert "\x1b" not in text

    def test_one_rule(self) -> None:
        report = sample_rules(num_rules=1)
        text = printed(report)
        assert "rule-0 <b>: 1,000 draws in 0.01 s" in text
        assert "ESS tail" in text
        assert "apart" not in text

    @pytest.mark.parametrize("num_rules", [2, 12])
    def test_many_parameters_and_rules(self, num_rules: int) -> None:
        text = printed(sample_rules(dimension=60, num_rules=num_rules))
        assert "20 more parameters" in text
        assert "<script>alert(1)</script>" in text  # where rules differ most
        assert all(len(line) <= 200 for line in text.splitlines())
        for k in range(num_rules):
            assert f"rule-{k} <b>" in text
