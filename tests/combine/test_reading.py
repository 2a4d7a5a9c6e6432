"""Draws from anywhere: what a shard may be, its chains, its columns, and what is noticed on the way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from consilience.combine import combine
from consilience.combine.inputs import gather
from consilience.draws import Subposteriors
from consilience.draws.files import write_subposterior
from consilience.errors import ConsilienceWarning, DrawsError, InputError

RNG = np.random.default_rng(0)
DRAWS = RNG.normal(size=(3, 2, 60, 3))  # shards, chains, draws, parameters
NAMES = ("mu", "beta[0]", "beta[1]")


def arviz_object(shard):
    arviz = pytest.importorskip("arviz")
    return arviz.from_dict(posterior={"mu": shard[..., 0], "beta": shard[..., 1:]})


def stan_text(chain, data="data.json", number=1):
    head = f"# method = sample (Default)\n# id = {number}\n# data\n#   file = {data}\n"
    lines = [",".join(["0", "0", *map(repr, map(float, row))]) for row in chain]
    return head + "lp__,divergent__,mu,beta.1,beta.2\n" + "\n".join(lines) + "\n"


def every_form(tmp_path):
    """The same three shards, in every form in which two chains can come."""
    flat = DRAWS.reshape(3, 120, 3)
    rows = [pd.DataFrame(x, columns=list(NAMES)) for x in flat]
    chain_columns = {"chain": np.repeat([0, 1], 60), "draw": np.tile(np.arange(60), 2)}
    by_chain = [frame.assign(**chain_columns) for frame in rows]
    for b, shard in enumerate(DRAWS):
        (tmp_path / f"folder{b}").mkdir()
        for c, chain in enumerate(shard):
            (tmp_path / f"folder{b}" / f"{c + 1}.csv").write_text(stan_text(chain, f"{b}.json", c + 1))
            np.save(tmp_path / f"npy{b}-{c}.npy", chain)
        np.save(tmp_path / f"both{b}.npy", shard)
        np.savez(tmp_path / f"named{b}.npz", mu=flat[b, :, 0], beta=flat[b, :, 1:])
        by_chain[b].to_csv(tmp_path / f"chains{b}.csv", index=False)
        by_chain[b].to_parquet(tmp_path / f"chains{b}.parquet")
        write_subposterior(tmp_path / f"ours{b}.npz", shard, names=NAMES, kind="inflated", weight=1 / 3)
        arviz_object(shard).to_netcdf(str(tmp_path / f"a{b}.nc"))
        arviz_object(shard).to_datatree().to_zarr(tmp_path / f"a{b}.zarr", consolidated=False)
    shards = range(3)
    return {
        "CmdStan folders": [tmp_path / f"folder{b}" for b in shards],
        "CmdStan patterns": [str(tmp_path / f"folder{b}" / "*.csv") for b in shards],
        "CmdStan lists": [[tmp_path / f"folder{b}" / f"{c}.csv" for c in (1, 2)] for b in shards],
        "npy of chains": [str(tmp_path / f"both{b}.npy") for b in shards],
        "npy by chain": [str(tmp_path / f"npy{b}-?.npy") for b in shards],
        "header CSV": [tmp_path / f"chains{b}.csv" for b in shards],
        "Parquet": [tmp_path / f"chains{b}.parquet" for b in shards],
        "ours": [tmp_path / f"ours{b}.npz" for b in shards],
        "netCDF": [tmp_path / f"a{b}.nc" for b in shards],
        "zarr": [tmp_path / f"a{b}.zarr" for b in shards],
        "ArviZ": [arviz_object(shard) for shard in DRAWS],
        "ArviZ by chain": [[arviz_object(chain[None]) for chain in shard] for shard in DRAWS],
        "tables": by_chain,
        "arrays": list(DRAWS),
        "array": DRAWS,
        "lists of chains": [list(shard) for shard in DRAWS],
        "ragged lists of chains": [
            [shard[0][:50], np.concatenate([shard[0][50:], shard[1]])] for shard in DRAWS
        ],
        "a mixture": [tmp_path / "a0.nc", by_chain[1], arviz_object(DRAWS[2])],
    }


def test_every_form_holds_the_same_draws(tmp_path):
    for form, draws in every_form(tmp_path).items():
        found = gather(draws, kind="inflated").subposteriors
        assert found.num_draws == (120, 120, 120), form
        chains = (50, 70) if form.startswith("ragged") else (60, 60)
        assert found.chain_lengths == (chains,) * 3, form
        if form == "zarr":  # whose folders have an order of their own
            assert sorted(found.names) == sorted(NAMES)
            order = [found.names.index(name) for name in NAMES]
        else:
            order = [0, 1, 2]
        for b in range(3):
            np.testing.assert_array_equal(found.draws[b][:, order], DRAWS[b].reshape(120, 3), form)
        if not ("npy" in form or "array" in form or "lists of" in form):
            assert found.names[order[0]] == "mu"
    found = gather([tmp_path / f"named{b}.npz" for b in range(3)], kind="inflated").subposteriors
    np.testing.assert_array_equal(found.draws[2], DRAWS[2].reshape(120, 3))


class FakeMCMC:
    """What NumPyro's MCMC answers after `run`; a real one is in the tests of `draws`."""

    def __init__(self, samples):
        self.samples = samples

    def get_samples(self, group_by_chain=False):
        assert group_by_chain
        return self.samples

    def get_extra_fields(self, group_by_chain=False):
        return {"diverging": np.zeros(self.samples["mu"].shape, dtype=bool)}


