/** The pairs that are likeliest to be linked in the next window. */

import { computed, useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { download, shortest, type Cell } from "../csv";
import { kindName, model, rawLabel, reasonsOf } from "../model";
import { Chooser, Label, Lacking, Why } from "../parts";
import { category, choose, kind, least, mine, node, pairs, query, sort, type Column } from "../state";
import { count, counted, cut, fileName, score } from "../text";

const PAGE = 100; // rows
const PRINTED = 50;

/** Return the two columns of labels by name. */
function ends(): [string, string] {
  return model.facts.directed ? ["From", "To"] : ["Node", "Partner"];
}

const ranked = computed(() => {
  const rows: number[] = [];
  for (let row = 0; row < model.r; row++) if (model.rowRank[row] > 0) rows.push(row);
  return rows;
});

const filtered = computed(() => {
  const { rowPair, rowKnown, rowScore, lower } = model;
  const wanted = query.value.trim().toLowerCase();
  const either = (row: number, test: (node: number) => boolean) => test(rowPair[2 * row]) || test(rowPair[2 * row + 1]);
  const [chosen, ofKind, inCategory, low] = [node.value, kind.value, category.value, least.value];
  return ranked.value.filter(
    (row) =>
      (low === null || rowScore[row] >= low) &&
      (pairs.value === "all" || (rowKnown[row] === 1) === (pairs.value === "known")) &&
      (ofKind === null || either(row, (i) => model.kind?.[i] === ofKind)) &&
      (inCategory === null || either(row, (i) => model.attributes[inCategory[0]]?.[i] === inCategory[1])) &&
      (!mine.value || chosen === null || either(row, (i) => i === chosen)) &&
      (!wanted || either(row, (i) => lower[i].includes(wanted))),
  );
});

const sorted = computed(() => {
  const { column, down } = sort.value;
  const { rowPair, rowRank, rowScore, rowKnown, facts } = model;
  const compare: Record<Column, (a: number, b: number) => number> = {
    rank: (a, b) => rowRank[a] - rowRank[b],
    u: (a, b) => compareTexts(facts.labels[rowPair[2 * a]], facts.labels[rowPair[2 * b]]),
    v: (a, b) => compareTexts(facts.labels[rowPair[2 * a + 1]], facts.labels[rowPair[2 * b + 1]]),
    score: (a, b) => rowScore[a] - rowScore[b],
    known: (a, b) => rowKnown[a] - rowKnown[b],
  };
  const sign = down ? -1 : 1;
  return [...filtered.value].sort((a, b) => sign * compare[column](a, b) || rowRank[a] - rowRank[b]);
});

const collator = new Intl.Collator("en", { numeric: true });

function compareTexts(a: string, b: string): number {
  return collator.compare(a.slice(0, 200), b.slice(0, 200));
}

function exportRows(): void {
  const { facts, rowPair, rowRank, rowScore, rowKnown } = model;
  const [from, to] = facts.directed ? ["source", "target"] : ["node", "partner"];
  const header = ["rank", from, to];
  if (model.kind) header.push(`${from}_kind`, `${to}_kind`);
  header.push("score", "linked_before");
  for (let i = 1; i <= 5; i++) header.push(`reason_${i}`, `share_${i}`);
  const lines = sorted.value.map((row) => {
    const [u, v] = [rowPair[2 * row], rowPair[2 * row + 1]];
    const line: Cell[] = [rowRank[row], rawLabel(u), rawLabel(v)];
    if (model.kind) line.push(kindName(u), kindName(v));
    line.push(rowScore[row], rowKnown[row] ? "yes" : "no");
    const reasons = reasonsOf(row);
    for (let i = 0; i < 5; i++) line.push(reasons[i]?.phrase ?? null, reasons[i]?.share ?? null);
    return line;
  });
  download(`${fileName(facts.title, "forecast")}.csv`, header, lines);
}

export function Forecast() {
  const page = useSignal(0);
  const open = useSignal<number | null>(null);
  const { facts } = model;
  const rows = sorted.value;
  const pages = Math.max(1, Math.ceil(rows.length / PAGE));
  const at = Math.min(page.value, pages - 1);
  useEffect(() => {
    page.value = 0;
  }, [rows]);
  if (!ranked.value.length) return <Lacking about={/forecast/i}>This run has no forecasts of pairs.</Lacking>;
  return (
    <>
      <header class="view-head">
        <h2>
          Likeliest links, {facts.next.label}
        </h2>
        <p class="quiet">{facts.score_note}</p>
      </header>
      <Filters />
      <div class="bar-line">
        <p aria-live="polite" data-test="shown">
          {rows.length === ranked.value.length
            ? counted(rows.length, "pair")
            : `${count(rows.length)} of ${counted(ranked.value.length, "pair")}`}
        </p>
        <Pager name="Pages of the table" at={at} pages={pages} go={(to) => (page.value = to)} />
        <button type="button" data-test="export" onClick={exportRows} disabled={!rows.length}>
          Export as CSV
        </button>
      </div>
      <div class="scroll table-box">
        <table class="forecast" data-test="forecast">
          <Head />
          <tbody onKeyDown={moveFocus}>
            {rows.slice(at * PAGE, (at + 1) * PAGE).map((row) => (
              <Row key={row} row={row} open={open.value === row} toggle={() => (open.value = open.value === row ? null : row)} />
            ))}
          </tbody>
        </table>
        {!rows.length && <p class="lacking">No pair passes all filters.</p>}
      </div>
      {pages > 1 && (
        <div class="bar-line">
          <Pager name="Pages, below the table" at={at} pages={pages} go={(to) => (page.value = to)} />
        </div>
      )}
    </>
  );
}

/** Move between rows with the arrow keys. */
function moveFocus(event: KeyboardEvent): void {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const rows = [...(event.currentTarget as Element).querySelectorAll<HTMLElement>("tr[data-rank]")];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at + (event.key === "ArrowDown" ? 1 : -1)];
  if (at < 0 || !next) return;
  event.preventDefault();
  next.focus();
}

