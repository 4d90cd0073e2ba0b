"""Train the models of DyGLib on the events before a window, and score pairs at its start.

DyGLib (https://github.com/yule-BUAA/DyGLib, MIT) is imported at run time from a clone. Layers, equations and settings
are DyGLib's. Its loops over nodes are replaced by operations on whole batches with the same results (ct_fast.py).
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ct_events import Ids, Log, Times
from ct_fast import Ends, History, Memory, Steps, cawn, dygformer, graphmixer, joined, lengths, pack, unpack
from ct_plan import BATCH, Condition, Neighbours, plan, questions
from torch import Tensor, nn

from dysat.evaluation.probe import auc, average_precision

FEATURES = 172  # DyGLib pads the features of nodes and events to this width; here all of them are zero
NAMED = ("uci", "enron")  # logs for which DyGLib publishes settings
QUERIES = 1_000  # pairs scored at once
MEMORY = ("TGN",)


@dataclass(frozen=True)
class Limits:
    """When training ends: epochs without improvement, epochs, seconds, and the clock of the whole benchmark."""

    patience: int = 20
    epochs: int = 100
    seconds: float = float("inf")
    deadline: float = float("inf")  # of time.time()


@dataclass
class Training:
    """How a training went."""

    seconds: float = 0.0
    epochs: int = 0
    ended: str = "epochs"
    validation: list[float] = field(default_factory=list)  # AP after each epoch


def use_dyglib(folder: Path) -> None:
    """Make DyGLib importable."""
    if not (folder / "models" / "DyGFormer.py").exists():
        raise SystemExit(f"{folder} is not a clone of DyGLib")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def published_settings(log: str, model: str, negatives: str = "random") -> Namespace:
    """DyGLib's best settings for a log that it names; otherwise those it uses where no other ones are stated."""
    from utils.load_configs import get_link_prediction_args

    words = ["", "--model_name", model, "--dataset_name", log if log in NAMED else "myket"]
    words += ["--negative_sample_strategy", negatives]
    if model != "EdgeBank" or log in NAMED:  # for EdgeBank, only datasets with a name have best settings
        words.append("--load_best_configs")
    with patch.object(sys, "argv", words):
        args: Namespace = get_link_prediction_args(is_evaluation=True)
    return args


def edge_bank(log: Log, number: int, negatives: str = "random") -> Callable[[Ids, Ids], Tensor]:
    """EdgeBank: 1 for pairs in its memory of the first events of a log."""
    from models.EdgeBank import edge_bank_link_prediction
    from utils.DataLoader import Data

    args, rows = published_settings(log.name, "EdgeBank", negatives), np.arange(number)
    data = Data(log.u[:number], log.v[:number], log.time[:number], rows, rows)
    none = np.empty(0, dtype=np.int64)

    def score(u: Ids, v: Ids) -> Tensor:
        found, _ = edge_bank_link_prediction(
            data, (u, v), (none, none), args.edge_bank_memory_mode, args.time_window_mode, args.test_ratio
        )
        return torch.from_numpy(np.asarray(found, dtype=np.float64))

    return score


def both_orders(score: Callable[[Ids, Ids], Tensor], directed: bool) -> Callable[[Tensor], Tensor]:
    """A score of pairs [B, 2] from one of sources and destinations: the mean of both orders without direction."""

    def of_pairs(pairs: Tensor) -> Tensor:
        u, v = pairs.cpu().numpy().T
        forward = score(u, v)
        return forward if directed else (forward + score(v, u)) / 2

    return of_pairs


@cache
def own_stream() -> torch.cuda.Stream:
    """A stream for all trainings of this process."""
    return torch.cuda.Stream()


