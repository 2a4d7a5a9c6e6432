"""What can be typed after `consilience`: commands, options and their help. Nothing heavy is imported here."""

from __future__ import annotations

import argparse
import difflib
import re
from typing import Any, NoReturn

DESCRIPTION = """\
Divide-and-conquer Bayesian inference: shard, sample, combine, and say how far
to trust the result."""
EXAMPLES = """\
examples:
  consilience demo
  consilience fit "y ~ a + C(b)" rows.parquet --family bernoulli --out run/
  consilience combine shard*.csv --kind subposterior --method consensus
  consilience compare run/ reference.npz
  consilience report run/

exit codes: 0 done, 1 failed while running, 2 wrong usage or input
"""
COMMANDS = ("demo", "fit", "combine", "compare", "methods", "report")
FAMILIES = "gaussian, bernoulli, binomial, poisson, negative-binomial, gamma or student-t"


class _Parser(argparse.ArgumentParser):
    """Wrong usage is one line, like any other wrong input, and not a page with the reason at its end."""

    def error(self, message: str) -> NoReturn:
        message = message.replace("the following arguments are required:", "please give")
        message = message.replace("unrecognized arguments:", "unknown arguments:")
        unknown = re.match(r"argument COMMAND: invalid choice: '(.*?)'", message)
        if unknown:
            close = difflib.get_close_matches(unknown[1], COMMANDS, n=1)
            hint = f"Did you mean {close[0]!r}?" if close else f"The commands are {', '.join(COMMANDS)}."
            message = f"there is no command {unknown[1]!r}. {hint}"
        elif message == "please give COMMAND":
            message = f"please give a command: {', '.join(COMMANDS)}. 'consilience demo' is a good start."
        end = "" if message[-1] in ".?" else "."
        self.exit(2, f"{self.prog}: {message}{end} See '{self.prog} --help'.\n")


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    from consilience import __version__

    parser = _Parser(
        prog="consilience",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"consilience {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for add in (_add_demo, _add_fit, _add_combine, _add_compare, _add_methods, _add_report):
        add(commands)
    for command in (parser, *commands.choices.values()):
        # Before the command or after it: where it does not stand, it must not undo what stands elsewhere.
        default = False if command is parser else argparse.SUPPRESS
        command.add_argument(
            "--debug", action="store_true", default=default, help="show where an error came from"
        )
    return parser


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a whole number, written in digits. Got {text!r}") from None


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser(
        "demo",
        help="the main job on data that it makes itself",
        description="The rare-feature example of the SwISS paper: writes 100,000 rows, fits them in 25 shards and "
        "on all rows, compares the two, and leaves a report.",
    )
    demo.add_argument(
        "--out",
        default="consilience-demo",
        metavar="DIR",
        help="where to leave data, run and report (default: consilience-demo)",
    )
    demo.add_argument(
        "--seed", type=_whole, default=0, metavar="N", help="of the data and the run (default: 0)"
    )
    demo.add_argument("--no-progress", action="store_true", help="show nothing until the result")


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        help="fit a generalised linear model, shard by shard",
        usage="consilience fit FORMULA DATA --family FAMILY [options]",
        description="Fit a generalised linear model, shard by shard. Example: "
        'consilience fit "late ~ distance + C(carrier)" flights.parquet --family bernoulli --out run/',
    )
    fit.add_argument("formula", metavar="FORMULA", help='in quotes, such as "y ~ a + C(b)"')
    fit.add_argument("data", metavar="DATA", help="Parquet or CSV file, a folder of them, or a quoted glob")
    _add_model_options(fit.add_argument_group("model"))
    _add_shard_options(fit.add_argument_group("rows and shards"))
    _add_sampling_options(fit.add_argument_group("sampling and combining"))
    run = fit.add_argument_group("run")
    run.add_argument(
        "--out", metavar="DIR", help="run directory; the same command goes on from what it holds"
    )
    run.add_argument(
        "--engine",
        metavar="NAME",
        help="serial, processes (or local), dask, dask:ADDRESS; default: vectorised, in one process",
    )
    run.add_argument("--workers", type=_whole, metavar="N", help="shards at once (default: one per core)")
    run.add_argument("--no-progress", action="store_true", help="show nothing until the result")


