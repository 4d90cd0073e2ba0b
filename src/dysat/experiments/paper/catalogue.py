"""What the DySAT paper measured: the rows of its tables, the datasets, and what each table and figure is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

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
# Of a study: how it is evaluated. Attention and runtime are measured otherwise.
STUDIES: dict[str, dict[str, Any]] = {
    "single-step": {"protocol": "single-step"},
    "new-links": {"protocol": "new-links"},
    "multi-step": {"protocol": "multi-step"},
    # Both ends new, as the paper's words have it, leaves Enron one step of eleven and UCI five of twelve.
    "new-nodes": {"protocol": "new-nodes", "new_ends": "one"},
}
HEADS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Published:
    """Of a cell of the paper's tables, in per cent."""

    macro: float
    macro_std: float
    micro: float
    micro_std: float


@dataclass(frozen=True)
class Row:
    """A row of a table: what the paper calls it, whose preset it has, and what is changed in that."""

    name: str
    preset: str  # the middle of its file's name; of a heuristic its method
    published: str | None = None  # the row of the published tables
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """The longest name of a method that the preset's name is or begins with."""
        fitting = [m for m in MODELS if self.preset == m or self.preset.startswith(f"{m}-")]
        return max(fitting, key=len)

    def contender(self, dataset: str, **more: Any) -> Contender:
        """Its model with the preset for a dataset; a heuristic has none."""
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
        """What the paper has in its table `single_step`, `new_link`, `ablation` or `incsat`."""
        if self.published is None or (self.changes and table != "ablation"):
            return None  # the preset's figures are those of the model that is not changed
        found = MODELS[self.method].presets()[self.contender(dataset).preset or ""].get("published", {})
        if table == "ablation" and not self.changes:
            table = "single_step"  # its row of the whole model is the same
        if table == "incsat" and self.method != "incsat":
            table = "single_step"
        figures = found.get(table, {})
        figures = figures.get(self.published) if table == "ablation" else figures
        return Published(**figures) if figures else None


def _ablations(preset: str, name: str) -> dict[str, Row]:
    parts = {"no-structural": ("No Structural", "temporal"), "no-temporal": ("No Temporal", "structural")}
    return {
        f"{preset}-{slug}": Row(f"{name}, {words.lower()} attention", preset, words, {"blocks": blocks})
        for slug, (words, blocks) in parts.items()
    }


PROGRAM, TEXT = "DySAT (program)", "DySAT (text)"
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
TRANSITIONS = ("pair-logistic", BOOSTING)  # they learn from past transitions; the others compete for one row
INCSAT = {"incsat": Row("IncSAT", "incsat", "IncSAT")}
ABLATIONS = _ablations("dysat", PROGRAM) | _ablations("dysat-text", TEXT)
ROWS: dict[str, Row] = BASELINES | DYSAT | INCSAT | HEURISTICS | ABLATIONS


def heads_row(block: Literal["structural", "temporal"], heads: int) -> tuple[str, Row]:
    """DySAT with so many heads in every layer of a block, whose layers keep their sizes."""
    return f"dysat-{block}-heads-{heads}", Row(f"{heads} {block} heads", "dysat", None, {f"{block}_heads": heads})


def heads_rows() -> dict[str, Row]:
    """All rows of the figure on heads."""
    structural = dict(heads_row("structural", heads) for heads in HEADS)
    return structural | dict(heads_row("temporal", heads) for heads in HEADS)
