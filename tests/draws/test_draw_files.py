import errno
import pickle
import sys

import numpy as np
import pytest

from consilience.draws import Posterior
from consilience.draws.files import load, read_draws, write_atomically, write_subposterior
from consilience.errors import DrawsError, InputError, StoreError

SUFFIXES = [".npz", ".parquet", ".csv", ".nc"]


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def full_posterior():
    rng = np.random.default_rng(1)
    names = ("Intercept", 'C(x, "b")[T.a,1]', "u / v", "L[0,0]", "L[0,1]", "L[1,0]", "L[1,1]")
    return Posterior(
        rng.normal(size=(60, 7)) * 10.0 ** rng.integers(-300, 300, size=(1, 7)),
        names=names,
        shapes={names[0]: (), names[1]: (), names[2]: (), "L": (2, 2)},
        log_weights=np.where(np.arange(60) == 7, -np.inf, rng.normal(size=60)),
        coordinates=rng.normal(size=(60, 3)),
        effective_sizes=rng.uniform(10, 50, size=7),
        chain_lengths=(30, 30),
        info={"method": "swiss", "kind": "inflated", "weights": np.array([0.25, 0.75]), "notes": ["ä \n b"]},
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("full", [True, False])
def test_round_trip(tmp_path, suffix, full):
    if suffix == ".nc":
        pytest.importorskip("arviz")
    posterior = full_posterior() if full else Posterior(normal(10, 2))
    path = tmp_path / f"posterior{suffix}"
    posterior.save(path)
    back = load(path)
    for attribute in ("array", "log_weights", "coordinates", "effective_sizes"):
        expected, found = getattr(posterior, attribute), getattr(back, attribute)
        assert (expected is None) == (found is None)
        if expected is not None:
            np.testing.assert_array_equal(found, expected, err_msg=attribute)
    assert back.names == posterior.names
    assert back.shapes == posterior.shapes
    assert back.chain_lengths == posterior.chain_lengths
    if full:
        assert back.info == {**posterior.info, "weights": [0.25, 0.75]}
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_shard_files_carry_kind_and_weight(tmp_path, suffix):
    if suffix == ".nc":
        pytest.importorskip("arviz")
    path = tmp_path / f"shard{suffix}"
    draws, density = normal(4, 25, 2), normal(4, 25)
    write_subposterior(
        path, draws, names=["a", "b"], kind="subposterior", weight=0.125, log_densities=density, label="north"
    )
    file = read_draws(path)
    assert (file.kind, file.weight, file.label, file.chains) == ("subposterior", 0.125, "north", (25,) * 4)
    np.testing.assert_array_equal(file.array, draws.reshape(100, 2))
    np.testing.assert_array_equal(file.log_densities, density.ravel())
    assert load(path).info["kind"] == "subposterior"


@pytest.mark.parametrize(("option", "value"), [("kind", None), ("weight", 0), ("weight", 2)])
def test_shard_files_refuse(tmp_path, option, value):
    options = {"names": ["a"], "kind": "inflated", "weight": 0.5, option: value}
    with pytest.raises(DrawsError, match=option):
        write_subposterior(tmp_path / "a.npz", normal(5, 1), **options)
    assert not list(tmp_path.iterdir())


class TestNumPy:
    def test_npy(self, tmp_path):
        np.save(tmp_path / "a.npy", normal(10, 3).astype(np.float32))
        assert read_draws(tmp_path / "a.npy").array.shape == (10, 3)
        np.save(tmp_path / "b.npy", np.arange(24).reshape(2, 4, 3))
        file = read_draws(tmp_path / "b.npy")
        assert file.chains == (4, 4)
        assert file.array[5].tolist() == [15, 16, 17]

    def test_npz_of_others(self, tmp_path):
        np.savez(tmp_path / "a.npz", beta=normal(10, 2), tau=normal(10))
        file = read_draws(tmp_path / "a.npz")
        assert file.names == ("beta[0]", "beta[1]", "tau")
        assert file.shapes == {"beta": (2,), "tau": ()}
        np.savez(tmp_path / "b.npz", beta=normal(10, 2), tau=normal(9))
        with pytest.raises(DrawsError, match=r"b\.npz.*same number of draws"):
            read_draws(tmp_path / "b.npz")

    def test_nothing_is_unpickled(self, tmp_path):
        class Trap:
            def __reduce__(self):
                return (pytest.fail, ("unpickled",))

        np.save(tmp_path / "a.npy", np.array([Trap()], dtype=object), allow_pickle=True)
        np.savez(tmp_path / "b.npz", x=np.array([Trap()], dtype=object))
        (tmp_path / "c.npy").write_bytes(pickle.dumps(Trap()))
        for name in "a.npy", "b.npz", "c.npy":
            with pytest.raises(DrawsError, match=name):
                read_draws(tmp_path / name)


class TestCsv:
    def write(self, tmp_path, text):
        path = tmp_path / "draws.csv"
        path.write_text(text)
        return path

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("a,b\n1,2\n3\n", r"draws\.csv.*1 values in line 3, 2 names"),
            ("# c\na,b\n1,2\n3,4,5\n", "3 values in line 4"),
            ("a,b\n1,x\n3,4\n", "'b', such as 'x'"),
            ("a,b\n1,\n3,4\n", "1 missing values in column 'b'"),
            ("a,b\n1,inf\n3,4\n", "1 NaN or infinite values in column 'b'"),
            ("a,b\n1,true\n3,false\n", "bool in column 'b'"),
            ("1,2\n3,4\n", "named in the first line"),
            ("a,a\n3,4\n", r"different names.*\['a'\]"),
            ("a,b\n", "no rows"),
            ("", "an empty file"),
            ("# only comments\n", "an empty file"),
            (",a\n7,1\n3,2\n", "named in every column"),
        ],
    )
    def test_refusals_name_file_and_column(self, tmp_path, text, words):
        with pytest.raises(DrawsError, match=words):
            read_draws(self.write(tmp_path, text))

    def test_row_numbers_of_pandas_are_no_parameter(self, tmp_path):
        file = read_draws(self.write(tmp_path, ",a,b\n0,1,2\n1,3,4\n"))
        assert file.names == ("a", "b")

    def test_chain_columns(self, tmp_path):
        text = ".chain,.iteration,.draw,a\n1,1,1,5\n1,2,2,6\n2,1,3,7\n"
        file = read_draws(self.write(tmp_path, text))
        assert (file.names, file.chains, file.array.tolist()) == (("a",), (2, 1), [[5], [6], [7]])
        file = read_draws(self.write(tmp_path, "chain,draw,a\n0,0,5\n1,0,7\n"))
        assert (file.names, file.chains) == (("a",), (1, 1))
        with pytest.raises(DrawsError, match="sorted by chain"):
            read_draws(self.write(tmp_path, "chain,draw,a\n0,0,5\n1,0,7\n0,1,6\n"))

    def test_cmdstan(self, tmp_path):
        text = """# stan_version_major = 2
# method = sample (Default)
#   sample
#     num_samples = 2
#     num_warmup = 3 (Default)
#     save_warmup = {save}
#     thin = 2
lp__,accept_stat__,divergent__,mu,beta.1,beta.2,L.1.1,L.2.1
# Adaptation terminated
# Step size = 0.8
-1,0.9,0,1,2,3,4,5
-2,0.9,0,6,7,8,9,10
-3,0.9,0,11,12,13,14,15
#
#  Elapsed Time: 1 seconds (Warm-up)
"""
        file = read_draws(self.write(tmp_path, text.format(save="false")))
        assert file.names == ("mu", "beta[1]", "beta[2]", "L[1,1]", "L[2,1]")
        assert file.log_densities.tolist() == [-1, -2, -3]
        assert file.array[0].tolist() == [1, 2, 3, 4, 5]
        for save in ("1", "true"):
            # 3 warm-up iterations thinned by 2 leave 2 rows.
            file = read_draws(self.write(tmp_path, text.format(save=save)))
            assert file.array.tolist() == [[11, 12, 13, 14, 15]]

    def test_cmdstan_matrices_are_put_by_row(self, tmp_path):
        text = "lp__,divergent__,mu,L.1.1,L.2.1,L.1.2,L.2.2\n-1,0,9,11,21,12,22\n-2,1,8,5,6,7,8\n"
        file = read_draws(self.write(tmp_path, text))
        assert file.names == ("mu", "L[1,1]", "L[1,2]", "L[2,1]", "L[2,2]")
        assert file.array.tolist() == [[9, 11, 12, 21, 22], [8, 5, 7, 6, 8]]
        assert file.divergences == 1
        assert file.unconstrained_densities
        assert Posterior(file.array, names=file.names).draws["L"][0].tolist() == [[11, 12], [21, 22]]

    def test_cmdstan_says_which_rows_and_chain(self, tmp_path):
        text = """# method = sample (Default)
# id = 3
# data
#   file = /tmp/shard7.json
# init = 2 (Default)
# output
#   file = output.csv (Default)
lp__,mu
-1,2
"""
        assert read_draws(self.write(tmp_path, text)).run == ("/tmp/shard7.json", "3")

    @pytest.mark.parametrize("method", ["optimize", "variational", "pathfinder"])
    def test_cmdstan_of_another_method(self, tmp_path, method):
        with pytest.raises(DrawsError, match=f"sampler wrote. Got 'method = {method}'"):
            read_draws(self.write(tmp_path, f"# method = {method}\nlp__,mu\n-1,2\n"))

    def test_damaged_description(self, tmp_path):
        path = self.write(tmp_path, '# consilience {"version": 1\na\n1\n2\n')
        with pytest.raises(DrawsError, match="damaged description"):
            read_draws(path)
        path = self.write(tmp_path, '# consilience {"version": 99}\na\n1\n2\n')
        with pytest.raises(DrawsError, match="Update consilience"):
            read_draws(path)


