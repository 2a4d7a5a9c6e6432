"""Speed and memory against peers. `python -m benchmarks` runs all, `--small` for a quick look."""