function Head() {
  const [from, to] = ends();
  const column = (name: Column, title: string, numeric = false) => {
    const active = sort.value.column === name;
    const first = name === "score" || name === "known"; // high scores and known pairs come first
    return (
      <th
        scope="col"
        class={numeric ? "number" : undefined}
        aria-sort={active ? (sort.value.down ? "descending" : "ascending") : "none"}
      >
        <button
          type="button"
          class="sort"
          data-test={`sort-${name}`}
          onClick={() => (sort.value = { column: name, down: active ? !sort.value.down : first })}
        >
          {title}
          <span aria-hidden="true">{active ? (sort.value.down ? "▾" : "▴") : ""}</span>
        </button>
      </th>
    );
  };
  return (
    <thead>
      <tr>
        {column("rank", "Rank", true)}
        {column("u", from)}
        {column("v", to)}
        {column("score", "Score", true)}
        {column("known", "Linked before")}
        <th scope="col">
          <span class="unseen">Why</span>
        </th>
      </tr>
    </thead>
  );
}

function End({ i }: { i: number }) {
  const name = kindName(i);
  return (
    <td class={node.value === i ? "end chosen" : "end"}>
      <Chooser node={i} onChoose={choose} />
      {name && <span class="kind">{cut(name, 40)}</span>}
    </td>
  );
}

function Row({ row, open, toggle }: { row: number; open: boolean; toggle: () => void }) {
  const { rowPair, rowRank, rowScore, rowKnown } = model;
  const known = rowKnown[row] === 1;
  return (
    <>
      <tr
        data-rank={rowRank[row]}
        data-test="row"
        tabIndex={0}
        class={open ? "open" : undefined}
        onClick={toggle}
        onKeyDown={(event) => {
          if (event.target === event.currentTarget && (event.key === "Enter" || event.key === " ")) {
            event.preventDefault();
            toggle();
          }
        }}
      >
        <td class="number" data-value={rowRank[row]}>
          {count(rowRank[row])}
        </td>
        <End i={rowPair[2 * row]} />
        <End i={rowPair[2 * row + 1]} />
        <td class="number score" data-value={shortest(rowScore[row])}>
          <Meter value={rowScore[row]} />
          {score(rowScore[row])}
        </td>
        <td>
          <span class={known ? "tag" : "tag new"}>{known ? "known" : "new"}</span>
        </td>
        <td class="number">
          <button type="button" class="small more" data-test="why-toggle" aria-expanded={open} aria-label="Why this score">
            {open ? "▾" : "▸"}
          </button>
        </td>
      </tr>
      {open && (
        <tr class="detail">
          <td colSpan={6}>
            <Why row={row} />
          </td>
        </tr>
      )}
    </>
  );
}

const highest = computed(() => ranked.value.reduce((max, row) => Math.max(max, model.rowScore[row]), 1));

function Meter({ value }: { value: number }) {
  return (
    <span class="meter" aria-hidden="true">
      <span style={{ width: `${Math.max(0, Math.min(1, value / highest.value)) * 100}%` }} />
    </span>
  );
}

