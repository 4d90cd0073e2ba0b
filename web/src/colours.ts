/** Colours that most people can tell apart, and what they can stand for on the map. */

import { interpolateCividis } from "d3-scale-chromatic";
import { attributeText, model, stepLabels, windowLabels } from "./model";
import { count, number } from "./text";

export type Colour = [number, number, number];

// Okabe and Ito, without black; the yellow comes last because it is weak on white.
const CATEGORIES: Colour[] = [
  [0, 114, 178],
  [230, 159, 0],
  [0, 158, 115],
  [204, 121, 167],
  [86, 180, 233],
  [213, 94, 0],
  [240, 228, 66],
];
// The blue is lighter on black, and the yellow darker on white.
const CATEGORIES_DARK: Colour[] = CATEGORIES.map((colour, i) => (i === 0 ? [60, 148, 214] : colour));
const CATEGORIES_LIGHT: Colour[] = CATEGORIES.map((colour, i) => (i === 6 ? [221, 205, 20] : colour));
const OTHER: Colour = [138, 143, 152];
export const OTHERS = CATEGORIES.length; // the slot of all further categories
export const UNSET = OTHERS + 1; // the slot of nodes without a value

export const SHAPES = ["circle", "square", "diamond", "triangle", "plus", "ring", "down", "dot", "dot"] as const;

export function slotColour(slot: number, dark: boolean): Colour {
  return slot < OTHERS ? (dark ? CATEGORIES_DARK : CATEGORIES_LIGHT)[slot] : OTHER;
}

export function css([r, g, b]: Colour): string {
  return `rgb(${r}, ${g}, ${b})`;
}

const PALE = 236;
const ramps: Record<string, Colour[]> = {};

/** Return the colour of a number between 0 and 1: the more, the further from the background. */
export function rampColour(part: number, dark: boolean): Colour {
  const ramp = (ramps[String(dark)] ??= Array.from({ length: 256 }, (_, i) => {
    const part = i / 255;
    const colour = interpolateCividis(dark ? 0.16 + 0.84 * part : 0.72 * (1 - part)).match(/\d+/g)!.map(Number);
    const pale = dark ? 0 : 0.8 * (1 - part) ** 2; // a bright yellow is lost on white
    return colour.map((value) => Math.round(value + pale * (PALE - value))) as Colour;
  }));
  return ramp[Math.max(0, Math.min(255, Math.round(part * 255)))];
}

/** Return black or white, whichever has the higher contrast with a colour. */
export function inkOn(colour: Colour): string {
  const [r, g, b] = colour.map((value) => (value / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#000000" : "#ffffff";
}

export interface Entry {
  slot: number;
  name: string;
}

export type Colouring = { id: string; name: string } & (
  | { type: "category"; slots: Uint8Array; entries: Entry[] }
  | { type: "number"; perStep: boolean; part: (node: number, step: number) => number; ends: [string, string]; note: string }
);

let known: Colouring[] | null = null;

/** Return all that colour can stand for on the map. */
export function colourings(): Colouring[] {
  if (known) return known;
  const { facts, n } = model;
  known = [];
  if (model.kind && facts.kinds) known.push(byCategory("kind", "Kind", model.kind, facts.kinds));
  if (model.community) {
    const names = Array.from({ length: facts.communities }, (_, c) => `Community ${c + 1}`);
    known.push(byCategory("community", "Community", model.community, names));
  }
  facts.attributes.forEach(({ name, categories }, a) => {
    const values = model.attributes[a];
    if (!values) return;
    known!.push(categories ? byCategory(`attribute-${a}`, name, values, categories) : byNumber(a, name, values));
  });
  const most = model.degree.reduce((max, value) => Math.max(max, value), 1);
  known.push({
    id: "activity",
    name: "Activity",
    type: "number",
    perStep: true,
    part: (node, step) => Math.log1p(model.degree[step * n + node]) / Math.log1p(most),
    ends: ["0", `${count(most)} links`],
    note: `Links in the window, on a logarithmic scale`,
  });
  const last = facts.windows.length - 1;
  known.push({
    id: "age",
    name: "First seen",
    type: "number",
    perStep: false,
    part: (node) => model.firstSeen[node] / Math.max(1, last),
    ends: [windowLabels()[0], stepLabels()[model.s - 1]],
    note: "Window in which a node was first seen",
  });
  return known;
}

function byCategory(id: string, name: string, values: ArrayLike<number>, names: string[]): Colouring {
  const sizes = new Array<number>(names.length).fill(0);
  let unset = 0;
  for (let i = 0; i < model.n; i++) {
    if (values[i] < names.length) sizes[values[i]]++;
    else unset++;
  }
  const order = names.map((_, c) => c).sort((a, b) => sizes[b] - sizes[a] || a - b);
  const slotOf = new Uint8Array(names.length).fill(OTHERS);
  order.slice(0, OTHERS).forEach((c, slot) => (slotOf[c] = slot));
  if (order.length === OTHERS + 1) slotOf[order[OTHERS]] = OTHERS; // alone, it keeps its name
  const slots = Uint8Array.from({ length: model.n }, (_, i) => (values[i] < names.length ? slotOf[values[i]] : UNSET));
  const entries = order.slice(0, OTHERS).map((c, slot) => ({ slot, name: names[c] }));
  if (order.length === OTHERS + 1) entries.push({ slot: OTHERS, name: names[order[OTHERS]] });
  else if (order.length > OTHERS) entries.push({ slot: OTHERS, name: `${order.length - OTHERS} others` });
  if (unset) entries.push({ slot: UNSET, name: "Not known" });
  return { id, name, type: "category", slots, entries };
}

function byNumber(attribute: number, name: string, values: Float32Array): Colouring {
  const sorted = values.filter((value) => Number.isFinite(value)).sort();
  const low = sorted.length ? sorted[Math.floor(0.02 * (sorted.length - 1))] : 0;
  const high = sorted.length ? sorted[Math.ceil(0.98 * (sorted.length - 1))] : 1;
  const text = (value: number) => number(value, 5);
  return {
    id: `attribute-${attribute}`,
    name,
    type: "number",
    perStep: false,
    part: (node) => (values[node] - low) / (high - low || 1),
    ends: [text(low), text(high)],
    note: "The lowest and the highest 2 % share the colours at the ends; grey: not known",
  };
}

/** Return what a colouring says about a node, in words. */
export function described(colouring: Colouring, node: number, step: number): string | null {
  if (colouring.id === "activity") return `${count(model.degree[step * model.n + node])} links in this window`;
  if (colouring.id === "age") return `first seen ${windowLabels()[model.firstSeen[node]] ?? "–"}`;
  if (colouring.id === "kind") return model.facts.kinds?.[model.kind![node]] ?? null;
  if (colouring.id === "community") return `community ${model.community![node] + 1}`;
  return attributeText(Number(colouring.id.slice("attribute-".length)), node);
}