def test_numpyro_shards_are_combined():
    """Two shards N(m_b, 1/100) of a mean with flat prior: the posterior is N(mean of m_b, 1/200)."""
    rng = np.random.default_rng(1)
    runs = [FakeMCMC({"mu": rng.normal(m, 0.1, size=(4, 500))}) for m in (1.9, 2.2)]
    found = combine(runs, method="consensus", kind="subposterior")
    sd = np.sqrt(1 / 200)
    assert abs(found.mean()[0] - 2.05) < 5 * sd / np.sqrt(2000)
    assert abs(found.sd()[0] / sd - 1) < 5 / np.sqrt(2 * 2000)
    assert abs(runs[0].samples["mu"].std() / sd - 1) > 5 / np.sqrt(2 * 2000)  # one shard is wider
    assert found.names == ("mu",)


class TestColumns:
    first = pd.DataFrame(DRAWS[0, 0], columns=["a", "b", "c"])
    second = pd.DataFrame(DRAWS[1, 0], columns=["a", "b", "c"])

    def test_order_does_not_matter(self):
        expected = gather([self.first, self.second], kind="inflated").subposteriors
        found = gather([self.first, self.second[["c", "a", "b"]]], kind="inflated").subposteriors
        assert found.names == ("a", "b", "c")
        np.testing.assert_array_equal(found.draws[1], expected.draws[1])
        wrong = gather([self.first.to_numpy(), self.second[["c", "a", "b"]].to_numpy()], kind="inflated")
        assert not np.array_equal(wrong.subposteriors.draws[1], expected.draws[1])

    def test_chains_of_a_shard_are_matched_too(self):
        shard = [self.first, self.second[["b", "c", "a"]]]
        found = gather([shard, self.first], kind="inflated").subposteriors
        np.testing.assert_array_equal(found.draws[0], np.concatenate([self.first, self.second]))
        with pytest.raises(DrawsError, match="no column c in"):
            gather([[self.first, self.second[["a", "b"]]], self.first], kind="inflated")
        with pytest.raises(DrawsError, match="3 and 2 columns in"):
            gather([[DRAWS[0, 0], DRAWS[0, 1][:, :2]]], kind="inflated")

    def test_a_missing_one_is_named(self):
        with pytest.raises(DrawsError, match="no column b in 1"):
            gather([self.first, self.second[["a", "c"]]], kind="inflated")
        with pytest.raises(DrawsError, match="column d, which 0 has not"):
            gather([self.first, self.second.assign(d=1.0)], kind="inflated")

    def test_columns_without_names_are_in_the_order_of_those_with(self):
        found = gather([DRAWS[0, 0], self.second[["b", "a", "c"]], self.first], kind="inflated").subposteriors
        assert found.names == ("b", "a", "c")
        np.testing.assert_array_equal(found.draws[2], self.first[["b", "a", "c"]])
        with pytest.raises(DrawsError, match="2 columns in shard 1"):
            gather([self.first, DRAWS[0, 0][:, :2]], kind="inflated")

    def test_chosen_parameters(self):
        other = self.second.assign(junk=1.0)[["junk", "c", "b", "a"]]
        found = combine([self.first, other], method="swiss", kind="inflated", parameters=["c", "a"])
        assert found.names == ("c", "a")
        expected = combine([self.first[["c", "a"]], self.second[["c", "a"]]], method="swiss", kind="inflated")
        np.testing.assert_array_equal(found.array, expected.array)
        shards = Subposteriors.of(DRAWS, kind="inflated", names=NAMES)
        assert combine(shards, method="swiss", parameters=["beta"]).names == ("beta[0]", "beta[1]")
        assert combine(
            DRAWS, method="swiss", kind="inflated", names=NAMES, parameters=["beta[1]", "mu"]
        ).names == ("beta[1]", "mu")

    @pytest.mark.parametrize(
        ("parameters", "words"),
        [
            ("a", "a list"),
            ([], "a list"),
            ([1], "a list"),
            (["bb"], "Did you mean 'b'"),
            (["junk"], "no column junk in 0"),
        ],
    )
    def test_wrong_parameters(self, parameters, words):
        frames = [self.second.assign(junk=self.first["a"]), self.first]
        if parameters == ["junk"]:
            words = "no column junk in 1"
        with pytest.raises(InputError, match=words):
            gather(frames, kind="inflated", parameters=parameters)


