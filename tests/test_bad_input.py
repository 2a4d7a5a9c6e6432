"""Wrong input as a new user gives it: one line on stderr that says what to do, exit code 2, and nothing written."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import consilience as cs
from consilience.cli import main
from consilience.draws.files import write_subposterior

ROWS = 600


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    a = rng.normal(size=ROWS)
    group = rng.choice(list("pqr"), size=ROWS)
    return pd.DataFrame(
        {
            "y": (rng.random(ROWS) < 1 / (1 + np.exp(-a))).astype(int),
            "a": a,
            "count": rng.poisson(2, size=ROWS),
            "group": group,
            "same_group": group,
            "twice": 2 * a,
            "constant": 1.0,
            "one_big": np.where(np.arange(ROWS) < 400, 0, np.arange(ROWS)),
            "zero": 0.0,
        }
    )


def changed(**cells: tuple[int, float]) -> pd.DataFrame:
    rows = table().astype({"count": float, "y": float})
    for column, (row, value) in cells.items():
        rows.loc[row, column] = value
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Every input that a test here needs; no test writes into it."""
    where = tmp_path_factory.mktemp("inputs")
    good = table()
    good.to_parquet(where / "good.parquet")
    good.to_csv(where / "good.csv", index=False)
    changed(y=(3, 2)).to_parquet(where / "two.parquet")
    changed(count=(3, -1)).to_parquet(where / "negative.parquet")
    holes = changed(a=(3, np.nan), y=(9, np.nan))
    holes.loc[5:9, "a"] = np.inf
    holes.to_parquet(where / "holes.parquet")
    holes.to_csv(where / "holes.csv", index=False)
    good.assign(a=np.nan).to_parquet(where / "hollow.parquet")
    spoilt = good.astype({"a": object})
    spoilt.loc[77, "a"] = "unknown"
    spoilt.to_csv(where / "spoilt.csv", index=False)
    good.iloc[:0].to_parquet(where / "no_rows.parquet")
    whole = (where / "good.parquet").read_bytes()
    (where / "cut.parquet").write_bytes(whole[: len(whole) // 2])
    for name, text in {
        "empty.parquet": "",
        "empty.csv": "",
        "header.csv": "y,a\n",
        "ragged.csv": "y,a\n" + "1,2\n" * 20 + "1,2,3\n",
        "short.csv": "y,a\n" + "1,2\n" * 20 + "1\n",
        "twins.csv": "y,a,a\n1,2,3\n0,1,2\n",
        "rows.txt": "y a\n1 2\n",
        "file": "not a folder",
        "other/notes.txt": "not a run",
    }.items():
        (where / name).parent.mkdir(exist_ok=True)
        (where / name).write_text(text)
    (where / "bare").mkdir()
    write_draws(where)
    return where


def write_draws(where: Path) -> None:
    def draws(seed: int, number: int = 400, dimension: int = 2) -> np.ndarray:
        return np.random.default_rng(seed).normal(size=(number, dimension))

    bad, constant, twins = draws(2), draws(3), draws(4)
    bad[7, 1] = np.nan
    constant[:, 1] = 1.5
    twins[:, 1] = twins[:, 0]
    arrays = {"one": draws(0), "two": draws(1), "nan": bad, "constant": constant, "twins": twins}
    for name, array in (arrays | {"few": draws(5, 2), "narrow": draws(6, 400, 1)}).items():
        np.save(where / f"{name}.npy", array)
        columns = ["slope", "level"][: array.shape[1]]
        pd.DataFrame(array, columns=columns).to_csv(where / f"{name}-draws.csv", index=False)
    (where / "cut.npy").write_bytes((where / "one.npy").read_bytes()[:500])
    np.save(where / "pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    (where / "ragged-draws.csv").write_text("slope,level\n1,2\n1,2,3\n")
    (where / "nameless-draws.csv").write_text("1,2\n3,4\n")
    for name, kind in {"ours": "inflated", "sub": "subposterior"}.items():
        write_subposterior(where / f"{name}.npz", draws(9), names=["slope", "level"], kind=kind, weight=0.5)


def everything(*folders: Path) -> set[tuple[Path, int]]:
    found = [path for folder in folders for path in folder.rglob("*")]
    return {(path, path.stat().st_mtime_ns if path.is_file() else 0) for path in found}


@pytest.fixture
def refused(folder, tmp_path, monkeypatch, capsys):
    """Run a command that must be refused; return its sentence."""
    monkeypatch.chdir(folder)

    def run(arguments: list[str]) -> str:
        before = everything(folder, tmp_path)
        try:
            code = main(arguments)
        except SystemExit as stopped:  # argparse ends so
            code = stopped.code
        printed = capsys.readouterr()
        assert code == 2, printed
        assert printed.out == ""
        assert len(printed.err.splitlines()) == 1, printed.err
        assert printed.err.startswith("consilience")
        assert printed.err.rstrip()[-1] in ".?)", printed.err
        assert not re.search(r"\w\.\. ", printed.err)
        assert everything(folder, tmp_path) == before
        return printed.err

    return run


def fit_arguments(formula: str, data: str, *more: str, family: str = "bernoulli") -> list[str]:
    return ["fit", formula, data, "--family", family, "--no-progress", *more]


# ------------------------------------------------------------------------------------------
# Rows
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formula", "data", "family", "words"),
    [
        ("y ~ nothere", "good.parquet", "bernoulli", ["nothere", "'a'"]),
        ("y ~ A", "good.csv", "bernoulli", ["Did you mean 'a'?"]),
        ("nothere ~ a", "good.csv", "bernoulli", ["nothere"]),
        ("y ~ a", "good.parquet", "bernouli", ["family", "Did you mean 'bernoulli'?"]),
        ("y ~ a +", "good.parquet", "bernoulli", ["`formula`", "y ~ a +", "Write for example"]),
        ("y ~ (a", "good.parquet", "bernoulli", ["`formula`", "Write for example"]),
        ("y a", "good.parquet", "bernoulli", ["`formula`", "Missing operator"]),
        ("~ a", "good.parquet", "bernoulli", ["one outcome"]),
        ("", "good.parquet", "bernoulli", ["`formula`"]),
        ("y ~ lg(a)", "good.parquet", "bernoulli", ["lg()"]),
        ("y ~ log(a)", "good.parquet", "bernoulli", ["`log(a)`", "rows looked at"]),
        ("y ~ a", "two.parquet", "bernoulli", ["`y`", "0 or 1", "2.0", "1 row(s)"]),
        ("count ~ a", "negative.parquet", "poisson", ["`count`", "-1.0", "1 row(s)"]),
        ("count ~ a", "negative.parquet", "negative-binomial", ["`count`", "-1.0"]),
        ("a ~ y", "good.parquet", "gamma", ["`a`", "positive"]),
        ("group ~ a", "good.parquet", "gaussian", ["`group`", "'p'"]),
        ("group ~ a", "good.parquet", "bernoulli", ["`group`", "two levels"]),
        ("constant ~ a", "good.parquet", "gaussian", ["`constant`"]),
        ("count ~ a", "good.parquet", "binomial", ["`trials`"]),
        ("y ~ a", "holes.parquet", "bernoulli", ["6 of 600 rows", "a: 6, y: 1", "--missing drop"]),
        ("y ~ a", "holes.csv", "bernoulli", ["6 of 600 rows", "a: 6, y: 1", "--missing drop"]),
        ("y ~ a", "empty.parquet", "bernoulli", ["empty.parquet", "an empty file"]),
        ("y ~ a", "empty.csv", "bernoulli", ["empty.csv", "an empty file"]),
        ("y ~ a", "header.csv", "bernoulli", ["header.csv", "no rows"]),
        ("y ~ a", "no_rows.parquet", "bernoulli", ["no_rows.parquet", "no rows"]),
        ("y ~ a", "cut.parquet", "bernoulli", ["cut.parquet", "Copy or write the file again"]),
        ("y ~ a", "ragged.csv", "bernoulli", ["ragged.csv", "line 22", "3 columns"]),
        ("y ~ a", "short.csv", "bernoulli", ["short.csv", "line 22"]),
        ("y ~ a", "spoilt.csv", "bernoulli", ["`a`", "'unknown'", "C(a)"]),
        ("y ~ a", "twins.csv", "bernoulli", ["twins.csv", "'a'", "Rename"]),
        ("y ~ a", "rows.txt", "bernoulli", ["rows.txt", ".parquet", ".csv"]),
        ("y ~ a", "bare", "bernoulli", ["bare", ".parquet"]),
        ("y ~ a", "nowhere.parquet", "bernoulli", ["nowhere.parquet", "no such file"]),
        ("y ~ a", "nowhere*.csv", "bernoulli", ["nowhere*.csv", "no match"]),
        ("y ~ a", "s3://bucket/rows.parquet", "bernoulli", ["Download"]),
        ("y ~ a + constant", "good.parquet", "bernoulli", ["'constant'", "Leave them out"]),
        ("y ~ constant", "good.csv", "bernoulli", ["'constant'", "Leave them out"]),
        ("y ~ a + twice", "good.parquet", "bernoulli", ["'twice'", "'a'", "collinear", "Leave one"]),
        ("y ~ group + same_group", "good.csv", "bernoulli", ["same_group[T.q]", "collinear"]),
    ],
)
def test_rows_and_formulas(refused, tmp_path, formula, data, family, words):
    said = refused(fit_arguments(formula, data, "--out", str(tmp_path / "run"), family=family))
    assert all(word in said for word in words), said


@pytest.mark.parametrize("missing", ["holes.parquet", "holes.csv"])
def test_dropped_rows_are_reported(folder, tmp_path, capsys, missing):
    run = tmp_path / "run"
    command = fit_arguments("y ~ a", str(folder / missing), "--missing", "drop", "--draws", "400")
    assert main([*command, "--refine", "none", "--shards", "2", "--out", str(run)]) == 0
    sentence = "6 of 600 rows dropped for missing or infinite values (a: 6, y: 1)"
    assert sentence in capsys.readouterr().out
    assert sentence in (run / "report.html").read_text()


def test_nothing_left_after_dropping(refused):
    assert "every row" in refused(fit_arguments("y ~ a", "hollow.parquet", "--missing", "drop"))


# ------------------------------------------------------------------------------------------
# Settings of a fit
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--method swis", ["swiss"]),
        ("--method zzz", ["Known rules", "consensus"]),
        ("--shards 1000", ["`shards`", "1,000 shards for 600 rows", "at most 600"]),
        ("--shards 0", ["`shards`"]),
        ("--shards nowhere", ["'nowhere'"]),
        ("--shards 4 --partition group:one_big", ["one_big", "400 rows", "at most 2 shards"]),
        ("--shards 4 --partition group:group", ["3 groups", "at most 3 shards"]),
        ("--shards 4 --partition time:group", ["group", "dates or numbers"]),
        ("--shards 4 --partition sorted", ["--partition", "stratified"]),
        ("--partition group:group", ["--shards", "Say how many"]),
        ("--draws 0", ["`draws`", "10000"]),
        ("--draws 1e4", ["--draws", "'1e4'", "--help"]),
        ("--seed -1", ["`seed`", "-1"]),
        ("--workers 0", ["`workers`", "0"]),
        ("--engine cloud", ["'cloud'", "processes"]),
        ("--engine serial --workers 4", ["`workers`", "processes"]),
        ("--sampler gibs", ["'gibs'", "hmc"]),
        ("--refine magic", ["'magic'", "auto"]),
        ("--missing skip", ["`missing`", "drop"]),
        ("--precision float16", ["`precision`", "float32"]),
        ("--link inverse", ["`link`", "logit"]),
        ("--weights zero", ["weights"]),
        ("--weights nowhere", ["'nowhere'"]),
        ("--offset group", ["`group`", "numbers"]),
        ("--prior Normal(0", ["--prior", "Normal(0, 10)"]),
        ("--prior Normal(0,-1)", ["--prior", "scale"]),
        ("--prior c=Normal(0,1)", ["'c'", "Intercept, a"]),
        ("--option weighting=full", ["`weighting`", "'swiss' has no options"]),
        ("--option draws=3", ["`draws`", "'swiss' has no options"]),
        ("--option name=3", ["`name`", "'swiss' has no options"]),
        ("--option weighting", ["NAME=VALUE"]),
        ("--method consensus --option weighting=odd", ["`weighting`", "diagonal"]),
        ("--shard 5 --nothing", ["--nothing", "--help"]),
    ],
)
def test_settings(refused, tmp_path, options, words):
    said = refused(
        fit_arguments("y ~ a", "good.parquet", *options.split(), "--out", str(tmp_path / "deep" / "run"))
    )
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    "out", ["file", "file/run", "other", "good.parquet", "/proc/run", "/proc/1/deep/run"]
)
def test_places_where_no_run_can_be(refused, out, monkeypatch):
    """Found before the rows are read: nobody should wait for that."""
    monkeypatch.setattr("consilience.pipeline.prepare", None)
    said = refused(fit_arguments("y ~ a", "good.parquet", "--out", out))
    assert out in said
    assert "--out" in said


