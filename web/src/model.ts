/** The content of the page as typed arrays, with the questions that the views ask about it. */

import { NONE, type Content, type Facts } from "./format";
import { number } from "./text";

export interface Model {
  facts: Facts;
  n: number; // nodes
  s: number; // steps
  r: number; // forecasts
  nodeId: Uint32Array;
  firstSeen: Uint16Array;
  degree: Uint32Array;
  kind: Uint8Array | null;
  attributes: (Float32Array | null)[];
  community: Uint8Array | null;
  position: Int16Array | null;
  nearest: Uint32Array | null;
  similarity: Float32Array | null;
  attentionNode: Uint32Array | null;
  attention: Uint8Array | null;
  linkStart: Uint32Array;
  linkU: Uint32Array;
  linkV: Uint32Array;
  rowPair: Uint32Array;
  rowRank: Uint32Array;
  rowScore: Float64Array;
  rowKnown: Uint8Array;
  rowPhrase: Uint32Array;
  rowShare: Float32Array;
  indexOf: Map<number, number>; // from the number of a node to its index
  lower: string[]; // labels in lower case, for searching
  totalDegree: Float64Array;
}

export let model: Model;

export function setModel(content: Content): Model {
  const { facts } = content;
  const n = facts.labels.length;
  const empty = new Uint32Array(0);
  const degree = (content.array("degree") ?? empty) as Uint32Array;
  const rowRank = (content.array("row_rank") ?? empty) as Uint32Array;
  const nodeId = (content.array("node_id") ?? empty) as Uint32Array;
  const s = facts.windows.length - facts.first_step;
  const totalDegree = new Float64Array(n);
  for (let step = 0; step < s; step++) {
    for (let i = 0; i < n; i++) totalDegree[i] += degree[step * n + i];
  }
  const indexOf = new Map<number, number>();
  nodeId.forEach((id, i) => indexOf.set(id, i));
  model = {
    facts,
    n,
    s,
    r: rowRank.length,
    nodeId,
    degree,
    rowRank,
    totalDegree,
    indexOf,
    lower: facts.labels.map((label) => label.toLowerCase()),
    firstSeen: (content.array("first_seen") ?? new Uint16Array(n)) as Uint16Array,
    kind: facts.kinds && (content.array("node_kind") as Uint8Array | null),
    attributes: facts.attributes.map((_, a) => content.array(`attribute_${a}`) as Float32Array | null),
    community: facts.communities > 0 ? (content.array("community") as Uint8Array | null) : null,
    position: content.array("position") as Int16Array | null,
    nearest: content.array("nearest") as Uint32Array | null,
    similarity: content.array("similarity") as Float32Array | null,
    attentionNode: content.array("attention_node") as Uint32Array | null,
    attention: content.array("attention") as Uint8Array | null,
    linkStart: (content.array("link_start") ?? new Uint32Array(s + 1)) as Uint32Array,
    linkU: (content.array("link_u") ?? empty) as Uint32Array,
    linkV: (content.array("link_v") ?? empty) as Uint32Array,
    rowPair: (content.array("row_pair") ?? empty) as Uint32Array,
    rowScore: (content.array("row_score") ?? new Float64Array(0)) as Float64Array,
    rowKnown: (content.array("row_known") ?? new Uint8Array(0)) as Uint8Array,
    rowPhrase: (content.array("row_phrase") ?? empty) as Uint32Array,
    rowShare: (content.array("row_share") ?? new Float32Array(0)) as Float32Array,
  };
  return model;
}

/** Return the label of a node as it is in the user's data. */
export function rawLabel(node: number): string {
  const key = String(node);
  const { labels, raw_labels } = model.facts;
  return Object.hasOwn(raw_labels, key) ? raw_labels[key] : labels[node];
}

export function windowOf(step: number) {
  return model.facts.windows[model.facts.first_step + step];
}

export function windowLabels(): string[] {
  return model.facts.windows.map((window) => window.label);
}

export function stepLabels(): string[] {
  return windowLabels().slice(model.facts.first_step);
}

