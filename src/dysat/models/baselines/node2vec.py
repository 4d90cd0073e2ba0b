"""node2vec: skip-gram on biased random walks; DeepWalk with p = q = 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor

from dysat.data.csr import Snapshot
from dysat.data.graph import DynamicGraph
from dysat.errors import ModelError
from dysat.models.base.embedding import EmbeddingModel
from dysat.models.base.memory import GraphSize
from dysat.sampling.second_order import second_order_walks

MAX_WALK_LENGTH = 10_000  # gensim silently truncates longer walks
BLOCK = 4096  # walks converted to Python lists at once


@dataclass(kw_only=True, eq=False)
class Node2Vec(EmbeddingModel):
    """Skip-gram embeddings of second-order random walks on the sum of all snapshots so far.

    After a step from a to v, a walk moves to x with probability ∝ w_vx · α, where α = 1/p if x = a, 1 if x is linked
    to a, and 1/q otherwise: a large p avoids returning, a large q stays local. `Node2Vec(p=1, q=1)` is DeepWalk. For
    nodes u, v at most `window` positions apart on a walk, embeddings e and contexts c maximise

        log σ(e_u · c_v) + Σ_{k ≤ negatives} log σ(−e_u · c_{n_k}),   P(n_k = n) ∝ (visits of n)^¾

    by stochastic gradient descent in gensim: each position draws its own window from 1 … `window`, and the learning
    rate falls from 0.025 to 0.0001. A node without links is never visited; its embedding is 0.

    `embed` of an earlier step trains on the snapshots up to it only, which takes as long as another `fit`. The
    embeddings of the last two steps are stored.

    Attributes:
        graph_: The training graph.
        vectors_: The stored embeddings, by the fingerprint of the snapshots they were trained on.

    Example:
        >>> import dysat
        >>> from dysat.models import Node2Vec
        >>> model = Node2Vec(p=0.5, q=2.0, features=16, walks_per_node=1, walk_length=10)
        >>> model.fit(dysat.load_dataset("uci")[:2]).embed().shape
        torch.Size([975, 16])

    References:
        Grover, Leskovec: node2vec: Scalable Feature Learning for Networks, KDD 2016.
        Perozzi, Al-Rfou, Skiena: DeepWalk: Online Learning of Social Representations, KDD 2014.
    """

    method: ClassVar[str] = "node2vec"
    about: ClassVar[str] = "skip-gram on second-order random walks"
    requires: ClassVar[tuple[str, ...]] = ("gensim",)

    features: Annotated[int, "Embedding size"] = 128
    walks_per_node: Annotated[int, "Number of random walks per node"] = 10
    walk_length: Annotated[int, "Number of nodes on a walk"] = 80
    window: Annotated[int, "Maximum distance between a node and its context on a walk"] = 10
    p: Annotated[float, "Return parameter: larger values make returning to the previous node less likely"] = 1.0
    q: Annotated[float, "In-out parameter: larger values keep walks closer to their start"] = 1.0
    negatives: Annotated[int, "Number of negative samples per context"] = 5
    subsample: Annotated[float, "Share of visits above which a node is downsampled; 0 turns it off"] = 0.0
    epochs: Annotated[int, "Number of passes over the walks"] = 1
    seed: Annotated[int, "Random seed"] = 0

    vectors_: dict[str, Tensor] = field(init=False, repr=False)

    def check(self) -> None:
        for name in ("features", "walks_per_node", "window", "negatives"):
            if getattr(self, name) < 1:
                raise ModelError(f"{name}={getattr(self, name)} must be at least 1")
        if not 2 <= self.walk_length <= MAX_WALK_LENGTH:
            raise ModelError(f"walk_length={self.walk_length} must lie in [2, {MAX_WALK_LENGTH}]")
        for name in ("p", "q"):
            if not 1e-6 <= getattr(self, name) <= 1e6:
                raise ModelError(f"{name}={getattr(self, name)} must lie in [0.000001, 1000000]")
        if not 0 <= self.subsample < 1:
            raise ModelError(f"subsample={self.subsample} must lie in [0, 1)")
        if self.epochs < 0:
            raise ModelError(f"epochs={self.epochs} must not be negative")
        if not 0 <= self.seed < 2**32:
            raise ModelError(f"seed={self.seed} must lie in [0, 2^32)")

    def _least_memory(self, size: GraphSize) -> float:
        return 4.0 * (2 * self.walks_per_node + 2 * self.features) * size.linked  # starts; embeddings and contexts

    @property
    def _sizes(self) -> tuple[str, ...]:
        return ("features", "walks_per_node")

    def fit(self, graph: DynamicGraph) -> Self:
        """Train on all snapshots, and on all but the last, from which the scorer learns."""
        self.check_graph(graph)
        self.graph_ = graph
        pasts = [graph[: step + 1] for step in self.steps()[-2:]]
        self.vectors_ = {past.fingerprint: self._vectors(past) for past in pasts}
        self.scorer_ = torch.ones(self.features), torch.zeros(())  # e_u · e_v, until _fit_scorer
        self._fit_scorer()
        return self

    def steps_at_hand(self) -> range:
        return self.steps()[-2:]

    def embed(self, step: int = -1) -> Tensor:
        """The embeddings of the nodes known at a step, in node order.  # [known, d]"""
        self._must_be_fitted()
        past = self.graph_[: self._check_step(step) + 1]
        stored = self.vectors_.get(past.fingerprint)
        if stored is not None and len(stored) != past.num_nodes:
            raise ModelError(f"{len(stored):,} stored vectors for {past.num_nodes:,} nodes: fit the model again")
        return (self._vectors(past) if stored is None else stored).clone()

    def _vectors(self, past: DynamicGraph) -> Tensor:
        return _learn(_Task(past.fingerprint, tuple(self.get_params().items()), past, self))

    def walks(self, graph: Snapshot, generator: torch.Generator) -> Iterator[Tensor]:
        """Draw the training walks, as rows of the snapshot; start nodes are shuffled in every pass.

        They come in parts, so that memory does not depend on their number.  # each [S, L]
        """
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
        if any(t.ndim != 2 or t.shape[1] != self.features or t.dtype != torch.float32 for t in tensors.values()):
            raise ModelError(f"the vectors do not fit the model: features={self.features}")
        self.vectors_ = {name.removeprefix("vectors/"): vectors for name, vectors in tensors.items()}