class TestPlaces:
    def test_nothing_there(self, tmp_path):
        (tmp_path / "empty").mkdir()
        (tmp_path / "empty" / "notes.txt").write_text("")
        for path in (tmp_path / "empty", str(tmp_path / "*.csv")):
            with pytest.raises(DrawsError, match=r"files of draws.*none"):
                gather([path], kind="inflated")

    def test_a_folder_with_the_same_draws_twice(self, tmp_path):
        frame = pd.DataFrame(DRAWS[0, 0], columns=list("abc"))
        frame.to_csv(tmp_path / "a.csv", index=False)
        frame.to_parquet(tmp_path / "a.parquet")
        with pytest.raises(DrawsError, match=r"of one form in the folder.*\.csv and \.parquet"):
            gather([tmp_path], kind="inflated")

    def test_a_file_with_a_star_in_its_name(self, tmp_path):
        path = tmp_path / "a[1].csv"
        pd.DataFrame(DRAWS[0, 0], columns=list("abc")).to_csv(path, index=False)
        assert gather([path], kind="inflated").subposteriors.names == ("a", "b", "c")

    def test_chains_of_different_targets(self, tmp_path):
        for name, weight in (("a", 0.5), ("b", 0.25)):
            write_subposterior(
                tmp_path / f"{name}.npz", DRAWS[0, 0], names=list("xyz"), kind="inflated", weight=weight
            )
        with pytest.raises(DrawsError, match="chains of one target"):
            gather([[tmp_path / "a.npz", tmp_path / "b.npz"]])


class TestWhatIsNoticed:
    def write(self, folder, shards=2, chains=2, data="{b}.json", divergent=0):
        folder.mkdir(exist_ok=True)
        for b in range(shards):
            for c in range(chains):
                text = stan_text(DRAWS[b, c], data.format(b=b), c + 1)
                text = text.replace("\n0,0,", "\n0,1,", divergent)
                (folder / f"s{b}-{c}.csv").write_text(text)
        return folder

    def test_chains_given_as_shards(self, tmp_path):
        folder = self.write(tmp_path / "a")
        with pytest.warns(
            ConsilienceWarning, match=r"s0-0\.csv and .*s0-1\.csv were sampled from the same file"
        ):
            found = combine(sorted(folder.glob("*.csv")), method="swiss", kind="inflated")
        assert "too narrow" in found.info["warnings"][0]

    def test_shards_whose_rows_had_one_name(self, tmp_path):
        folder = self.write(tmp_path / "a", chains=1, data="data.json")
        assert gather(sorted(folder.glob("*.csv")), kind="inflated").warnings == ()
        folder = self.write(tmp_path / "b")
        shards = [str(folder / f"s{b}-*.csv") for b in (0, 1)]
        assert gather(shards, kind="inflated").warnings == ()

    def test_divergent_transitions(self, tmp_path):
        folder = self.write(tmp_path / "a", chains=1, divergent=3)
        found = gather(sorted(folder.glob("*.csv")), kind="inflated")
        assert found.divergences == (3, 3)
        assert "divergent transitions in" in found.warnings[0]
        assert "s1-0.csv (3)" in found.warnings[0]