function Pager({ at, pages, name, go }: { at: number; pages: number; name: string; go: (page: number) => void }) {
  if (pages < 2) return null;
  return (
    <nav class="pager" aria-label={name}>
      <button type="button" data-test="previous" disabled={at === 0} onClick={() => go(at - 1)} aria-label="Previous page">
        ‹
      </button>
      <span>
        Page {at + 1} of {pages}
      </span>
      <button type="button" data-test="next" disabled={at === pages - 1} onClick={() => go(at + 1)} aria-label="Next page">
        ›
      </button>
    </nav>
  );
}

function Filters() {
  const { facts } = model;
  const withCategories = facts.attributes
    .map(({ name, categories }, a) => ({ name, categories, a }))
    .filter(({ categories, a }) => categories?.length && model.attributes[a]);
  const filtering =
    query.value || kind.value !== null || category.value || pairs.value !== "all" || least.value !== null || mine.value;
  return (
    <form class="filters" onSubmit={(event) => event.preventDefault()}>
      <label>
        <span>Label contains</span>
        <input
          type="search"
          data-test="filter-search"
          value={query.value}
          spellcheck={false}
          autocomplete="off"
          onInput={(event) => (query.value = event.currentTarget.value.slice(0, 200))}
        />
      </label>
      <label>
        <span>Pairs</span>
        <select
          data-test="filter-pairs"
          value={pairs.value}
          onChange={(event) => (pairs.value = event.currentTarget.value as typeof pairs.value)}
        >
          <option value="all">All</option>
          <option value="new">New: never linked before</option>
          <option value="known">Known: linked before</option>
        </select>
      </label>
      {model.kind && facts.kinds && (
        <label>
          <span>Kind of either node</span>
          <select
            data-test="filter-kind"
            value={kind.value ?? ""}
            onChange={(event) => (kind.value = event.currentTarget.value === "" ? null : Number(event.currentTarget.value))}
          >
            <option value="">Any</option>
            {facts.kinds.map((name, k) => (
              <option value={k}>{cut(name, 60)}</option>
            ))}
          </select>
        </label>
      )}
      {withCategories.length > 0 && (
        <label>
          <span>Attribute of either node</span>
          <select
            data-test="filter-category"
            value={category.value?.join(".") ?? ""}
            onChange={(event) => {
              const text = event.currentTarget.value;
              category.value = text ? (text.split(".").map(Number) as [number, number]) : null;
            }}
          >
            <option value="">Any</option>
            {withCategories.map(({ name, categories, a }) => (
              <optgroup label={cut(name, 60)}>
                {categories!.slice(0, 500).map((value, c) => (
                  <option value={`${a}.${c}`}>{cut(value, 60)}</option>
                ))}
              </optgroup>
            ))}
          </select>
        </label>
      )}
      <label>
        <span>Score at least</span>
        <input
          type="number"
          step="any"
          data-test="filter-least"
          value={least.value ?? ""}
          onInput={(event) => {
            const { value } = event.currentTarget;
            least.value = value === "" || !Number.isFinite(Number(value)) ? null : Number(value);
          }}
        />
      </label>
      {node.value !== null && (
        <label class="check">
          <input
            type="checkbox"
            data-test="filter-mine"
            checked={mine.value}
            onChange={(event) => (mine.value = event.currentTarget.checked)}
          />
          <span>
            Only pairs with <Label node={node.value} length={40} />
          </span>
        </label>
      )}
      {filtering && (
        <button
          type="button"
          data-test="filter-clear"
          onClick={() => {
            query.value = "";
            kind.value = null;
            category.value = null;
            pairs.value = "all";
            least.value = null;
            mine.value = false;
          }}
        >
          Clear filters
        </button>
      )}
    </form>
  );
}

/** The top of the list, for paper only. */
export function Printed() {
  const { facts, rowPair, rowRank, rowScore, rowKnown } = model;
  const [from, to] = ends();
  const rows = ranked.value.slice(0, PRINTED);
  if (!rows.length) return null;
  return (
    <div class="paper">
      <h2>Likeliest links, {facts.next.label}</h2>
      <p>{facts.score_note}</p>
      <table>
        <thead>
          <tr>
            {["Rank", from, to, "Score", "Linked before", "Most important reason"].map((name) => (
              <th scope="col">{name}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr>
              <td class="number">{rowRank[row]}</td>
              <td>
                <Label node={rowPair[2 * row]} length={60} />
              </td>
              <td>
                <Label node={rowPair[2 * row + 1]} length={60} />
              </td>
              <td class="number">{score(rowScore[row])}</td>
              <td>{rowKnown[row] ? "known" : "new"}</td>
              <td>{cut(reasonsOf(row)[0]?.phrase ?? "–", 120)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
