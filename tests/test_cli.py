"""The command as a user types it: what it prints, what it leaves, and its exit codes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from consilience.cli import main


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    rng = np.random.default_rng(0)
    a = rng.normal(size=2000)
    b = rng.choice(["p", "q", "r"], size=2000)
    y = (rng.random(2000) < 1 / (1 + np.exp(-0.5 - a + (b == "q")))).astype(int)
    path = tmp_path_factory.mktemp("rows") / "data.parquet"
    pd.DataFrame({"y": y, "a": a, "b": b, "two": 2 * a, "same": 1.0}).to_parquet(path)
    return path


def test_fit_report_compare(rows, tmp_path, capsys):
    run = tmp_path / "run"
    command = ["fit", "y ~ a + b", str(rows), "--family", "bernoulli", "--shards", "4", "--draws", "1000"]
    assert main([*command, "--out", str(run), "--no-progress"]) == 0
    printed = capsys.readouterr().out
    for word in ("Intercept", "a", "b[T.q]", "mean", "sd", "ESS", str(run)):
        assert word in printed
    assert main(["report", str(run), "--out", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text().lower().startswith("<!doctype html>")
    assert main(["compare", str(run), str(run / "posterior.npz")]) == 0
    assert "Mahalanobis" in capsys.readouterr().out
    assert main([*command, "--out", str(run), "--no-progress"]) == 0


def test_combine(tmp_path, capsys):
    rng = np.random.default_rng(0)
    files = []
    for b in range(3):
        files.append(str(tmp_path / f"shard{b}.csv"))
        pd.DataFrame(rng.normal(size=(500, 2)), columns=["a", "b"]).to_csv(files[-1], index=False)
    out = tmp_path / "posterior.npz"
    arguments = ["combine", *files, "--method", "consensus", "--out", str(out)]
    assert main([*arguments, "--kind", "subposterior"]) == 0
    printed = capsys.readouterr().out
    assert "consensus" in printed
    assert "Agreement of 3 shards in 2 parameters: " in printed
    assert "Rules: consensus and gaussian-product differ by " in printed
    assert out.exists()
    assert main(["combine", *files[:1], "--method", "consensus", "--kind", "subposterior"]) == 0
    assert "Agreement" not in capsys.readouterr().out
    out.unlink()
    assert main(arguments) == 2
    assert "kind" in capsys.readouterr().err
    assert main([*arguments, "--kind", "inflated"]) == 2
    assert not out.exists()


def test_combine_says_each_warning_once_and_why_agreement_is_not_measured(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for count, words in (
        (60, "WARNING: 2 of 2 shards have fewer than 100"),
        (22, "was not measured. combine: `draws`"),
    ):
        files = []
        for b in range(2):
            files.append(str(tmp_path / f"shard{b}.csv"))
            pd.DataFrame(rng.normal(size=(count, 20)), columns=[f"x{j}" for j in range(20)]).to_csv(
                files[-1], index=False
            )
        assert (
            main(["combine", *files, "--method", "pool" if count == 22 else "swiss", "--kind", "inflated"])
            == 0
        )
        assert capsys.readouterr().out.count(words) == 1


def test_methods_lists_every_rule(capsys):
    from consilience.combine import COMBINERS

    assert main(["methods"]) == 0
    printed = capsys.readouterr().out
    assert all(rule.name in printed for rule in COMBINERS)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["y ~ nothere"], "nothere"),
        (["y ~ a +"], "formula"),
        (["y ~ a", "--family", "gausian"], "gaussian"),
        (["a ~ y"], "a"),
        (["y ~ a", "--method", "swis"], "swiss"),
        (["y ~ a + same"], "same"),
        (["y ~ a + two"], "two"),
        (["y ~ a", "--shards", "5000"], "shards"),
        (["y ~ a", "--prior", "Normal(0"], "prior"),
        (["y ~ a", "--prior", "c=Normal(0, 1)"], "c"),
        (["y ~ a", "--option", "weighting"], "NAME=VALUE"),
        (["y ~ a", "--partition", "group"], "partition"),
        (["y ~ a", "--engine", "cloud"], "engine"),
    ],
)
def test_wrong_input_is_one_sentence_and_exit_code_2(rows, tmp_path, capsys, arguments, sentence):
    formula, *rest = arguments
    run = tmp_path / "run"
    family = [] if "--family" in rest else ["--family", "bernoulli"]
    code = main(["fit", formula, str(rows), *family, *rest, "--out", str(run), "--no-progress"])
    printed = capsys.readouterr()
    assert code == 2, printed
    assert sentence in printed.err
    assert len(printed.err.strip().splitlines()) == 1
    assert printed.out == ""
    assert not run.exists()


@pytest.mark.parametrize("content", [None, b"", b"PAR1 cut short", b"y,a\n1,2\n1,2,3\n"])
def test_unreadable_files(tmp_path, capsys, content):
    path = tmp_path / ("data.csv" if content and content.startswith(b"y,") else "data.parquet")
    if content is not None:
        path.write_bytes(content)
    assert main(["fit", "y ~ a", str(path), "--family", "gaussian", "--no-progress"]) == 2
    assert path.name in capsys.readouterr().err


def test_help_and_import_are_light():
    """Neither loads what takes long to load; the time itself is in the benchmarks."""
    heavy = "{'jax', 'numpy', 'pandas', 'scipy', 'pyarrow', 'matplotlib', 'numpyro', 'rich'}"
    code = (
        f"import sys, consilience, consilience.cli as c; c.build_parser(); print({heavy} & set(sys.modules))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