def test_the_same_from_python(folder, tmp_path):
    rows = table()
    model = cs.glm("y ~ a", family="bernoulli")
    run = tmp_path / "run"
    for settings, word in [
        ({"shards": ROWS + 1}, "shards"),
        ({"method": "swis"}, "swiss"),
        ({"name": 1}, "name"),
        ({"workers": 0}, "workers"),
        ({"shards": cs.GroupPartition(4, "one_big")}, "one_big"),
    ]:
        with pytest.raises(cs.InputError, match=word):
            cs.fit(model, rows, out=run, progress=False, **settings)
        assert not run.exists()
    for data in ("rows", [1, 2], None, {"y": [1, 0], "a": [1.0]}):
        with pytest.raises(cs.InputError):
            cs.fit(model, data, out=run, progress=False)
    with pytest.raises(cs.InputError, match="model"):
        cs.fit("y ~ a", rows, progress=False)


def test_a_model_that_fails_on_its_rows_leaves_nothing(tmp_path):
    import numpyro.distributions as dist

    model = cs.Model({"mu": dist.Normal(0, 1)}, lambda params, rows: params["mu"] * rows["absent"])
    with pytest.raises(cs.InputError, match="absent"):
        cs.fit(model, {"x": np.ones(10)}, shards=2, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


# ------------------------------------------------------------------------------------------
# Draws made elsewhere
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "options", "words"),
    [
        ("one.npy two.npy", "", ["`kind`", "'subposterior' or 'inflated'", "sqrt(B)"]),
        ("one.npy two.npy", "--kind sub", ["`kind`", "'sub'"]),
        ("one.npy two.npy", "--kind subposterior", ["`kind`", "'inflated' for method 'swiss'", "consensus"]),
        ("ours.npz sub.npz", "", ["`kind`", "sub.npz"]),
        ("ours.npz ours.npz", "--kind subposterior", ["`kind`", "ours.npz"]),
        ("one.npy nan.npy", "--kind inflated", ["nan.npy", "1 NaN", "theta[1]"]),
        ("one-draws.csv nan-draws.csv", "--kind inflated", ["nan-draws.csv", "'level'"]),
        ("one.npy constant.npy", "--kind inflated", ["shard 1 (constant.npy)", "theta[1]"]),
        ("one-draws.csv constant-draws.csv", "--kind inflated", ["shard 1", "'level'"]),
        ("twins.npy twins.npy", "--kind inflated", ["theta[1]", "linear combination", "twins.npy"]),
        ("one.npy few.npy", "--kind inflated", ["shard 1 (few.npy)", "2 draws", "at least 3"]),
        ("one.npy narrow.npy", "--kind inflated", ["shard 1 (narrow.npy)", "dimension"]),
        ("one-draws.csv narrow-draws.csv", "--kind inflated", ["narrow-draws.csv", "no column level"]),
        ("one.npy nowhere.npy", "--kind inflated", ["nowhere.npy", "exists"]),
        ("one.npy cut.npy", "--kind inflated", ["cut.npy", "Write the file again"]),
        ("one.npy pickled.npy", "--kind inflated", ["pickled.npy"]),
        ("one.npy cut.parquet", "--kind inflated", ["cut.parquet", "Parquet"]),
        ("one.npy ragged-draws.csv", "--kind inflated", ["ragged-draws.csv", "line 3"]),
        ("one.npy nameless-draws.csv", "--kind inflated", ["nameless-draws.csv", "names on top"]),
        ("one.npy empty.csv", "--kind inflated", ["empty.csv"]),
        ("one.npy rows.txt", "--kind inflated", ["rows.txt", ".npy"]),
        ("one.npy two.npy", "--kind inflated --weights 1", ["`weights`", "2 positive"]),
        ("one.npy two.npy", "--kind inflated --weights a,b", ["--weights", "'a,b'"]),
        ("one.npy two.npy", "--kind inflated --seed -1", ["`seed`"]),
        ("one.npy two.npy", "--kind inflated --option draws=2", ["`draws`"]),
        ("one.npy two.npy", "--kind inflated --support theta", ["--support", "'theta'"]),
        (
            "one.npy two.npy",
            "--kind inflated --support theta=positiv",
            ["'positiv'", "Did you mean 'positive'"],
        ),
        ("one.npy two.npy", "--kind inflated --support sigma=positive", ["`supports`", "'sigma'", "theta"]),
        ("one.npy two.npy", "--kind inflated --support theta=simplex", ["shard 0 (", "one.npy", "sum 1"]),
        ("one.npy two.npy", "--kind inflated --support theta=correlation", ["square matrix"]),
        ("one.npy two.npy", "--kind inflated --parameters sigma", ["`parameters`", "'sigma'"]),
        ("one.npy two.npy", "--kind inflated --parameters ,", ["`parameters`"]),
        ("one.npy two.npy", "--kind inflated --report nowhere/page.html", ["nowhere/page.html"]),
        ("one.npy no*.npy", "--kind inflated", ["no*.npy", "files of draws"]),
        ("one.npy other", "--kind inflated", ["other", "files of draws"]),
        ("", "--kind inflated", ["FILE", "--help"]),
    ],
)
def test_draws(refused, tmp_path, files, options, words):
    out = tmp_path / "posterior.npz"
    said = refused(["combine", *files.split(), "--method", "swiss", *options.split(), "--out", str(out)])
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    ("methods", "options", "words"),
    [
        ("swiss,swis", "", ["'swis'", "Did you mean 'swiss'"]),
        ("swiss,", "", ["--method", "'swiss,'"]),
        ("swiss,swiss", "", ["--method", "each once"]),
        ("swiss,consensus", "", ["'subposterior' for method 'consensus'"]),
        ("swiss,pool", "--option weighting=full", ["`weighting`", "no options"]),
        ("swiss,pool", "--option pool.weighting=full", ["`weighting`", "'pool' has no options"]),
        ("swiss,pool", "--report file/page.html", ["file/page.html"]),
        ("swiss,pool", "--out posterior.txt", ["posterior.txt"]),
    ],
)
def test_several_rules(refused, monkeypatch, methods, options, words):
    """Whatever is wrong with one of them is found before any of them runs."""
    monkeypatch.setattr("consilience.combining.combine_gathered", None)
    command = ["combine", "one.npy", "two.npy", "--kind", "inflated", "--method", methods, *options.split()]
    said = refused(command)
    assert all(word in said for word in words), said