class TestParquet:
    def test_of_pandas(self, tmp_path):
        import pandas as pd

        path = tmp_path / "a.parquet"
        pd.DataFrame({"a": [1, 2], "b": [0.5, 1.5]}, index=[0, 1]).to_parquet(path)
        assert read_draws(path).names == ("a", "b")
        pd.DataFrame({"a": [1, 2], "b": ["u", "v"]}).to_parquet(path)
        with pytest.raises(DrawsError, match="column 'b', such as 'u'"):
            read_draws(path)

    def test_a_folder_name_is_no_column(self, tmp_path):
        folder = tmp_path / "site=3"
        folder.mkdir()
        Posterior(normal(5, 1), names=("a",)).save(folder / "a.parquet")
        assert load(folder / "a.parquet").names == ("a",)


def test_netcdf_of_arviz(tmp_path):
    az = pytest.importorskip("arviz")
    from consilience.draws.posterior import arviz_from_dict

    x = normal(2, 10, 3)
    data = arviz_from_dict({"posterior": {"b": x}, "sample_stats": {"lp": x[..., 0]}})
    data.to_netcdf(str(tmp_path / "a.nc"))
    file = read_draws(tmp_path / "a.nc")
    assert file.names == ("b[0]", "b[1]", "b[2]")
    assert file.chains == (10, 10)
    np.testing.assert_array_equal(file.array, x.reshape(20, 3))
    np.testing.assert_array_equal(file.log_densities, x[..., 0].ravel())
    Posterior(normal(5, 1), names=("a",)).save(tmp_path / "ours.nc")
    assert az.from_netcdf(str(tmp_path / "ours.nc"))["posterior"]["a"].shape == (1, 5)


