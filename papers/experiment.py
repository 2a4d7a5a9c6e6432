"""What an experiment is, and the command that runs one."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from papers.document import PAGE, refresh
from papers.shared_data import MissingData
from papers.tables import Table, as_markdown


@dataclass(frozen=True)
class Settings:
    """What a reader may choose.

    Attributes
    ----------
    runs : repetitions, each with data or a partition of its own
    seed : root of all random numbers
    small : sizes that finish in seconds and show nothing but that the code works
    jobs : processes, for experiments that can use several; the numbers do not depend on it
    """

    runs: int
    seed: int = 0
    small: bool = False
    jobs: int = 1


@dataclass(frozen=True)
class Experiment:
    """An experiment of a paper.

    Attributes
    ----------
    name : of its module
    source : where the paper has it
    runs : repetitions when none are asked for
    tables : what makes its tables
    """

    name: str
    source: str
    runs: int
    tables: Callable[[Settings], Sequence[Table]]


def run(experiment: Experiment, settings: Settings) -> tuple[list[Table], str]:
    """Run an experiment; its tables, and one line that says how they were made."""
    begun = time.perf_counter()
    tables = list(experiment.tables(settings))
    seconds = time.perf_counter() - begun
    options = f" --runs {settings.runs}" if settings.runs != experiment.runs else ""
    options += f" --seed {settings.seed}" if settings.seed else ""
    options += " --small" if settings.small else ""
    repetitions = f"{settings.runs} repetition{'s' if settings.runs > 1 else ''}"
    made = f"Made by `python -m papers.{experiment.name}{options}`: {repetitions}, {seconds:.0f} s."
    return tables, made


def main(experiment: Experiment, arguments: Sequence[str] | None = None) -> int:
    """Run one experiment from the command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m papers.{experiment.name}", description=experiment.source
    )
    add_options(parser, experiment.runs)
    chosen = parser.parse_args(arguments)
    settings = Settings(chosen.runs, chosen.seed, chosen.small, chosen.jobs)
    return report(experiment, settings, chosen.write)


def add_options(parser: argparse.ArgumentParser, runs: int | None) -> None:
    """The options that every experiment has."""
    parser.add_argument("--runs", type=int, default=runs, help="repetitions (default: the experiment's own)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--jobs", type=int, default=1, help="processes, for the experiments that can use them"
    )
    parser.add_argument("--small", action="store_true", help="tiny sizes, to see that it runs")
    parser.add_argument(
        "--write", type=Path, nargs="?", const=PAGE, help=f"refresh the tables in a page (default {PAGE})"
    )


def report(experiment: Experiment, settings: Settings, page: Path | None) -> int:
    """Run, print, and refresh the page where one is given."""
    print(f"== {experiment.source}", flush=True)
    try:
        tables, made = run(experiment, settings)
    except MissingData as missing:
        print(f"SKIPPED {experiment.name}: {missing}", file=sys.stderr)
        return 0
    text = as_markdown(tables, made)
    print(text, flush=True)
    if page is not None:
        refresh(page, experiment.name, text)
    return 0
