"""What the command line says as text."""

from __future__ import annotations

import pytest

from consilience.arguments import parse_partition, parse_prior, parse_priors, parse_settings
from consilience.errors import InputError


def test_priors_by_name_may_hold_equal_signs():
    priors = parse_priors(["C(a, levels=[1])[T.2]=Normal(0, 1)", "sigma=HalfNormal(2)"])
    assert list(priors) == ["C(a, levels=[1])[T.2]", "sigma"]


def test_prior_with_named_arguments():
    assert parse_prior("StudentT(df=3, loc=0, scale=2.5)").scale == 2.5


@pytest.mark.parametrize("text", ["Normal(0, -1)", "Nothing(1)", "Normal", "__import__('os')", "Normal(a)"])
def test_wrong_priors(text):
    with pytest.raises(InputError, match="--prior"):
        parse_prior(text)


def test_partitions():
    assert parse_partition("random", 4) == 4
    assert parse_partition("group:school", 4).column == "school"
    assert parse_partition("stratified", 4).columns is None
    with pytest.raises(InputError, match="number"):
        parse_partition("time:day", "auto")


def test_settings_take_their_types():
    assert parse_settings(["a=1", "b=full", "c=false"]) == {"a": 1, "b": "full", "c": False}
