/** What a page contains: facts as JSON, and arrays. `dysat.report.pack` writes it; `read` reads it. */

/** A snapshot of the graph. */
export interface Window {
  label: string; // short, for axes: "2004-04-15"
  start: string; // "2004-04-15" or a step
  end: string;
  known: number; // nodes seen up to the end of the window
  active: number; // nodes with a link in it
  links: number; // the sum of the next three
  recurring: number; // linked in an earlier window too
  between_known: number; // new links between nodes that were known before
  with_new: number; // links with a node that was not known before
}

export type Measure = "auc" | "mrr" | "hits_at_10" | "new_mrr";
export type Measured = Record<Measure, number | null>; // between 0 and 1; runs of earlier versions lack some

/** Figures of one window that was predicted by a model that had not seen it. */
export interface Tested extends Measured {
  step: number; // of the window that was predicted: an index into `windows`
  links: number;
  average_precision: number | null;
  candidates: number | null; // other nodes that each link was ranked among
  ranked: number | null; // links
  ranked_new: number | null; // of these, links of pairs that were never linked before
  heuristics: ({ name: string } & Measured)[];
}

export interface Bin {
  from: number;
  to: number;
  pairs: number;
  mean_score: number | null;
  linked: number | null; // the fraction of its pairs that were linked
}

/** The fraction of the k likeliest pairs that came true: of all pairs, and of pairs never linked before. */
export interface Precision {
  k: string;
  all: number | null; // the mean
  new: number | null;
  windows: { all?: number[]; new?: number[] }; // in each window
}

export interface Backtest {
  windows: Tested[]; // oldest first
  best: Record<Measure, string | null>; // the heuristic to compare with
  mean: Measured;
  precision: Precision[];
  reliability: { name: "all" | "new" | "known"; bins: Bin[] }[]; // may be empty
}

export interface Attribute {
  name: string;
  categories: string[] | null; // null: a number
}

export interface Facts {
  format: 1;
  title: string; // name of the run folder
  made_by: string; // "dysat 0.3.0"
  method: string;
  verdict: string; // one or two sentences
  learned_from: [string, string][]; // rows of a table: what, how much
  notes: string[];
  missing: string[]; // what the page does not show, and why
  directed: boolean;
  windows: Window[];
  next: { label: string; start: string; end: string }; // the window that is forecast
  first_step: number; // the arrays per step begin at this window and end at the last: s steps
  num_nodes: number; // of the graph
  kinds: string[] | null;
  attributes: Attribute[];
  labels: string[]; // of the n nodes of the page, safe to show; may be very long
  raw_labels: Record<string, string>; // by index, of those whose real label is another text
  communities: number; // how many; 0 if there are none
  backtest: Backtest | null;
  score_note: string; // what a score means
  phrases: string[]; // reasons in words, used by row_phrase
  mean_attention: (number | null)[][] | null; // [s][s]: row attends to column; null where there is nothing
  arrays: Record<string, { type: ArrayType; shape: number[]; at: number }>;
}

export type ArrayType = "u8" | "u16" | "u32" | "i16" | "f32" | "f64";
export const NONE = 0xffffffff; // no node, no phrase
export const UNKNOWN = -32768; // position of a node that was not known yet

/**
 * Arrays; n nodes, s steps, r forecasts. Those marked ? may be missing. Nodes are indices 0 … n − 1 of the page.
 *
 *   node_id          u32 [n]        number of the node in the graph; stable when snapshots are added, so links name it
 *   first_seen       u16 [n]        the window in which it was first seen
 *   degree           u32 [s, n]     links in each window
 *   node_kind?       u8  [n]        index into kinds
 *   attribute_0? …   f32 [n]        a number, or an index into categories; NaN: not known
 *   community?       u8  [n]        0 … communities − 1, largest first
 *   position?        i16 [s, n, 2]  x and y of the map, −32767 … 32767; UNKNOWN before a node is known
 *   nearest?         u32 [n, 8]     nearest nodes by cosine similarity of embeddings at the last step; NONE
 *   similarity?      f32 [n, 8]     of these
 *   attention_node?  u32 [m]        nodes whose temporal attention is there, ascending
 *   attention?       u8  [m, p]     weight · 255 of step j at step i ≥ j, for (i, j) = (0,0) (1,0) (1,1) (2,0) …
 *   link_start       u32 [s + 1]    links of step i are link_start[i] … link_start[i + 1] − 1 of the next two
 *   link_u, link_v   u32 [l]        links between nodes of the page; u sends in a directed graph
 *   row_pair         u32 [r, 2]     forecasts: first the likeliest of all pairs, in order, then those of single nodes
 *   row_rank         u32 [r]        rank from 1 among all pairs; 0: only in the list of a node
 *   row_score        f64 [r]        many are close to 1
 *   row_known        u8  [r]        1: linked before
 *   row_phrase       u32 [r, 5]     reasons, most important first: indices into phrases; NONE
 *   row_share        f32 [r, 5]     part of each in the sum of all absolute effects on the score; negative: it lowers it
 */
export interface Content {
  facts: Facts;
  array(name: string): Uint8Array | Uint16Array | Uint32Array | Int16Array | Float32Array | Float64Array | null;
}
