"""The rows, datasets, tables and figures of the DySAT paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from dysat.errors import ModelError, listed, nearest
from dysat.experiments.evaluate.request import Contender
from dysat.models import MODELS, OPPONENTS
from dysat.models.base.preset import PAPER

DATASETS = {
    "enron": "Enron",
    "enron-loops": "Enron, self-loops counted",
    "uci": "UCI",
    "yelp": "Yelp",
    "ml-10m": "ML-10M",
}
Target = Literal[
    "table1", "table2", "table3", "table4", "table5",
    "fig-steps", "fig-heads", "fig-runtime", "fig-attention", "fig-multistep", "fig-newnodes",
]  # fmt: skip
TARGETS: tuple[Target, ...] = get_args(Target)
# How each study is evaluated. Attention and runtime are measured separately.
STUDIES: dict[str, dict[str, Any]] = {
    "single-step": {"protocol": "single-step"},
    "new-links": {"protocol": "new-links"},
    "multi-step": {"protocol": "multi-step"},
    # Requiring two new ends, as the paper says, leaves one of eleven steps on Enron and five of twelve on UCI.
    "new-nodes": {"protocol": "new-nodes", "new_ends": "one"},
}
HEADS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Published:
    """Values of a cell in the paper's tables, in per cent."""

    macro: float
    macro_std: float
    micro: float
    micro_std: float


@dataclass(frozen=True)
class Row:
    """A row of a table: its name, its preset, and the options that differ from the preset."""

    name: str
    preset: str  # the middle part of the preset's file name; for a heuristic, its method
    published: str | None = None  # the row's name in the paper
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The method with the longest name that the preset's name starts with."""
        fitting = [m for m in MODELS if self.preset == m or self.preset.startswith(f"{m}-")]
        return max(fitting, key=len)

    def contender(self, dataset: str, **more: Any) -> Contender:
        """Return its model with the preset of a dataset; a heuristic has no preset."""
        if self.method in OPPONENTS:
            return Contender(self.method, options=more)
        rest = self.preset.removeprefix(self.method).removeprefix("-")
        name = "_".join(part for part in (PAPER, rest, dataset.removesuffix("-loops")) if part)
        parameters = MODELS[self.method].presets()[name]["parameters"]
        changes = {
            key: (value,) * len(parameters[key]) if isinstance(parameters.get(key), list) else value
            for key, value in self.changes.items()
        }
        return Contender(self.method, name, {**changes, **more})

    def figures(self, table: str, dataset: str) -> Published | None:
        """Return the published values of the table `single_step`, `new_link`, `ablation` or `incsat`."""
        if self.published is None or (self.changes and table != "ablation"):
            return None  # the preset has the values of the unchanged model
        found = MODELS[self.method].presets()[self.contender(dataset).preset or ""].get("published", {})
        if table == "ablation" and not self.changes:
            table = "single_step"  # where the row of the whole model is the same
        if table == "incsat" and self.method != "incsat":
            table = "single_step"
        figures = found.get(table, {})
        figures = figures.get(self.published) if table == "ablation" else figures
        return Published(**figures) if figures else None


def _ablations(preset: str, name: str) -> dict[str, Row]:
    parts = {"no-structural": ("No Structural", "temporal"), "no-temporal": ("No Temporal", "structural")}
    return {
        f"{preset}-{part}": Row(f"{name}-{part}", preset, published, {"blocks": blocks})
        for part, (published, blocks) in parts.items()
    }


PROGRAM, TEXT = "dysat:program", "dysat:text"
BASELINES = {
    "node2vec": Row("node2vec", "node2vec", "node2vec"),
    "graphsage": Row("G-SAGE", "graphsage", "G-SAGE"),
    "graphsage-gat": Row("G-SAGE + GAT", "graphsage-gat", "G-SAGE + GAT"),
    "gcn-ae": Row("GCN-AE", "gcn-ae", "GCN-AE"),
    "gat-ae": Row("GAT-AE", "gat-ae", "GAT-AE"),
    "dynamic-triad": Row("DynamicTriad", "dynamic-triad", "DynamicTriad"),
    "dyngem": Row("DynGEM", "dyngem", "DynGEM"),
    "dynaernn": Row("DynAERNN", "dynaernn", "DynAERNN"),
}
DYSAT = {"dysat": Row(PROGRAM, "dysat", "DySAT"), "dysat-text": Row(TEXT, "dysat-text", "DySAT")}
BOOSTING = "pair-boosting"
HEURISTICS = {name: Row(name, name) for name in OPPONENTS}
TRANSITIONS = ("pair-logistic", BOOSTING)  # trained on past transitions; the others compete for one row
INCSAT = {"incsat": Row("IncSAT", "incsat", "IncSAT")}
ABLATIONS = _ablations("dysat", PROGRAM) | _ablations("dysat-text", TEXT)
# Rows are stored under these keys. The row of the authors' program is stored as `dysat`.
ROWS: dict[str, Row] = BASELINES | DYSAT | INCSAT | HEURISTICS | ABLATIONS
# Names of rows for users. `dysat` alone is the default model, which is not in the paper, so the key is not a name.
KEYS = {row.name if row.method == "dysat" else key: key for key, row in ROWS.items()}


def row_keys(names: Iterable[str]) -> list[str]:
    """Return the keys of rows by their names; an unknown name is an error."""
    found = []
    for name in names:
        if name == "dysat":
            raise ModelError(f"no method 'dysat': the default model is not in the paper; use {PROGRAM} or {TEXT}")
        if name not in KEYS:
            hint = f"; did you mean {ROWS[name].name!r}?" if name in ROWS else nearest(name, KEYS)
            if not hint and nearest(name, ["dysat"]):
                hint = f"; did you mean {PROGRAM!r} or {TEXT!r}?"
            raise ModelError(f"no method {name!r}; there are {listed(KEYS, 40)}{hint}")
        found.append(KEYS[name])
    return found


def heads_row(block: Literal["structural", "temporal"], heads: int) -> tuple[str, Row]:
    """Return key and row of dysat:program with a number of heads in every layer of a block; layer sizes stay."""
    return f"dysat-{block}-heads-{heads}", Row(f"{heads} {block} heads", "dysat", None, {f"{block}_heads": heads})


def heads_rows() -> dict[str, Row]:
    """Return all rows of the figure on heads."""
    structural = dict(heads_row("structural", heads) for heads in HEADS)
    return structural | dict(heads_row("temporal", heads) for heads in HEADS)
