"""node2vec, and with p = q = 1 DeepWalk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.embedding import EmbeddingModel
from dysat.sampling.second_order import second_order_walks

LONGEST = 10_000  # what gensim cuts a walk to, without a word
BLOCK = 4096  # walks that are Python lists at once


@dataclass(kw_only=True, eq=False)
class Node2Vec(EmbeddingModel):
    """Skip-gram with negative sampling on second-order walks over all snapshots so far as one graph, weights added up.

    A walk that came from a to v goes on to x with a probability proportional to w_vx · α, where α is 1/p if x = a,
    1 if x is linked with a, and 1/q otherwise: a large p keeps it from turning back, a large q keeps it near.
    `Node2Vec(p=1, q=1)` is DeepWalk. Embeddings e and contexts c of nodes u, v at most `window` apart on a walk are
    then learned by one or more passes of stochastic gradient descent over

        log σ(e_u · c_v) + Σ_{k ≤ negatives} log σ(−e_u · c_{n_k}),  n_k drawn by (visits of n)^¾

    as gensim does it: each position draws its own window from 1 … `window`, the step falls from 0.025 to 0.0001.
    A node without links is never visited; its vector is 0. What `embed` gives at an earlier step is learned from the
    snapshots up to it alone, and takes as long as another `fit`; the last two steps are stored.

    Example:
        >>> import dysat
        >>> options = {"features": 16, "walks_per_node": 1, "walk_length": 10}
        >>> model = dysat.MODELS["node2vec"](p=0.5, q=2, **options).fit(dysat.load_dataset("uci")[:2])
        >>> model.embed().shape
        torch.Size([975, 16])

    References:
        Grover, Leskovec: node2vec: Scalable Feature Learning for Networks, KDD 2016.
        Perozzi, Al-Rfou, Skiena: DeepWalk: Online Learning of Social Representations, KDD 2014.
    """

    method: ClassVar[str] = "node2vec"

    features: Annotated[int, "width of the embedding"] = 128
    walks_per_node: Annotated[int, "random walks from each node"] = 10
    walk_length: Annotated[int, "nodes on a walk"] = 80
    window: Annotated[int, "nodes so near on a walk are contexts of each other"] = 10
    p: Annotated[float, "return parameter: the larger, the less a walk turns back"] = 1.0
    q: Annotated[float, "in-out parameter: the larger, the nearer a walk stays"] = 1.0
    negatives: Annotated[int, "negatives for each context"] = 5
    subsample: Annotated[float, "thin out the visits of nodes that have more than this part of all; 0 does not"] = 0.0
    epochs: Annotated[int, "passes over the walks"] = 1
    seed: Annotated[int, "of everything random"] = 0

    vectors_: dict[str, Tensor] = field(init=False, repr=False)  # by the fingerprint of the past they speak of

    def check(self) -> None:
        for name in ("features", "walks_per_node", "window", "negatives"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name}={getattr(self, name)} must be at least 1")
        if not 2 <= self.walk_length <= LONGEST:
            raise ModelError(f"walk_length={self.walk_length} must lie in [2, {LONGEST}]")
        for name in ("p", "q"):
            if not 1e-6 <= getattr(self, name) <= 1e6:
                raise ModelError(f"{name}={getattr(self, name)} must lie in [0.000001, 1000000]")
        if not 0 <= self.subsample < 1:
            raise ModelError(f"subsample={self.subsample} must lie in [0, 1)")
        if self.epochs < 0:
            raise ModelError(f"epochs={self.epochs} must not be negative")
        if not 0 <= self.seed < 2**32:
            raise ModelError(f"seed={self.seed} must lie in [0, 2^32)")

    def fit(self, graph: DynamicGraph) -> Self:
        self.check_graph(graph)
        self.graph_ = graph
        pasts = [graph[: step + 1] for step in self.steps()[-2:]]
        self.vectors_ = {past.fingerprint: self._vectors(past) for past in pasts}
        self.scorer_ = torch.ones(self.features), torch.zeros(())  # e_u · e_v, until there is something better
        self._fit_scorer()
        return self

    def steps_at_hand(self) -> range:
        return self.steps()[-2:]

    def embed(self, step: int = -1) -> Tensor:
        self._must_be_fitted()
        past = self.graph_[: self._check_step(step) + 1]
        stored = self.vectors_.get(past.fingerprint)
        return (self._vectors(past) if stored is None else stored).clone()

    def _vectors(self, past: DynamicGraph) -> Tensor:
        return _learn(_Task(past.fingerprint, tuple(self.values().items()), past, self))

    def walks(self, graph: Snapshot, generator: torch.Generator) -> Tensor:
        """The walks that are learned from, by row of the snapshot; nodes in another order every time.  # [S, L]"""
        weight = torch.zeros(graph.num_active, dtype=torch.float64)
        weight.index_add_(0, torch.repeat_interleave(graph.offsets.diff()), graph.weights)
        starts = weight.nonzero()[:, 0]
        orders = [torch.randperm(len(starts), generator=generator) for _ in range(self.walks_per_node)]
        return second_order_walks(
            graph.offsets,
            torch.searchsorted(graph.rows, graph.neighbours),
            graph.weights,
            starts[torch.cat(orders)],
            self.walk_length,
            p=self.p,
            q=self.q,
            generator=generator,
        )

    def _learned(self) -> dict[str, Tensor]:
        return {f"vectors/{fingerprint}": vectors for fingerprint, vectors in self.vectors_.items()}

    def _restore(self, tensors: Mapping[str, Tensor]) -> None:
        if any(t.ndim != 2 or t.shape[1] != self.features for t in tensors.values()):
            raise ModelError(f"the vectors do not fit the model: features={self.features}")
        self.vectors_ = {name.removeprefix("vectors/"): vectors for name, vectors in tensors.items()}


