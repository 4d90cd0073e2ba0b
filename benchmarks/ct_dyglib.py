"""Train the models of DyGLib on the events before a window, and score pairs at its start.

DyGLib (https://github.com/yule-BUAA/DyGLib, MIT) is imported at run time from a clone. Layers, equations and settings
are DyGLib's. Loops over single nodes are replaced by operations on whole batches with the same results (tests compare
both): neighbours (`ct_plan.Neighbours`), co-occurrences of DyGFormer, and positions of CAWN.
"""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from ct_events import Ids, Log, Times
from ct_plan import BATCH, Condition, Neighbours, Step, plan, questions
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

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


class Opponent:
    """A model of DyGLib that is trained on the events before a window, and then scores pairs."""

    def __init__(self, name: str, log: Log, condition: Condition, seed: int, device: str) -> None:
        self.name, self.log, self.condition, self.device = name, log, condition, device
        self.args = published_settings(log.name, name)
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        torch.set_float32_matmul_precision("high")  # TF32, the default of the torch version that DyGLib names
        self.model: Any = self._build().to(device)

    def _build(self) -> nn.Module:
        from models.CAWN import CAWN
        from models.DyGFormer import DyGFormer
        from models.GraphMixer import GraphMixer
        from models.MemoryModel import MemoryModel
        from models.modules import MergeLayer

        args, nodes, events = self.args, self.log.graph.num_nodes, len(self.log.time)
        sizes = {"time_feat_dim": args.time_feat_dim, "dropout": args.dropout, "device": self.device}
        given = {
            "node_raw_features": np.zeros((nodes + 1, FEATURES), dtype=np.float32),
            "edge_raw_features": np.zeros((events + 1, FEATURES), dtype=np.float32),
            "neighbor_sampler": None,
        }
        layers = {"num_layers": args.num_layers}
        heads = layers | {"num_heads": args.num_heads}
        if self.name == "DyGFormer":
            sequence = {"patch_size": args.patch_size, "max_input_sequence_length": args.max_input_sequence_length}
            backbone = DyGFormer(
                channel_embedding_dim=args.channel_embedding_dim, **sequence, **given, **sizes, **heads
            )
            whole_sequences(backbone)
        elif self.name == "GraphMixer":
            backbone = GraphMixer(num_tokens=args.num_neighbors, **given, **sizes, **layers)
        elif self.name == "CAWN":
            walks = {"walk_length": args.walk_length, "num_walk_heads": args.num_walk_heads}
            backbone = CAWN(position_feat_dim=args.position_feat_dim, **walks, **given, **sizes)
            backbone.position_encoder = WalkPositions(backbone.position_encoder)
        elif self.name == "TGN":
            backbone = MemoryModel(model_name="TGN", **given, **sizes, **heads)
        else:
            raise ValueError(f"no model {self.name!r}")
        return nn.Sequential(backbone, MergeLayer(FEATURES, FEATURES, FEATURES, 1))

    def logits(self, u: Ids, v: Ids, times: Times, events: Ids | None = None) -> Tensor:
        """Scores of pairs at given times; `events` are remembered by a model with a memory.  # [B]"""
        options: dict[str, Any] = {"num_neighbors": self.args.num_neighbors}
        if self.name == "DyGFormer":
            options = {}
        elif self.name == "GraphMixer":
            options["time_gap"] = 1  # it averages features of this many nodes, and all features are zero
        elif self.name in MEMORY:
            options |= {"edge_ids": events, "edges_are_positive": events is not None}
        ends = self.model[0].compute_src_dst_node_temporal_embeddings(u + 1, v + 1, times, **options)
        found: Tensor = self.model[1](*ends).squeeze(-1)
        return found

    def fit(self, window: int, limits: Limits, continued: bool = False) -> Training:
        """Train on the events before a window with early stopping, and keep the best weights."""
        begin, log, args = time.time(), self.log, self.args
        self._look_back(log.number_before(window))
        self.asked = questions(log, window, self.condition)
        self.steps = plan(log, window, self.condition, self.asked.known, self.name in MEMORY)
        learned = [weight for weight in self.model.parameters() if weight.requires_grad]  # the memory is not
        optimizer = torch.optim.Adam(learned, lr=args.learning_rate)
        stop = min(begin + limits.seconds, limits.deadline)
        best: tuple[float, float] | None = self.epoch(None, stop) if continued else None
        weights = self._weights() if continued else None
        done, waited = Training(), 0
        while done.epochs < limits.epochs:
            found = self.epoch(optimizer, stop)
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
        if self.name in MEMORY:
            self.replay()
        done.seconds = round(time.time() - begin, 2)
        return done

    def _look_back(self, number: int) -> None:
        """Let the model see the first events of the log as neighbours."""
        log, args = self.log, self.args
        strategy = {"strategy": args.sample_neighbor_strategy, "scale": args.time_scaling_factor}
        past = (log.u[:number], log.v[:number], log.time[:number])
        self.model[0].set_neighbor_sampler(Neighbours(log.graph.num_nodes, *past, **strategy))

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def epoch(self, optimizer: torch.optim.Optimizer | None, stop: float) -> tuple[float, float] | None:
        """Learn from the training part, then validate; without optimizer, validate only. None if time is over.

        AP and AUC are means over batches, as in DyGLib.
        """
        if self.name in MEMORY:
            self.model[0].memory_bank.__init_memory_bank__()
        checks, found = np.random.default_rng(0), []  # validation negatives are the same in all epochs
        for step in self.steps:
            if time.time() >= stop:
                return None
            if step.role == "train" and optimizer is not None:
                self.model.train()
                positive, negative = self._ask(step, self.rng)
                targets = torch.cat([torch.ones_like(positive), torch.zeros_like(negative)])
                optimizer.zero_grad()
                binary_cross_entropy_with_logits(torch.cat([positive, negative]), targets).backward()
                optimizer.step()
                if self.name in MEMORY:
                    self.model[0].memory_bank.detach_memory_bank()
                continue
            self.model.eval()
            with torch.no_grad():
                if step.role == "validate":
                    found.append(torch.cat(self._ask(step, checks)))
                elif step.remember:
                    self._remember(step)
        scores = [part.double().cpu() for part in found]
        labels = [torch.arange(len(part)) < len(part) // 2 for part in scores]
        means = [
            float(np.mean([figure(s, label) for s, label in zip(scores, labels, strict=True)] or [0.0]))
            for figure in (average_precision, auc)
        ]
        return means[0], means[1]

    def _ask(self, step: Step, rng: np.random.Generator) -> list[Tensor]:
        """Scores of the events of a batch and of as many negatives.  # [B], [B]"""
        rows, asked = step.rows, self.asked
        u, v, times = self.log.u[rows], self.log.v[rows], asked.time[rows]
        others = asked.negatives(rows, rng)
        if not step.remember:
            both = self.logits(np.tile(u, 2), np.concatenate([v, others]), np.tile(times, 2))
            return list(both.chunk(2))
        negative = self.logits(u, others, times)  # first, because events change the memory
        return [self.logits(u, v, times, rows + 1), negative]

    def _remember(self, step: Step) -> None:
        rows = step.rows
        self.logits(self.log.u[rows], self.log.v[rows], self.log.time[rows], rows + 1)

    def replay(self) -> None:
        """Fill the memory with all events before the window."""
        self.model[0].memory_bank.__init_memory_bank__()
        self.model.eval()
        with torch.no_grad():
            for step in self.steps:
                if step.remember:
                    self._remember(step)

    def at_start(self, window: int) -> Callable[[Ids, Ids], Tensor]:
        """The score of pairs at the start of a window."""
        start = self.log.edges[window]

        def score(u: Ids, v: Ids) -> Tensor:
            self.model.eval()
            with torch.no_grad():
                parts = [slice(at, at + QUERIES) for at in range(0, len(u), QUERIES)]
                found = [self.logits(u[part], v[part], np.full(len(u[part]), start)) for part in parts]
            return torch.cat(found).double().cpu()

        return score

    def at_events(self, rows: Ids, u: Ids, v: Ids) -> tuple[Tensor, Tensor]:
        """Scores of the events that follow those of training and of one negative for each, at their times.  # [B], [B]

        Each batch is remembered after it has been scored, as in DyGLib.
        """
        log = self.log
        self._look_back(len(log.time))
        if self.name in MEMORY:
            self.replay()
        self.model.eval()
        found = []
        with torch.no_grad():
            for at in range(0, len(rows), BATCH):
                part = slice(at, at + BATCH)
                times, events = log.time[rows[part]], rows[part] + 1 if self.name in MEMORY else None
                negative = self.logits(u[part], v[part], times)
                found.append((self.logits(log.u[rows[part]], log.v[rows[part]], times, events), negative))
        positive, negative = (torch.cat(part).double().cpu() for part in zip(*found, strict=True))
        return positive, negative


def whole_sequences(model: Any) -> None:
    """Let a DyGFormer prepare its input for whole batches."""

    def pad(
        node_ids: Ids,
        node_interact_times: Times,
        nodes_neighbor_ids_list: Ids,
        nodes_edge_ids_list: Ids,
        nodes_neighbor_times_list: None,
        patch_size: int,
        max_input_sequence_length: int,
    ) -> Any:
        span = (nodes_neighbor_ids_list, nodes_edge_ids_list)  # see Neighbours.get_all_first_hop_neighbors
        return model.neighbor_sampler.sequences(
            node_ids, node_interact_times, *span, patch_size, max_input_sequence_length
        )

    def patches(patch_size: int, **features: Tensor) -> Any:
        return tuple(part.reshape(len(part), -1, patch_size * part.shape[2]) for part in features.values())

    model.pad_sequences, model.get_patches = pad, patches
    model.neighbor_co_occurrence_encoder.count_nodes_appearances = lambda **ids: co_occurrences(
        *(torch.from_numpy(part).to(model.device) for part in ids.values())
    )


def co_occurrences(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """How often each neighbour occurs in both sequences.  # [B, S], [B, D] → [B, S, 2], [B, D, 2]"""

    def counts(ids: Tensor) -> Tensor:
        found = torch.stack([(ids[:, :, None] == other[:, None, :]).sum(2) for other in (source, target)], 2)
        return found.float() * (ids != 0)[:, :, None]

    return counts(source), counts(target)


class WalkPositions(nn.Module):
    """CAWN's positions of nodes in the walks of both ends, for whole batches."""

    def __init__(self, encoder: Any) -> None:
        super().__init__()
        self.position_encode_layer, self.device = encoder.position_encode_layer, encoder.device

    def count_nodes_appearances(
        self,
        src_node_ids: Ids,
        dst_node_ids: Ids,
        node_interact_times: Times,
        src_node_multi_hop_graphs: Any,
        dst_node_multi_hop_graphs: Any,
    ) -> None:
        """Keep the nodes of each hop of both walks."""
        sides = ((src_node_ids, src_node_multi_hop_graphs), (dst_node_ids, dst_node_multi_hop_graphs))
        self.hops = [[torch.from_numpy(hop).to(self.device) for hop in (ids[:, None], *g[0])] for ids, g in sides]

    def forward(self, nodes_neighbor_ids: Ids) -> Tensor:
        """The encoded frequencies of each node at each hop.  # [B, K, L + 1] → [B, K, L + 1, d]"""
        ids = torch.from_numpy(nodes_neighbor_ids).to(self.device)
        flat = ids.flatten(1)  # [B, K (L + 1)]
        sides = [
            torch.stack([(flat[:, :, None] == hop[:, None, :]).float().mean(2) for hop in hops], 2)
            for hops in self.hops
        ]
        appearances = torch.stack(sides, 2) * (flat != 0)[:, :, None, None]  # [B, K (L + 1), 2, L + 1]
        found: Tensor = self.position_encode_layer(appearances.view(*ids.shape, 2, -1)).sum(-2)
        return found
