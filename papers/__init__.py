"""The experiments of the papers, one file each: their data and settings, their numbers beside ours.

`python -m papers.<name>` runs one and prints its tables; `python -m papers` runs all and refreshes
docs/experiments.md.
"""