@pytest.mark.parametrize(
    "out", ["posterior.txt", "nowhere/posterior.npz", "file/posterior.npz", "/proc/p.npz"]
)
def test_places_where_no_posterior_can_be(refused, out, monkeypatch):
    monkeypatch.setattr("consilience.combining.gather", None)
    assert out in refused(["combine", "one.npy", "--kind", "inflated", "--method", "swiss", "--out", out])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("compare nowhere one.npy", ["nowhere", "existing"]),
        ("compare one.npy other", ["other", "finished run"]),
        ("compare rows.txt one.npy", ["rows.txt", ".npy"]),
        ("compare one.npy narrow.npy", ["1 parameters", "2 parameters"]),
        ("compare one.npy constant.npy", ["constant"]),
        ("compare one.npy nan.npy", ["nan.npy", "NaN"]),
        ("compare good.parquet good.parquet", ["good.parquet", "'group'"]),
        ("compare one.npy", ["REFERENCE", "--help"]),
        ("report nowhere", ["nowhere", "finished run"]),
        ("report other", ["other", "finished run"]),
        ("report file", ["file", "finished run"]),
        ("", ["demo", "fit", "--help"]),
        ("fti", ["'fti'", "Did you mean 'fit'?"]),
        ("magic", ["'magic'", "demo, fit, combine"]),
        ("methods more", ["more", "--help"]),
        ("fit", ["FORMULA", "DATA", "--family"]),
    ],
)
def test_other_commands(refused, arguments, words):
    said = refused(arguments.split())
    assert all(word in said for word in words), said


