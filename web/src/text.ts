/** Numbers, labels and measures as text. */

import type { Measure } from "./format";

const COUNT = new Intl.NumberFormat("en-GB");

export function count(value: number): string {
  return COUNT.format(value);
}

/** Return a number of any size; a year gets no comma. */
export function number(value: number, digits = 6): string {
  const isLong = Math.abs(value) >= 10_000;
  return value.toLocaleString("en-GB", { maximumSignificantDigits: digits, useGrouping: isLong });
}

export function counted(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}

/** Return a figure between 0 and 1 with three decimals. */
export function figure(value: number | null): string {
  return value === null ? "–" : value.toFixed(3);
}

/** Return a score with three decimals, or more if it would read 0.000 or 1.000. */
export function score(value: number): string {
  for (let digits = 4; value < 1 && Number(value.toFixed(digits - 1)) === 1; digits++) {
    if (digits === 9 || Number(value.toFixed(digits)) < 1) return value.toFixed(digits);
  }
  const size = Math.abs(value);
  return size === 0 ? "0" : size >= 0.0995 ? value.toFixed(3) : size < 1e-4 ? value.toExponential(1) : value.toPrecision(2);
}

export function percent(value: number | null, digits = 0): string {
  return value === null ? "–" : `${(100 * value).toFixed(digits)} %`;
}

/** Return a share with its sign: "+31 %", "−4 %". */
export function signed(value: number): string {
  return `${value < 0 ? "−" : "+"}${Math.abs(100 * value).toFixed(0)} %`;
}

/** Return the beginning of a text, with an ellipsis if something is cut off. */
export function cut(text: string, length: number): string {
  if (text.length <= length) return text;
  const characters = Array.from(text.slice(0, 2 * length));
  return characters.length <= length && text.length <= 2 * length ? text : `${characters.slice(0, length).join("")}…`;
}

/** Return a name that every file system takes. */
export function fileName(...parts: string[]): string {
  const safe = parts.map((part) => cut(part.replace(/[^\p{L}\p{N}._-]+/gu, "-"), 60).replace(/…$/, ""));
  return safe.map((part) => part.replace(/^[.-]+|[.-]+$/g, "")).filter(Boolean).join("-");
}

export const MEASURES: Record<Measure, string> = {
  auc: "AUC",
  mrr: "MRR",
  hits_at_10: "Hits@10",
  new_mrr: "MRR of new links",
};

/** Return what a measure says; `others` has the number of nodes that each link was ranked among, for each window. */
export function explained(measure: Measure, others: number[]): string {
  const [low, high] = [Math.min(...others), Math.max(...others)];
  const number = others.length === 0 ? "" : low === high ? `${low} ` : `${low} to ${high} `;
  const among = `${number}other nodes`;
  const guessing = low === high ? `; ${(10 / (low + 1)).toFixed(2)} is guessing` : "";
  return {
    auc: "Probability that a link scores higher than a pair without a link; 0.5 is guessing.",
    mrr: `Mean of 1/rank of the true partner among ${among}; 1 is always first.`,
    hits_at_10: `Fraction of true partners in the top 10 among ${among}${guessing}.`,
    new_mrr: "MRR of pairs never linked before, which repeating past links cannot find.",
  }[measure];
}
