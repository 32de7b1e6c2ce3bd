"""Nested state (dicts of arrays, numbers, texts) in one safetensors file, written atomically.

Checkpoints of the server and the state of a client on disk are such files: the arrays are the
tensors, everything else is JSON in the file's metadata. Nothing is ever unpickled, so a foreign or
corrupt file can be refused but cannot run code.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

Tree = dict[str, Any]

_ARRAY = "__array__"
_FORMAT = "forager-tree-1"


class TreeError(ValueError):
    """The bytes are not a state tree of the expected kind."""


def flatten(node: Any, path: str, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return the tree with references in place of arrays, which are put into ``arrays``."""
    if isinstance(node, np.ndarray):
        # safetensors stores zero-dimensional arrays as they are, but wants them contiguous
        arrays[path] = np.ascontiguousarray(node).reshape(node.shape)
        return {_ARRAY: path}
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, dict):
        if any(not isinstance(key, str) for key in node):
            raise TypeError(f"state at {path!r}: keys must be strings, got {list(node)[:5]}")
        return {key: flatten(value, f"{path}/{key}", arrays) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return [flatten(value, f"{path}/{i}", arrays) for i, value in enumerate(node)]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"state at {path!r}: {type(node).__name__} cannot be stored")


def unflatten(node: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """Return the tree that :func:`flatten` took apart."""
    if isinstance(node, dict):
        if set(node) == {_ARRAY}:
            return arrays[node[_ARRAY]]
        return {key: unflatten(value, arrays) for key, value in node.items()}
    if isinstance(node, list):
        return [unflatten(value, arrays) for value in node]
    return node


def to_bytes(tree: Tree, kind: str) -> bytes:
    """Return the tree as the bytes of a safetensors file that says what kind of state it is.

    >>> from_bytes(to_bytes({"age": np.array([1, 2]), "round": 3}, "demo"), "demo")
    {'age': array([1, 2]), 'round': 3}
    """
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    layout = json.dumps(flatten(tree, "", arrays))
    return save_tensors(arrays, metadata={"format": _FORMAT, "kind": kind, "tree": layout})


def _metadata(data: bytes) -> dict[str, str]:
    """Read the header of a safetensors file, whose own loader does not hand it out for bytes."""
    length = int.from_bytes(data[:8], "little")
    if length <= 0 or length > len(data) - 8:
        raise TreeError("not a state file: its header is missing or cut off")
    try:
        header = json.loads(data[8 : 8 + length])
        return dict(header.get("__metadata__", {}))
    except (ValueError, AttributeError, TypeError) as error:
        raise TreeError(f"not a state file: {error}") from error


def from_bytes(data: bytes, kind: str) -> Tree:
    """Return the tree of :func:`to_bytes`; :class:`TreeError` if the bytes are anything else.

    >>> from_bytes(b"garbage", "demo")
    Traceback (most recent call last):
    wire.tree.TreeError: not a state file: its header is missing or cut off
    """
    metadata = _metadata(data)
    if metadata.get("format") != _FORMAT:
        raise TreeError("not a state file of this project (or of another version of it)")
    if metadata.get("kind") != kind:
        raise TreeError(f"expected a {kind!r} file, found {metadata.get('kind')!r}")
    try:
        tree = unflatten(json.loads(metadata["tree"]), load_tensors(data))
    except (SafetensorError, ValueError, KeyError) as error:
        raise TreeError(f"corrupt {kind!r} file: {error}") from error
    if not isinstance(tree, dict):
        raise TreeError(f"corrupt {kind!r} file: no state in it")
    return tree


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def save(path: Path, tree: Tree, kind: str) -> None:
    """Write the tree to a file, atomically."""
    write_atomically(path, to_bytes(tree, kind))


def load(path: Path, kind: str) -> Tree:
    """Read the tree of :func:`save`; errors name the file."""
    try:
        return from_bytes(path.read_bytes(), kind)
    except TreeError as error:
        raise TreeError(f"{path}: {error}") from error