def _add_model_options(group: Any) -> None:
    group.add_argument("--family", required=True, help=FAMILIES)
    group.add_argument("--link", help="default: the usual one of the family")
    group.add_argument("--trials", metavar="COLUMN", help="number of trials (binomial)")
    group.add_argument("--weights", metavar="COLUMN", help="row weights")
    group.add_argument("--offset", metavar="COLUMN", help="added to the linear predictor")
    group.add_argument(
        "--prior",
        action="append",
        default=[],
        metavar="PRIOR",
        help="'Normal(0, 10)' for every coefficient or 'distance=Normal(0, 1)' for one; may be repeated",
    )


def _add_shard_options(group: Any) -> None:
    group.add_argument(
        "--shards",
        default="auto",
        metavar="HOW_MANY",
        help="a number, auto (default), or a column with one shard per value",
    )
    group.add_argument(
        "--partition",
        default="random",
        metavar="HOW",
        help="random (default), stratified, stratified:COLUMN,..., group:COLUMN or time:COLUMN",
    )
    group.add_argument(
        "--missing",
        default="refuse",
        metavar="WHAT",
        help="rows with missing or infinite values: refuse (default) or drop",
    )


def _add_sampling_options(group: Any) -> None:
    group.add_argument(
        "--method", default="swiss", metavar="RULE", help="see 'consilience methods' (default: swiss)"
    )
    group.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="option of the method"
    )
    group.add_argument(
        "--refine",
        default="auto",
        metavar="NAMES",
        help="auto (default), none, or names separated by commas",
    )
    group.add_argument("--sampler", default="hmc", metavar="NAME", help="hmc (default) or nuts")
    group.add_argument(
        "--draws", type=_whole, default=10_000, metavar="N", help="of the posterior (default: 10000)"
    )
    group.add_argument(
        "--seed", type=_whole, default=0, metavar="N", help="of all random numbers (default: 0)"
    )
    group.add_argument("--precision", default="float32", metavar="TYPE", help="float32 (default) or float64")


def _add_combine(commands: Any) -> None:
    combine = commands.add_parser(
        "combine",
        help="combine draws made elsewhere, one file per shard",
        usage="consilience combine FILE [FILE ...] --method RULE [options]",
        description="Combine the draws of all shards, from Stan, PyMC, NumPyro, R or anything else, into draws "
        "of the posterior. A folder or a quoted pattern stands for the chains of one shard. Several rules are "
        "shown side by side: consilience combine 'a-*.csv' 'b-*.csv' --kind inflated --method swiss,pool",
    )
    combine.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="one per shard: npy, npz, csv (CmdStan's too), parquet, netCDF or zarr; or a folder or quoted pattern",
    )
    combine.add_argument(
        "--method", required=True, metavar="RULE,...", help="one rule or several; see 'consilience methods'"
    )
    combine.add_argument(
        "--kind",
        help="what was sampled, where the files do not say: subposterior (prior^w x likelihood) or inflated "
        "(prior x likelihood^(1/w))",
    )
    combine.add_argument(
        "--weights",
        metavar="W,W,...",
        help="the shards' shares of the rows, separated by commas (default: equal)",
    )
    combine.add_argument(
        "--support",
        action="append",
        default=[],
        metavar="NAME=SUPPORT",
        help="combine a parameter unconstrained: positive, unit, simplex, ordered or correlation; may be repeated",
    )
    combine.add_argument(
        "--parameters", metavar="NAME,...", help="which parameters to combine (default: all)"
    )
    combine.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="[RULE.]NAME=VALUE",
        help="option of the method, or of one of several; may be repeated",
    )
    combine.add_argument("--seed", type=_whole, default=0, metavar="N", help="default: 0")
    combine.add_argument(
        "--out",
        metavar="FILE",
        help="where to save: npz, nc, parquet or csv; of several rules, each gets its name before the suffix",
    )
    combine.add_argument(
        "--report",
        metavar="FILE",
        help="page with pictures (with several rules consilience-combine.html, unless this is none)",
    )


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser(
        "compare",
        help="how far draws are from a reference, and what is noise",
        description="Measure how far draws are from a reference, with the noise that two exact samples would show.",
    )
    compare.add_argument("draws", metavar="DRAWS", help="draws in a file, or a run directory")
    compare.add_argument("reference", metavar="REFERENCE", help="what to compare with, likewise")


def _add_methods(commands: Any) -> None:
    commands.add_parser(
        "methods", help="list the combination rules", description="List the combination rules."
    )


def _add_report(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        help="write the report of a finished run again",
        description="Write the report of a finished run again.",
    )
    report.add_argument("run_directory", metavar="RUN", help="the directory given to fit --out")
    report.add_argument("--out", metavar="FILE", help="where to write it (default: RUN/report.html)")
