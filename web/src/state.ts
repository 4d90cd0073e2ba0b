/** What the user looks at. The fragment of the address keeps it, so that a link or a bookmark restores it. */

import { batch, computed, effect, signal, type Signal } from "@preact/signals";
import { colourings } from "./colours";
import { model } from "./model";

export const VIEWS = ["overview", "forecast", "map", "node", "attention"] as const;
export type View = (typeof VIEWS)[number];
export const PAIRS = ["all", "new", "known"] as const;
export const COLUMNS = ["rank", "u", "v", "score", "known"] as const;
export type Column = (typeof COLUMNS)[number];
const MOST_FOLLOWED = 8;

export const view = signal<View>("overview");
export const node = signal<number | null>(null);
export const followed = signal<number[]>([]); // nodes whose trajectories stay on the map
export const step = signal(0);
export const colour = signal("");
export const only = signal<number | null>(null); // the entry of the legend that stands out

export const query = signal("");
export const kind = signal<number | null>(null);
export const category = signal<[number, number] | null>(null); // attribute, category
export const pairs = signal<(typeof PAIRS)[number]>("all");
export const least = signal<number | null>(null); // score
export const mine = signal(false); // only pairs with the chosen node
export const sort = signal<{ column: Column; down: boolean }>({ column: "rank", down: false });

interface Field {
  initial: () => void;
  read: (text: string) => void; // leaves the value as it is if the text is not valid
  write: () => string | null; // null: as at the start
}

function field<T>(
  target: Signal<T>,
  initial: () => T,
  parse: (text: string) => T | undefined,
  format: (value: T) => string | null,
): Field {
  return {
    initial: () => (target.value = initial()),
    read: (text) => {
      const value = parse(text);
      if (value !== undefined) target.value = value;
    },
    write: () => format(target.value),
  };
}

function whole(text: string, end: number): number | undefined {
  const value = /^\d{1,10}$/.test(text) ? Number(text) : NaN;
  return value < end ? value : undefined;
}

const nodeNamed = (text: string): number | undefined => {
  const id = whole(text, 2 ** 32);
  return id === undefined ? undefined : model.indexOf.get(id);
};

const FIELDS: Record<string, Field> = {
  view: field<View>(
    view,
    () => "overview",
    (text) => VIEWS.find((name) => name === text),
    (value) => (value === "overview" ? null : value),
  ),
  node: field(
    node,
    () => null,
    nodeNamed,
    (value) => (value === null ? null : String(model.nodeId[value])),
  ),
  follow: field(
    followed,
    () => [],
    (text) => {
      const nodes = text.split(",").map(nodeNamed);
      const known = nodes.filter((value) => value !== undefined);
      return known.length === nodes.length ? [...new Set(known)].slice(0, MOST_FOLLOWED) : undefined;
    },
    (value) => (value.length ? value.map((i) => model.nodeId[i]).join(",") : null),
  ),
  step: field(
    step,
    () => model.s - 1,
    (text) => {
      const window = whole(text, model.facts.windows.length);
      return window === undefined || window < model.facts.first_step ? undefined : window - model.facts.first_step;
    },
    (value) => (value === model.s - 1 ? null : String(value + model.facts.first_step)),
  ),
  colour: field(
    colour,
    () => colourings()[0].id,
    (text) => colourings().find(({ id }) => id === text)?.id,
    (value) => (value === colourings()[0].id ? null : value),
  ),
  only: field<number | null>(
    only,
    () => null,
    (text) => whole(text, 16),
    (value) => (value === null ? null : String(value)),
  ),
  search: field(
    query,
    () => "",
    (text) => text.slice(0, 200),
    (value) => value || null,
  ),
  kind: field<number | null>(
    kind,
    () => null,
    (text) => whole(text, model.facts.kinds?.length ?? 0),
    (value) => (value === null ? null : String(value)),
  ),
  category: field<[number, number] | null>(
    category,
    () => null,
    (text) => {
      const [first, second, ...rest] = text.split(".");
      const attribute = whole(first, model.facts.attributes.length);
      if (attribute === undefined || second === undefined || rest.length) return undefined;
      const value = whole(second, model.facts.attributes[attribute].categories?.length ?? 0);
      return value === undefined ? undefined : [attribute, value];
    },
    (value) => value && value.join("."),
  ),
  pairs: field<(typeof PAIRS)[number]>(
    pairs,
    () => "all",
    (text) => PAIRS.find((name) => name === text),
    (value) => (value === "all" ? null : value),
  ),
  least: field<number | null>(
    least,
    () => null,
    (text) => (text.trim() && Number.isFinite(Number(text)) ? Number(text) : undefined),
    (value) => (value === null ? null : String(value)),
  ),
  mine: field(
    mine,
    () => false,
    (text) => (text === "1" ? true : undefined),
    (value) => (value ? "1" : null),
  ),
  sort: field(
    sort,
    () => ({ column: "rank", down: false }),
    (text) => {
      const down = text.startsWith("-");
      const column = COLUMNS.find((name) => name === text.slice(down ? 1 : 0));
      return column && { column, down };
    },
    ({ column, down }) => (column === "rank" && !down ? null : `${down ? "-" : ""}${column}`),
  ),
};

