"""Run every experiment, print its tables and refresh docs/experiments.md."""

from __future__ import annotations

import argparse
import importlib
import sys

from papers.experiment import Experiment, Settings, add_options, report

# In the order of the page: draws made directly first, regressions after.
NAMES = (
    "swiss_dimension",
    "swiss_time",
    "thesis_trivariate",
    "thesis_bimodal",
    "thesis_geometries",
    "wu_robert_gaussian",
    "wu_robert_beta",
    "swiss_rare_features",
    "swiss_employment",
    "thesis_predictor",
    "wu_robert_logistic",
    "wu_robert_covtype",
)


def experiment(name: str) -> Experiment:
    """The experiment of a module."""
    found = importlib.import_module(f"papers.{name}").EXPERIMENT
    assert isinstance(found, Experiment)
    return found


def main() -> int:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m papers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)}; all when left out")
    add_options(parser, None)
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.names) - set(NAMES))
    if unknown:
        parser.error(f"unknown experiment {unknown[0]!r}; known are {', '.join(NAMES)}")
    for name in chosen.names or NAMES:
        found = experiment(name)
        settings = Settings(chosen.runs or found.runs, chosen.seed, chosen.small, chosen.jobs)
        report(found, settings, chosen.write)
    if chosen.write is not None and not chosen.names and not chosen.small:
        from papers.thesis_geometries import PICTURE, picture

        picture(PICTURE, chosen.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
