/** How well the method predicts, and what it learned from. */

import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { Bars, Figure, Lines, Square, Stacks, type Curve, type Series, type Table } from "../charts";
import type { Backtest, Measure, Tested } from "../format";
import { model, windowLabels } from "../model";
import { MEASURES, count, counted, explained, figure, percent } from "../text";

const RANKING: Measure[] = ["mrr", "hits_at_10", "new_mrr"];

export function Overview() {
  const { facts } = model;
  const { backtest } = facts;
  return (
    <>
      <p class="verdict" data-test="verdict">
        {facts.verdict}
      </p>
      {backtest && <Tiles backtest={backtest} />}
      <div class="columns">
        <div>
          <h2>Learned from</h2>
          <table class="plain" data-test="learned-from">
            <tbody>
              {facts.learned_from.map(([what, much]) => (
                <tr>
                  <th scope="row">{what}</th>
                  <td>
                    <bdi>{much}</bdi>
                  </td>
                </tr>
              ))}
              <tr>
                <th scope="row">Forecast for</th>
                <td>{facts.next.start === facts.next.end ? facts.next.label : `${facts.next.start} – ${facts.next.end}`}</td>
              </tr>
            </tbody>
          </table>
        </div>
        <div>
          {facts.notes.length > 0 && (
            <>
              <h2>Notes</h2>
              <ul class="notes" data-test="notes">
                {facts.notes.map((note) => (
                  <li>{note}</li>
                ))}
              </ul>
            </>
          )}
          {facts.missing.length > 0 && (
            <>
              <h2>Not on this page</h2>
              <ul class="notes" data-test="missing">
                {facts.missing.map((reason) => (
                  <li>{reason}</li>
                ))}
              </ul>
            </>
          )}
        </div>
      </div>
      <h2>Backtest</h2>
      {backtest && backtest.windows.length ? (
        <Tests backtest={backtest} />
      ) : (
        <p class="lacking" data-test="no-backtest">
          This run has no backtest, so the page cannot say how well the method predicts.
        </p>
      )}
      <h2>The graph</h2>
      <Links />
    </>
  );
}

function Tiles({ backtest }: { backtest: Backtest }) {
  const { best, mean, precision, windows } = backtest;
  const beside = (measure: Measure) => {
    const value = average(windows.map((tested) => of(tested, best[measure], measure)));
    return value === null ? null : `${best[measure]}: ${figure(value)}`;
  };
  const top = precision.find(({ all }) => all !== null);
  const tiles = (["auc", ...RANKING] as Measure[]).map((measure): [string, number | null, string, string | null] => [
    MEASURES[measure],
    mean[measure],
    figure(mean[measure]),
    beside(measure),
  ]);
  if (top) {
    const among = top.new === null ? null : `new pairs only: ${percent(top.new)}`;
    tiles.push([`Precision of the top ${top.k}`, top.all, percent(top.all), among]);
  }
  return (
    <dl class="tiles" data-test="tiles">
      {tiles
        .filter(([, value]) => value !== null)
        .map(([name, value, text, note]) => (
          <div>
            <dt>{name}</dt>
            <dd data-value={value}>{text}</dd>
            {note && <dd class="quiet">{note}</dd>}
          </div>
        ))}
      <div>
        <dt>Tested on</dt>
        <dd>{counted(windows.length, "window")}</dd>
        <dd class="quiet">none seen in training</dd>
      </div>
    </dl>
  );
}