@dataclass(frozen=True)
class _Task:
    """Something to learn, the same as another one if the past and the options are."""

    fingerprint: str
    options: tuple[tuple[str, Any], ...]
    past: DynamicGraph = field(compare=False)
    model: Node2Vec = field(compare=False)


@lru_cache(maxsize=2)  # a step and the one before it, which the scorer needs; the next step's model needs it again
def _learn(task: _Task) -> Tensor:
    """The embeddings after these snapshots.  # [N, d]"""
    graph, model = task.past.aggregate().to("cpu"), task.model
    walks = model.walks(graph, torch.Generator().manual_seed(model.seed))
    visits = torch.bincount(walks.flatten(), minlength=graph.num_active)
    found = torch.zeros(graph.num_nodes, model.features)
    if len(visited := visits.nonzero()[:, 0]):
        number = (visits > 0).cumsum(0, dtype=torch.int32) - 1  # 0 … V − 1 in order of row
        found[graph.rows[visited]] = _skip_gram(number[walks], visits[visited], model)
    return found


def _skip_gram(walks: Tensor, visits: Tensor, model: Node2Vec) -> Tensor:
    """A vector for each of 0 … V − 1, all of which are on the walks.  # [S, L], [V] → [V, d]"""
    from gensim.models import Word2Vec

    learner = Word2Vec(
        vector_size=model.features,
        window=model.window,
        sg=1,
        hs=0,
        negative=model.negatives,
        min_count=1,
        sample=model.subsample,
        seed=model.seed,  # of the first vectors as well, which no hash has part in
        workers=1,  # so that updates have an order
        sorted_vocab=0,
    )
    # A token that is a number must be its own position: gensim takes one for the other.
    learner.build_vocab_from_freq(dict(enumerate(visits.tolist())), corpus_count=len(walks))
    if model.epochs:
        learner.train(_Lists(walks), total_examples=len(walks), epochs=model.epochs)
    return torch.from_numpy(learner.wv.vectors)


class _Lists:
    """Walks as lists of numbers, as often as they are asked for, a block at a time."""

    def __init__(self, walks: Tensor) -> None:
        self.walks = walks

    def __iter__(self) -> Iterator[list[int]]:
        for block in torch.split(self.walks, BLOCK):
            yield from block.tolist()