# ------------------------------------------------------------------------------------------
# While running
# ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(folder, tmp_path_factory) -> tuple[list[str], Path]:
    """A finished run of few draws, and the command that made it."""
    run = tmp_path_factory.mktemp("finished") / "run"
    command = fit_arguments("y ~ a", str(folder / "good.parquet"), "--shards", "2", "--draws", "400")
    command += ["--refine", "none"]
    assert main([*command, "--out", str(run)]) == 0
    return command, run


def copied(run: Path, to: Path) -> Path:
    import shutil

    return Path(shutil.copytree(run, to))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--seed 1", "settings.seed was 0, is 1"),
        ("--draws 500", "settings.draws was 400, is 500"),
        ("--shards 3", "settings.shards was 2, is 3"),
        ("--method pool", 'settings.method was "swiss", is "pool"'),
        ("--link probit", "model.link"),
        ("--prior Normal(0,1)", "model.prior.a"),
        ("--engine serial", "plan"),
    ],
)
def test_the_run_of_another_command(finished, tmp_path, capsys, options, word):
    command, run = finished
    before = everything(run)
    capsys.readouterr()
    assert main([*command, *options.split(), "--out", str(run)]) == 2
    printed = capsys.readouterr()
    assert word in printed.err
    assert "fingerprint" not in printed.err  # says nothing beside what did change
    assert len(printed.err.splitlines()) == 1
    assert everything(run) == before