function average(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** Return a figure of one heuristic in a window. */
function of({ heuristics }: Tested, wanted: string | null, measure: Measure): number | null {
  return heuristics.find(({ name }) => name === wanted)?.[measure] ?? null;
}

function labelOf(step: number): string {
  return windowLabels()[step] ?? String(step);
}

function Tests({ backtest }: { backtest: Backtest }) {
  return (
    <div class="charts">
      <PerWindow backtest={backtest} measure="auc" />
      <Ranking backtest={backtest} />
      {backtest.precision.length > 0 && <Precision backtest={backtest} />}
      {backtest.reliability.length > 0 && <Reliability backtest={backtest} />}
    </div>
  );
}

/** One chart for all measures of ranking, with buttons that choose between those that the run has. */
function Ranking({ backtest }: { backtest: Backtest }) {
  const chosen = useSignal<Measure>("mrr");
  const known = RANKING.filter((measure) => backtest.windows.some((tested) => tested[measure] !== null));
  if (known.length < 2) return <PerWindow backtest={backtest} measure="mrr" />;
  const buttons = (
    <div class="choice" role="group" aria-label="Measure">
      {known.map((measure) => (
        <button
          type="button"
          class="small"
          data-test={`measure-${measure}`}
          aria-pressed={chosen.value === measure}
          onClick={() => (chosen.value = measure)}
        >
          {MEASURES[measure]}
        </button>
      ))}
    </div>
  );
  return <PerWindow backtest={backtest} measure={chosen.value} choice={buttons} />;
}

function PerWindow(props: { backtest: Backtest; measure: Measure; choice?: ComponentChildren }) {
  const { backtest, measure, choice } = props;
  const { windows } = backtest;
  const heuristic = backtest.best[measure];
  const { method } = model.facts;
  const title = `${MEASURES[measure]} per window`;
  const labels = windows.map(({ step }) => labelOf(step));
  const series: Series[] = [{ name: method, values: windows.map((tested) => tested[measure]), tone: 1 }];
  if (heuristic) {
    const best = measure === "hits_at_10" ? "Best heuristic by MRR" : "Best heuristic";
    const values = windows.map((tested) => of(tested, heuristic, measure));
    series.push({ name: `${best}: ${heuristic}`, values, tone: 2 });
  }
  const values = series.flatMap((entry) => entry.values).filter((value) => value !== null);
  if (!values.length) return null;
  const low = measure === "auc" ? Math.floor(10 * Math.max(0, Math.min(...values) - 0.02)) / 10 : 0;
  const high = measure === "auc" ? 1 : Math.min(1, Math.max(...values) * 1.15);
  const others = windows.map(({ candidates }) => candidates).filter((number) => number !== null);
  return (
    <Figure
      title={choice ? "Ranking per window" : title}
      choice={choice}
      note={explained(measure, others)}
      test={`chart-${measure}`}
      table={numbersOf(windows, measure)}
    >
      <Lines
        label={`${title}: ${method}${heuristic ? ` and ${heuristic}` : ""}`}
        labels={labels}
        series={series}
        domain={[low, high]}
        format={(value) => value.toFixed(high - low < 0.1 ? 3 : 2)}
      />
    </Figure>
  );
}

/** Return the figures of the method and of all heuristics, and their means over the windows with a figure of the method. */
function numbersOf(windows: Tested[], measure: Measure): Table {
  const names = [...new Set(windows.flatMap(({ heuristics }) => heuristics.map(({ name }) => name)))];
  const columns: [string, (tested: Tested) => number | null, isCount?: boolean][] = [
    ["Links", ({ links }) => links, true],
    [model.facts.method, (tested) => tested[measure]],
    ...names.map((name): [string, (tested: Tested) => number | null] => [name, (tested) => of(tested, name, measure)]),
  ];
  if (measure === "auc") columns.push(["Average precision", (tested) => tested.average_precision]);
  else if (measure === "new_mrr") columns.push(["New links ranked", (tested) => tested.ranked_new, true]);
  else columns.push(["Links ranked", (tested) => tested.ranked, true]);
  const shown = columns.filter(([, value]) => windows.some((tested) => value(tested) !== null));
  const rows: (string | number | null)[][] = windows.map((tested) => [labelOf(tested.step), ...shown.map(([, value]) => value(tested))]);
  if (windows.length > 1) {
    const measured = windows.filter((tested) => tested[measure] !== null);
    const mean = (values: (number | null)[]) => (values.includes(null) ? null : average(values));
    rows.push(["Mean", ...shown.map(([, value, isCount]) => (isCount ? "" : mean(measured.map(value))))]);
  }
  const format = (value: number, column: number) => (shown[column - 1][2] ? count(value) : figure(value));
  return { head: ["Window", ...shown.map(([name]) => name)], rows, format };
}

function Precision({ backtest: { precision, windows } }: { backtest: Backtest }) {
  const series: Series[] = [{ name: "All pairs", values: precision.map(({ all }) => all), tone: 1 }];
  if (precision.some((entry) => entry.new !== null)) {
    series.push({ name: "Pairs never linked before", values: precision.map((entry) => entry.new), tone: 2 });
  }
  const rows = windows.flatMap(({ step }, i) =>
    precision.map(({ k, windows: each }) => [labelOf(step), `top ${k}`, each.all?.[i] ?? null, each.new?.[i] ?? null]),
  );
  if (windows.length > 1) rows.push(...precision.map((entry) => ["Mean", `top ${entry.k}`, entry.all, entry.new]));
  return (
    <Figure
      title="Precision of the top k"
      note="How many of the k likeliest pairs were linked in the window that followed."
      test="chart-precision"
      table={{ head: ["Window", "Pairs", "All", "New"], rows, format: (value) => percent(value, 1) }}
    >
      <Bars
        label="Precision of the top k pairs"
        groups={precision.map(({ k }) => `top ${k}`)}
        series={series}
        max={1}
        format={(value) => percent(value)}
      />
    </Figure>
  );
}

const CURVES = { all: "All pairs", new: "New pairs", known: "Known pairs" };

function Reliability({ backtest: { reliability } }: { backtest: Backtest }) {
  const tones = { all: 1, new: 2, known: 3 } as const;
  const curves: Curve[] = reliability.map(({ name, bins }) => ({
    name: CURVES[name],
    tone: tones[name],
    points: bins
      .filter(({ linked, pairs }) => linked !== null && pairs > 0)
      .map((bin) => ({ x: bin.mean_score ?? (bin.from + bin.to) / 2, y: bin.linked!, weight: bin.pairs })),
  }));
  const rows = reliability.flatMap(({ name, bins }) =>
    bins.map((bin) => [CURVES[name], bin.from, bin.to, bin.pairs, bin.mean_score, bin.linked]),
  );
  return (
    <Figure
      title="Reliability of the scores"
      note="On the diagonal, a score of 0.7 means that 7 of 10 such pairs were linked."
      test="chart-reliability"
      table={{
        head: ["Pairs", "From", "To", "Count", "Mean score", "Linked"],
        rows,
        format: (value, column) => (column === 3 ? count(value) : figure(value)),
      }}
    >
      <Square label="Reliability curve" curves={curves} xName="Mean score" yName="Fraction linked" format={(v) => v.toFixed(2)} />
    </Figure>
  );
}

function Links() {
  const { windows } = model.facts;
  const part = (name: string, tone: 1 | 2 | 3, values: number[]): Series => ({ name, tone, values });
  const series = [
    part("Linked before", 1, windows.map(({ recurring }) => recurring)),
    part("New, between known nodes", 2, windows.map(({ between_known }) => between_known)),
    part("With a new node", 3, windows.map(({ with_new }) => with_new)),
  ];
  return (
    <Figure
      title="Links per window"
      note="A method that only repeats past links can find at most those that were linked before."
      test="chart-links"
      table={{
        head: ["Window", "From", "To", "Links", "Linked before", "Between known nodes", "With a new node", "Active nodes", "Known nodes"],
        rows: windows.map((w) => [w.label, w.start, w.end, w.links, w.recurring, w.between_known, w.with_new, w.active, w.known]),
        format: count,
      }}
    >
      <Stacks label="Links per window: recurring, new between known nodes, and with new nodes" labels={windowLabels()} series={series} format={count} height={240} />
    </Figure>
  );
}
