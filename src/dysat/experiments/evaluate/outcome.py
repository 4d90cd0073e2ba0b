"""What came out of an evaluation: figures of every model and step, their means, a table, JSON, Markdown, a picture."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from math import isnan, nan
from statistics import fmean
from typing import Any

from torch import Tensor

from dysat.evaluation.probe import Means, ProbeResult, means
from dysat.models import OPPONENTS

TENSORS = ("scores", "labels", "test")


@dataclass(frozen=True, eq=False)
class StepResult:
    """One model at one step, told from one kind of negatives.

    `probe` says what it was trained on, the present or the past, or that there was none: the scores are the model's own
    ("score"), or it has no embeddings that would need one ("none"). `missing`: how many negatives there were too few.
    MRR and Hits@10 are those of the model's own scores.
    """

    result: ProbeResult
    probe: str
    links: int
    missing: int = 0
    mrr: float | None = None
    hits_at_10: float | None = None

    @property
    def name(self) -> str:
        return f"{self.result.target}/{self.result.negatives}/{self.probe}"

    def facts(self) -> dict[str, Any]:
        """All but the tensors."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "result"}
        return {**{f.name: getattr(self.result, f.name) for f in fields(self.result) if f.name not in TENSORS}, **own}

    @classmethod
    def restore(cls, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> StepResult:
        """What `facts` and the tensors by name tell."""
        own = {key: facts[key] for key in ("probe", "links", "missing", "mrr", "hits_at_10")}
        others: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()
        }
        name = f"{facts['target']}/{facts['negatives']}/{facts['probe']}"
        found: dict[str, Any] = {what: tensors[f"{what}/{name}"] for what in TENSORS}
        return cls(ProbeResult(**{key: value for key, value in others.items() if key not in own}, **found), **own)


