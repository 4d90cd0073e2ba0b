"""LinkModel, the base of every method: options, presets, scores, forecasts, files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
    Protocol,
    Self,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)  # fmt: skip

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dysat.data.csr import Snapshot, distinct
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError, listed, nearest, reporting_damage
from dysat.models.base.best_pairs import OnProgress, among, highest, highest_of_each, pair_keys
from dysat.models.base.forecasts import SCORE, Forecasts
from dysat.models.base.memory import GIB, LEAST_FREE, GraphSize, nodes_that_fit
from dysat.models.base.option import Option
from dysat.models.base.preset import Presets, read_preset
from dysat.nn.device import choose_device
from dysat.sampling.pairs import unlinked_pairs
from dysat.system.extras import require
from dysat.system.hardware import free_memory
from dysat.system.notebook import html_table
from dysat.system.superseded import CONFIG, check_model_file
from dysat.system.tensors import check_finite, read_tensors, write_tensors

if TYPE_CHECKING:
    from dysat.report.content import Why
    from dysat.report.page import Page

FORMAT_VERSION = 1
NOT_TESTED = "There is no backtest of this model; dysat fit makes one."
MODEL_FILE, GRAPH_FOLDER = "model.safetensors", "graph"
INFINITE = ("threshold",)  # ends of the names of tensors that may be infinite: of a leaf
Calibrate = Literal["balanced", "real"]  # what mix of pairs a probability refers to
# Methods that not every model has.
ABILITIES = ("embed", "attention", "partial_fit", "take_in", "why")


class NotAbleError(ModelError, AttributeError):
    """The method does not support what was asked for; `hasattr` returns False for it too."""


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
            option.check_size(getattr(self, option.name))
        self.check()
        for option in self.options():
            option.check_finite(getattr(self, option.name))

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
        self.check_inputs(graph)
        self.check_memory(graph)

    def check_memory(self, graph: DynamicGraph) -> None:
        """Raise if learning from a graph on the CPU needs more memory than is free, with the number of nodes that fit.

        The memory of a GPU is not checked.
        """
        size, free = GraphSize(graph), max(free_memory(), LEAST_FREE)
        needed = self._least_memory(size)
        if needed <= free or choose_device(getattr(self, "device", "cpu")).type != "cpu":
            return
        sums = f"needs more than {_gib(needed)} of memory, and {_gib(free)} are free"
        fits = nodes_that_fit(self._least_memory, size, free)
        if not fits or type(self)()._least_memory(size) <= free:  # because of the options, not of the graph
            sizes = ", ".join(f"{name}={getattr(self, name)}" for name in self._sizes)
            raise ModelError(f"{sizes}: training {sums}; choose smaller values")
        other = "" if self.method == "dysat" else "; dysat fits larger graphs"
        raise ModelError(
            f"{self.method} on {size.nodes:,} nodes {sums}; at most {fits:,} nodes of such a graph fit{other}"
        )

    def _least_memory(self, size: GraphSize) -> float:
        """A lower bound on the memory that a fit allocates at once, in bytes; 0 if it grows with the links alone."""
        return 0.0

    @property
    def _sizes(self) -> tuple[str, ...]:
        """The options that the memory depends on."""
        return ()

    def check_inputs(self, graph: DynamicGraph) -> None:  # noqa: B027
        """Raise if the options ask for node features that the graph lacks."""

    @classmethod
    def check_packages(cls) -> None:
        """Raise with the command that installs it if a package of the method is missing."""
        for package in cls.requires:
            require(package, f"the method {cls.method}")

    @property
    def version(self) -> int:
        """Raised whenever what is evaluated changes; part of the key of stored results."""
        return 1

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

    def _probabilities(self, pairs: Tensor, step: int = -1) -> Tensor:
        """Probabilities of pairs known at a step, for a balanced mix of links and non-links.  # [B, 2] → [B]"""
        return self._chances(self.pair_scores(pairs, step))

    def _rebased(self, chances: Tensor, calibrate: Calibrate, step: int = -1) -> Tensor:
        """The same probabilities among all pairs of nodes, if `calibrate` is "real".  # [B] → [B]

        A balanced mix has as many links as other pairs, so the odds are multiplied by the real ratio of both, which is
        that of the last transition up to `step`.
        """
        if calibrate not in get_args(Calibrate):
            raise ModelError(f"calibrate={calibrate!r} is neither 'balanced' nor 'real'")
        if calibrate == "balanced":
            return chances
        links, others = self._last_counts(step)
        return chances * links / (chances * links + (1 - chances) * others)

    def _last_counts(self, step: int = -1) -> tuple[int, int]:
        """Numbers of linked and of other pairs in the last snapshot that links two nodes known before it."""
        for last in range(self._check_step(step), 0, -1):
            known, (u, v, _) = self.graph_.known[last - 1], self.graph_[last].pairs()
            links = int(((u != v) & (u < known) & (v < known)).sum())
            pairs = known * (known - 1) // (1 if self.graph_.directed else 2)
            if 0 < links < pairs:
                return links, pairs - links
        raise ModelError("calibrate='real': no snapshot links two nodes known before it, so there is no base rate")

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

    @property
    def uses_times(self) -> bool:
        """Whether results depend on the times of events inside windows, if the graph knows them."""
        return False

    def without_effect(self, names: Iterable[str]) -> dict[str, str]:
        """Return those of the named options that have no effect in this model, each with the reason."""
        return {}

    def prepare(self) -> Self:
        """Compute what forecasts need beyond the model file, and return the model; otherwise the first one does."""
        return self

    def score_links(
        self, pairs: Any, step: int = -1, *, ids: bool = False, calibrate: Calibrate = "balanced"
    ) -> Tensor:
        """Return a score between 0 and 1 for each pair to be linked in the snapshot after `step`.  # [B, 2] → [B]

        Scores are fitted to past transitions, as probabilities in a balanced mix of links and non-links, not among
        all pairs.

        Parameters:
            pairs: pairs of labels. If nodes of both kinds share a label, a pair is read in the order of the kinds:
                (user, item).
            step: the last step that is used.
            ids: whether pairs are node ids instead, as `graph.ids` returns them.
            calibrate: "balanced", or "real" for probabilities among all pairs.
        """
        self._must_be_fitted()
        numbers = as_pairs(pairs) if ids else self._find_pairs(pairs)
        return self._rebased(self._probabilities(self._check_pairs(numbers, step), step), calibrate, step)

    def _find_pairs(self, pairs: Any) -> Tensor:
        """Ids of pairs of labels.  # [B, 2]"""
        if isinstance(pairs, Tensor | np.ndarray):
            pairs = pairs.tolist()
        try:
            rows = [tuple(pair) for pair in pairs if not isinstance(pair, str)]
            sizes = {len(pair) for pair in rows} if len(rows) == len(pairs) else {1}
        except TypeError:
            sizes = {1}
        if sizes - {2}:
            raise ModelError("pairs must be labels, two in a row, like [('ann', 'bob')]; ids=True takes node ids")
        return torch.from_numpy(self.graph_.pair_ids(rows))

    def top_links(
        self,
        k: int = 10,
        *,
        node: Any = None,
        kind: str | None = None,
        each: bool = False,
        known: Literal["include", "exclude"] = "include",
        calibrate: Calibrate = "balanced",
        on_progress: OnProgress | None = None,
    ) -> Forecasts:
        """Return the k most likely links of the next snapshot, best first.

        In bipartite data the two nodes of a link differ in kind. In a directed graph a link goes from `u` to `v`.

        Parameters:
            k: number of links; of each node, if nodes are chosen.
            node: label of a node to rank its links only, or a list of labels; in a directed graph, the links it sends.
            kind: kind of those nodes, if nodes of two kinds share a label; with `each`, nodes of this kind only.
            each: rank the links of every node.
            known: "exclude" leaves out pairs that were linked before.
            calibrate: scores as probabilities in a balanced mix of links and non-links, or "real": among all pairs.
            on_progress: called with the fraction of the chosen nodes that is done.
        """
        if k < 0:
            raise ModelError(f"k={k} must not be negative")
        if known not in ("include", "exclude"):
            raise ModelError(f"known={known!r} is neither 'include' nor 'exclude'")
        if each and node is not None:
            raise ModelError("each=True ranks the links of every node: give no node")
        self._must_be_fitted()
        return self.ranked_links(k, self._asked(node, kind, each), known, calibrate, on_progress)

    def ranked_links(
        self,
        k: int,
        asked: NDArray[np.int64] | None = None,
        known: Literal["include", "exclude"] = "include",
        calibrate: Calibrate = "balanced",
        on_progress: OnProgress | None = None,
    ) -> Forecasts:
        """Return the k most likely links, or those of each of the nodes with these ids, in this order; see `top_links`.

        Shapes: asked [R]
        """
        graph, linked = self.graph_, self._linked()
        rows = None if asked is None else torch.from_numpy(np.unique(asked))
        pairs, chances = self.top_pairs(k, rows, linked if known == "exclude" else None, on_progress)
        ids, scores = pairs.numpy(), self._rebased(chances, calibrate).double().numpy()
        ranks = np.arange(1, len(ids) + 1)
        if asked is not None:
            place = np.zeros(graph.num_nodes, dtype=np.int64)
            place[asked[::-1]] = np.arange(len(asked))[::-1]  # a node that is asked for twice is listed once
            order = np.argsort(place[ids[:, 0]], kind="stable")
            ids, scores = ids[order], scores[order]
            starts = np.flatnonzero(np.diff(ids[:, 0], prepend=-1))
            ranks -= np.repeat(starts, np.diff(starts, append=len(ids)))
        before = among(self._pair_keys(torch.from_numpy(ids)), linked).numpy()
        return Forecasts(graph, ids, scores, before, ranks, by_node=asked is not None)

    def _asked(self, node: Any, kind: str | None, each: bool) -> NDArray[np.int64] | None:
        """Ids of the nodes whose links are asked for; None for the links of all."""
        graph = self.graph_
        if each:
            if kind is None:
                return np.arange(graph.num_nodes)
            if graph.kinds is None or kind not in graph.kind_names:
                there = f"there are {listed(graph.kind_names)}" if graph.kind_names else "nodes have no kinds"
                raise ModelError(f"no kind {kind!r}; {there}")
            return np.flatnonzero(graph.kinds == graph.kind_names.index(kind))
        if node is None:
            return None
        return graph.ids(node if isinstance(node, list | tuple | set | np.ndarray) else [node], kind)

    def top_pairs(
        self,
        k: int,
        rows: Tensor | None = None,
        without: Tensor | None = None,
        on_progress: OnProgress | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return ids and scores of the k most likely pairs.  # [k, 2], [k]

        With `rows`, which are sorted and distinct, these are the k most likely pairs of each of these nodes, sorted by
        node, which comes first in its pairs. `without` excludes pairs, given as sorted `pair_keys`.
        """
        size, kinds, directed = self.graph_.known[-1], self._kinds(), self.graph_.directed
        if rows is None:
            scores, pairs = highest(self._all_scores(), size, k, without, kinds, directed)
        else:
            report = on_progress or (lambda done: None)
            scores, pairs = highest_of_each(self._all_scores(), size, rows, k, without, kinds, directed, report)
        return pairs, self._chances(scores)

    def likeliest(self, k: int) -> tuple[Tensor, Tensor]:
        """Return ids of the k most likely pairs, and of the k most likely never linked before, best first.  # [k, 2]"""
        return self.top_pairs(k)[0], self.top_pairs(k, None, self._linked())[0]

    def view(self, *, nodes: Sequence[Hashable] = (), title: str = "") -> Page:
        """Return an interactive page of the fitted model: a notebook shows it, and `save(file)` writes it.

        It has the forecast, and what the model offers of reasons, a map of the embeddings, and temporal attention.

        Parameters:
            nodes: labels of nodes that must be on the page; of a large graph it shows the most active ones.
            title: name of the page.
        """
        return self.page(nodes, title or self.method, {"verdict": NOT_TESTED})

    def page(
        self, nodes: Sequence[Hashable], title: str, about: Mapping[str, Any], *, best: Any = None, quick: bool = False
    ) -> Page:
        """Return the same page with more facts for its overview; see `content` for `best` and `quick`."""
        from dysat.report.content import content
        from dysat.report.page import Page

        self._must_be_fitted()
        found = content(self, asked=self.graph_.ids(nodes), why=self._reasons(), best=best, quick=quick)
        return Page(title, found, {"method": self.method, "score_note": SCORE, **about})

    def _reasons(self) -> Why | None:
        """A function that says why links are likely, if the model can say it."""
        return None

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
        """Read a model that `save` wrote, onto any device. Nothing is unpickled.

        The model of a run that has been updated since is refused: `dysat.Run.open(folder).model()` has the newest one.
        """
        path = Path(folder)
        check_model_file(path, MODEL_FILE, ModelError)
        facts, tensors = read_tensors(path / MODEL_FILE, "model", FORMAT_VERSION, error=ModelError)
        if facts.get("method") != cls.method:
            hint = f"; dysat.Run.open({str(path)!r}).model() loads any" if (path / CONFIG).is_file() else ""
            raise ModelError(f"{path / MODEL_FILE}: a model of {facts.get('method')!r}, not of {cls.method!r}{hint}")
        here = {"device": device} if any(option.name == "device" for option in cls.options()) else {}
        with reporting_damage(path / MODEL_FILE, ModelError, keep=True):
            model = cls.with_options({**facts["options"], **here})
        model.graph_ = DynamicGraph.load(path / GRAPH_FOLDER)
        if model.graph_.fingerprint != facts.get("graph"):
            raise ModelError(f"{path}: the graph in the folder is not the one the model was trained on")
        model.take_tensors(tensors, path / MODEL_FILE)
        return model

    def take_tensors(self, tensors: dict[str, Tensor], file: Path) -> None:
        """Restore what was learned from the tensors of a file, which anybody may have written."""
        with reporting_damage(file, ModelError):
            check_finite(tensors, ModelError, but=INFINITE)
        with reporting_damage(file, ModelError, keep=True):
            self._take_state(tensors)

    def _state(self) -> dict[str, Tensor]:
        """The tensors of the model file."""
        return self._learned()

    def _take_state(self, tensors: dict[str, Tensor]) -> None:
        self._restore(tensors)

    def _all_scores(self) -> Callable[[Tensor], Tensor]:
        """A function from rows to their scores with all nodes.  # [b] → [b, N]"""
        nodes = torch.arange(self.graph_.known[-1])
        return lambda rows: self.pair_scores(torch.cartesian_prod(rows, nodes)).view(len(rows), len(nodes))

    def _check_pairs(self, pairs: Tensor, step: int) -> Tensor:
        """Pairs of ids, checked to be known at a step."""
        self._check_step(step)
        known = self.graph_.known[step]
        if len(pairs) and (int(pairs.min()) < 0 or int(pairs.max()) >= known):
            raise ModelError(f"a pair has a node outside 0 … {known - 1}, the nodes known at that step")
        return pairs

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

    def _repr_html_(self) -> str:
        """The options that differ from the default, and what the model was fitted on, for notebooks."""
        defaults = {option.name: option.default for option in self.options()}
        changed = [(name, value) for name, value in self.get_params().items() if value != defaults[name]]
        graph = repr(self.graph_).split("\n")[0] if hasattr(self, "graph_") else "not fitted yet"
        epochs = getattr(self, "epochs_", [])
        note = f"{len(epochs)} epochs, last loss {epochs[-1].loss:.4g}" if epochs else ""
        names = ("option that differs from the default", "value") if changed else ("all options have their default",)
        return html_table(f"{type(self).__name__}: {self.about}\n{graph}", names, changed, note)

    def _must_be_fitted(self) -> None:
        if not hasattr(self, "graph_"):
            raise ModelError("the model has learned nothing yet; call fit(graph) first")

    def _linked(self) -> Tensor:
        """Sorted `pair_keys` of all pairs ever linked."""
        pairs = torch.cat([torch.stack(s.pairs()[:2], 1) for s in self.graph_]).cpu()
        return torch.from_numpy(distinct(self._pair_keys(pairs).numpy()))

    def _without(self, pairs: Tensor, keys: Tensor | None) -> Tensor:
        """The pairs that are not among these `pair_keys`, which are sorted.  # [B, 2] → [≤ B, 2]"""
        return pairs if keys is None else pairs[~among(self._pair_keys(pairs), keys)]

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


def _gib(size: float) -> str:
    return f"{size / GIB:,.0f} GiB" if size >= 10 * GIB else f"{size / GIB:.1f} GiB"


def as_pairs(pairs: Any) -> Tensor:
    """Pairs of whole numbers in any array-like form, as a tensor.  # [B, 2]"""
    try:
        found = torch.as_tensor(pairs.copy() if isinstance(pairs, np.ndarray) else pairs)  # it may be read-only
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise ModelError("pairs must be whole numbers, two in a row") from None
    if found.ndim != 2 or found.shape[1] != 2:
        raise ModelError(f"pairs have shape {tuple(found.shape)}, expected [B, 2]")
    if found.numel() and (found.is_floating_point() or found.is_complex() or found.dtype == torch.bool):
        raise ModelError("pairs must be whole numbers: ids of nodes")
    return found.to("cpu", torch.int64)


MODELS: dict[str, type[LinkModel]] = {}  # all methods by name, filled by `dysat.models`