def test_changed_rows(finished, folder, tmp_path, capsys):
    command, run = finished
    command = [*command]
    command[2] = str(tmp_path / "good.parquet")
    table().iloc[:-1].to_parquet(command[2])
    assert main([*command, "--out", str(run)]) == 2
    assert "data.files[0].bytes" in capsys.readouterr().err


def test_a_damaged_shard_is_done_again(finished, tmp_path, capsys):
    command, whole = finished
    run = copied(whole, tmp_path / "run")
    shard = run / "shards" / "00001.npz"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 0xFF
    shard.write_bytes(bytes(content))
    capsys.readouterr()
    assert main(["report", str(run)]) == 2
    assert "shards 1 of" in capsys.readouterr().err
    assert main([*command, "--out", str(run)]) == 0
    assert "00001.npz is damaged" in capsys.readouterr().out
    assert np.array_equal(cs.load(run / "posterior.npz").array, cs.load(whole / "posterior.npz").array)
    assert shard.read_bytes() == (whole / "shards" / "00001.npz").read_bytes()


@pytest.mark.parametrize("name", ["manifest.json", "diagnostics.json", "posterior.npz"])
def test_other_damaged_files_of_a_run(finished, tmp_path, capsys, name):
    run = copied(finished[1], tmp_path / "run")
    (run / name).write_bytes((run / name).read_bytes()[:100])
    capsys.readouterr()
    assert main(["report", str(run)]) == 2
    printed = capsys.readouterr()
    assert name in printed.err
    assert len(printed.err.splitlines()) == 1