def pymc_like(seed=0):
    """InferenceData as PyMC returns it: transformed copies, coordinates with names, statistics, observed data."""
    arviz = pytest.importorskip("arviz")
    rng = np.random.default_rng(seed)
    sigma = rng.lognormal(size=(4, 25))
    return arviz.from_dict(
        posterior={
            "Intercept": rng.normal(size=(4, 25)),
            "beta": rng.normal(size=(4, 25, 2)),
            "sigma": sigma,
            "sigma_log__": np.log(sigma),
        },
        sample_stats={"lp": rng.normal(size=(4, 25)), "diverging": np.arange(100).reshape(4, 25) > 97},
        observed_data={"y": rng.normal(size=10)},
        coords={"feature": ["age", "income"]},
        dims={"beta": ["feature"]},
    )


@pytest.mark.filterwarnings("ignore:The data type:Warning")  # of coordinates with names
class TestZarr:
    @pytest.mark.parametrize("form", [2, 3])
    def test_of_arviz(self, tmp_path, form):
        data = pymc_like()
        data.to_datatree().to_zarr(tmp_path / "a.zarr", zarr_format=form, consolidated=form == 2)
        file = read_draws(tmp_path / "a.zarr")
        assert sorted(file.names) == ["Intercept", "beta[0]", "beta[1]", "sigma"]
        assert file.chains == (25,) * 4
        assert file.divergences == 2
        sigma = file.array[:, file.names.index("sigma")]
        np.testing.assert_array_equal(sigma, data.posterior["sigma"].values.ravel())
        np.testing.assert_array_equal(file.log_densities, data.sample_stats["lp"].values.ravel())
        (tmp_path / "a.zarr").rename(tmp_path / "unnamed")
        assert read_draws(tmp_path / "unnamed").names == file.names

    def test_of_ours_rewritten_as_zarr(self, tmp_path):
        """Parameters are in our order again, with their names, whatever order a folder has."""
        arviz = pytest.importorskip("arviz")
        posterior = full_posterior()
        posterior.save(tmp_path / "a.nc")
        tree = arviz.from_netcdf(str(tmp_path / "a.nc")).to_datatree()
        tree.to_zarr(tmp_path / "a.zarr", zarr_format=2)
        back = load(tmp_path / "a.zarr")
        assert back.names == posterior.names
        np.testing.assert_array_equal(back.array, posterior.array)
        np.testing.assert_array_equal(back.log_weights, posterior.log_weights)

    def test_without_statistics_and_without_a_posterior(self, tmp_path):
        arviz = pytest.importorskip("arviz")
        draws = normal(2, 10)
        arviz.from_dict(posterior={"a": draws}).to_datatree().to_zarr(tmp_path / "a.zarr", consolidated=False)
        assert read_draws(tmp_path / "a.zarr").log_densities is None
        arviz.from_dict(prior={"a": draws}).to_datatree().to_zarr(tmp_path / "b.zarr", consolidated=False)
        (tmp_path / "c.zarr").mkdir()
        (tmp_path / "d.zarr").write_text("")
        for name in "bcd":
            with pytest.raises(DrawsError, match=rf"{name}\.zarr") as caught:
                read_draws(tmp_path / f"{name}.zarr")
            assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("form", [2, 3])
    def test_nothing_is_unpickled(self, tmp_path, form):
        """A codec called pickle, anywhere in the store, is refused before the store is opened."""
        import json

        path = tmp_path / "a.zarr"
        pymc_like().to_datatree().to_zarr(path, zarr_format=form, consolidated=form == 2)
        array = path / "posterior" / "feature" / ("zarr.json" if form == 3 else ".zarray")
        content = json.loads(array.read_text())
        if form == 3:
            content["codecs"] = [{"name": "numcodecs.pickle", "configuration": {}}]
        else:
            content.update(dtype="|O", filters=[{"id": "pickle", "protocol": 5}])
        array.write_text(json.dumps(content))
        with pytest.raises(DrawsError, match=r"free of pickled objects.*a pickle codec in"):
            read_draws(path)

    def test_a_pickled_chunk_does_nothing(self, tmp_path):
        path = tmp_path / "a.zarr"
        pymc_like().to_datatree().to_zarr(path, zarr_format=2)
        _write_pickled(path / "posterior" / "Intercept")
        _UNPICKLED.clear()
        with pytest.raises(DrawsError, match="free of pickled objects"):
            read_draws(path)
        assert _UNPICKLED == []
        pickle.loads((path / "posterior" / "Intercept" / "0.0").read_bytes())
        assert _UNPICKLED == ["ran"]

    def test_without_the_extra(self, tmp_path, monkeypatch):
        (tmp_path / "a.zarr").mkdir()
        monkeypatch.setitem(sys.modules, "zarr", None)
        with pytest.raises(InputError, match=r'pip install "consilience\[arviz\]"'):
            read_draws(tmp_path / "a.zarr")


