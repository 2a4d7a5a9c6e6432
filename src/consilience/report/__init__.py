"""Results to HTML and to the terminal."""

from __future__ import annotations

from consilience.report.inputs import ReportInput
from consilience.report.terminal import print_summary
from consilience.report.writer import write_report

__all__ = ["ReportInput", "print_summary", "write_report"]
