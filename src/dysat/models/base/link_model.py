"""What every model can do: options, presets, scores, forecasts, files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, Self, get_type_hints, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError, listed, nearest
from dysat.models.base.option import Option
from dysat.models.base.preset import Presets, read_preset
from dysat.sampling.pairs import unlinked_pairs
from dysat.system.tensors import read_tensors, write_tensors

BLOCK = 1 << 22  # scores held at once while the highest are looked for
FORMAT_VERSION = 1
MODEL_FILE, GRAPH_FOLDER = "model.safetensors", "graph"
DIGITS = 9  # of a score that is shown, at most: such near 1 are told apart
# What not every model can do.
ABILITIES = ("embed", "attention", "partial_fit", "take_in")


def highest(
    scores_of: Callable[[Tensor], Tensor], size: int, rows: Tensor, k: int, without: Tensor | None, kinds: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The k highest of the scores of rows u with all nodes v ≠ u, each pair once.  # [k], [k, 2]"""
    nodes = torch.arange(size)
    best, pairs = torch.empty(0), torch.empty(0, 2, dtype=torch.int64)
    for part in torch.split(rows, max(1, BLOCK // max(1, size))):
        scores = scores_of(part)  # [b, N]
        allowed = nodes != part[:, None] if len(rows) == 1 else nodes > part[:, None]
        if kinds is not None:
            allowed &= kinds[part][:, None] != kinds
        if without is not None:
            found = torch.stack([part[:, None].expand_as(scores), nodes.expand_as(scores)], 2).flatten(0, 1)
            allowed &= ~torch.isin(pair_keys(found, size), without).view_as(allowed)
        scores = scores.masked_fill_(~allowed, -torch.inf).flatten()
        top, at = scores.topk(min(k, len(scores)))
        at = at[top > -torch.inf]
        best = torch.cat([best, scores[at]])
        pairs = torch.cat([pairs, torch.stack([part[at // size], at % size], 1)])
        best, order = best.sort(descending=True, stable=True)
        best, pairs = best[:k], pairs[order[:k]]
    return best, pairs


def pair_keys(pairs: Tensor, num_nodes: int) -> Tensor:
    """A number for each pair, whichever of the two comes first.  # [B, 2] → [B]"""
    low, high = pairs.min(1).values, pairs.max(1).values
    return low * num_nodes + high


class NotAbleError(ModelError, AttributeError):
    """A model was asked for what only others can do; `hasattr` says so too."""


class Forecast(NamedTuple):
    """A link that may come next."""

    u: Any  # labels
    v: Any
    score: float  # between 0 and 1
    known: bool  # whether the two were linked in any snapshot so far


@runtime_checkable
class Incremental(Protocol):
    """A model that goes on from where it stands."""

    def take_in(self, graph: DynamicGraph, *, validate: Callable[[Any], float] | None = None) -> Any:
        """Learn from the first snapshot of a graph that the model has not seen yet."""


@dataclass(kw_only=True, eq=False)
class LinkModel(ABC):
    """A method that says of pairs of nodes of a dynamic graph how likely they are linked next.

    Its fields are its options. `fit` learns and returns the model itself; names it sets end in an underscore.
    """

    method: ClassVar[str]
    version: ClassVar[int] = 1  # raised whenever what the method computes changes: results are kept by it

    graph_: DynamicGraph = field(init=False, repr=False)  # what fit was given

    if not TYPE_CHECKING:  # else every name would do

        def __getattr__(self, name: str) -> Any:
            """What only some models can do: the others say so, and who can."""
            if name not in ABILITIES:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
            able = [method for method, model in MODELS.items() if hasattr(model, name)]
            raise NotAbleError(f"{self.method} has no {name}; {listed(able, 20)} can do that")

    def __post_init__(self) -> None:
        for option in self.options():
            setattr(self, option.name, option.read(getattr(self, option.name)))
        self.check()

    def check(self) -> None:  # noqa: B027
        """Refuse options that do not fit each other; a model without such has nothing to do."""

    def check_graph(self, graph: DynamicGraph) -> None:  # noqa: B027
        """Refuse a graph, or a device, that the model cannot learn on, before anything is done."""

    @abstractmethod
    def fit(self, graph: DynamicGraph) -> Self: ...

    @abstractmethod
    def pair_scores(self, pairs: Tensor, step: int = -1) -> Tensor:
        """What pairs of nodes known at a step are ranked by: any numbers, the higher the likelier.  # [B, 2] → [B]

        Nothing but the snapshots up to `step` speaks in them, and what was learned in `fit`.
        """

    @abstractmethod
    def _chances(self, scores: Tensor) -> Tensor:
        """Scores as numbers between 0 and 1, in the same order."""

    def steps(self) -> range:
        """The steps that can be asked for."""
        return range(len(self.graph_))

    @abstractmethod
    def _learned(self) -> dict[str, Tensor]:
        """Everything `_restore` needs besides options and graph."""

    @abstractmethod
    def _restore(self, tensors: Mapping[str, Tensor]) -> None: ...

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """The fields in order, with what `Annotated` says of them."""
        hints = get_type_hints(cls, include_extras=True)
        return tuple(Option.of(f.name, hints[f.name], f.default) for f in fields(cls) if f.init)

    def values(self) -> dict[str, Any]:
        """Every option's value."""
        return {option.name: getattr(self, option.name) for option in self.options()}

    @classmethod
    def with_options(cls, values: Mapping[str, Any]) -> Self:
        """A model with these options, whose values may be texts; an unknown name gets an error that says which are."""
        options = {option.name: option for option in cls.options()}
        for name in values:
            if name not in options:
                hint = nearest(name, options) or f"; there are {listed(options, 50)}"
                raise ModelError(f"{cls.method} has no option {name!r}{hint}")
        return cls(**{name: options[name].read(value) for name, value in values.items()})

    @classmethod
    def presets(cls) -> Presets:
        """The presets of this method by name, each with `about` and `parameters`."""
        return Presets(cls.method, MODELS)

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """A model with the options of a preset, or of a preset's file (a name that ends in .toml), some changed."""
        if name.endswith(".toml") and Path(name).is_file():
            return cls.with_options({**read_preset(Path(name))["parameters"], **changes})
        presets = cls.presets()
        if name not in presets:
            there = f"there are {listed(presets)}{nearest(name, presets)}" if presets else "it has none"
            raise ModelError(f"{cls.method} has no preset {name!r}; {there}")
        return cls.with_options({**presets[name]["parameters"], **changes})

    def score_links(self, pairs: Any, step: int = -1) -> Tensor:
        """How likely each pair of node ids is linked in the snapshot after `step`, between 0 and 1.  # [B, 2] → [B]"""
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
        """The k most likely links of the next snapshot, or those of one node, by label.

        `known="exclude"` leaves out pairs that were linked before. Where nodes have kinds, both ends differ in kind.
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
        seen = torch.isin(pair_keys(pairs, self.graph_.known[-1]), linked).tolist()
        return [
            Forecast(u, v, chance, before)
            for (u, v), chance, before in zip(labels, chances.tolist(), seen, strict=True)
        ]

    def top_pairs(self, k: int, rows: Tensor | None = None, without: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The ids of the k most likely pairs (of some nodes), without some, and how likely they are.  # [k, 2], [k]"""
        known = self.graph_.known[-1]
        rows = torch.arange(known) if rows is None else rows
        scores, pairs = highest(self._all_scores(), known, rows, k, without, self._kinds())
        return pairs, self._chances(scores)

    def save(self, folder: str | PathLike[str], *, overwrite: bool = False) -> None:
        """Write the model and its graph to a folder; nothing in it is ever unpickled."""
        self._must_be_fitted()
        path = Path(folder)
        if not overwrite and (path / MODEL_FILE).exists():
            raise ModelError(f"{path / MODEL_FILE}: exists already; choose another folder or ask to overwrite it")
        self.graph_.save(path / GRAPH_FOLDER, overwrite=overwrite)
        self.save_weights(path)

    def save_weights(self, folder: Path) -> None:
        """Write the model beside a graph folder that is there already."""
        facts = {"method": self.method, "options": self.values(), "graph": self.graph_.fingerprint}
        tensors = self._state()
        write_tensors(folder / MODEL_FILE, "model", FORMAT_VERSION, facts, tensors, error=ModelError)

    @classmethod
    def load(cls, folder: str | PathLike[str], *, device: str = "auto") -> Self:
        """Read what `save` wrote, onto this machine's device whatever it was trained on."""
        path = Path(folder)
        facts, tensors = read_tensors(path / MODEL_FILE, "model", FORMAT_VERSION, error=ModelError)
        if facts.get("method") != cls.method:
            raise ModelError(f"{path / MODEL_FILE}: a model of {facts.get('method')!r}, not of {cls.method!r}")
        here = {"device": device} if any(option.name == "device" for option in cls.options()) else {}
        model = cls.with_options({**facts["options"], **here})
        model.graph_ = DynamicGraph.load(path / GRAPH_FOLDER)
        if model.graph_.fingerprint != facts.get("graph"):
            raise ModelError(f"{path}: the graph beside the model is not the one it was trained on")
        model._take_state(tensors)
        return model

    def _state(self) -> dict[str, Tensor]:
        """What a file holds besides options and graph."""
        return self._learned()

    def _take_state(self, tensors: dict[str, Tensor]) -> None:
        self._restore(tensors)

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        """What gives, now, the scores of some nodes with all nodes.  # [b] → [b, N]"""
        nodes = torch.arange(self.graph_.known[-1])
        return lambda rows: self.pair_scores(torch.cartesian_prod(rows, nodes)).view(len(rows), len(nodes))

    def _check_pairs(self, pairs: Any, step: int) -> Tensor:
        """Whatever holds pairs of nodes known at a step."""
        self._check_step(step)
        known, found = self.graph_.known[step], _as_pairs(pairs)
        if len(found) and (int(found.min()) < 0 or int(found.max()) >= known):
            raise ModelError(f"a pair has a node outside 0 … {known - 1}, the nodes known at that step")
        return found

    def _check_step(self, step: int) -> int:
        """The step counted from the first, if it is one that can be asked for."""
        at = step + len(self.graph_) if step < 0 else step
        if at not in self.steps():
            raise ModelError(f"step {step}: the model knows steps {self.steps().start} to {self.steps().stop - 1}")
        return at

    def _last_transition(self) -> tuple[Tensor, Tensor]:
        """The last snapshot's links between nodes known before it, and as many pairs without one.  # [B, 2], [B]

        None where the model knows one step only, or no link has both ends known.
        """
        if len(self.steps()) < 2:
            return torch.empty(0, 2, dtype=torch.int64), torch.empty(0, dtype=torch.bool)
        return self._examples(self.graph_[-1], self.graph_.known[-2])

    def _examples(self, snapshot: Snapshot, known: int) -> tuple[Tensor, Tensor]:
        """A snapshot's links between some nodes, and as many pairs without one.  # [B, 2], [B]"""
        u, v, _ = snapshot.links()
        links = torch.stack([u, v], 1).cpu().numpy()[((v < known) & (u != v)).cpu().numpy()]
        others = unlinked_pairs(known, links, len(links), np.random.default_rng(0))
        pairs = torch.from_numpy(np.concatenate([links, others]))
        return pairs, torch.arange(len(pairs)) < len(links)

    def _must_be_fitted(self) -> None:
        if not hasattr(self, "graph_"):
            raise ModelError("the model has learned nothing yet; call fit(graph) first")

    def _linked(self) -> Tensor:
        """All pairs ever linked, as u · N + v with u ≤ v, in order."""
        pairs = torch.cat([torch.stack(s.links()[:2], 1) for s in self.graph_]).cpu()
        return torch.from_numpy(np.unique(pair_keys(pairs, self.graph_.num_nodes).numpy()))

    def _kinds(self) -> Tensor | None:
        return None if self.graph_.kinds is None else torch.tensor(self.graph_.kinds.tolist())


def _as_pairs(pairs: Any) -> Tensor:
    """Whatever holds pairs of whole numbers.  # [B, 2]"""
    try:
        found = torch.as_tensor(pairs)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ModelError("pairs must be whole numbers, two in a row") from None
    if found.ndim != 2 or found.shape[1] != 2:
        raise ModelError(f"pairs have shape {tuple(found.shape)}, expected [B, 2]")
    if found.numel() and (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool):
        raise ModelError("pairs must be whole numbers: ids of nodes")
    return found.to("cpu", torch.int64)


MODELS: dict[str, type[LinkModel]] = {}  # every method by its name; `dysat.models` fills it