_UNPICKLED: list[str] = []


def _run():
    _UNPICKLED.append("ran")
    return "age"


class _Trap:
    def __reduce__(self):
        return (_run, ())


def _write_pickled(folder):
    import json

    description = {
        "zarr_format": 2,
        "shape": [4, 25],
        "chunks": [4, 25],
        "dtype": "<f8",
        "fill_value": None,
        "order": "C",
        "filters": [{"id": "pickle", "protocol": 5}],
        "compressor": None,
    }
    (folder / ".zarray").write_text(json.dumps(description))
    (folder / "0.0").write_bytes(pickle.dumps(_Trap()))


def test_pymc_in_netcdf_leaves_transformed_copies_out(tmp_path):
    data = pymc_like()
    data.to_netcdf(str(tmp_path / "a.nc"))
    file = read_draws(tmp_path / "a.nc")
    assert file.names == ("Intercept", "beta[0]", "beta[1]", "sigma")
    assert file.divergences == 2
    assert file.unconstrained_densities


def test_variables_that_are_no_draws(tmp_path):
    arviz = pytest.importorskip("arviz")
    xarray = pytest.importorskip("xarray")
    data = arviz.InferenceData(posterior=xarray.Dataset({"a": ("k", np.zeros(3))}))
    data.to_netcdf(str(tmp_path / "a.nc"))
    with pytest.raises(DrawsError, match=r"a\.nc.*\(chain, draw, …\).*k in a"):
        read_draws(tmp_path / "a.nc")


