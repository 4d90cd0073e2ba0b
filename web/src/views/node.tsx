/** One node: what it is, whom it links to, and what may come next. */

import { useSignal } from "@preact/signals";
import { Figure, Heat, Numbers, Stacks } from "../charts";
import { NONE } from "../format";
import {
  attentionOf,
  attributeText,
  byActivity,
  kindName,
  model,
  partnersAt,
  rowsOf,
  stepLabels,
  windowLabels,
  windowOf,
} from "../model";
import { Chooser, Lacking, Search, tip, Why } from "../parts";
import { choose, node, show, step } from "../state";
import { shortest } from "../csv";
import { count, counted, cut, figure, score } from "../text";

const LISTED = 24; // partners, most active nodes
const EXPECTED = 12; // likely next contacts

export function NodeView() {
  const chosen = node.value;
  return chosen === null ? <Nobody /> : <Somebody chosen={chosen} />;
}

function Nobody() {
  return (
    <>
      <header class="view-head">
        <h2>Choose a node</h2>
        <p class="quiet">Search by label, or take one of the most active nodes.</p>
      </header>
      <Search onChoose={choose} />
      <ol class="most-active" data-test="most-active">
        {byActivity()
          .slice(0, LISTED)
          .map((i) => (
            <li>
              <Chooser node={i} onChoose={choose} />
              <span class="quiet kind">{cut(kindName(i) ?? "", 40)}</span>
              <span class="quiet">{counted(model.totalDegree[i], "link")}</span>
            </li>
          ))}
      </ol>
    </>
  );
}

function Somebody({ chosen }: { chosen: number }) {
  const { facts, n, s } = model;
  const labels = stepLabels();
  const values = Array.from({ length: s }, (_, t) => model.degree[t * n + chosen]);
  const history = Array.from({ length: s }, (_, t) => partnersAt(chosen, t));
  return (
    <>
      <header class="view-head node-head">
        <div class="full-label" tabIndex={0} data-test="node-label">
          <h2 class={facts.labels[chosen].length > 120 ? "long" : undefined}>
            <bdi>{facts.labels[chosen] || "(empty label)"}</bdi>
          </h2>
        </div>
        <div class="buttons">
          {model.position && (
            <button type="button" data-test="show-on-map" onClick={() => show(chosen, "map")}>
              Show on the map
            </button>
          )}
          <button type="button" data-test="clear-node" onClick={() => choose(null)}>
            Choose another
          </button>
        </div>
      </header>
      <Facts chosen={chosen} />
      <div class="charts">
        <Figure
          title="Links per window"
          test="chart-degree"
          table={{ head: ["Window", "Links"], rows: values.map((value, t) => [labels[t], value]), format: count }}
        >
          <Stacks
            label="Links of the node per window"
            labels={labels}
            series={[{ name: "Links", values, tone: 1 }]}
            format={count}
            height={180}
            current={step.value === s - 1 ? null : step.value}
          />
        </Figure>
        <Looks chosen={chosen} />
      </div>
      <Partners history={history} />
      <div class="columns">
        <Next chosen={chosen} />
        <Nearest chosen={chosen} />
      </div>
    </>
  );
}

