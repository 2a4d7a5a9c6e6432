"""The command `consilience`: parse, call, exit code (0 done, 1 failed while running, 2 wrong usage or input)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from consilience.errors import ConsilienceError, InputError

if TYPE_CHECKING:
    from consilience.fitted import Fit

DESCRIPTION = (
    "Divide-and-conquer Bayesian inference: shard, sample, combine, and say how far to trust the result."
)


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    from consilience import __version__

    parser = argparse.ArgumentParser(prog="consilience", description=DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"consilience {__version__}")
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_demo(commands)
    _add_fit(commands)
    _add_combine(commands)
    _add_compare(commands)
    methods = commands.add_parser("methods", help="list the combination rules")
    methods.set_defaults(run=_methods)
    report = commands.add_parser("report", help="write the report of a finished run again")
    report.add_argument("run_directory", metavar="RUN", help="the directory given to fit --out")
    report.add_argument("--out", metavar="FILE", help="where to write it (default: RUN/report.html)")
    report.set_defaults(run=_report)
    return parser


def _add_demo(commands: Any) -> None:
    demo = commands.add_parser("demo", help="the main job on data that it makes itself")
    demo.add_argument(
        "--out", default="consilience-demo", metavar="DIR", help="where to leave data, run and report"
    )
    demo.add_argument("--seed", type=int, default=0)
    demo.add_argument("--no-progress", action="store_true")
    demo.set_defaults(run=_demo)


def _add_fit(commands: Any) -> None:
    fit = commands.add_parser(
        "fit",
        help="fit a generalised linear model, shard by shard",
        description="Fit a generalised linear model, shard by shard. "
        'Example: consilience fit "late ~ distance + C(carrier)" flights.parquet --family bernoulli --out run/',
    )
    fit.add_argument("formula", help='such as "y ~ a + C(b)"')
    fit.add_argument("data", help="Parquet or CSV file, a folder of them, or a quoted glob")
    fit.add_argument(
        "--family", required=True, help="gaussian, bernoulli, binomial, poisson, negative-binomial, ..."
    )
    fit.add_argument("--link", help="default: the usual one of the family")
    fit.add_argument("--trials", metavar="COLUMN", help="number of trials (binomial)")
    fit.add_argument("--weights", metavar="COLUMN", help="row weights")
    fit.add_argument("--offset", metavar="COLUMN", help="added to the linear predictor")
    fit.add_argument(
        "--prior",
        action="append",
        default=[],
        metavar="PRIOR",
        help="'Normal(0, 10)' for every coefficient or 'distance=Normal(0, 1)' for one; may be repeated",
    )
    fit.add_argument(
        "--shards", default="auto", help="a number, 'auto', or a column with one shard per value"
    )
    fit.add_argument(
        "--partition",
        default="random",
        metavar="HOW",
        help="random, stratified, stratified:COLUMN,..., group:COLUMN or time:COLUMN",
    )
    fit.add_argument("--method", default="swiss", help="see 'consilience methods'")
    fit.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="option of the method"
    )
    fit.add_argument("--refine", default="auto", help="auto, none, or names separated by commas")
    fit.add_argument("--sampler", default="hmc", help="hmc or nuts")
    fit.add_argument("--draws", type=int, default=10_000)
    fit.add_argument("--seed", type=int, default=0)
    fit.add_argument(
        "--engine", help="serial, processes (or local), dask, dask:ADDRESS; default: in one process"
    )
    fit.add_argument("--workers", type=int, help="shards at once; default: one per core")
    fit.add_argument("--missing", default="refuse", help="rows with missing values: refuse (default) or drop")
    fit.add_argument("--precision", default="float32", help="float32 (default) or float64")
    fit.add_argument(
        "--out", metavar="DIR", help="run directory; the same command goes on from what it holds"
    )
    fit.add_argument("--no-progress", action="store_true")
    fit.set_defaults(run=_fit)


def _add_combine(commands: Any) -> None:
    combine = commands.add_parser("combine", help="combine draws made elsewhere, one file per shard")
    combine.add_argument("files", nargs="+", metavar="FILE", help="npy, npz, csv, parquet or netCDF")
    combine.add_argument("--method", required=True, help="see 'consilience methods'")
    combine.add_argument("--kind", help="subposterior or inflated, where the files do not say")
    combine.add_argument(
        "--weights", help="the shards' shares of the rows, separated by commas; default: equal"
    )
    combine.add_argument(
        "--option", action="append", default=[], metavar="NAME=VALUE", help="option of the method"
    )
    combine.add_argument("--seed", type=int, default=0)
    combine.add_argument("--out", metavar="FILE", help="npz, nc, parquet or csv")
    combine.set_defaults(run=_combine)


def _add_compare(commands: Any) -> None:
    compare = commands.add_parser("compare", help="how far draws are from a reference, and what is noise")
    compare.add_argument("draws", help="draws in a file, or a run directory")
    compare.add_argument("reference", help="draws to compare with")
    compare.set_defaults(run=_compare)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = build_parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        return run(options)
    except InputError as error:
        return _stopped(options, error, 2)
    except ConsilienceError as error:
        return _stopped(options, error, 1)
    except KeyboardInterrupt:
        out = getattr(options, "out", None)
        goes_on = f" Finished shards are in {out}; the same command goes on from there." if out else ""
        print(f"consilience: interrupted.{goes_on}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 1


def _stopped(options: argparse.Namespace, error: Exception, code: int) -> int:
    if options.debug:
        raise error
    print(f"consilience: {error}", file=sys.stderr)
    return code


def _demo(options: argparse.Namespace) -> int:
    from consilience.demo import run_demo

    run_demo(options.out, seed=options.seed, progress=not options.no_progress)
    return 0


def _fit(options: argparse.Namespace) -> int:
    from consilience.arguments import parse_partition, parse_priors, parse_settings, parse_shards

    settings = parse_settings(options.option)
    shards = parse_partition(options.partition, parse_shards(options.shards))
    prior = parse_priors(options.prior)
    refine = None if options.refine == "none" else options.refine.split(",")
    with _quiet_warnings():
        from consilience import fit, glm

        model = glm(
            options.formula,
            family=options.family,
            prior=prior,
            link=options.link,
            trials=options.trials,
            weights=options.weights,
            offset=options.offset,
        )
        result = fit(
            model,
            options.data,
            shards=shards,
            method=options.method,
            refine=refine,
            draws=options.draws,
            seed=options.seed,
            engine=options.engine,
            out=options.out,
            progress=not options.no_progress,
            missing=options.missing,
            sampler=options.sampler,
            precision=options.precision,
            workers=options.workers,
            **settings,
        )
    _print_fit(result)
    if options.out:
        print(f"\nReport: {options.out.rstrip('/')}/report.html")
    return 0


def _print_fit(result: Fit) -> None:
    from consilience.report import print_summary

    print_summary(result.to_report())


def _combine(options: argparse.Namespace) -> int:
    from consilience.arguments import parse_settings, parse_weights

    weights = parse_weights(options.weights)
    settings = parse_settings(options.option)
    with _quiet_warnings():
        from consilience.combine import combine

        posterior = combine(
            options.files,
            method=options.method,
            kind=options.kind,
            weights=weights,
            seed=options.seed,
            **settings,
        )
    info = posterior.info
    print(
        f"{info['method']} on {len(options.files)} shards ({info['kind']} draws), {len(posterior.array):,} draws"
    )
    for message in info["warnings"]:
        print(f"WARNING: {message}")
    for message in info["notes"]:
        print(message)
    print(posterior.summary().to_string(float_format=lambda value: f"{value:.4g}"))
    if options.out:
        posterior.save(options.out)
        print(f"Saved to {options.out}")
    return 0


def _compare(options: argparse.Namespace) -> int:
    with _quiet_warnings():
        from consilience.diagnose import compare
        from consilience.stored import posterior_path

        print(compare(posterior_path(options.draws), posterior_path(options.reference)))
    return 0


def _methods(_: argparse.Namespace) -> int:
    from consilience import methods

    for record in methods():
        exact = "exact for Gaussian shards" if record.exact_for_gaussian else "not exact for Gaussian shards"
        taken = f"; options: {', '.join(record.options)}" if record.options else ""
        print(f"{record.name}\n    takes {record.kind} draws; {exact}{taken}\n    {record.reference}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from consilience.stored import load_fit

    result = load_fit(options.run_directory)
    path = result.report(options.out or f"{options.run_directory.rstrip('/')}/report.html")
    print(f"Report: {path}")
    return 0


@contextmanager
def _quiet_warnings() -> Iterator[None]:
    """Warnings are printed with the result; Python's own form of them would only repeat them."""
    import warnings

    from consilience.errors import ConsilienceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConsilienceWarning)
        yield


if __name__ == "__main__":
    sys.exit(main())