export function kindName(node: number): string | null {
  return model.kind && model.facts.kinds ? (model.facts.kinds[model.kind[node]] ?? null) : null;
}

/** Return the value of an attribute as text, or null if it is not known. */
export function attributeText(attribute: number, node: number): string | null {
  const value = attributeValue(attribute, node);
  if (value === null) return null;
  return typeof value === "number" ? number(value) : value;
}

export function attributeValue(attribute: number, node: number): string | number | null {
  const values = model.attributes[attribute];
  if (!values || Number.isNaN(values[node])) return null;
  const { categories } = model.facts.attributes[attribute];
  return categories ? (categories[values[node]] ?? null) : values[node];
}

/** Return the links of a node at a step, each partner once: 1 sent, 2 received, 3 both. */
export function partnersAt(node: number, step: number): Map<number, number> {
  const { linkStart, linkU, linkV } = model;
  const partners = new Map<number, number>();
  for (let i = linkStart[step]; i < linkStart[step + 1]; i++) {
    if (linkU[i] === node) partners.set(linkV[i], (partners.get(linkV[i]) ?? 0) | 1);
    if (linkV[i] === node) partners.set(linkU[i], (partners.get(linkU[i]) ?? 0) | 2);
  }
  return partners;
}

export interface Reason {
  phrase: string;
  share: number;
}

export function reasonsOf(row: number): Reason[] {
  const { rowPhrase, rowShare, facts } = model;
  const reasons: Reason[] = [];
  const width = model.r ? rowPhrase.length / model.r : 0;
  for (let j = row * width; j < (row + 1) * width; j++) {
    if (rowPhrase[j] !== NONE && rowPhrase[j] < facts.phrases.length) {
      reasons.push({ phrase: facts.phrases[rowPhrase[j]], share: rowShare[j] });
    }
  }
  return reasons;
}

/** Return the forecasts of a node, likeliest first. */
export function rowsOf(node: number): number[] {
  const { rowPair, rowScore, r } = model;
  const best = new Map<string, number>(); // a pair may be in both lists
  for (let row = 0; row < r; row++) {
    const [u, v] = [rowPair[2 * row], rowPair[2 * row + 1]];
    if ((u === node || v === node) && !best.has(`${u} ${v}`)) best.set(`${u} ${v}`, row);
  }
  return [...best.values()].sort((a, b) => rowScore[b] - rowScore[a]);
}

/** Return the attention of a node over its past steps, row by row, or null. */
export function attentionOf(node: number): (number | null)[][] | null {
  const { attentionNode, attention, s } = model;
  if (!attentionNode || !attention) return null;
  let [low, high] = [0, attentionNode.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (attentionNode[middle] < node) low = middle + 1;
    else high = middle;
  }
  if (attentionNode[low] !== node) return null;
  let at = low * ((s * (s + 1)) / 2);
  return Array.from({ length: s }, (_, i) =>
    Array.from({ length: s }, (_, j) => (j <= i ? attention[at++] / 255 : null)),
  );
}

/** Return up to `limit` nodes whose label contains a text; labels that begin with it come first. */
export function search(text: string, limit: number): number[] {
  const wanted = text.trim().toLowerCase();
  if (!wanted) return [];
  const [first, others]: [number[], number[]] = [[], []];
  for (let i = 0; i < model.n && first.length < limit; i++) {
    const at = model.lower[i].indexOf(wanted);
    if (at === 0) first.push(i);
    else if (at > 0 && others.length < limit) others.push(i);
  }
  const active = (a: number, b: number) => model.totalDegree[b] - model.totalDegree[a];
  const exact = first.filter((i) => model.lower[i] === wanted);
  return [...new Set([...exact, ...first.sort(active), ...others.sort(active)])].slice(0, limit);
}

let ranking: number[] | null = null;

/** Return all nodes, those with most links first. */
export function byActivity(): number[] {
  ranking ??= Array.from({ length: model.n }, (_, i) => i).sort(
    (a, b) => model.totalDegree[b] - model.totalDegree[a] || a - b,
  );
  return ranking;
}
