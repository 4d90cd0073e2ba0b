/** CSV that every reader splits alike, and that spreadsheets do not execute: the rules of `dysat.system.text.csv_text`. */

const NEEDS_QUOTES = /[,"\x00-\x1f\x7f\x85\u2028\u2029]|^[ \ufeff]|[ ]$|^$/;
const FORMULA = /^'*[=+\-@\t\r\n＝＋－＠]/;

export type Cell = string | number | null;

export function csvText(header: string[], lines: Cell[][]): string {
  return [header, ...lines].map((line) => `${line.map(csvField).join(",")}\n`).join("");
}

/** Return a value as a field; a text that a spreadsheet would execute gets an apostrophe in front. */
export function csvField(value: Cell): string {
  if (value === null) return "";
  if (typeof value === "number") return Number.isNaN(value) ? "" : shortest(value);
  const text = FORMULA.test(value) ? `'${value}` : value;
  return NEEDS_QUOTES.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return the shortest text that reads back as the same number: a float if it is one, otherwise a double. */
export function shortest(value: number): string {
  if (Number.isInteger(value) || Math.fround(value) !== value) return String(value);
  for (let digits = 1; digits <= 9; digits++) {
    const text = value.toPrecision(digits);
    if (Math.fround(Number(text)) === value) return String(Number(text));
  }
  return String(value);
}

/** Offer a table as a file. */
export function download(name: string, header: string[], lines: Cell[][]): void {
  const url = URL.createObjectURL(new Blob([csvText(header, lines)], { type: "text/csv;charset=utf-8" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
