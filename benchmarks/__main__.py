"""Run every benchmark, each in a process of its own, one after the other, and list the verdicts at the end."""

from __future__ import annotations

import argparse
import subprocess
import sys

from benchmarks.measuring import MET, MISSED

NAMES = (
    "start_up",
    "combine_speed",
    "pie_sort",
    "semiparametric_speed",
    "marginal_views_speed",
    "rules_against_peers",
    "two_processes",
    "scaling_rows",
    "memory_parquet",
    "logistic_vs_nuts",
)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog="Each runs alone, with options of its own, as python -m benchmarks.NAME: " + ", ".join(NAMES),
    )
    parser.add_argument("--small", action="store_true", help="a quick look; the ratios mean little")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"any of {', '.join(NAMES)}; all by default")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}; there are {', '.join(NAMES)}")
    verdicts: list[str] = []
    for name in arguments.names or NAMES:
        print(f"\n== {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *(["--small"] if arguments.small else [])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                if line.startswith((MET, MISSED)):
                    verdicts.append(f"{name}: {line.strip()}")
        if process.returncode:
            verdicts.append(f"{name}: FAILED while running (exit code {process.returncode})")
    print("\n== All targets", *verdicts, sep="\n")
    return int(any("FAILED" in verdict for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
