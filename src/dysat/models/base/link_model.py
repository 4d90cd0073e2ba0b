"""LinkModel, the base of every method: options, presets, scores, forecasts, files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from os import PathLike
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)  # fmt: skip

import numpy as np
import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError, listed, nearest
from dysat.models.base.option import Option
from dysat.models.base.preset import Presets, read_preset
from dysat.sampling.pairs import unlinked_pairs
from dysat.system.extras import require
from dysat.system.tensors import read_tensors, write_tensors

BLOCK = 1 << 22  # scores held in memory at once by `highest`
FORMAT_VERSION = 1
MODEL_FILE, GRAPH_FOLDER = "model.safetensors", "graph"
DIGITS = 9  # most digits shown of a score, so that scores near 1 stay distinct
# Methods that not every model has.
ABILITIES = ("embed", "attention", "partial_fit", "take_in")


def highest(
    scores_of: Callable[[Tensor], Tensor],
    size: int,
    rows: Tensor,
    k: int,
    without: Tensor | None,
    kinds: Tensor | None,
    directed: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return the k highest scores of rows u with all nodes v ≠ u, each pair once, and those pairs.  # [k], [k, 2]

    With `directed`, u → v and v → u are two pairs.
    """
    nodes = torch.arange(size)
    best, pairs = torch.empty(0), torch.empty(0, 2, dtype=torch.int64)
    for part in torch.split(rows, max(1, BLOCK // max(1, size))):
        scores = scores_of(part)  # [b, N]
        allowed = nodes != part[:, None] if directed or len(rows) == 1 else nodes > part[:, None]
        if kinds is not None:
            allowed &= kinds[part][:, None] != kinds
        if without is not None:
            found = torch.stack([part[:, None].expand_as(scores), nodes.expand_as(scores)], 2).flatten(0, 1)
            allowed &= ~torch.isin(pair_keys(found, size, directed), without).view_as(allowed)
        scores = scores.masked_fill_(~allowed, -torch.inf).flatten()
        top, at = scores.topk(min(k, len(scores)))
        at = at[top > -torch.inf]
        best = torch.cat([best, scores[at]])
        pairs = torch.cat([pairs, torch.stack([part[at // size], at % size], 1)])
        best, order = best.sort(descending=True, stable=True)
        best, pairs = best[:k], pairs[order[:k]]
    return best, pairs


def pair_keys(pairs: Tensor, num_nodes: int, directed: bool = False) -> Tensor:
    """Return one number per pair, whatever the order of its two nodes unless `directed`.  # [B, 2] → [B]"""
    low, high = pairs.unbind(1) if directed else (pairs.min(1).values, pairs.max(1).values)
    return low * num_nodes + high


class NotAbleError(ModelError, AttributeError):
    """The method does not support what was asked for; `hasattr` returns False for it too."""


class Forecast(NamedTuple):
    """A predicted link: labels `u` and `v`, a `score` in [0, 1], and `known`, whether the pair was linked before.

    In a directed graph `u` sends the link, and `known` says whether `u` has sent one to `v` before.
    """

    u: Any  # labels
    v: Any
    score: float  # between 0 and 1
    known: bool  # whether the two nodes were linked in any snapshot so far


@runtime_checkable
class Incremental(Protocol):
    """A model that learns from one more snapshot without starting over."""

    def take_in(self, graph: DynamicGraph, *, validate: Callable[[Any], float] | None = None) -> Any:
        """Learn from the first snapshot of a graph that the model has not seen yet."""


@dataclass(kw_only=True, eq=False)
class LinkModel(ABC):
    """A method that scores pairs of nodes of a dynamic graph by how likely they are linked next.

    Its fields are its options, as in scikit-learn: the constructor stores them unchanged, `get_params`, `set_params`
    and `sklearn.base.clone` work, `fit` learns and returns the model, and learned attributes end in an underscore.

    Attributes:
        graph_: the graph passed to `fit`.
    """

    method: ClassVar[str]  # name on the command line
    about: ClassVar[str] = ""  # what the method is, in one line
    version: ClassVar[int] = 1  # raised whenever the method's output changes; part of the key of stored results
    requires: ClassVar[tuple[str, ...]] = ()  # optional packages the method needs

    graph_: DynamicGraph = field(init=False, repr=False)

    if not TYPE_CHECKING:  # otherwise type checkers would accept any name

        def __getattr__(self, name: str) -> Any:
            """Say which methods support an ability that this one lacks."""
            if name not in ABILITIES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            able = [method for method, model in MODELS.items() if hasattr(model, name)]
            raise NotAbleError(f"{self.method} has no {name}; {listed(able, 20)} can do that")

    def __post_init__(self) -> None:
        self._check_params()

    def _check_params(self) -> None:
        for option in self.options():
            option.check(getattr(self, option.name))
        self.check()

    def check(self) -> None:  # noqa: B027
        """Raise a ModelError if options contradict each other."""

    def check_graph(self, graph: DynamicGraph) -> None:
        """Raise before any work if a package is missing or the model cannot learn from this graph on this device."""
        if not isinstance(graph, DynamicGraph):
            raise ModelError(
                f"fit() takes a DynamicGraph, not {type(graph).__name__}; from a table of events: "
                'graph = dysat.build_snapshots(dysat.read_events(table, src="…", dst="…", time="…"), every="1w")'
            )
        self.check_packages()

    @classmethod
    def check_packages(cls) -> None:
        """Raise with the command that installs it if a package of the method is missing."""
        for package in cls.requires:
            require(package, f"the method {cls.method}")

    @abstractmethod
    def fit(self, graph: DynamicGraph) -> Self:
        """Learn from all snapshots of a graph and return the model."""

    @abstractmethod
    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Return scores of pairs of nodes known at a step, on any scale; higher means more likely.  # [B, 2] → [B]

        Scores depend only on the snapshots up to `step` and on what `fit` learned.
        """

    @abstractmethod
    def _chances(self, scores: Tensor) -> Tensor:
        """Scores mapped to numbers between 0 and 1, in the same order."""

    def steps(self) -> range:
        """Return the steps for which the model has scores, and embeddings if it learns them."""
        return range(len(self.graph_))

    @abstractmethod
    def _learned(self) -> dict[str, Tensor]:
        """Everything `_restore` needs besides options and graph."""

    @abstractmethod
    def _restore(self, tensors: Mapping[str, Tensor]) -> None: ...

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return the options of the method: name, type, default and meaning of each."""
        return _options(cls)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the value of every option by name, as in scikit-learn; `deep` has no effect."""
        return {option.name: getattr(self, option.name) for option in self.options()}

    def set_params(self, **params: Any) -> Self:
        """Change options by name and return the model; if one value is invalid, none is changed."""
        before = self.get_params()
        self._check_names(params)
        try:
            vars(self).update(params)
            self._check_params()
        except ModelError:
            vars(self).update(before)
            raise
        return self

    def plain_params(self) -> dict[str, Any]:
        """Return the options as plain Python values, for JSON and TOML."""
        return {option.name: option.read(getattr(self, option.name)) for option in self.options()}

    @classmethod
    def with_options(cls, values: Mapping[str, Any]) -> Self:
        """Return a new model; values may be texts, as in a file or on the command line."""
        cls._check_names(values)
        options = {option.name: option for option in cls.options()}
        return cls(**{name: options[name].read(value) for name, value in values.items()})

    @classmethod
    def _check_names(cls, names: Iterable[str]) -> None:
        known = [option.name for option in cls.options()]
        for name in names:
            if name not in known:
                hint = nearest(name, known) or f"; there are {listed(known, 50)}"
                raise ModelError(f"{cls.method} has no option {name!r}{hint}")

    @classmethod
    def presets(cls) -> Presets:
        """Return the presets of the method by name, each with `about` and `parameters`."""
        return Presets(cls.method, MODELS)

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """Return a new model with the options of a preset.

        Parameters:
            name: a name in `presets()`, or the path of a preset file that ends in `.toml`.
            changes: options that differ from the preset.
        """
        if name.endswith(".toml") and Path(name).is_file():
            parameters = read_preset(Path(name))["parameters"]
            cls._check_preset(parameters, name)
            return cls.with_options({**parameters, **changes})
        presets = cls.presets()
        if name not in presets:
            there = f"there are {listed(presets)}{nearest(name, presets)}" if presets else "it has none"
            raise ModelError(f"{cls.method} has no preset {name!r}; {there}")
        return cls.with_options({**presets[name]["parameters"], **changes})

    @classmethod  # noqa: B027
    def _check_preset(cls, parameters: Mapping[str, Any], file: str) -> None:
        """Raise if a preset file was written for other defaults than today's."""

    @property
    def uses_direction(self) -> bool:
        """Whether the scores of u → v and v → u may differ in a directed graph."""
        return False

    def without_effect(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of the named options that have no effect in this model, each with the reason."""
        return {}

    def score_links(self, pairs: Any, step: int = -1) -> Tensor:
        """Return a score between 0 and 1 for each pair to be linked in the snapshot after `step`.  # [B, 2] → [B]

        `pairs` are node ids; `graph.ids` converts labels. Scores are fitted to past transitions, as probabilities in a
        balanced mix of links and non-links, not among all pairs.
        """
        self._must_be_fitted()
        return self._chances(self.pair_scores(self._check_pairs(pairs, step), step))

    def top_links(
        self,
        k: int = 10,
        *,
        node: Any = None,
        kind: str | None = None,
        known: Literal["include", "exclude"] = "include",
    ) -> list[Forecast]:
        """Return the k most likely links of the next snapshot, best first.

        In bipartite data the two nodes of a link differ in kind. In a directed graph a link goes from `u` to `v`.

        Parameters:
            k: number of links.
            node: label of a node, to rank its links only; in a directed graph, those that it sends.
            kind: kind of that node, if nodes of two kinds share the label.
            known: "exclude" leaves out pairs that were linked before.
        """
        if k < 0:
            raise ModelError(f"k={k} must not be negative")
        if known not in ("include", "exclude"):
            raise ModelError(f"known={known!r} is neither 'include' nor 'exclude'")
        self._must_be_fitted()
        rows = None if node is None else torch.as_tensor(self.graph_.ids([node], kind))
        linked = self._linked()
        pairs, chances = self.top_pairs(k, rows, linked if known == "exclude" else None)
        labels = self.graph_.nodes[pairs.numpy()].tolist()
        linked_before = torch.isin(self._pair_keys(pairs), linked).tolist()
        return [
            Forecast(u, v, chance, before)
            for (u, v), chance, before in zip(labels, chances.tolist(), linked_before, strict=True)
        ]

    def top_pairs(self, k: int, rows: Tensor | None = None, without: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return ids and scores of the k most likely pairs.  # [k, 2], [k]

        `rows` restricts one end to some nodes; `without` excludes pairs, given as sorted `pair_keys`.
        """
        known = self.graph_.known[-1]
        rows = torch.arange(known) if rows is None else rows
        scores, pairs = highest(self._all_scores(), known, rows, k, without, self._kinds(), self.graph_.directed)
        return pairs, self._chances(scores)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model and its graph to a folder in open formats; `load` reads it."""
        self._must_be_fitted()
        path = Path(folder)
        if not overwrite and (path / MODEL_FILE).exists():
            raise ModelError(f"{path / MODEL_FILE}: exists already; choose another folder or ask to overwrite it")
        self.graph_.save(path / GRAPH_FOLDER, overwrite=overwrite)
        self.save_weights(path)

    def save_weights(self, folder: Path) -> None:
        """Write the model to a folder that already contains its graph."""
        facts = {"method": self.method, "options": self.plain_params(), "graph": self.graph_.fingerprint}
        tensors = self._state()
        write_tensors(folder / MODEL_FILE, "model", FORMAT_VERSION, facts, tensors, error=ModelError)

    @classmethod
    def load(cls, folder: str | PathLike[str], *, device: str = "auto") -> Self:
        """Read a model that `save` wrote, onto any device. Nothing is unpickled."""
        path = Path(folder)
        facts, tensors = read_tensors(path / MODEL_FILE, "model", FORMAT_VERSION, error=ModelError)
        if facts.get("method") != cls.method:
            raise ModelError(f"{path / MODEL_FILE}: a model of {facts.get('method')!r}, not of {cls.method!r}")
        here = {"device": device} if any(option.name == "device" for option in cls.options()) else {}
        model = cls.with_options({**facts["options"], **here})
        model.graph_ = DynamicGraph.load(path / GRAPH_FOLDER)
        if model.graph_.fingerprint != facts.get("graph"):
            raise ModelError(f"{path}: the graph in the folder is not the one the model was trained on")
        model._take_state(tensors)
        return model

    def _state(self) -> dict[str, Tensor]:
        """The tensors of the model file."""
        return self._learned()

    def _take_state(self, tensors: dict[str, Tensor]) -> None:
        self._restore(tensors)

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        """A function from rows to their scores with all nodes.  # [b] → [b, N]"""
        nodes = torch.arange(self.graph_.known[-1])
        return lambda rows: self.pair_scores(torch.cartesian_prod(rows, nodes)).view(len(rows), len(nodes))

    def _check_pairs(self, pairs: Any, step: int) -> Tensor:
        """Pairs of ids as a tensor, checked to be known at a step."""
        self._check_step(step)
        known, found = self.graph_.known[step], _as_pairs(pairs)
        if len(found) and (int(found.min()) < 0 or int(found.max()) >= known):
            raise ModelError(f"a pair has a node outside 0 … {known - 1}, the nodes known at that step")
        return found

    def _check_step(self, step: int) -> int:
        """The step counted from 0; raise if the model cannot be asked about it."""
        at = step + len(self.graph_) if step < 0 else step
        if at not in self.steps():
            raise ModelError(f"step {step}: the model knows steps {self.steps().start} to {self.steps().stop - 1}")
        return at

    def _last_transition(self) -> tuple[Tensor, Tensor]:
        """Links of the last snapshot between nodes known before it, and as many unlinked pairs.  # [B, 2], [B]

        Empty if the model knows a single step, or if no link has both ends known.
        """
        if len(self.steps()) < 2:
            return torch.empty(0, 2, dtype=torch.int64), torch.empty(0, dtype=torch.bool)
        return self._examples(self.graph_[-1], self.graph_.known[-2])

    def _examples(self, snapshot: Snapshot, known: int) -> tuple[Tensor, Tensor]:
        """Links of a snapshot among the first `known` nodes, and as many unlinked pairs.  # [B, 2], [B]"""
        u, v, _ = snapshot.pairs()
        links = torch.stack([u, v], 1)[(u < known) & (v < known) & (u != v)].cpu().numpy()
        others = unlinked_pairs(known, links, len(links), np.random.default_rng(0), directed=snapshot.directed)
        pairs = torch.from_numpy(np.concatenate([links, others]))
        return pairs, torch.arange(len(pairs)) < len(links)

    def _must_be_fitted(self) -> None:
        if not hasattr(self, "graph_"):
            raise ModelError("the model has learned nothing yet; call fit(graph) first")

    def _linked(self) -> Tensor:
        """Sorted `pair_keys` of all pairs ever linked."""
        pairs = torch.cat([torch.stack(s.pairs()[:2], 1) for s in self.graph_]).cpu()
        return torch.from_numpy(np.unique(self._pair_keys(pairs).numpy()))

    def _pair_keys(self, pairs: Tensor) -> Tensor:
        """`pair_keys` of pairs of the graph, ordered pairs if it is directed.  # [B, 2] → [B]"""
        return pair_keys(pairs, self.graph_.num_nodes, self.graph_.directed)

    def _kinds(self) -> Tensor | None:
        return None if self.graph_.kinds is None else torch.tensor(self.graph_.kinds.tolist())


@cache
def _options(model: type[LinkModel]) -> tuple[Option, ...]:
    """The options of a method. A subclass may change a default without repeating the meaning of the option."""
    hints: dict[str, Any] = {}
    for base in reversed(model.__mro__):
        for name, hint in get_type_hints(base, include_extras=True).items():
            before = hints.get(name)
            if get_origin(before) is Annotated and get_origin(hint) is not Annotated:
                hint = Annotated[hint, get_args(before)[1]]
            hints[name] = hint
    return tuple(Option.of(f.name, hints[f.name], f.default) for f in fields(model) if f.init)


def _as_pairs(pairs: Any) -> Tensor:
    """Pairs of whole numbers in any array-like form, as a tensor.  # [B, 2]"""
    try:
        found = torch.as_tensor(pairs)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ModelError("pairs must be whole numbers, two in a row") from None
    if found.ndim != 2 or found.shape[1] != 2:
        raise ModelError(f"pairs have shape {tuple(found.shape)}, expected [B, 2]")
    if found.numel() and (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool):
        raise ModelError("pairs must be whole numbers: ids of nodes")
    return found.to("cpu", torch.int64)


MODELS: dict[str, type[LinkModel]] = {}  # all methods by name, filled by `dysat.models`
