"""`consilience combine` from files to what it prints, saves and draws."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from consilience.cli import main
from consilience.draws.files import load

SHARDS, CHAINS, DRAWS = 3, 2, 150


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """CmdStan's files of inflated shards with a scale and a vector of shares, one file per chain."""
    folder = tmp_path_factory.mktemp("draws")
    rng = np.random.default_rng(0)
    for b in range(SHARDS):
        # Inflated shards lie about as far apart as they are wide.
        mean, tilt = rng.normal(size=2), np.exp(rng.normal(0, 0.8, size=3))
        for c in range(CHAINS):
            u = rng.normal(mean, 1, size=(DRAWS, 2))
            shares = tilt * rng.dirichlet([2, 3, 4], size=DRAWS)
            shares /= shares.sum(axis=1, keepdims=True)
            rows = np.column_stack([np.full(DRAWS, -1.0), np.zeros(DRAWS), u[:, 0], np.exp(u[:, 1]), shares])
            head = f"# method = sample\n# id = {c + 1}\n# data\n#   file = {b}.json\n"
            head += "lp__,divergent__,mu,sigma,p.1,p.2,p.3\n"
            body = "\n".join(",".join(f"{value:.6g}" for value in row) for row in rows)
            (folder / f"s{b}-{c}.csv").write_text(head + body + "\n")
    return folder


def command(files, *more):
    shards = [str(files / f"s{b}-*.csv") for b in range(SHARDS)]
    return ["combine", *shards, "--kind", "inflated", *more]


DECLARED = ("--support", "sigma=positive", "--support", "p=simplex")


def test_one_rule(files, tmp_path, capsys):
    out = tmp_path / "posterior.nc"
    pytest.importorskip("arviz")
    assert main(command(files, "--method", "swiss", *DECLARED, "--out", str(out))) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(
        "3 shards of equal weights with 2 chains and 300 draws each, 5 parameters, inflated"
    )
    assert "combined unconstrained and mapped back: sigma (positive), p (simplex)." in printed
    assert "WARNING" not in printed
    assert "positive in all draws" not in printed
    assert f"Saved to {out}" in printed
    posterior = load(out)
    assert posterior.names == ("mu", "sigma", "p[1]", "p[2]", "p[3]")
    assert posterior.array[:, 1].min() > 0
    np.testing.assert_allclose(posterior.draws["p"].sum(axis=1), 1)
    assert posterior.info["supports"] == {"sigma": "positive", "p": "simplex"}
    assert [file.name for file in tmp_path.iterdir()] == ["posterior.nc"]


@pytest.mark.parametrize("suffix", ["npz", "csv", "parquet"])
def test_other_formats(files, tmp_path, suffix):
    out = tmp_path / f"posterior.{suffix}"
    assert main(command(files, "--method", "pool", "--parameters", "sigma,mu", "--out", str(out))) == 0
    assert load(out).names == ("sigma", "mu")
    assert len(load(out).array) == SHARDS * CHAINS * DRAWS


def test_a_page_of_one_rule(files, tmp_path, capsys):
    page = tmp_path / "page.html"
    assert main(command(files, "--method", "swiss", *DECLARED, "--report", str(page))) == 0
    assert f"Report: {page}" in capsys.readouterr().out
    text = page.read_text("utf-8")
    for section in ("summary", "densities", "disagreement", "convergence"):
        assert f'<section id="{section}"' in text


def test_several_rules(files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = [
        "--option",
        "gaussian-product.num_draws=500",
        "--option",
        "output=gaussian",
        "--out",
        "posterior.npz",
    ]
    methods = "swiss,gaussian-product,gaussian-barycenter"
    assert main(command(files, "--method", methods, *DECLARED, *options)) == 0
    printed = capsys.readouterr().out
    for word in ("swiss", "gaussian-product", "gaussian-barycenter", "apart", "sd ratio", "num_draws=500"):
        assert word in printed
    assert "No two rules' means differ" in printed or "Rules differ in" in printed
    names = sorted(file.name for file in tmp_path.iterdir())
    saved = [f"posterior.{name}.npz" for name in sorted(methods.split(","))]
    assert names == ["consilience-combine.html", *saved]
    assert load("posterior.gaussian-product.npz").array.shape == (500, 5)
    assert load("posterior.gaussian-barycenter.npz").info["options"]["output"] == "gaussian"
    assert "<h2>Where rules differ</h2>" in (tmp_path / "consilience-combine.html").read_text("utf-8")


def test_no_page_when_none_is_wanted(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(command(files, "--method", "swiss,pool", *DECLARED, "--report", "none")) == 0
    assert list(tmp_path.iterdir()) == []


def test_a_rule_that_refuses_does_not_stop_the_others(files, tmp_path, monkeypatch, capsys):
    """Found by a rule itself, after the others may have run: named, and the command has failed."""
    from consilience.combine.swiss import Swiss
    from consilience.errors import InputError

    def refuses(self, subposteriors, *, seed=0):
        raise InputError("swiss: too many dimensions.")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Swiss, "combine", refuses)
    arguments = command(files, "--method", "swiss,pool", *DECLARED, "--out", "p.npz", "--report", "page.html")
    assert main(arguments) == 1
    printed = capsys.readouterr()
    assert "WARNING: swiss was not used: swiss: too many dimensions." in printed.out
    assert "swiss could not be used" in printed.err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p.pool.npz", "page.html"]
    assert main(command(files, "--method", "swiss", *DECLARED, "--out", "q.npz")) == 2
    assert not (tmp_path / "q.npz").exists()


def test_chains_given_as_shards_and_hints(files, capsys):
    every = sorted(str(file) for file in files.glob("*.csv"))
    assert main(["combine", *every, "--kind", "inflated", "--method", "pool"]) == 0
    # Lines are broken at the terminal's width, wherever the folder's name makes that fall.
    printed = " ".join(capsys.readouterr().out.split())
    assert "WARNING:" in printed
    assert "belong together" in printed
    assert "--support sigma=positive" in printed
    assert "--support p=simplex" in printed


def test_divergences_and_chains_that_have_not_met(tmp_path, capsys):
    rng = np.random.default_rng(0)
    for b in range(2):
        frame = pd.DataFrame({"chain": np.repeat([0, 1], 200), "draw": np.tile(np.arange(200), 2)})
        frame["mu"] = rng.normal(size=400) + 5 * frame["chain"] * b
        frame.to_parquet(tmp_path / f"{b}.parquet")
    shards = [str(tmp_path / f"{b}.parquet") for b in range(2)]
    page = tmp_path / "page.html"
    assert main(["combine", *shards, "--kind", "inflated", "--method", "swiss", "--report", str(page)]) == 0
    text = page.read_text("utf-8")
    assert "1 of 2 shards has not converged: shard 1 (" in text
    capsys.readouterr()
