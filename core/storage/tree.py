"""Nested state (dicts of arrays, numbers, texts) in one safetensors file, written atomically.

Checkpoints of the server and the state of a client on disk are such files: the arrays are the
tensors, everything else is JSON in the file's metadata. Nothing is ever unpickled, so a foreign or
corrupt file can be refused but cannot run code.
"""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as load_tensors

from .files import replacing

Tree = dict[str, Any]

_ARRAY, _DICT = "__array__", "__dict__"
FORMAT = "forager-tree-1"
_LETTERS = {"f": "F", "i": "I", "u": "U"}  # of safetensors' types, by numpy's kinds


class TreeError(ValueError):
    """The bytes are not a state tree of the expected kind."""


def flatten(node: Any, arrays: dict[str, NDArray[Any]], path: str = "") -> Any:
    """Return the tree with references in place of arrays, which are put into ``arrays``."""
    if isinstance(node, np.ndarray):
        name = str(len(arrays))
        # safetensors wants them contiguous and in the machine's byte order.
        native = node.astype(node.dtype.newbyteorder("="), copy=False)
        arrays[name] = np.ascontiguousarray(native).reshape(node.shape)
        return {_ARRAY: name}
    if isinstance(node, np.generic):
        return node.item()
    if isinstance(node, dict):
        if any(not isinstance(key, str) for key in node):
            raise TypeError(f"state at {path!r}: keys must be strings, got {list(node)[:5]}")
        tree = {key: flatten(value, arrays, f"{path}/{key}") for key, value in node.items()}
        # A key may be what a stranger calls itself: one that looks like a reference is packed up.
        return {_DICT: list(tree.items())} if tree.keys() & {_ARRAY, _DICT} else tree
    if isinstance(node, list | tuple):
        return [flatten(value, arrays, f"{path}/{i}") for i, value in enumerate(node)]
    if node is None or isinstance(node, bool | int | float | str):
        return node
    raise TypeError(f"state at {path!r}: {type(node).__name__} cannot be stored")


def unflatten(node: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """Return the tree that :func:`flatten` took apart."""
    if isinstance(node, list):
        return [unflatten(value, arrays) for value in node]
    if not isinstance(node, dict):
        return node
    if _ARRAY in node:
        return arrays[node[_ARRAY]]
    pairs = node[_DICT] if _DICT in node else node.items()
    return {key: unflatten(value, arrays) for key, value in pairs}


def _checksum(layout: str, arrays: dict[str, NDArray[Any]]) -> str:
    total = zlib.crc32(layout.encode())
    for name in sorted(arrays, key=int):
        total = zlib.crc32(_bytes(arrays[name]), total)
    return f"{total:08x}"


def to_bytes(tree: Tree, kind: str) -> bytes:
    """Return the tree as the bytes of a safetensors file that says what kind of state it is."""
    return b"".join(_pieces(tree, kind))


def _pieces(tree: Tree, kind: str) -> Iterator[bytes | memoryview]:
    """Yield the file piece by piece: a header, then the arrays as they are in memory."""
    arrays: dict[str, NDArray[Any]] = {}
    layout = json.dumps(flatten(tree, arrays))
    checksum = _checksum(layout, arrays)
    metadata = {"format": FORMAT, "kind": kind, "tree": layout, "checksum": checksum}
    header: dict[str, Any] = {"__metadata__": metadata}
    ordered = sorted(arrays, key=lambda name: -arrays[name].itemsize)  # so that all are aligned
    end = 0
    for name in ordered:
        array, begin = arrays[name], end
        end += array.nbytes
        kind_of = array.dtype.kind
        dtype = "BOOL" if kind_of == "b" else f"{_LETTERS[kind_of]}{8 * array.itemsize}"
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in ordered:
        yield _bytes(arrays[name])


def _bytes(array: NDArray[Any]) -> memoryview:
    """Return what a contiguous array has in memory, without a copy."""
    return array.reshape(-1).view(np.uint8).data


def _metadata(data: bytes) -> dict[str, str]:
    """Read the header of a safetensors file, whose own loader does not hand it out for bytes."""
    length = int.from_bytes(data[:8], "little")
    if length <= 0 or length > len(data) - 8:
        raise TreeError("not a state file: its header is missing or cut off")
    try:
        header = json.loads(data[8 : 8 + length])
        return dict(header.get("__metadata__", {}))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise TreeError(f"not a state file: {error}") from error


def from_bytes(data: bytes, kind: str) -> Tree:
    """Return the tree of :func:`to_bytes`; :class:`TreeError` if the bytes are anything else."""
    metadata = _metadata(data)
    if metadata.get("format") != FORMAT:
        raise TreeError("not a state file of this project (or of another version of it)")
    if metadata.get("kind") != kind:
        raise TreeError(f"expected a {kind!r} file, found {metadata.get('kind')!r}")
    try:
        layout, arrays = metadata["tree"], load_tensors(data)
        if _checksum(layout, arrays) != metadata["checksum"]:
            raise TreeError(f"damaged {kind!r} file: its checksum does not match")
        tree = unflatten(json.loads(layout), arrays)
    except TreeError:
        raise
    except Exception as error:  # whatever a parser makes of damaged or foreign bytes
        raise TreeError(f"damaged {kind!r} file: {error}") from error
    if not isinstance(tree, dict):
        raise TreeError(f"damaged {kind!r} file: no state in it")
    return tree


def save(path: Path, tree: Tree, kind: str) -> None:
    """Write the tree to a file, atomically, without a copy of it in memory."""
    with replacing(path) as file:
        for piece in _pieces(tree, kind):
            file.write(piece)


def load(path: Path, kind: str) -> Tree:
    """Read the tree of :func:`save`; errors name the file."""
    try:
        return from_bytes(path.read_bytes(), kind)
    except TreeError as error:
        raise TreeError(f"{path}: {error}") from error
