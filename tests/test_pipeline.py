"""`fit` from rows to posterior: right numbers, the same bits, and runs that go on."""

from __future__ import annotations

import json
import shutil

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import consilience as cs
from consilience.errors import ConvergenceWarning, StoreError

ROWS = 3000


def linear_rows(rows: int = ROWS, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 2))
    return {"x": x, "y": x @ [1.0, -2.0] + rng.normal(size=rows)}


def linear_log_likelihood(params, rows):
    return -0.5 * (rows["y"] - rows["x"] @ params["beta"]) ** 2


@pytest.fixture(scope="module")
def model() -> cs.Model:
    return cs.Model({"beta": dist.Normal(0, 10).expand([2]).to_event(1)}, linear_log_likelihood)


def exact_posterior(rows) -> tuple[np.ndarray, np.ndarray]:
    precision = rows["x"].T @ rows["x"] + np.eye(2) / 100
    covariance = np.linalg.inv(precision)
    return covariance @ rows["x"].T @ rows["y"], covariance


def distance(posterior: cs.Posterior, rows) -> float:
    """Mahalanobis distance of the posterior mean in units of its own Monte Carlo error."""
    mean, covariance = exact_posterior(rows)
    error = np.diag(covariance) / np.asarray(posterior.summary()["ess"])
    return float(np.max(np.abs(posterior.mean() - mean) / np.sqrt(error)))


@pytest.mark.parametrize("method", ["swiss", "consensus", "recentering", "gaussian-product"])
def test_gaussian_posterior_is_right(model, method):
    rows = linear_rows()
    result = cs.fit(model, rows, shards=5, method=method, refine=None, draws=4000, progress=False)
    assert result.posterior.array.shape == (4000, 2)
    assert result.posterior.names == ("beta[0]", "beta[1]")
    if method != "recentering":  # it ignores that the shards' precisions differ
        assert distance(result.posterior, rows) < 4.5
        _, covariance = exact_posterior(rows)
        ratio = np.linalg.eigvalsh(np.linalg.solve(covariance, result.posterior.cov()))
        assert np.all(np.abs(ratio - 1) < 0.25)


def test_the_oracle_rejects_the_pool(model):
    """A mixture of the shards is wider than the posterior: the limits above must notice."""
    rows = linear_rows()
    result = cs.fit(model, rows, shards=5, method="pool", refine=None, draws=4000, progress=False)
    _, covariance = exact_posterior(rows)
    ratio = np.linalg.eigvalsh(np.linalg.solve(covariance, result.posterior.cov()))
    assert ratio.max() > 1.25


def test_same_seed_same_bits_and_engines_agree(model, tmp_path):
    rows = linear_rows(1200)
    settings = {"shards": 4, "refine": None, "draws": 800, "progress": False}
    serial = cs.fit(model, rows, engine="serial", **settings)
    again = cs.fit(model, rows, engine="serial", **settings)
    processes = cs.fit(model, rows, engine="processes", workers=2, **settings)
    other = cs.fit(model, rows, engine="serial", seed=1, **settings)
    assert np.array_equal(serial.posterior.array, again.posterior.array)
    assert np.array_equal(serial.posterior.array, processes.posterior.array)
    assert not np.array_equal(serial.posterior.array, other.posterior.array)
    assert processes.settings["engine"] == "processes"


def test_vectorised_plan_is_the_same_with_itself_and_in_law(model):
    rows = linear_rows(1200)
    settings = {"shards": 4, "refine": None, "draws": 2000, "progress": False}
    stacked = cs.fit(model, rows, **settings)
    again = cs.fit(model, rows, workers=1, **settings)
    assert np.array_equal(stacked.posterior.array, again.posterior.array)
    assert distance(stacked.posterior, rows) < 4.5