class Opponent:
    """A model of DyGLib that is trained on the events before a window, and then scores pairs."""

    def __init__(self, name: str, log: Log, condition: Condition, seed: int, device: str) -> None:
        self.name, self.log, self.condition, self.device = name, log, condition, device
        self.args = published_settings(log.name, name)
        self.rng = np.random.default_rng(seed)
        if device == "cuda":
            torch.cuda.set_stream(own_stream())  # CUDA graphs are not captured on the default one
        torch.manual_seed(seed)
        torch.set_float32_matmul_precision("high")  # TF32, the default of the torch version that DyGLib names
        self.model: Any = self._build().to(device)
        self.prepare()

    def prepare(self) -> None:
        """Reserve places on the device for the past, the memory and the steps of training."""
        args, name = self.args, self.name
        drawn = args.sample_neighbor_strategy == "time_interval_aware"
        self.history = History(len(self.log.time), drawn, self.device)
        self.memory = Memory(self.model[0]) if name in MEMORY else None
        size = (args.max_input_sequence_length,) * 2 if name == "DyGFormer" else None
        usual = (2 * BATCH, True, size, True, False)  # not that of a model with a memory
        self.run = Steps(self.score, self.model, args.learning_rate, self.device, usual)

    def _build(self) -> nn.Module:
        from models.CAWN import CAWN
        from models.DyGFormer import DyGFormer
        from models.GraphMixer import GraphMixer
        from models.MemoryModel import MemoryModel
        from models.modules import MergeLayer

        args, nodes = self.args, self.log.graph.num_nodes
        sizes = {"time_feat_dim": args.time_feat_dim, "dropout": args.dropout, "device": self.device}
        given = {
            "node_raw_features": np.zeros((nodes + 1, FEATURES), dtype=np.float32),
            "edge_raw_features": np.zeros((1, FEATURES), dtype=np.float32),
            "neighbor_sampler": None,
        }
        layers = {"num_layers": args.num_layers}
        heads = layers | {"num_heads": args.num_heads}
        if self.name == "DyGFormer":
            sequence = {"patch_size": args.patch_size, "max_input_sequence_length": args.max_input_sequence_length}
            backbone = DyGFormer(
                channel_embedding_dim=args.channel_embedding_dim, **sequence, **given, **sizes, **heads
            )
        elif self.name == "GraphMixer":
            backbone = GraphMixer(num_tokens=args.num_neighbors, **given, **sizes, **layers)
        elif self.name == "CAWN":
            walks = {"walk_length": args.walk_length, "num_walk_heads": args.num_walk_heads}
            backbone = CAWN(position_feat_dim=args.position_feat_dim, **walks, **given, **sizes)
        elif self.name == "TGN":
            backbone = MemoryModel(model_name="TGN", **given, **sizes, **heads)
        else:
            raise ValueError(f"no model {self.name!r}")
        return nn.Sequential(backbone, MergeLayer(FEATURES, FEATURES, FEATURES, 1))

    def score(
        self, source: Ends, target: Ends, size: tuple[int, int] | None, asked: bool = True, remember: bool = False
    ) -> Tensor:
        """Scores of pairs; a model with a memory then remembers them, or those of the first half if all are asked for.

        `size` is that of DyGFormer's sequences.  # [B], or [0] if pairs are only remembered
        """
        model, number = self.model[0], self.args.num_neighbors
        found = source.time.new_zeros(0, dtype=torch.float32)
        if self.memory is not None:
            now = self.memory.now()
            if asked:
                both = self.memory.embeddings(now, self.history, joined(source, target), number)
                found = self.model[1](*both.chunk(2)).squeeze(-1)
            if remember:
                events = len(source.node) // 2 if asked else len(source.node)
                self.memory.remember(now, *(Ends(*(part[:events] for part in ends)) for ends in (source, target)))
            return found
        if self.name == "GraphMixer":
            ends = graphmixer(model, self.history, joined(source, target)).chunk(2)
        elif self.name == "CAWN":
            ends = cawn(model, self.history, source, target, number)
        else:
            ends = dygformer(model, self.history, source, target, size or (0, 0))
        pairs: Tensor = self.model[1](*ends)
        return pairs.squeeze(-1)

    def fit(self, window: int, limits: Limits, continued: bool = False) -> Training:
        """Train on the events before a window with early stopping, and keep the best weights."""
        begin, log = time.time(), self.log
        self._look_back(log.number_before(window))
        self.asked = questions(log, window, self.condition)
        self.steps = plan(log, window, self.condition, self.asked.known, self.memory is not None)
        self.run.restart()
        stop = min(begin + limits.seconds, limits.deadline)
        best: tuple[float, float] | None = self.epoch(False, stop) if continued else None
        weights = self._weights() if continued else None
        done, waited = Training(), 0
        while done.epochs < limits.epochs:
            found = self.epoch(True, stop)
            if found is None:
                done.ended = "budget" if time.time() >= limits.deadline else "seconds"
                break
            done.epochs += 1
            done.validation.append(round(found[0], 5))
            if best is None or (found[0] >= best[0] and found[1] >= best[1]):  # as DyGLib
                best, weights, waited = found, self._weights(), 0
            else:
                waited += 1
            if waited >= limits.patience:
                done.ended = "patience"
                break
        if weights is not None:  # without any complete epoch, the weights stay as they are
            self.model.load_state_dict(weights)
        self.replay()
        done.seconds = round(time.time() - begin, 2)
        return done

    def _look_back(self, number: int) -> None:
        """Let the model see the first events of the log as neighbours."""
        log, args = self.log, self.args
        strategy = {"strategy": args.sample_neighbor_strategy, "scale": args.time_scaling_factor}
        self.neighbours = Neighbours(log.graph.num_nodes, log.u[:number], log.v[:number], log.time[:number], **strategy)
        self.history.fill(self.neighbours)

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def batches(self, parts: list[tuple[Ids, Ids, Times]]) -> list[tuple[Tensor, tuple[int, int] | None]]:
        """Packed batches of sources, destinations and times on the device, with the sizes of DyGFormer's sequences."""
        u, v, times = (np.concatenate(part) for part in zip(*parts, strict=True))
        packed = pack(self.neighbours, u, v, times)
        first = np.cumsum([0, *(len(part[0]) for part in parts)])
        sizes: list[Any] = [None] * len(parts)
        if self.name == "DyGFormer":
            sizes = lengths(packed, first[:-1], self.args.patch_size, self.args.max_input_sequence_length)
        columns = torch.from_numpy(packed).to(self.device).split(np.diff(first).tolist(), 1)
        return list(zip(columns, sizes, strict=True))

    def epoch(self, learn: bool, stop: float) -> tuple[float, float] | None:
        """Learn from the training part, or only remember it, then validate. None if time is over.

        AP and AUC are means over batches, as in DyGLib.
        """
        if self.memory is not None:
            self.memory.clear()
        steps = [step for step in self.steps if learn or step.remember or step.role == "validate"]
        checks = np.random.default_rng(0)  # validation negatives are the same in all epochs
        asks = [step.role == "validate" or (learn and step.role == "train") for step in steps]
        parts = [
            self._questions(step.rows, checks if step.role == "validate" else self.rng)
            if ask
            else self._events(step.rows)
            for step, ask in zip(steps, asks, strict=True)
        ]
        found = []
        for step, ask, (packed, size) in zip(steps, asks, self.batches(parts), strict=True):
            if time.time() >= stop:
                return None
            train = ask and step.role == "train"
            scores = self.run(packed, train, size=size, asked=ask, remember=step.remember)
            if step.role == "validate":
                found.append(scores)
        scores = [part.double().cpu() for part in found]
        labels = [torch.arange(len(part)) < len(part) // 2 for part in scores]
        means = [
            float(np.mean([figure(s, label) for s, label in zip(scores, labels, strict=True)] or [0.0]))
            for figure in (average_precision, auc)
        ]
        return means[0], means[1]

    def _questions(self, rows: Ids, rng: np.random.Generator) -> tuple[Ids, Ids, Times]:
        """Events and as many negatives, at the times at which they are asked for.  # [2 B] each"""
        others = self.asked.negatives(rows, rng)
        u, v = self.log.u[rows], self.log.v[rows]
        return np.tile(u, 2), np.concatenate([v, others]), np.tile(self.asked.time[rows], 2)

    def _events(self, rows: Ids) -> tuple[Ids, Ids, Times]:
        return self.log.u[rows], self.log.v[rows], self.log.time[rows]

    def replay(self) -> None:
        """Fill the memory with all events before the window."""
        if self.memory is None:
            return
        self.memory.clear()
        for packed, size in self.batches([self._events(step.rows) for step in self.steps if step.remember]):
            self.run(packed, False, size=size, asked=False, remember=True)

    def at_start(self, window: int) -> Callable[[Ids, Ids], Tensor]:
        """The score of pairs at the start of a window."""
        start = self.log.edges[window]

        def score(u: Ids, v: Ids) -> Tensor:
            parts = [slice(at, at + QUERIES) for at in range(0, len(u), QUERIES)]
            batches = self.batches([(u[part], v[part], np.full(len(u[part]), start)) for part in parts])
            self.model.eval()
            with torch.no_grad():
                found = [self.score(*unpack(packed), size) for packed, size in batches]
            return torch.cat(found).double().cpu()

        return score

    def at_events(self, rows: Ids, u: Ids, v: Ids) -> tuple[Tensor, Tensor]:
        """Scores of the events that follow those of training and of one negative for each, at their times.  # [B], [B]

        Each batch is remembered after it has been scored, as in DyGLib.
        """
        self._look_back(len(self.log.time))
        self.replay()
        batches = []
        for at in range(0, len(rows), BATCH):
            part = slice(at, at + BATCH)
            events = self._events(rows[part])
            negatives = (u[part], v[part], events[2])
            batches.append(tuple(np.concatenate(both) for both in zip(events, negatives, strict=True)))
        self.model.eval()
        with torch.no_grad():
            found = [self.score(*unpack(packed), size, remember=True) for packed, size in self.batches(batches)]
        positive, negative = zip(*(part.double().cpu().chunk(2) for part in found), strict=True)
        return torch.cat(positive), torch.cat(negative)