@dataclass(frozen=True)
class _Task:
    """Cache key of a training run: tasks are equal if their snapshots and options are."""

    fingerprint: str
    options: tuple[tuple[str, Any], ...]
    past: DynamicGraph = field(compare=False)
    model: Node2Vec = field(compare=False)


@lru_cache(maxsize=2)  # a step and the one before it (for the scorer), which the next step's model needs again
def _learn(task: _Task) -> Tensor:
    """Train on all snapshots of the task; 0 for nodes that no walk visits.  # [N, d]"""
    graph, model = task.past.aggregate().to("cpu"), task.model

    def walks() -> Iterator[Tensor]:  # the same every time: drawing them again takes far less time than learning
        return model.walks(graph, torch.Generator().manual_seed(model.seed))

    visits = torch.zeros(graph.num_active, dtype=torch.int64)
    for part in walks():
        visits += torch.bincount(part.flatten(), minlength=graph.num_active)
    vectors = torch.zeros(graph.num_nodes, model.features)
    if len(visited := visits.nonzero()[:, 0]):
        token = (visits > 0).cumsum(0, dtype=torch.int32) - 1  # 0 … V − 1, in row order
        vectors[graph.rows[visited]] = _skip_gram(lambda: (token[part] for part in walks()), visits[visited], model)
    return vectors


def _skip_gram(walks: Callable[[], Iterator[Tensor]], visits: Tensor, model: Node2Vec) -> Tensor:
    """Train a vector for each token 0 … V − 1; all of them occur on the walks.  # [V] → [V, d]"""
    from gensim.models import Word2Vec

    learner = Word2Vec(
        vector_size=model.features,
        window=model.window,
        sg=1,
        hs=0,
        negative=model.negatives,
        min_count=1,
        sample=model.subsample,
        seed=model.seed,  # also of the initial vectors; gensim 4 does not hash tokens
        workers=1,  # a fixed order of updates
        sorted_vocab=0,
    )
    number = int(visits.sum()) // model.walk_length
    # gensim takes an integer token for its position in the vocabulary: both must be equal.
    learner.build_vocab_from_freq(dict(enumerate(visits.tolist())), corpus_count=number)
    if model.epochs:
        learner.train(_Sentences(walks), total_examples=number, epochs=model.epochs)
    return torch.from_numpy(learner.wv.vectors)


class _Sentences:
    """Walks as lists of tokens, converted block by block; can be iterated several times."""

    def __init__(self, walks: Callable[[], Iterator[Tensor]]) -> None:
        self.walks = walks

    def __iter__(self) -> Iterator[list[int]]:
        for part in self.walks():
            for block in torch.split(part, BLOCK):
                yield from block.tolist()
