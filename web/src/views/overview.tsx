/** How well the method predicts, and what it learned from. */

import { Bars, Figure, Lines, Square, Stacks, type Curve, type Series } from "../charts";
import type { Backtest, Tested } from "../format";
import { model, windowLabels } from "../model";
import { count, counted, figure, percent } from "../text";

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
  const { heuristic, mean, precision, windows } = backtest;
  const best = (measure: "auc" | "mrr") =>
    average(windows.map((tested) => tested.heuristics.find(({ name }) => name === heuristic)?.[measure] ?? null));
  const beside = (value: number | null) => (heuristic && value !== null ? `${heuristic}: ${figure(value)}` : null);
  const top = precision.find(({ all }) => all !== null);
  const tiles: [string, number | null, string, string | null][] = [
    ["AUC", mean.auc, figure(mean.auc), beside(best("auc"))],
    ["MRR", mean.mrr, figure(mean.mrr), beside(best("mrr"))],
  ];
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

function Tests({ backtest }: { backtest: Backtest }) {
  return (
    <div class="charts">
      <Measure backtest={backtest} measure="auc" title="AUC per window" note="Probability that a link scores higher than a pair without a link; 0.5 is guessing." />
      <Measure backtest={backtest} measure="mrr" title="MRR per window" note="Mean reciprocal rank of the true partner; 1 is perfect." />
      {backtest.precision.length > 0 && <Precision backtest={backtest} />}
      {backtest.reliability.length > 0 && <Reliability backtest={backtest} />}
    </div>
  );
}

function Measure(props: { backtest: Backtest; measure: "auc" | "mrr"; title: string; note: string }) {
  const { backtest, measure, title, note } = props;
  const { windows, heuristic } = backtest;
  const { method } = model.facts;
  const labels = windows.map(({ step }) => windowLabels()[step] ?? String(step));
  const names = [...new Set(windows.flatMap(({ heuristics }) => heuristics.map(({ name }) => name)))];
  const of = (tested: Tested, name: string) => tested.heuristics.find((entry) => entry.name === name)?.[measure] ?? null;
  const series: Series[] = [{ name: method, values: windows.map((tested) => tested[measure]), tone: 1 }];
  if (heuristic) {
    series.push({ name: `Best heuristic: ${heuristic}`, values: windows.map((tested) => of(tested, heuristic)), tone: 2 });
  }
  const values = series.flatMap((entry) => entry.values).filter((value) => value !== null);
  if (!values.length) return null;
  const low = measure === "auc" ? Math.floor(10 * Math.max(0, Math.min(...values) - 0.02)) / 10 : 0;
  const high = measure === "auc" ? 1 : Math.min(1, Math.max(...values) * 1.15);
  const head = ["Window", "Links", method, ...names];
  const rows = windows.map((tested, i) => [labels[i], tested.links, tested[measure], ...names.map((name) => of(tested, name))]);
  if (measure === "auc") {
    head.push("Average precision");
    rows.forEach((row, i) => row.push(windows[i].average_precision));
  }
  return (
    <Figure title={title} note={note} test={`chart-${measure}`} table={{ head, rows, format: (v, c) => (c === 1 ? count(v) : figure(v)) }}>
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

function Precision({ backtest: { precision } }: { backtest: Backtest }) {
  const series: Series[] = [{ name: "All pairs", values: precision.map(({ all }) => all), tone: 1 }];
  if (precision.some((entry) => entry.new !== null)) {
    series.push({ name: "Pairs never linked before", values: precision.map((entry) => entry.new), tone: 2 });
  }
  const rows = precision.map((entry) => [`top ${entry.k}`, entry.all, entry.new]);
  return (
    <Figure
      title="Precision of the top k"
      note="How many of the k likeliest pairs were linked in the window that followed."
      test="chart-precision"
      table={{ head: ["Pairs", "All", "New"], rows, format: (value) => percent(value, 1) }}
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
