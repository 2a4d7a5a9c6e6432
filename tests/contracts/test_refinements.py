"""What every registered refinement must satisfy, with no way round it."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pickle
import pkgutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import consilience.refine
from consilience.errors import InputError
from consilience.refine import REFINEMENTS, PassBack, get_refinement

sys.path.insert(0, str(Path(__file__).parents[1] / "refine"))
from refinement_targets import Gaussian, shard_tasks

NAMES = [kind.name for kind in REFINEMENTS]
NUMBER = 3000
every = pytest.mark.parametrize("name", NAMES)


def test_every_file_with_a_refinement_is_registered() -> None:
    found = set()
    for module in pkgutil.iter_modules(consilience.refine.__path__):
        loaded = importlib.import_module(f"consilience.refine.{module.name}")
        for _, kind in inspect.getmembers(loaded, inspect.isclass):
            own = kind.__module__ == loaded.__name__
            if own and callable(getattr(kind, "refine", None)) and dataclasses.is_dataclass(kind):
                found.add(kind)
    assert found == set(REFINEMENTS)
    assert len(set(NAMES)) == len(NAMES)


@every
def test_configuration(name: str) -> None:
    made = get_refinement(name)
    assert made.reference
    assert made.needs
    assert pickle.loads(pickle.dumps(made)) == made
    options = json.loads(json.dumps(dataclasses.asdict(made)))
    assert get_refinement(name, **options) == made
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.anything = 1
    with pytest.raises(InputError, match="nonsense"):
        get_refinement(name, nonsense=1)


def test_unknown_names_are_refused_with_those_there_are() -> None:
    for wrong in ("nothing", "swiss", "calibrat", None):
        with pytest.raises(InputError) as caught:
            get_refinement(wrong)  # type: ignore[arg-type]
        assert all(repr(name) in str(caught.value) for name in NAMES)


@every
@pytest.mark.parametrize("dimension", [1, 3])
def test_gaussian_exactness(name: str, dimension: int) -> None:
    """A displaced Gaussian comes within the Monte Carlo error of its own draws; exact draws stay there.

    A refinement that does not claim it, because it mends another error, leaves both where they were.
    """
    target = Gaussian.of(dimension)
    exact = target.draws(NUMBER, np.random.default_rng(0))
    displaced = exact + 2.0 * np.sqrt(np.diagonal(target.covariance))
    limit = 3 * np.sqrt(dimension / NUMBER)  # and more where new draws say that they are worth less
    assert target.mahalanobis(displaced) > 10 * limit, "a refinement that does nothing would pass"
    for start in (exact, displaced):
        found = get_refinement(name).refine(start, None, target.pass_back(), seed=1)
        assert found.array.shape[1] == dimension
        assert found.array.dtype == np.float64
        if get_refinement(name).exact_for_gaussian:
            worth = min(NUMBER, found.effective_draws or NUMBER)
            assert worth > NUMBER / 4
            assert target.mahalanobis(found.array, found.log_weights) < limit * np.sqrt(NUMBER / worth)
        else:
            np.testing.assert_allclose(found.array, start, atol=1e-3 * float(start.std()))


@every
def test_same_seed_same_bits_and_any_order_of_shards(name: str) -> None:
    target = Gaussian.of(3)
    start = target.draws(NUMBER, np.random.default_rng(0)) + 0.1
    tasks = shard_tasks(target.columns, 4)
    back = [PassBack(target.model, "order", order) for order in (tasks, tasks, tasks[::-1])]
    first, again, reversed_ = [get_refinement(name).refine(start, None, one, seed=7) for one in back]
    np.testing.assert_array_equal(first.array, again.array)
    np.testing.assert_allclose(first.array, reversed_.array, atol=1e-5)
    assert (first.log_weights is None) == (reversed_.log_weights is None)
    if first.log_weights is not None:
        np.testing.assert_array_equal(first.log_weights, again.log_weights)
        np.testing.assert_allclose(np.exp(first.log_weights), np.exp(reversed_.log_weights), atol=1e-6)
    assert first.record["cost"]["full_data_gradients"] == again.record["cost"]["full_data_gradients"]


@every
def test_record_is_json_and_says_what_was_done(name: str) -> None:
    target = Gaussian.of(2)
    start = target.draws(NUMBER, np.random.default_rng(0)) + 0.1
    before = start.copy()
    found = get_refinement(name).refine(start, None, target.pass_back())
    np.testing.assert_array_equal(start, before)
    record = json.loads(json.dumps(found.record))
    assert record["name"] == name
    assert record["cost"]["rounds"] > 0
    assert record["cost"]["full_data_gradients"] > 0
    assert "full-data gradients" in found.notes[0]


@every
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda x: np.where(np.arange(x.size).reshape(x.shape) == 3, np.nan, x), "finite"),
        (lambda x: np.concatenate([x[:, :1], np.ones((len(x), 1)), x[:, 2:]], axis=1), "constant"),
        (lambda x: x[:4], "at least"),
        (lambda x: x[:, :2], "shape"),
    ],
)
def test_bad_draws_are_refused(name: str, spoil: Any, message: str) -> None:
    target = Gaussian.of(3)
    draws = target.draws(100, np.random.default_rng(0))
    with pytest.raises(InputError, match=message):
        get_refinement(name).refine(spoil(draws), None, target.pass_back())