function fragment(): string {
  const parts = Object.entries(FIELDS).flatMap(([name, { write }]) => {
    const text = write();
    return text === null ? [] : [`${name}=${encodeURIComponent(text)}`];
  });
  return parts.length ? `#${parts.join("&")}` : "";
}

function apply(hash: string): void {
  let given: URLSearchParams;
  try {
    given = new URLSearchParams(hash.replace(/^#/, ""));
  } catch {
    return;
  }
  batch(() => {
    for (const [name, { initial, read }] of Object.entries(FIELDS)) {
      initial();
      const text = given.get(name);
      if (text !== null) read(text);
    }
  });
}

const WAIT = 300; // milliseconds; browsers limit how often a page may change its address

/** Read the state from the address, and keep both the same from then on. */
export function keepInAddress(): void {
  apply(location.hash);
  let place = `${view.value} ${node.value}`;
  let written = fragment();
  let timer = 0;
  let isRestoring = false;
  const write = (change: "pushState" | "replaceState") => {
    clearTimeout(timer);
    const hash = fragment();
    if (hash === written) return;
    written = hash;
    try {
      history[change](null, "", hash || location.pathname + location.search);
    } catch {
      // Some browsers allow no changes to the address of a local file. The page works without.
    }
  };
  const restore = () => {
    if (location.hash === written) return;
    isRestoring = true;
    apply(location.hash);
    isRestoring = false;
    place = `${view.value} ${node.value}`;
    written = fragment();
  };
  addEventListener("popstate", restore);
  addEventListener("hashchange", restore);
  effect(() => {
    fragment(); // reads all signals
    const now = `${view.value} ${node.value}`;
    clearTimeout(timer);
    if (isRestoring) return;
    if (now !== place) {
      place = now;
      write("pushState"); // the back button returns to the view and node before
    } else {
      timer = window.setTimeout(write, WAIT, "replaceState");
    }
  });
}

/** Choose a node in all views. */
export function choose(chosen: number | null): void {
  node.value = chosen;
  if (chosen === null) mine.value = false;
}

/** Choose a node and show it. */
export function show(chosen: number, where: View = "node"): void {
  batch(() => {
    choose(chosen);
    view.value = where;
  });
}

export function follow(target: number): void {
  const others = followed.value.filter((i) => i !== target);
  followed.value = others.length < followed.value.length ? others : [...others, target].slice(-MOST_FOLLOWED);
}

type Theme = "light" | "dark" | null; // null: as the system
const THEME = "dysat-theme";
const system = signal(false);
export const theme = signal<Theme>(null);
export const dark = computed(() => (theme.value ? theme.value === "dark" : system.value));

export function keepTheme(): void {
  const media = matchMedia("(prefers-color-scheme: dark)");
  system.value = media.matches;
  media.addEventListener("change", () => (system.value = media.matches));
  try {
    const stored = localStorage.getItem(THEME);
    if (stored === "light" || stored === "dark") theme.value = stored;
  } catch {
    // Storage may be forbidden for local files.
  }
  effect(() => {
    document.documentElement.dataset.theme = dark.value ? "dark" : "light";
  });
}

export function switchTheme(): void {
  theme.value = dark.value ? "light" : "dark";
  try {
    localStorage.setItem(THEME, theme.value);
  } catch {
    // The choice then holds until the page is closed.
  }
}

/** Return the state as plain values, for tests. */
export function snapshot() {
  return {
    view: view.value,
    node: node.value,
    followed: followed.value,
    step: step.value,
    colour: colour.value,
    only: only.value,
    query: query.value,
    kind: kind.value,
    category: category.value,
    pairs: pairs.value,
    least: least.value,
    mine: mine.value,
    sort: sort.value,
    dark: dark.value,
  };
}
