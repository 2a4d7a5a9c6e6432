"""Results to HTML and to the terminal."""

from __future__ import annotations

from consilience.report.inputs import ReportInput, RulesInput
from consilience.report.rules_terminal import print_rules
from consilience.report.terminal import print_summary
from consilience.report.writer import write_report, write_rules_report

__all__ = ["ReportInput", "RulesInput", "print_rules", "print_summary", "write_report", "write_rules_report"]