def limited(command: list[str], largest_file: int) -> subprocess.CompletedProcess[str]:
    """Run a command that can write no larger file: what a full disk is like, without filling one."""
    code = (
        f"import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, ({largest_file}, {largest_file}));"
        "from consilience.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.run([sys.executable, "-c", code, *command], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("options", "largest", "where", "left"),
    [
        ("", 5_000, "rows", []),
        pytest.param("--draws 2000", 20_000, "shards", [], marks=pytest.mark.long),
        pytest.param(
            "", 12_000, "posterior.npz", ["manifest.json", "rows", "shards"], marks=pytest.mark.long
        ),
        ("", 30_000, "report.html", ["diagnostics.json", "posterior.npz", "summary.csv"]),
    ],
)
def test_a_disk_that_fills_up(finished, tmp_path, options, largest, where, left):
    """While rows are sorted, draws saved, and the result: what is finished stays, for the next time."""
    pytest.importorskip("resource")
    command, whole = finished
    run = tmp_path / "run"
    done = limited([*command, *options.split(), "--out", str(run)], largest)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert where in done.stderr
    assert "ree some space" in done.stderr
    assert run.exists() == bool(left)
    if left:
        assert {path.name for path in run.iterdir()} == {"manifest.json", "rows", "shards", *left}
        assert main([*command, "--out", str(run)]) == 0
        assert np.array_equal(cs.load(run / "posterior.npz").array, cs.load(whole / "posterior.npz").array)


