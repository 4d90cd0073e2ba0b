"""Results of an evaluation: every model and step, means, and their output as JSON, Markdown and picture."""

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
from dysat.system.extras import require
from dysat.system.notebook import Table, html_table
from dysat.system.text.json_text import finite
from dysat.system.text.printable import printable

TENSORS = ("scores", "labels", "test")
FIGURES = ("auc", "auc_sd", "average_precision", "average_precision_sd")
RANKING = {
    "mrr": "MRR",
    "hits_at_10": "Hits@10",
    "precision_at_10": "P@10",
    "precision_at_100": "P@100",
    "new_mrr": "new: MRR",
    "new_precision_at_10": "new: P@10",
    "new_precision_at_100": "new: P@100",
}  # of the model's own scores, with the headings of tables


@dataclass(frozen=True, eq=False)
class StepResult:
    """One model at one step, tested against one kind of negatives.

    `probe` is `present` or `past`, by what the probe was trained on, `score` if the model's own scores were tested, or
    `none` if the model has no embeddings and hence no probe. `missing` is the number of negatives that are missing. The
    figures of `RANKING` are of the model's own scores; one that was not measured is None.
    """

    result: ProbeResult
    probe: str
    links: int
    missing: int = 0
    mrr: float | None = None
    hits_at_10: float | None = None
    precision_at_10: float | None = None
    precision_at_100: float | None = None
    new_mrr: float | None = None
    new_precision_at_10: float | None = None
    new_precision_at_100: float | None = None

    @property
    def name(self) -> str:
        return f"{self.result.target}/{self.result.negatives}/{self.probe}"

    def facts(self) -> dict[str, Any]:
        """Return everything except the tensors, as plain values."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "result"}
        return {**{f.name: getattr(self.result, f.name) for f in fields(self.result) if f.name not in TENSORS}, **own}

    @classmethod
    def restore(cls, facts: dict[str, Any], tensors: Mapping[str, Tensor]) -> StepResult:
        """Rebuild a result from `facts`, in which newer figures may be missing, and the tensors by name."""
        own = {key: facts[key] for key in ("probe", "links", "missing")} | {key: facts.get(key) for key in RANKING}
        others: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in facts.items()
        }
        name = f"{facts['target']}/{facts['negatives']}/{facts['probe']}"
        found: dict[str, Any] = {what: tensors[f"{what}/{name}"] for what in TENSORS}
        return cls(ProbeResult(**{key: value for key, value in others.items() if key not in own}, **found), **own)


@dataclass(frozen=True, eq=False)
class Figures:
    """All results of one model."""

    name: str
    method: str
    options: dict[str, Any]
    opponent: bool
    results: list[StepResult]
    problems: dict[str, str]  # by step
    lacking: dict[str, list[int]]  # by kind of negatives, snapshots without any
    seconds: float

    @property
    def heuristic(self) -> bool:
        """Whether the method is one of the heuristics in `OPPONENTS`."""
        return self.method in OPPONENTS

    def probes(self) -> list[str]:
        """Return the probes with results: present, past, score or none."""
        return list(dict.fromkeys(step.probe for step in self.results))

    def of(self, negatives: str = "uniform", probe: str = "present") -> list[StepResult]:
        """Return the steps of one kind; a model without a probe has the same results for any."""
        wanted = probe if "none" not in self.probes() else "none"
        return [step for step in self.results if step.result.negatives == negatives and step.probe == wanted]

    def means(
        self, negatives: str = "uniform", probe: str = "present", targets: frozenset[int] | None = None
    ) -> Means | None:
        """Return means over all steps, or over the given targets; None if no step has a result."""
        steps = [step.result for step in self.of(negatives, probe)]
        found = means([result for result in steps if targets is None or result.target in targets])
        return found if found.targets else None

    def targets(self, negatives: str, probe: str) -> frozenset[int]:
        """Return the predicted snapshots that have a result."""
        found = self.means(negatives, probe)
        return frozenset(found.targets if found else ())

    def ranked(self) -> list[StepResult]:
        """Return the steps whose links were ranked, each once: ranking depends on neither negatives nor probe."""
        return [step for step in self.results if step.probe == self.probes()[0] and step.mrr is not None]

    def ranking(self, targets: frozenset[int] | None = None) -> dict[str, float | None]:
        """Return the means of the ranking figures over all steps that have them, or over the given targets."""
        steps = [step for step in self.ranked() if targets is None or step.result.target in targets]
        return {name: _mean([getattr(step, name) for step in steps]) for name in RANKING}


@dataclass(frozen=True, eq=False)
class Evaluation(Table):
    """Result of `dysat.evaluate`: `figures` has the results of every model; `about` says how they were measured."""

    about: dict[str, Any]
    left_out: dict[str, str]  # snapshots that could not be predicted, and why
    figures: list[Figures]

    @property
    def negatives(self) -> list[str]:
        """Negative samplers, the one that ranks models first."""
        return list(self.about["request"]["negatives"])

    @property
    def probe(self) -> str:
        """How models with embeddings were scored, as requested."""
        return str(self.about["request"]["probe"])

    def asked(self) -> list[Figures]:
        """Return the requested models, without the heuristics they are compared with."""
        return [f for f in self.figures if not f.opponent]

    def rivals(self, model: Figures | None = None) -> list[Figures]:
        """Return the heuristics that have results, except for the model itself."""
        kind = self.negatives[0]
        return [f for f in self.figures if f.heuristic and f is not model and f.targets(kind, self.probe)]

    def best_opponent(self, model: Figures | None = None) -> Figures | None:
        """Return the heuristic with the highest macro-AUC on the snapshots that all heuristics share."""
        rivals, kind = self.rivals(model), self.negatives[0]
        judged = [f.targets(kind, self.probe) for f in ([model] if model else self.asked())]
        common = frozenset.intersection(*(t for t in judged if t), *(f.targets(kind, self.probe) for f in rivals))
        found = [(known.macro_auc, f) for f in rivals if (known := f.means(kind, self.probe, common or None))]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def gap(self, model: Figures, rival: Figures) -> float:
        """Return the difference in macro-AUC on the snapshots that both have; NaN if they share none."""
        kind = self.negatives[0]
        common = model.targets(kind, self.probe) & rival.targets(kind, self.probe)
        one, other = (f.means(kind, self.probe, common) for f in (model, rival))
        return one.macro_auc - other.macro_auc if one and other else nan

    def best_ranking(self, model: Figures | None = None) -> Figures | None:
        """Return the heuristic with the highest mean MRR on the snapshots that all heuristics share."""
        rivals = [f for f in self.rivals(model) if f.ranked()]
        judged = [f for f in ([model] if model else self.asked()) if f.ranked()]
        common = _shared_targets([*judged, *rivals])
        found = [(value, f) for f in rivals if (value := f.ranking(common or None)["mrr"]) is not None]
        return max(found, key=lambda pair: pair[0])[1] if found else None

    def mrr_gap(self, model: Figures, rival: Figures) -> float:
        """Return the difference in mean MRR on the snapshots that both have; NaN if they share none."""
        one, other = (f.ranking(_shared_targets([model, rival]))["mrr"] for f in (model, rival))
        return nan if one is None or other is None else one - other

    def ranking_rows(self, *, everyone: bool = False) -> Iterator[tuple[Figures, int, dict[str, float | None]]]:
        """Yield model, number of steps and means of the ranking figures: of the models, and of the best heuristics."""
        asked = self.asked()
        best = self.best_ranking(asked[0] if len(asked) == 1 else None)
        shown = self.figures if everyone else [*self.shown(), *([best] if best and best.opponent else [])]
        for model in dict.fromkeys(shown):
            if steps := model.ranked():
                yield model, len(steps), model.ranking()

    def shown(self) -> list[Figures]:
        """Return the requested models and the best heuristic."""
        asked = self.asked()
        best = self.best_opponent(asked[0] if len(asked) == 1 else None)
        return [*self.asked(), *([best] if best and best.opponent else [])]

    def rows(self, figures: list[Figures] | None = None) -> Iterator[tuple[Figures, str, str, Means]]:
        """Yield model, negatives, probe and means, in the order of the table."""
        for model in self.shown() if figures is None else figures:
            for probe in sorted(model.probes(), key=lambda probe: probe != self.probe):
                for negatives in self.negatives:
                    known = model.means(negatives, probe)
                    if known is not None:
                        yield model, negatives, probe, known

    def facts(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
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
        best, ranking = self.best_opponent(), self.best_ranking()
        opponents = {"best_opponent": best and best.name, "best_ranking": ranking and ranking.name}
        facts = {**self.about, "left_out": self.left_out, **opponents, "models": models}
        return dict(finite(facts))

    def markdown(self, *, everyone: bool = False) -> str:
        """Return Markdown tables of the means: AUC and average precision in per cent, and ranking figures."""
        lines = [
            "| model | negatives | probe | steps | macro-AUC | micro-AUC | average precision |",
            "|---|---|---|---:|---:|---:|---:|",
        ]
        for model, negatives, probe, known in self.rows(self.figures if everyone else None):
            name = _markdown_name(model)
            cells = (
                " ".join([per_cent(known.macro_auc), spread(known.macro_auc_sd)]).strip(),
                per_cent(known.micro_auc),
                " ".join([per_cent(known.macro_average_precision), spread(known.macro_average_precision_sd)]).strip(),
            )
            lines.append(f"| {name} | {negatives} | {PROBES[probe]} | {len(known.targets)} | {' | '.join(cells)} |")
        ranked = list(self.ranking_rows(everyone=everyone))
        if ranked:
            lines += ["", f"| model | steps | {' | '.join(RANKING.values())} |", "|---|" + "---:|" * (1 + len(RANKING))]
        for model, steps, values in ranked:
            lines.append(f"| {_markdown_name(model)} | {steps} | {' | '.join(map(fraction, values.values()))} |")
        return "\n".join(lines)

    def records(self) -> list[dict[str, Any]]:
        """Return one row per model, predicted snapshot, kind of negatives and probe, for a table."""
        return [
            {
                "model": f.name,
                "heuristic": f.heuristic,
                "snapshot": step.result.target,
                "negatives": step.result.negatives,
                "probe": step.probe,
                "links": step.links,
                **{name: getattr(step.result, name) for name in FIGURES},
                **{name: getattr(step, name) for name in RANKING},
            }
            for f in self.figures
            for step in f.results
        ]

    def _repr_html_(self) -> str:
        """The tables of means, for notebooks."""
        rows = [
            (
                f"{model.name} (heuristic)" if model.opponent else model.name,
                negatives,
                PROBES[probe],
                len(known.targets),
                f"{per_cent(known.macro_auc)} {spread(known.macro_auc_sd)}".strip(),
                per_cent(known.micro_auc),
                f"{per_cent(known.macro_average_precision)} {spread(known.macro_average_precision_sd)}".strip(),
            )
            for model, negatives, probe, known in self.rows()
        ]
        columns = ("model", "negatives", "probe", ">snapshots", ">macro-AUC", ">micro-AUC", ">average precision")
        tables = [html_table("Means over the predicted snapshots, in per cent", columns, rows)]
        ranked = [
            (f"{model.name} (heuristic)" if model.opponent else model.name, steps, *map(fraction, values.values()))
            for model, steps, values in self.ranking_rows()
        ]
        if ranked:
            titles = ("model", ">snapshots", *(f">{title}" for title in RANKING.values()))
            tables.append(html_table("Ranking by own scores, means over the predicted snapshots", titles, ranked))
        return "".join(tables)

    def plot(self, file: str | os.PathLike[str], *, everyone: bool = False) -> None:
        """Draw the AUC of every predicted snapshot to a PNG, SVG or PDF file."""
        require("matplotlib", "a plot")
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator

        figure = Figure(figsize=(9, 4.5), layout="constrained")
        axes = figure.add_subplot()
        for color, model in enumerate(self.figures if everyone else self.shown()):
            for number, negatives in enumerate(self.negatives):
                steps = model.of(negatives, self.probe)
                name = printable(model.name).replace("$", "\\$")  # matplotlib reads formulas between dollars
                label = f"{name}, {negatives}" if len(self.negatives) > 1 else name
                style = ["-", "--", ":", "-."][number % 4]  # by kind of negatives
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
    """Format a fraction in per cent, with two digits."""
    return f"{100 * value:.2f}"


def spread(deviation: float) -> str:
    """Format a standard deviation as ± per cent; empty for NaN."""
    return "" if isnan(deviation) else f"± {per_cent(deviation)}"


def fraction(value: float | None) -> str:
    """Format a ranking figure with three digits; a dash if it was not measured."""
    return "–" if value is None else f"{value:.3f}"


def _markdown_name(model: Figures) -> str:
    shown = printable(model.name).replace("|", "\\|")
    return f"{shown} (heuristic)" if model.opponent else f"**{shown}**"


def _shared_targets(models: list[Figures]) -> frozenset[int]:
    """Return the predicted snapshots whose links all of these models have ranked."""
    found = [frozenset(step.result.target for step in model.ranked()) for model in models]
    return frozenset.intersection(*found) if found else frozenset()


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