def test_netcdf_without_arviz_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "a.nc").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(InputError, match=r'pip install "consilience\[arviz\]"'):
        read_draws(tmp_path / "a.nc")
    with pytest.raises(InputError, match=r'pip install "consilience\[arviz\]"'):
        Posterior(normal(5, 1)).save(tmp_path / "b.nc")
    assert [p.name for p in tmp_path.iterdir()] == ["a.nc"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".nc"])
def test_a_file_cut_short_is_refused(tmp_path, suffix):
    if suffix == ".nc":
        pytest.importorskip("arviz")
    path = tmp_path / f"a{suffix}"
    Posterior(normal(2000, 3)).save(path)
    whole = path.read_bytes()
    for length in (0, 10, len(whole) // 2, len(whole) - 20):
        path.write_bytes(whole[:length])
        with pytest.raises(DrawsError, match=path.name):
            read_draws(path)


def test_odd_suffix_and_missing_file(tmp_path):
    for name in ("a.pkl", "a", "a.xlsx"):
        with pytest.raises(StoreError, match=r"\.npz, \.csv, \.parquet, \.nc"):
            Posterior(normal(5, 1)).save(tmp_path / name)
        with pytest.raises(DrawsError, match=r"\.parquet"):
            read_draws(tmp_path / name)
    with pytest.raises(DrawsError, match="exists"):
        load(tmp_path / "a.csv")
    assert not list(tmp_path.iterdir())


class TestWriting:
    def test_no_directory(self, tmp_path):
        with pytest.raises(StoreError, match="directory that does not exist"):
            Posterior(normal(5, 1)).save(tmp_path / "no" / "a.npz")
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreError, match="can be written"):
            Posterior(normal(5, 1)).save(tmp_path / "file" / "a.npz")
        (tmp_path / "folder.npz").mkdir()
        with pytest.raises(StoreError, match="can be written"):
            Posterior(normal(5, 1)).save(tmp_path / "folder.npz")
        assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.npz"]

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_full_disk_leaves_the_old_file(self, tmp_path, suffix, monkeypatch):
        if suffix == ".nc":
            pytest.importorskip("arviz")
        path = tmp_path / f"a{suffix}"
        Posterior(normal(5, 1)).save(path)
        before = path.read_bytes()

        def full(descriptor):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match=r"full disk.*Free some space") as caught:
            Posterior(normal(50, 1)).save(path)
        assert "\n" not in str(caught.value)
        assert path.read_bytes() == before
        assert [p.name for p in tmp_path.iterdir()] == [path.name]

    def test_an_interrupt_leaves_nothing(self, tmp_path):
        def interrupted(temporary):
            temporary.write_text("half")
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write_atomically(tmp_path / "a.txt", interrupted)
        assert not list(tmp_path.iterdir())

    def test_what_is_not_json_is_refused(self, tmp_path):
        with pytest.raises(InputError, match="info"):
            Posterior(normal(5, 1), info={"model": object()}).save(tmp_path / "a.npz")
        assert not list(tmp_path.iterdir())
