"""20 Newsgroups, split by date, without headers: TF-IDF of the 5,000 commonest words."""

import hashlib
import json
import lzma
import re
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import TaskError, one_line
from ..spec import TaskSpec
from .raw import RawData
from .storage import Arrays, cache_folder, cached_arrays

WORDS = 5_000
CLASSES = 20
_HEADER = re.compile(r"[\w-]+:\s")
_QUOTE_STARTS = (">", "|", "In article", "Quoted from")
_QUOTE_ENDS = (" writes", " wrote", " says", " said")
_RULE = re.compile(r"^[\s=_*-]*$")

Posts = dict[str, tuple[list[str], list[Any]]]


def load(spec: TaskSpec) -> RawData:
    """Weigh posts from the file ``path`` (.jsonl or .jsonl.xz), else through scikit-learn."""
    folder, place = cache_folder(spec.cache_dir), Path(spec.path).expanduser()
    if spec.path and not place.is_dir():
        key = hashlib.sha256(_content(place)).hexdigest()[:16]
        arrays = cached_arrays(folder, f"20news-1-{key}", lambda: weigh(read_posts(place)))
    else:
        home = place if spec.path else folder
        arrays = cached_arrays(folder, "20news-1", lambda: weigh(_fetch(home)))
    return _unpack(arrays)


def strip(post: str) -> str:
    r"""Text that the author of a post wrote, without header, quotes and signature."""
    if _HEADER.match(post) and "\n\n" in post:
        post = post.split("\n\n", 1)[1]
    lines = [line for line in post.strip().split("\n") if not _quotes(line)]
    return _without_signature(lines)


def _quotes(line: str) -> bool:
    text = line.strip(" \t:")
    return text.startswith(_QUOTE_STARTS) or text.endswith(_QUOTE_ENDS)


def _without_signature(lines: list[str]) -> str:
    """Drop what follows the last blank or ruled line, if anything stands before it."""
    rules = [number for number, line in enumerate(lines) if _RULE.match(line)]
    body = lines[: rules[-1]] if rules else lines
    return "\n".join(body if any(line.strip() for line in body) else lines).strip()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise TaskError(f"path = {str(path)!r} cannot be read: {error}") from error


def read_posts(path: Path) -> Posts:
    """Read lines ``{"split": "train" or "test", "y": group (number or name), "text": post}``."""
    posts: Posts = {"train": ([], []), "test": ([], [])}
    for number, line in enumerate(_lines(path), start=1):
        try:
            record = json.loads(line)
            texts, labels = posts[record["split"]]
            texts.append(strip(record["text"]))
            labels.append(_group(record["y"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TaskError(
                f"{path}: line {number} cannot be read ({error!r}); each line must be "
                '{"split": "train" or "test", "y": 0 to 19 or a name, "text": ...}'
            ) from error
    return {split: (texts, _numbered(labels, posts)) for split, (texts, labels) in posts.items()}


def _group(label: object) -> int | str:
    if isinstance(label, bool) or not isinstance(label, int | str):
        raise TypeError(f"y = {label!r}")
    return label


def _numbered(labels: list[Any], posts: Posts) -> list[Any]:
    groups = {label for _, others in posts.values() for label in others}
    if not all(isinstance(group, str) for group in groups):
        return labels
    numbers = {group: number for number, group in enumerate(sorted(groups))}
    return [numbers[label] for label in labels]


def _lines(path: Path) -> list[str]:
    content = _content(path)
    try:
        text = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
    except (lzma.LZMAError, EOFError, UnicodeDecodeError) as error:
        raise TaskError(f"{path}: is not a .jsonl or .jsonl.xz file ({error})") from error
    return [line for line in text.split("\n") if line]


def _fetch(home: Path) -> Posts:
    from sklearn.datasets import fetch_20newsgroups  # takes over a second to import

    posts: Posts = {}
    try:
        for split in ("train", "test"):
            bunch = fetch_20newsgroups(data_home=str(home), subset=split)
            posts[split] = ([strip(text) for text in bunch.data], bunch.target.tolist())
    except (OSError, RuntimeError) as error:
        raise TaskError(
            f"20news cannot be downloaded ({one_line(error)}): connect to the network, or set "
            "path to a .jsonl or .jsonl.xz file with lines {split, y, text}"
        ) from error
    return posts


def weigh(posts: Posts) -> Arrays:
    """TF-IDF of all posts as the parts of two sparse matrices, with the labels."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    weights = TfidfVectorizer(
        max_features=WORDS, stop_words="english", sublinear_tf=True, dtype=np.float32
    )
    try:
        matrices = {
            "train": weights.fit_transform(posts["train"][0]),
            "test": weights.transform(posts["test"][0]),
        }
    except ValueError as error:
        raise TaskError(f"20news: the posts cannot be vectorised ({error})") from error
    arrays: Arrays = {}
    for split, matrix in matrices.items():
        arrays[f"data_{split}"] = matrix.data
        arrays[f"indices_{split}"] = matrix.indices
        arrays[f"indptr_{split}"] = matrix.indptr
        arrays[f"y_{split}"] = np.array(posts[split][1])
    arrays["words"] = np.array(len(weights.vocabulary_))
    return arrays


def _unpack(arrays: Arrays) -> RawData:
    from scipy.sparse import csr_array

    matrices = []
    for split in ("train", "test"):
        parts = tuple(arrays[f"{part}_{split}"] for part in ("data", "indices", "indptr"))
        shape = (len(arrays[f"y_{split}"]), int(arrays["words"]))
        matrices.append(csr_array(parts, shape=shape))
    return RawData(
        matrices[0], arrays["y_train"], matrices[1], arrays["y_test"], num_classes=CLASSES
    )
