"""The command `consilience`: parse, call, exit code (0 done, 1 failed while running, 2 wrong usage or input)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from consilience.errors import ConsilienceError, InputError
from consilience.usage import build_parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    options = build_parser().parse_args(arguments)
    try:
        with _quiet_warnings():
            _RUN[options.command](options)
        sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        print(f"consilience: interrupted. {_what_was_kept(options)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        _drop_output()
        return 1
    except Exception as error:
        if options.debug:
            raise
        print(f"consilience: {_one_line(error)}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1


def _one_line(error: Exception) -> str:
    if isinstance(error, ConsilienceError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return "out of memory. Use more shards, or fewer at once with --workers."
    said = " ".join(str(error).split())[:300].rstrip(".")
    advice = "Run it again with --debug to see where, and report it if it is a fault of consilience."
    return f"failed with {type(error).__name__}: {said}. {advice}"


def _what_was_kept(options: argparse.Namespace) -> str:
    out = getattr(options, "out", None)
    if options.command not in ("fit", "demo"):
        return "Nothing was written."
    if not out:
        return "Nothing was kept; with --out DIR the same command could go on."
    if not Path(out).is_dir():
        return "Nothing was written."
    return f"What is finished is kept in {out}; the same command goes on from there."


def _drop_output() -> None:
    """Whoever read the output has gone; without this, Python complains once more when it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())


@contextmanager
def _quiet_warnings() -> Iterator[None]:
    """What the reader must know is printed with the result; warnings of libraries are for programmers."""
    import warnings

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
        yield


def _demo(options: argparse.Namespace) -> None:
    from consilience.demo import run_demo

    run_demo(options.out, seed=options.seed, progress=not options.no_progress)


def _fit(options: argparse.Namespace) -> None:
    from consilience.arguments import parse_partition, parse_priors, parse_settings, parse_shards
    from consilience.combine import get_combiner

    settings = parse_settings(options.option)
    get_combiner(options.method, **settings)  # or an option called "draws" would be taken for ours
    shards = parse_partition(options.partition, parse_shards(options.shards))
    prior = parse_priors(options.prior)
    refine = None if options.refine == "none" else options.refine.split(",")

    from consilience import fit, glm
    from consilience.machine import use_few_heaps
    from consilience.report import print_summary

    use_few_heaps()
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
    print_summary(result.to_report())
    if options.out:
        print(f"\nReport: {Path(options.out) / 'report.html'}")


def _combine(options: argparse.Namespace) -> None:
    from consilience.arguments import parse_settings, parse_weights
    from consilience.combine import combine, get_combiner
    from consilience.combine.inputs import as_subposteriors
    from consilience.draws.files import check_destination
    from consilience.report.agreement import told_agreement

    weights = parse_weights(options.weights)
    settings = parse_settings(options.option)
    get_combiner(options.method, **settings)
    if options.out is not None:
        check_destination(options.out)
    subposteriors = as_subposteriors(options.files, kind=options.kind, weights=weights)
    posterior = combine(subposteriors, method=options.method, seed=options.seed, **settings)
    if options.out is not None:
        posterior.save(options.out)
    info = posterior.info
    print(
        f"{info['method']} on {len(options.files)} shards ({info['kind']} draws), {len(posterior.array):,} draws"
    )
    for message in info["warnings"]:
        print(f"WARNING: {message}")
    for message in info["notes"]:
        print(message)
    print(posterior.summary().to_string(float_format=lambda value: f"{value:.4g}"))
    told = told_agreement(subposteriors, options.seed, said=info["warnings"])
    if told is not None:
        print(f"\n{told}")
    if options.out:
        print(f"Saved to {options.out}")


def _compare(options: argparse.Namespace) -> None:
    from consilience.diagnose import compare
    from consilience.stored import posterior_path

    print(compare(posterior_path(options.draws), posterior_path(options.reference)))


def _methods(_: argparse.Namespace) -> None:
    from consilience import methods

    for record in methods():
        exact = "exact for Gaussian shards" if record.exact_for_gaussian else "not exact for Gaussian shards"
        taken = f"; options: {', '.join(record.options)}" if record.options else ""
        print(f"{record.name}\n    takes {record.kind} draws; {exact}{taken}\n    {record.reference}")


def _report(options: argparse.Namespace) -> None:
    from consilience.stored import load_fit

    result = load_fit(options.run_directory)
    path = result.report(options.out or Path(options.run_directory) / "report.html")
    print(f"Report: {path}")


_RUN: dict[str, Callable[[argparse.Namespace], None]] = {
    "demo": _demo,
    "fit": _fit,
    "combine": _combine,
    "compare": _compare,
    "methods": _methods,
    "report": _report,
}

if __name__ == "__main__":
    sys.exit(main())
