"""What the pages show runs: their Python as it stands there, and their commands as far as the parser."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from consilience.combine.registry import COMBINERS, option_names
from consilience.usage import build_parser

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), *(ROOT / "docs").glob("r*/*.md")])
WITH_PYTHON = [page for page in PAGES if "```python\n" in page.read_text()]


def blocks(page: Path, language: str) -> list[str]:
    found: list[str] = []
    fence: str | None = None
    for line in page.read_text().splitlines():
        if line.startswith("```"):
            fence = None if fence is not None else line.removeprefix("```")
            found += [""] if fence == language else []
        elif fence == language:
            found[-1] += line + "\n"
    return found


def write_files(folder: Path) -> None:
    """What the pages call by name: flights in a folder, draws of three shards, and of a full run."""
    import pandas as pd

    rng = np.random.default_rng(0)
    rows = 4_800
    table = pd.DataFrame({"distance": rng.normal(size=rows), "carrier": rng.choice(["AA", "DL", "UA"], rows)})
    chance = 1 / (1 + np.exp(1 - 0.7 * table["distance"] - (table["carrier"] == "UA")))
    table["late"] = (rng.random(rows) < chance).astype(int)
    (folder / "flights").mkdir()
    for name, part in (("east", table[: rows // 3]), ("west", table[rows // 3 :])):
        part.to_parquet(folder / "flights" / f"{name}.parquet")
    for name in "abc":
        draws = pd.DataFrame(rng.normal(size=(500, 2)), columns=["alpha", "beta"])
        draws.to_csv(folder / f"{name}.csv", index=False)
    alpha, beta = rng.normal(scale=3**-0.5, size=(2, 500))
    np.savez(folder / "full.npz", alpha=alpha, beta=beta)


@pytest.mark.filterwarnings("ignore::consilience.errors.ConsilienceWarning")
@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.stem)
def test_python_of_a_page_runs(page, tmp_path, monkeypatch, capsys):
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": page.stem}
    for number, code in enumerate(blocks(page, "python")):
        exec(compile(code, f"{page.name}, block {number}", "exec", dont_inherit=True), names)
    assert "nan" not in capsys.readouterr().out.lower()


@pytest.mark.parametrize("rule", COMBINERS, ids=lambda rule: rule.name)
def test_every_rule_has_a_page_and_a_picture(rule):
    page = (ROOT / "docs" / "rules" / f"{rule.name}.md").read_text()
    assert page.startswith(f"# {rule.name}\n")
    assert f"](../_static/rules/{rule.name}.png)" in page, "made by docs/rule_pictures.py"
    for option in option_names(rule):
        assert f"`{option}" in page
    assert f'method="{rule.name}"' in page
    picture = ROOT / "docs" / "_static" / "rules" / f"{rule.name}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 60_000


def test_pages_and_pictures_are_of_rules():
    names = {rule.name for rule in COMBINERS}
    pages = {page.stem for page in (ROOT / "docs" / "rules").glob("*.md")} - {"index"}
    assert pages == names
    assert {picture.stem for picture in (ROOT / "docs" / "_static" / "rules").iterdir()} == names


def commands() -> list[str]:
    found = []
    for page in [ROOT / "README.md", *PAGES]:
        for block in blocks(page, ""):
            found += [line for line in block.splitlines() if line.startswith("consilience ")]
    # A description may stand behind a command, after some blanks.
    return sorted({re.split(r"\s{2,}", line)[0] for line in found})


@pytest.mark.parametrize("command", commands())
def test_commands_parse(command):
    options = build_parser().parse_args(shlex.split(command)[1:])
    assert options.command == command.split()[1]


def test_there_is_something_to_run():
    assert {"models", "running", "add_a_rule"} <= {page.stem for page in WITH_PYTHON}
    every = {"fit", "combine", "compare", "demo", "methods", "report"}
    assert {command.split()[1] for command in commands()} >= every