def test_an_unexpected_error_is_one_line_too(monkeypatch, capsys):
    def broken() -> None:
        raise RuntimeError("first line\nsecond line")

    monkeypatch.setattr(cs, "methods", broken, raising=False)
    assert main(["methods"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(
        "consilience: failed with RuntimeError: first line second line. Run it again with --debug"
    )
    assert len(printed.splitlines()) == 1
    with pytest.raises(RuntimeError, match="first line"):
        main(["methods", "--debug"])


def test_a_reader_that_goes_away():
    code = "import sys; from consilience.cli import main; sys.exit(main(['methods']))"
    writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.close()
    assert writer.wait() == 1
    assert writer.stderr is not None
    assert writer.stderr.read() == b""
    writer.stderr.close()


def test_nothing_but_text_in_a_pipe(finished):
    """No colours, no progress, and no warnings of libraries even where Python is asked to show them."""
    command, run = finished
    done = subprocess.run(
        [sys.executable, "-W", "default", "-m", "consilience.cli", *command, "--out", str(run)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("command", ["", "demo", "fit", "combine", "compare", "methods", "report"])
def test_help_fits_a_narrow_terminal(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        main([*command.split(), "--help"])
    printed = capsys.readouterr()
    assert stopped.value.code == 0
    assert printed.err == ""
    assert max(map(len, printed.out.splitlines())) <= 80
    assert "--debug" in printed.out
