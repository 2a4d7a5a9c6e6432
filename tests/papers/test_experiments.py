"""Every experiment runs at a tiny size, so that its file cannot rot, and shows what it is there to show."""

from __future__ import annotations

import numpy as np
import pytest
from papers.__main__ import NAMES, experiment
from papers.document import PAGE
from papers.experiment import Settings, main, run
from papers.shared_data import VARIABLE, MissingData
from papers.tables import as_markdown

FAST = (
    "swiss_dimension",
    "swiss_time",
    "thesis_trivariate",
    "thesis_bimodal",
    "thesis_geometries",
    "wu_robert_gaussian",
    "wu_robert_beta",
)
SMALL = Settings(runs=1, small=True)


def cells(table, row):
    """First number of every cell of the named row."""
    line = next(line for line in table.rows if line[0].startswith(row))
    return [float(cell.split()[0]) for cell in line[1:] if cell[0].isdigit()]


def check(name):
    tables, made = run(experiment(name), SMALL)
    assert tables
    assert f"papers.{name}" in made
    for table in tables:
        assert {"swiss", "consensus"} <= {line[0] for line in table.rows}
        assert all(len(line) == len(table.header) for line in table.rows)
    assert as_markdown(tables, made).count("\n|--") == len(tables)
    return tables


@pytest.mark.parametrize("name", FAST)
def test_experiment_on_direct_draws_runs(name, monkeypatch):
    # The refined row samples a model, which takes its time to compile: the long test has it.
    monkeypatch.setattr("papers.wu_robert_beta.LEAST_REFINED", 1.0)
    tables = check(name)
    if name == "thesis_geometries":
        two_modes = tables[2]
        # Consensus loses modes; what it loses is far above the floor, and SwISS keeps them.
        floor, swiss, consensus = (max(cells(two_modes, row)[2:3]) for row in ("floor", "swiss", "consensus"))
        assert consensus > 10 * floor
        assert swiss < 3 * floor
    if name == "swiss_dimension":
        assert min(cells(tables[0], "recentering")) > 3 * max(cells(tables[0], "floor, 3,000"))


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in FAST] + ["wu_robert_beta"])
def test_experiment_on_a_model_runs(name):
    try:
        tables = check(name)
    except MissingData as missing:
        pytest.skip(str(missing))
    assert any("refined" in line[0] for line in tables[0].rows)


def test_the_page_has_a_place_for_every_experiment():
    text = PAGE.read_text(encoding="utf-8")
    for name in NAMES:
        assert text.count(f"<!-- table: {name} -->") == text.count(f"<!-- end: {name} -->") == 1
        assert f"`python -m papers.{name}" in text, "the command that makes the table"


def test_missing_data_is_said_aloud(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    assert main(experiment("swiss_employment"), ["--small"]) == 0
    assert "SKIPPED swiss_employment: no acs_employment_MA.parquet" in capsys.readouterr().err


def test_picture(tmp_path):
    from papers.thesis_geometries import picture

    path = tmp_path / "folder" / "geometries.png"
    picture(path, draws=400)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_repetitions_differ_and_seeds_repeat():
    found = experiment("thesis_trivariate")
    first, again, other = (found.tables(Settings(2, seed, small=True))[0] for seed in (3, 3, 4))
    assert first == again
    assert first != other
    assert all("±" in cell for cell in first.rows[0][1:] if cell != "–")
    assert np.all([" ± 0" not in cell.replace(" ± 0.", "") for cell in first.rows[0]])
