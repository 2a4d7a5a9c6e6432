"""Hashes that tell whether a model is still the one that a run was started with.

A log-likelihood is code, and code has no stable name: pickles differ between processes and sources are not
always at hand. What is stable is what JAX traces: the program on abstract rows, as text with memory
addresses stripped, and the constants that it closes over. It changes when the arithmetic changes and not
when a comment or a variable's name does. Fails to notice: a change inside a host callback. Another version
of JAX may print the same program differently; a run records its versions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import jax
import numpy as np

__all__ = ["abstract_rows", "code_fingerprint", "json_fingerprint", "plain_content", "program_fingerprint"]

_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_ABSTRACT_ROWS = 3  # the same number for every shard, so that the text does not depend on the shard


def json_fingerprint(content: Any) -> str:
    """Hash JSON-able content.

    Examples
    --------
    >>> json_fingerprint({"a": 1, "b": 2}) == json_fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def plain_content(value: Any) -> Any:
    """Nested dicts, sequences and arrays as lists and texts, for `json_fingerprint`.

    Examples
    --------
    >>> plain_content({0: np.array([1.0]), "a": (2, None)})
    {'0': [1.0], 'a': [2, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain_content(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain_content(value.tolist())
    if isinstance(value, list | tuple):
        return [plain_content(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return _ADDRESS.sub("", repr(value))


def program_fingerprint(function: Callable[..., Any], *arguments: Any) -> str:
    """Hash the program that JAX traces for `function` on abstract `arguments`."""
    closed = jax.make_jaxpr(function)(*arguments)
    digest = hashlib.sha256(_ADDRESS.sub("", str(closed.jaxpr)).encode())
    for constant in closed.consts:
        array = np.asarray(constant)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def abstract_rows(rows: Mapping[str, np.ndarray]) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes and types of a few rows, without their values."""
    return {
        name: jax.ShapeDtypeStruct(
            (_ABSTRACT_ROWS, *np.shape(value)[1:]), jax.dtypes.canonicalize_dtype(np.asarray(value).dtype)
        )
        for name, value in sorted(rows.items())
    }


def code_fingerprint(function: Callable[..., Any]) -> str:
    """Hash a function's bytecode, defaults and closed-over values: what there is without rows."""
    digest = hashlib.sha256()
    code = getattr(function, "__code__", None)
    if code is None:
        digest.update(f"{type(function).__module__}.{type(function).__qualname__}".encode())
        return digest.hexdigest()
    _update_with_code(digest, code)
    cells = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
    for value in [*(getattr(function, "__defaults__", None) or ()), *cells]:
        digest.update(_value_bytes(value))
    return digest.hexdigest()


def _update_with_code(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr((code.co_names, code.co_varnames)).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _update_with_code(digest, constant)
        else:
            digest.update(repr(constant).encode())


def _value_bytes(value: Any) -> bytes:
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        return f"{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes()
    if callable(value):
        return code_fingerprint(value).encode()
    return _ADDRESS.sub("", repr(value)).encode()