def test_interrupted_run_goes_on_to_the_same_bits(model, tmp_path):
    rows = linear_rows()
    settings = {"shards": 5, "refine": None, "draws": 1000, "progress": False, "engine": "serial"}
    whole = cs.fit(model, rows, out=tmp_path / "whole", **settings)
    partly = tmp_path / "partly"
    shutil.copytree(tmp_path / "whole", partly)
    shards = sorted((partly / "shards").glob("*.npz"))
    shards[1].unlink()
    damaged = bytearray(shards[3].read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    shards[3].write_bytes(bytes(damaged))
    (partly / "posterior.npz").unlink()
    untouched = shards[0].stat().st_mtime_ns
    resumed = cs.fit(model, rows, out=partly, **settings)
    assert np.array_equal(resumed.posterior.array, whole.posterior.array)
    assert shards[0].stat().st_mtime_ns == untouched
    assert any("damaged" in note for note in resumed.notes)
    loaded = cs.load(partly / "posterior.npz")
    assert np.array_equal(loaded.array, whole.posterior.array)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"draws": 1001}, "draws"),
        ({"seed": 3}, "seed"),
        ({"shards": 6}, "shards"),
        ({"method": "pool"}, "method"),
    ],
)
def test_changed_settings_are_refused_by_name(model, tmp_path, change, named):
    rows = linear_rows(600)
    settings = {"shards": 2, "refine": None, "draws": 1000, "progress": False}
    cs.fit(model, rows, out=tmp_path / "run", **settings)
    with pytest.raises(StoreError, match=named):
        cs.fit(model, rows, out=tmp_path / "run", **(settings | change))


def test_changed_data_and_model_are_refused(model, tmp_path):
    rows = linear_rows(600)
    settings = {"shards": 2, "refine": None, "draws": 1000, "progress": False, "out": tmp_path / "run"}
    cs.fit(model, rows, **settings)
    with pytest.raises(StoreError, match="data"):
        cs.fit(model, linear_rows(600, seed=1), **settings)
    wider = cs.Model({"beta": dist.Normal(0, 20).expand([2]).to_event(1)}, linear_log_likelihood)
    with pytest.raises(StoreError, match="model"):
        cs.fit(wider, rows, **settings)


def test_run_directory_holds_what_it_promises(model, tmp_path):
    run = tmp_path / "run"
    cs.fit(model, linear_rows(600), shards=2, refine=None, draws=500, progress=False, out=run)
    manifest = json.loads((run / "manifest.json").read_text())
    text = json.dumps(manifest)
    for part in ("versions", "fingerprint", "seed", "kind", "swiss"):
        assert part in text
    for name in ("posterior.npz", "summary.csv", "report.html", "diagnostics.json"):
        assert (run / name).stat().st_size > 0
    diagnostics = json.loads((run / "diagnostics.json").read_text())
    assert [shard["rows"] for shard in diagnostics["shards"]] == [300, 300]
    from consilience.stored import load_fit

    again = load_fit(run)
    assert again.posterior.names == ("beta[0]", "beta[1]")
    assert again.report(tmp_path / "again.html").stat().st_size > 0


def test_a_shard_that_does_not_converge_is_named():
    """Two far modes: no chain crosses, and the result must say so loudly."""

    def log_likelihood(params, rows):
        return (
            jax.numpy.logaddexp(
                -0.5 * ((params["mu"] - 3) / 0.05) ** 2, -0.5 * ((params["mu"] + 3) / 0.05) ** 2
            )
            * rows["y"]
        )

    model = cs.Model({"mu": dist.Normal(0, 3)}, log_likelihood)
    rows = {"y": np.ones(40)}
    with pytest.warns(ConvergenceWarning, match="shard"):
        result = cs.fit(model, rows, shards=2, refine=None, draws=400, progress=False)
    assert any("not converged" in warning for warning in result.warnings)
    assert "not converged" in str(result)


def test_cost_counts_rows(model):
    rows = linear_rows(600)
    result = cs.fit(model, rows, shards=2, refine=None, draws=1000, progress=False)
    by_hand = sum(r["gradients"] * r["rows"] for r in result.shard_records) / 600
    assert result.cost.full_data_gradients == pytest.approx(by_hand)
    assert result.cost.seconds["sample"] > 0


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "swis"}, "swiss"),
        ({"draws": 0}, "draws"),
        ({"seed": -1}, "seed"),
        ({"shards": 0}, "shards"),
        ({"shards": 10_000}, "shards"),
        ({"shards": "nowhere"}, "nowhere"),
        ({"engine": "cloud"}, "engine"),
        ({"sampler": "gibs"}, "sampler"),
        ({"refine": "magic"}, "magic"),
        ({"missing": "ignore"}, "missing"),
        ({"weighting": "full"}, "weighting"),
    ],
)
def test_wrong_settings_are_one_sentence_before_any_work(model, tmp_path, settings, sentence):
    run = tmp_path / "run"
    with pytest.raises(cs.InputError, match=sentence):
        cs.fit(model, linear_rows(300), out=run, progress=False, **settings)
    assert not run.exists()