function Facts({ chosen }: { chosen: number }) {
  const { facts } = model;
  const rows: [string, string][] = [];
  const kind = kindName(chosen);
  if (kind !== null) rows.push(["Kind", kind]);
  facts.attributes.forEach(({ name }, a) => {
    if (model.attributes[a]) rows.push([name, attributeText(a, chosen) ?? "not known"]);
  });
  if (model.community) rows.push(["Community", `${model.community[chosen] + 1} of ${facts.communities}`]);
  rows.push(["First seen", windowLabels()[model.firstSeen[chosen]] ?? "–"]);
  rows.push([model.facts.first_step ? "Links in the windows shown" : "Links in all windows", count(model.totalDegree[chosen])]);
  return (
    <dl class="facts" data-test="node-facts">
      {rows.map(([name, value]) => (
        <div>
          <dt>
            <bdi>{cut(name, 60)}</bdi>
          </dt>
          <dd title={cut(value, 300)}>
            <bdi class="label">{cut(value, 160)}</bdi>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** The attention of the node's last step to its past. */
function Looks({ chosen }: { chosen: number }) {
  const own = attentionOf(chosen);
  const labels = stepLabels();
  if (!own) {
    if (!model.attention) return null;
    return <Lacking about={/attention/i}>The attention of this node is not on this page.</Lacking>;
  }
  const last = own[own.length - 1];
  return (
    <Figure
      title="Attention to its past"
      note={`How much its state in the last window (${labels[labels.length - 1]}) draws on each window. The weights add up to 1.`}
      test="chart-own-attention"
      table={{ head: ["Window", "Weight"], rows: last.map((value, t) => [labels[t], value]), format: figure }}
    >
      <Heat
        label="Attention of the last window to each window"
        rows={[""]}
        columns={labels}
        values={[last]}
        max={last.reduce<number>((most, value) => Math.max(most, value ?? 0), 0)}
        format={(value) => value.toFixed(2)}
        rowName="Last window"
        columnName="Weight of each window"
      />
    </Figure>
  );
}

type Link = "new" | "again" | "lost" | null;

/** Partners by window: when each came, stayed and went. */
function Partners({ history }: { history: Map<number, number>[] }) {
  const all = useSignal(false);
  const labels = stepLabels();
  const seen = new Map<number, { windows: number; last: number }>();
  history.forEach((partners, t) =>
    partners.forEach((_, partner) => seen.set(partner, { windows: (seen.get(partner)?.windows ?? 0) + 1, last: t })),
  );
  if (!seen.size) {
    return (
      <div class="lacking">
        <p>This node has no links to other nodes of this page in the windows shown.</p>
      </div>
    );
  }
  const ordered = [...seen]
    .sort(([a, x], [b, y]) => y.windows - x.windows || y.last - x.last || a - b)
    .map(([partner]) => partner);
  const listed = all.value ? ordered.slice(0, 300) : ordered.slice(0, LISTED);
  const met = new Set<number>();
  const counts = history.map((partners, t) => {
    const before = t ? history[t - 1] : new Map<number, number>();
    let [fresh, lost] = [0, 0];
    partners.forEach((_, partner) => {
      if (!met.has(partner)) fresh++;
      met.add(partner);
    });
    before.forEach((_, partner) => {
      if (!partners.has(partner)) lost++;
    });
    return { partners: partners.size, fresh, lost };
  });
  const stateOf = (partner: number): Link[] => {
    let known = false;
    return history.map((partners, t) => {
      if (partners.has(partner)) {
        const state = known ? "again" : "new";
        known = true;
        return state;
      }
      return t && history[t - 1].has(partner) ? "lost" : null;
    });
  };
  const fromStart = model.facts.first_step === 0;
  const words = { new: fromStart ? "first link" : "first link shown", again: "linked before", lost: "no longer linked" };
  const ways = ["", "sent", "received", "sent and received"];
  const rows: (string | number | null)[][] = counts.map(({ partners, fresh, lost }, t) => [labels[t], partners, fresh, lost]);
  return (
    <figure class="chart partners" data-test="partners">
      <figcaption>
        <h3>Partners, window by window</h3>
        <ul class="key">
          {(["new", "again", "lost"] as const).map((state) => (
            <li>
              <svg width="14" height="14" class={`link-${state}`} aria-hidden="true">
                <Glyph state={state} x={7} y={7} r={5} />
              </svg>
              {words[state]}
            </li>
          ))}
        </ul>
      </figcaption>
      <div class="scroll" tabIndex={0}>
        <table class="strip">
          <thead>
            <tr>
              <th scope="col">Partner</th>
              {labels.map((label, t) => (
                <th scope="col" class={t === step.value ? "slot current" : "slot"}>
                  <span>{label}</span>
                </th>
              ))}
            </tr>
          </thead>
          <tbody onPointerLeave={() => (tip.value = null)}>
            {listed.map((partner) => (
              <tr data-partner={model.nodeId[partner]}>
                <th scope="row">
                  <Chooser node={partner} onChoose={choose} />
                </th>
                {stateOf(partner).map((state, t) => (
                  <td
                    class="slot"
                    data-state={state}
                    onPointerMove={(event) => {
                      const way = model.facts.directed ? ways[history[t].get(partner) ?? 0] : "";
                      tip.value = state && {
                        x: event.clientX,
                        y: event.clientY,
                        title: model.facts.labels[partner],
                        lines: [
                          [windowOf(t).label, words[state]],
                          ...(way ? [["", way] as [string, string]] : []),
                        ],
                      };
                    }}
                  >
                    {state && (
                      <svg viewBox="0 0 18 18" class={`link-${state}`} role="img" aria-label={words[state]}>
                        <Glyph state={state} x={9} y={9} r={6} />
                      </svg>
                    )}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
          <tfoot>
            {(
              [
                ["Partners", "partners"],
                ["New", "fresh"],
                ["Lost", "lost"],
              ] as const
            ).map(([name, key]) => (
              <tr>
                <th scope="row">{name}</th>
                {counts.map((entry) => (
                  <td class="slot" data-value={entry[key]}>
                    {entry[key] || "·"}
                  </td>
                ))}
              </tr>
            ))}
          </tfoot>
        </table>
      </div>
      {ordered.length > LISTED && (
        <p class="buttons">
          <button type="button" onClick={() => (all.value = !all.value)}>
            {all.value ? "Show fewer" : `Show ${ordered.length > 300 ? "300 of " : "all "}${count(ordered.length)} partners`}
          </button>
        </p>
      )}
      <Numbers table={{ head: ["Window", "Partners", "New", "Lost"], rows, format: count }} />
    </figure>
  );
}

function Glyph({ state, x, y, r }: { state: "new" | "again" | "lost"; x: number; y: number; r: number }) {
  if (state === "lost") return <path d={`M${x - 2.5},${y - 2.5}l5,5m0,-5l-5,5`} />;
  return (
    <>
      <rect x={x - r} y={y - r} width={2 * r} height={2 * r} rx="2" />
      {state === "new" && <path d={`M${x - 3},${y}h6M${x},${y - 3}v6`} />}
    </>
  );
}

function Next({ chosen }: { chosen: number }) {
  const open = useSignal<number | null>(null);
  const rows = rowsOf(chosen).slice(0, EXPECTED);
  const { rowPair, rowScore, rowKnown, rowRank, facts } = model;
  return (
    <div>
      <h2>Likely next contacts, {facts.next.label}</h2>
      {!rows.length && <p class="quiet">No forecast on this page contains this node.</p>}
      <ol class="contacts" data-test="contacts">
        {rows.map((row) => {
          const sends = rowPair[2 * row] === chosen;
          const other = rowPair[2 * row + (sends ? 1 : 0)];
          const isOpen = open.value === row;
          return (
            <li>
              <div class="contact">
                <button
                  type="button"
                  class="small"
                  data-test="contact-why"
                  aria-expanded={isOpen}
                  aria-label="Why"
                  onClick={() => (open.value = isOpen ? null : row)}
                >
                  {isOpen ? "▾" : "▸"}
                </button>
                {facts.directed && (
                  <span class="quiet" title={sends ? "this node sends" : "this node receives"}>
                    {sends ? "to" : "from"}
                  </span>
                )}
                <Chooser node={other} onChoose={choose} />
                <span class={rowKnown[row] ? "tag" : "tag new"}>{rowKnown[row] ? "known" : "new"}</span>
                <span class="number" data-value={shortest(rowScore[row])} title={rowRank[row] ? `Rank ${count(rowRank[row])} of all pairs` : undefined}>
                  {score(rowScore[row])}
                </span>
              </div>
              {isOpen && <Why row={row} />}
            </li>
          );
        })}
      </ol>
    </div>
  );
}

function Nearest({ chosen }: { chosen: number }) {
  const { nearest, similarity, n } = model;
  if (!nearest || !similarity) {
    return <Lacking about={/nearest|similar|embedding/i}>Similar nodes are not on this page.</Lacking>;
  }
  const width = nearest.length / n;
  const rows: [number, number][] = [];
  for (let j = chosen * width; j < (chosen + 1) * width; j++) {
    if (nearest[j] !== NONE) rows.push([nearest[j], similarity[j]]);
  }
  return (
    <div>
      <h2>Nearest nodes</h2>
      <p class="quiet">By cosine similarity of the embeddings in the last window.</p>
      <ol class="contacts" data-test="nearest">
        {rows.map(([other, value]) => (
          <li>
            <div class="contact">
              <Chooser node={other} onChoose={choose} />
              <span class="meter" aria-hidden="true">
                <span style={{ width: `${Math.max(0, value) * 100}%` }} />
              </span>
              <span class="number" data-value={shortest(value)}>
                {figure(value)}
              </span>
            </div>
          </li>
        ))}
      </ol>
      {!rows.length && <p class="quiet">None.</p>}
    </div>
  );
}