@dataclass(frozen=True, eq=False)
class Figures:
    """Everything about one model."""

    name: str
    method: str
    options: dict[str, Any]
    opponent: bool
    results: list[StepResult]
    problems: dict[str, str]  # by step
    lacking: dict[str, list[int]]  # snapshots without a kind of negatives
    seconds: float

    @property
    def heuristic(self) -> bool:
        return self.method in OPPONENTS

    def probes(self) -> list[str]:
        """How its scores were made: with a probe of the present and of the past, or without."""
        return list(dict.fromkeys(step.probe for step in self.results))

    def of(self, negatives: str = "uniform", probe: str = "present") -> list[StepResult]:
        """The steps of one kind; a model that needs no probe is the same with any."""
        wanted = probe if "none" not in self.probes() else "none"
        return [step for step in self.results if step.result.negatives == negatives and step.probe == wanted]

    def means(
        self, negatives: str = "uniform", probe: str = "present", targets: frozenset[int] | None = None
    ) -> Means | None:
        """Over all steps, or some predicted snapshots; None where no step has such a figure."""
        steps = [step.result for step in self.of(negatives, probe)]
        found = means([result for result in steps if targets is None or result.target in targets])
        return found if found.targets else None

    def targets(self, negatives: str, probe: str) -> frozenset[int]:
        """The predicted snapshots that have a figure."""
        found = self.means(negatives, probe)
        return frozenset(found.targets if found else ())

    def ranking(self) -> dict[str, float | None]:
        """Means over the steps of what has no probe and no repeats."""
        steps = [step for step in self.results if step.probe == self.probes()[0] and step.mrr is not None]
        return {name: _mean([getattr(step, name) for step in steps]) for name in ("mrr", "hits_at_10")}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All models, beside each other."""

    about: dict[str, Any]
    left_out: dict[str, str]  # snapshots that could not be predicted, and why
    figures: list[Figures]

    @property
    def negatives(self) -> list[str]:
        return list(self.about["request"]["negatives"])

    @property
    def probe(self) -> str:
        return str(self.about["request"]["probe"])

    def asked(self) -> list[Figures]:
        return [f for f in self.figures if not f.opponent]

    def rivals(self, model: Figures | None = None) -> list[Figures]:
        """The heuristics that have figures, without the model that is judged."""
        kind = self.negatives[0]
        return [f for f in self.figures if f.heuristic and f is not model and f.targets(kind, self.probe)]

    def best_opponent(self, model: Figures | None = None) -> Figures | None:
        """Of the heuristics the one with the highest macro-AUC on the snapshots that all of them have."""
        rivals, kind = self.rivals(model), self.negatives[0]
        judged = [f.targets(kind, self.probe) for f in ([model] if model else self.asked())]
        common = frozenset.intersection(*(t for t in judged if t), *(f.targets(kind, self.probe) for f in rivals))
        found = [(known.macro_auc, f) for f in rivals if (known := f.means(kind, self.probe, common or None))]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def gap(self, model: Figures, rival: Figures) -> float:
        """Macro-AUC of the one minus that of the other, on the snapshots that both have; NaN without any."""
        kind = self.negatives[0]
        common = model.targets(kind, self.probe) & rival.targets(kind, self.probe)
        one, other = (f.means(kind, self.probe, common) for f in (model, rival))
        return one.macro_auc - other.macro_auc if one and other else nan

    def shown(self) -> list[Figures]:
        """Those that were asked for, and the best heuristic beside them."""
        asked = self.asked()
        best = self.best_opponent(asked[0] if len(asked) == 1 else None)
        return [*self.asked(), *([best] if best and best.opponent else [])]

    def rows(self, figures: list[Figures] | None = None) -> Iterator[tuple[Figures, str, str, Means]]:
        """Model, negatives, probe and means; in the order in which a table shows them."""
        for model in self.shown() if figures is None else figures:
            for probe in sorted(model.probes(), key=lambda probe: probe != self.probe):
                for negatives in self.negatives:
                    known = model.means(negatives, probe)
                    if known is not None:
                        yield model, negatives, probe, known

    def facts(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        models = []
        for f in self.figures:
            over_steps = [
                {"negatives": negatives, "probe": probe, **asdict(known)}
                for _, negatives, probe, known in self.rows([f])
            ]
            models.append(
                {
                    "name": f.name,
                    "method": f.method,
                    "options": f.options,
                    "opponent": f.opponent,
                    "seconds": round(f.seconds, 2),
                    "means": over_steps,
                    "ranking": f.ranking(),
                    "steps": [step.facts() for step in f.results],
                    "problems": f.problems,
                    "lacking": f.lacking,
                }
            )
        best = self.best_opponent()
        facts = {**self.about, "left_out": self.left_out, "best_opponent": best and best.name, "models": models}
        return dict(_without_nan(facts))

    def markdown(self, *, everyone: bool = False) -> str:
        """A table of the means, in per cent."""
        lines = [
            "| model | negatives | probe | steps | macro-AUC | micro-AUC | average precision |",
            "|---|---|---|---:|---:|---:|---:|",
        ]
        for model, negatives, probe, known in self.rows(self.figures if everyone else None):
            name = f"{model.name} (heuristic)" if model.opponent else f"**{model.name}**"
            cells = (
                " ".join([per_cent(known.macro_auc), spread(known.macro_auc_sd)]).strip(),
                per_cent(known.micro_auc),
                " ".join([per_cent(known.macro_average_precision), spread(known.macro_average_precision_sd)]).strip(),
            )
            lines.append(f"| {name} | {negatives} | {PROBES[probe]} | {len(known.targets)} | {' | '.join(cells)} |")
        return "\n".join(lines)

    def plot(self, file: str | os.PathLike[str], *, everyone: bool = False) -> None:
        """AUC of every predicted snapshot, as a picture (PNG, SVG or PDF by its name)."""
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for color, model in enumerate(
            self.figures if everyone else self.shown()
        ):  # of a model; negatives by their dashes
            for number, negatives in enumerate(self.negatives):
                steps = model.of(negatives, self.probe)
                label = f"{model.name}, {negatives}" if len(self.negatives) > 1 else model.name
                style = ["-", "--", ":", "-."][number % 4]
                found = [step.result for step in steps]
                points = [r.target for r in found], [r.auc for r in found]
                axes.plot(*points, style, color=f"C{color}", marker="o", markersize=3, label=label)
        axes.axhline(0.5, color="grey", linewidth=0.8)  # chance
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlabel("predicted snapshot")
        axes.set_ylabel("AUC")
        axes.grid(alpha=0.3)
        figure.legend(fontsize="small", loc="outside right upper")
        figure.savefig(file)


PROBES = {"present": "on t+1", "past": "on t", "score": "own score", "none": "–"}


def per_cent(value: float) -> str:
    """Two digits."""
    return f"{100 * value:.2f}"


def spread(deviation: float) -> str:
    """± a deviation, or nothing where there is none."""
    return "" if isnan(deviation) else f"± {per_cent(deviation)}"


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _without_nan(value: Any) -> Any:
    """JSON has no NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and isnan(value) else value
