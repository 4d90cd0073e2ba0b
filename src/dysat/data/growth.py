"""Labels, kinds and features of new nodes, checked against those a graph has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dysat.data.reading.labels import Labels
from dysat.errors import DysatError, GraphError

Features = Tensor | tuple[Tensor, ...]


def labels_like(labels: Iterable[Any], known: Labels, error: type[DysatError] = GraphError) -> Labels:
    """Convert labels to the type of the known ones: numbers to texts, or texts that are numbers to numbers."""
    if isinstance(labels, np.ndarray):
        if labels.dtype == known.dtype == np.int64:
            return labels
        labels = labels.tolist()
    values = list(labels)
    types = set(map(type, values))  # usually one or two types, however many labels
    odd = [t for t in types if t is bool or not issubclass(t, str | int | np.integer)]
    if odd:
        raise error(f"node {next(v for v in values if type(v) in odd)!r} is neither text nor a whole number")
    texts = values if types == {str} else [str(value) for value in values]
    if known.dtype.kind not in "iu":
        array = np.empty(len(texts), dtype=object)
        array[:] = texts
        return array
    others = [text for text in texts if not _is_number(text)]
    if others:
        raise error(f"node {others[0]!r} is not a whole number, but the nodes of the graph are whole numbers")
    return np.array([int(text) for text in texts], dtype=np.int64)


def _is_number(text: str) -> bool:
    """Whether a text is a whole number of 64 bits in canonical form."""
    try:
        return str(int(text)) == text and -(2**63) <= int(text) < 2**63
    except ValueError:
        return False


def new_labels(known: Labels, labels: Iterable[Any] | None, number: int) -> Labels:
    """Return the labels of `number` new nodes; labels 0 … N − 1 are continued if none are given.  # [new]"""
    if labels is not None:
        new = labels_like(labels, known)
        if len(new) != number:
            raise GraphError(f"{len(new):,} labels for {number:,} new nodes")
        return new
    if number and (known.dtype.kind not in "iu" or not np.array_equal(known, np.arange(len(known)))):
        raise GraphError(f"no labels for {number:,} new nodes; nodes= gives them")
    return np.arange(len(known), len(known) + number) if number else known[:0]


def new_kinds(kinds: ArrayLike | None, number: int, names: tuple[str, ...], *, has_kinds: bool) -> NDArray[np.uint8]:
    """Return the kinds of `number` new nodes; all 0 if the graph has no kinds.  # [new]"""
    if kinds is not None and not has_kinds:
        raise GraphError("kinds of new nodes, but the nodes of the graph have none")
    if kinds is None and has_kinds and number:
        raise GraphError(f"no kinds for {number:,} new nodes; kinds= gives them ({', '.join(names)})")
    codes = np.zeros(number, dtype=np.uint8) if kinds is None else kind_codes(kinds)
    if codes.shape != (number,):
        raise GraphError(f"{codes.size:,} kinds for {number:,} new nodes")
    return codes


def kind_codes(kinds: ArrayLike) -> NDArray[np.uint8]:
    """Convert kinds to indices into their names."""
    codes = np.array(kinds)
    if codes.size and (codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() > 255):
        raise GraphError("kinds must be whole numbers: indices into their names")
    return codes.astype(np.uint8)


def check_distinct(known: Labels, kinds: NDArray[np.uint8] | None, new: Labels, codes: NDArray[np.uint8]) -> None:
    """Refuse a new node with the label (and kind) of another node."""
    for code in np.unique(codes):
        names = new[codes == code].tolist()
        distinct = set(names)
        if len(distinct) < len(names):
            raise GraphError(f"node {Counter(names).most_common(1)[0][0]!r} occurs twice among the new nodes")
        known_already = distinct.intersection((known if kinds is None else known[kinds == code]).tolist())
        if known_already:
            raise GraphError(f"node {min(known_already)!r} is not new: the graph already has it")


def as_features(values: ArrayLike | Tensor, names: Labels, like: Tensor, where: str = "") -> Tensor:
    """Convert to finite numbers of the dtype and device of `like`; `names` are the labels of the rows."""
    try:
        array = values if isinstance(values, Tensor) else np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise GraphError("features must be numbers, in rows of equal length") from None
    tensor = torch.as_tensor(array).to(like.device, like.dtype, copy=True)
    if not torch.isfinite(tensor).all():
        bad = int((~torch.isfinite(tensor.reshape(len(tensor), -1)).all(1)).nonzero()[0, 0])
        name = names.tolist()[bad] if bad < len(names) else bad
        raise GraphError(f"features{where}: node {name!r} has a value that is not a finite number")
    return tensor


def check_features(features: Features, known: Sequence[int]) -> None:
    """Check that there is one row per known node: in all, or at each step."""
    if isinstance(features, Tensor):
        _check_rows(features, known[-1], "features")
        return
    if len(features) != len(known):
        raise GraphError(f"features for {len(features)} snapshots, but the graph has {len(known)}")
    for step, part in enumerate(features):
        _check_rows(part, known[step], f"features of snapshot {step}")
    if len({part.shape[1] for part in features}) > 1:
        raise GraphError("features have a different width in different snapshots")


def _check_rows(features: Tensor, nodes: int, name: str) -> None:
    if features.dim() != 2 or len(features) != nodes:
        raise GraphError(f"{name} have shape {tuple(features.shape)}, expected [{nodes}, F]: one row per known node")


def check_names(features: Features | None, names: Sequence[str]) -> None:
    """Check that features have as many names as columns, or none."""
    parts = features if isinstance(features, tuple) else () if features is None else (features,)
    width = parts[0].shape[1] if parts else 0
    if names and len(names) != width:
        raise GraphError(f"{len(names)} feature names for {width} columns of features")
    if len(set(names)) < len(names):
        twice = Counter(names).most_common(1)[0][0]
        raise GraphError(f"two columns of features have the same name {twice!r}")


def more_features(
    features: Features | None, more: ArrayLike | Tensor | None, known: Labels, new: Labels
) -> Features | None:
    """Append the features of a new snapshot: of all its nodes if features are per snapshot, else of its new nodes."""
    if features is None:
        if more is not None:
            raise GraphError("features of a new snapshot, but the graph has none")
        return None
    like, names = (features, new) if isinstance(features, Tensor) else (features[0], np.concatenate([known, new]))
    if more is None:
        if names is new and not len(new):
            return features
        raise GraphError(f"no features for {len(names):,} nodes of the new snapshot; features= gives them")
    rows = as_features(more, names, like, " of the new snapshot")
    if rows.shape != (len(names), like.shape[1]):
        shape, expected = list(rows.shape), [len(names), like.shape[1]]
        raise GraphError(f"features of the new snapshot have shape {shape}, expected {expected}")
    return torch.cat([features, rows]) if isinstance(features, Tensor) else (*features, rows)
