/** All nodes in two dimensions, over time. */

import { effect, signal, useSignal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";
import { Ramp } from "../charts";
import { colourings, css, described, rampColour, slotColour, UNSET, type Colouring } from "../colours";
import { download, type Cell } from "../csv";
import { UNKNOWN } from "../format";
import { shapePath } from "../map/plain";
import { DIM, type Cloud } from "../map/cloud";
import { Stage } from "../map/stage";
import { attributeValue, kindName, model, partnersAt, rawLabel, rowsOf, stepLabels, windowLabels, windowOf } from "../model";
import { Chooser, Label, Lacking, Search, tip } from "../parts";
import { choose, colour, dark, follow, followed, node, only, show, step } from "../state";
import { count, counted, cut, fileName } from "../text";

const LISTED = 200; // members of a lasso
const EXPECTED = 5; // likely next contacts
const [IDLE, SMALLEST, LARGEST] = [20, 30, 85]; // radii in tenths of a pixel; idle: without links in the window

export const stage = signal<Stage | null>(null);
const members = signal<number[] | null>(null); // of the lasso

let cloud: Cloud | null = null;

function cloudOf(positions: Int16Array): Cloud {
  if (cloud) return cloud;
  const { n, s, degree } = model;
  const most = Math.sqrt(degree.reduce((max, value) => Math.max(max, value), 1));
  const radii = Uint8Array.from(degree, (value) =>
    value ? SMALLEST + ((LARGEST - SMALLEST) * Math.sqrt(value)) / most : IDLE,
  );
  cloud = { n, s, positions, radii };
  return cloud;
}

function coloursOf(colouring: Colouring, night: boolean): Uint8Array {
  const { n, s } = model;
  const grey = slotColour(UNSET, night);
  if (colouring.type === "category") {
    const colours = new Uint8Array(4 * n);
    for (let i = 0; i < n; i++) colours.set(slotColour(colouring.slots[i], night), 4 * i);
    return colours;
  }
  const steps = colouring.perStep ? s : 1;
  const colours = new Uint8Array(4 * n * steps);
  for (let t = 0; t < steps; t++) {
    for (let i = 0; i < n; i++) {
      const part = colouring.part(i, t);
      colours.set(Number.isNaN(part) ? grey : rampColour(part, night), 4 * (t * n + i));
    }
  }
  return colours;
}

/** Return the shape of each node; those that are not meant stand back. */
function marksOf(colouring: Colouring, lasso: number[] | null, slot: number | null): Uint8Array {
  const marks = new Uint8Array(model.n);
  const isCategory = colouring.type === "category";
  if (isCategory) marks.set(colouring.slots);
  for (let i = 0; i < marks.length; i++) {
    if (marks[i] === UNSET) marks[i] = UNSET - 1;
    if (isCategory && slot !== null && colouring.slots[i] !== slot) marks[i] |= DIM;
  }
  if (lasso) {
    const inside = new Uint8Array(model.n);
    for (const i of lasso) inside[i] = 1;
    for (let i = 0; i < marks.length; i++) if (!inside[i]) marks[i] |= DIM;
  }
  return marks;
}

/** Return the likely next contacts of a node; they are shown beside the links of the last window only. */
function expectedOf(chosen: number | null): number[] {
  if (chosen === null || step.value < model.s - 1) return [];
  return rowsOf(chosen)
    .slice(0, EXPECTED)
    .map((row) => model.rowPair[2 * row] + model.rowPair[2 * row + 1] - chosen);
}

function currentColouring(): Colouring {
  const all = colourings();
  return all.find(({ id }) => id === colour.value) ?? all[0];
}

export function MapView() {
  if (!model.position) return <Lacking about={/map|embedding|position/i}>This run has no map of its nodes.</Lacking>;
  return (
    <div class="map-view">
      <h2 class="unseen">Map of the nodes</h2>
      <div class="map-main">
        <Canvas positions={model.position} />
        <Timeline />
      </div>
      <aside class="map-side">
        <Search
          onChoose={(found) => {
            choose(found);
            stage.value?.reveal(found);
          }}
        />
        <Legend />
        <Chosen />
        <Members />
        <p class="quiet keys">
          Drag to move, scroll or pinch to zoom, click to choose a node; Ctrl-click keeps its trajectory. Shift-drag draws
          a lasso. Keys on the map: arrows, + and −, 0, space.
        </p>
      </aside>
    </div>
  );
}

function Canvas({ positions }: { positions: Int16Array }) {
  const layer = useRef<HTMLDivElement>(null);
  const overlay = useRef<HTMLCanvasElement>(null);
  const lassoing = useSignal(false);
  useEffect(() => {
    const made = new Stage(layer.current!, overlay.current!, cloudOf(positions), step.value, {
      labels: model.facts.labels,
      hover: (found, x, y) => {
        const said = found === null ? null : described(currentColouring(), found, step.value);
        tip.value =
          found === null
            ? null
            : {
                x,
                y,
                title: model.facts.labels[found],
                lines: said ? [[currentColouring().name, cut(said, 60)]] : [],
              };
      },
      choose: (found, add) => {
        if (found !== null && add) follow(found);
        else choose(found);
      },
      lasso: (nodes) => {
        members.value = nodes;
        lassoing.value = false;
        made.lassoing = false;
      },
      step: (to) => (step.value = to),
      playing: (on) => (playing.value = on),
    });
    stage.value = made;
    if (node.value !== null) made.reveal(node.value);
    const stop = [
      effect(() => {
        const night = dark.value;
        const style = getComputedStyle(document.documentElement);
        const at = (name: string) => style.getPropertyValue(name).trim();
        const colouring = currentColouring();
        made.setLook({
          colours: coloursOf(colouring, night),
          marks: marksOf(colouring, members.value, only.value),
          outline: night ? [20, 23, 27] : [255, 255, 255],
          ink: at("--ink"),
          accent: at("--strong"),
          halo: at("--field"),
        });
      }),
      effect(() => {
        const chosen = node.value;
        const partners = chosen === null ? [] : [...partnersAt(chosen, step.value).keys()];
        made.setFocus({ chosen, followed: followed.value, partners, expected: expectedOf(chosen) });
      }),
      effect(() => made.goTo(step.value)),
    ];
    return () => {
      stop.forEach((end) => end());
      made.dispose();
      stage.value = null;
      playing.value = false;
      tip.value = null;
    };
  }, []);
  return (
    <div class={lassoing.value ? "stage lassoing" : "stage"} data-test="stage">
      <div class="layer" ref={layer} />
      <canvas
        ref={overlay}
        class="overlay"
        tabIndex={0}
        role="img"
        aria-label={`Map of ${counted(model.n, "node")}. Arrow keys move it, plus and minus zoom, space plays.`}
        data-test="map"
      />
      <div class="map-buttons">
        <button type="button" data-test="zoom-in" aria-label="Zoom in" title="Zoom in" onClick={() => stage.value?.zoom(1.5)}>
          +
        </button>
        <button type="button" data-test="zoom-out" aria-label="Zoom out" title="Zoom out" onClick={() => stage.value?.zoom(1 / 1.5)}>
          −
        </button>
        <button type="button" data-test="fit" aria-label="Show all" title="Show all" onClick={() => stage.value?.fit()}>
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="M2,6V2H6M10,2H14V6M14,10V14H10M6,14H2V10" />
          </svg>
        </button>
        <button
          type="button"
          data-test="lasso"
          aria-label="Draw a lasso around nodes"
          title="Lasso"
          aria-pressed={lassoing.value}
          onClick={() => {
            lassoing.value = !lassoing.value;
            if (stage.value) stage.value.lassoing = lassoing.value;
          }}
        >
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="M6,11.4C3.6,10.8 2,9.2 2,7.2C2,4.6 4.7,2.5 8,2.5S14,4.6 14,7.2S11.3,11.7 8,11.7M8,11.7a1.7,1.7 0 1,0 -2,-0.3c0.8,0.8 0.8,2 -0.4,2.6" />
          </svg>
        </button>
      </div>
    </div>
  );
}

const playing = signal(false);

function Timeline() {
  const labels = stepLabels();
  const { known, active, links, start, end } = windowOf(step.value);
  return (
    <div class="timeline">
      <button
        type="button"
        class="play"
        data-test="play"
        aria-label={playing.value ? "Pause" : "Play"}
        disabled={model.s < 2}
        onClick={() => stage.value?.play(!stage.value.playing)}
      >
        <svg viewBox="0 0 16 16" aria-hidden="true">
          <path class="solid" d={playing.value ? "M3.5,2.5h3v11h-3zM9.5,2.5h3v11h-3z" : "M4,2.2V13.8L13.5,8Z"} />
        </svg>
      </button>
      <div class="slide">
        <input
          type="range"
          data-test="slider"
          aria-label="Window"
          aria-valuetext={labels[step.value]}
          min={0}
          max={model.s - 1}
          step={1}
          value={step.value}
          onInput={(event) => {
            const to = Number(event.currentTarget.value);
            if (stage.value?.playing) stage.value.play(false);
            step.value = to;
          }}
        />
        <div class="ends" aria-hidden="true">
          <span>{labels[0]}</span>
          <span>{labels[model.s - 1]}</span>
        </div>
      </div>
      <p class="when" data-test="when">
        <strong>{start === end ? labels[step.value] : `${start} – ${end}`}</strong>
        <span class="quiet">
          {counted(known, "node")} known, {count(active)} active, {counted(links, "link")}
        </span>
      </p>
    </div>
  );
}

function isShown(i: number, at: number): boolean {
  return model.position![2 * (at * model.n + i)] !== UNKNOWN;
}

function Legend() {
  const colouring = currentColouring();
  const sizes = new Map<number, number>();
  if (colouring.type === "category") {
    for (let i = 0; i < model.n; i++) {
      if (isShown(i, step.value)) sizes.set(colouring.slots[i], (sizes.get(colouring.slots[i]) ?? 0) + 1);
    }
  }
  return (
    <div class="legend" data-test="legend">
      <label>
        <span>Colour</span>
        <select
          data-test="colour"
          value={colouring.id}
          onChange={(event) => {
            colour.value = event.currentTarget.value;
            only.value = null;
          }}
        >
          {colourings().map(({ id, name }) => (
            <option value={id}>{cut(name, 60)}</option>
          ))}
        </select>
      </label>
      {colouring.type === "category" ? (
        <ul>
          {colouring.entries.map(({ slot, name }) => (
            <li>
              <button
                type="button"
                aria-pressed={only.value === slot}
                class={only.value !== null && only.value !== slot ? "back" : undefined}
                title="Show only these"
                onClick={() => (only.value = only.value === slot ? null : slot)}
              >
                <svg viewBox="0 0 16 16" aria-hidden="true">
                  <path fill-rule="evenodd" fill={css(slotColour(slot, dark.value))} d={shapePath(Math.min(slot, UNSET - 1), 8, 8, 5.5)} />
                </svg>
                <bdi class="label">{cut(name, 60)}</bdi>
                <span class="quiet">{count(sizes.get(slot) ?? 0)}</span>
              </button>
            </li>
          ))}
        </ul>
      ) : (
        <>
          <Ramp low={colouring.ends[0]} high={colouring.ends[1]} />
          <p class="quiet">{colouring.note}.</p>
        </>
      )}
      <p class="quiet">Size: links in the window; pale if there are none.</p>
    </div>
  );
}

function Chosen() {
  const chosen = node.value;
  const others = followed.value.filter((i) => i !== chosen);
  if (chosen === null && !others.length) return null;
  return (
    <div class="panel" data-test="chosen">
      {chosen !== null && (
        <>
          <h3>
            <Label node={chosen} />
          </h3>
          <p class="quiet">
            {[kindName(chosen), counted(model.degree[step.value * model.n + chosen], "link") + " in this window"]
              .filter(Boolean)
              .join(" · ")}
          </p>
          <p class="quiet">
            {!isShown(chosen, step.value)
              ? "Not known yet in this window."
              : step.value === model.s - 1
                ? "Thin lines: links in this window. Dotted: likeliest next contacts."
                : "Thin lines: links in this window."}
          </p>
          <p class="buttons">
            <button type="button" data-test="open-node" onClick={() => show(chosen)}>
              Open
            </button>
            <button type="button" data-test="follow" aria-pressed={followed.value.includes(chosen)} onClick={() => follow(chosen)}>
              {followed.value.includes(chosen) ? "Drop trajectory" : "Keep trajectory"}
            </button>
            <button type="button" data-test="unchoose" onClick={() => choose(null)}>
              Clear
            </button>
          </p>
        </>
      )}
      {others.length > 0 && (
        <ul class="list">
          {others.map((i) => (
            <li>
              <Chooser node={i} onChoose={choose} />
              <button type="button" class="small" aria-label="Remove the trajectory" onClick={() => follow(i)}>
                ×
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Members() {
  const nodes = members.value;
  if (!nodes) return null;
  const { n } = model;
  const at = step.value;
  const listed = [...nodes].sort((a, b) => model.degree[at * n + b] - model.degree[at * n + a] || a - b);
  const colouring = currentColouring();
  const sizes = new Map<number, number>();
  if (colouring.type === "category") {
    for (const i of nodes) sizes.set(colouring.slots[i], (sizes.get(colouring.slots[i]) ?? 0) + 1);
  }
  return (
    <div class="panel" data-test="members">
      <h3>{counted(nodes.length, "node")} in the lasso</h3>
      {colouring.type === "category" && nodes.length > 0 && (
        <ul class="shares">
          {colouring.entries
            .filter(({ slot }) => sizes.get(slot))
            .map(({ slot, name }) => (
              <li>
                <bdi class="label">{cut(name, 40)}</bdi> {count(sizes.get(slot)!)}
              </li>
            ))}
        </ul>
      )}
      <p class="buttons">
        <button type="button" data-test="export-lasso" disabled={!nodes.length} onClick={() => exportNodes(listed, at)}>
          Export as CSV
        </button>
        <button type="button" data-test="clear-lasso" onClick={() => (members.value = null)}>
          Clear
        </button>
      </p>
      <ul class="list tall">
        {listed.slice(0, LISTED).map((i) => (
          <li class={i === node.value ? "chosen" : undefined}>
            <Chooser node={i} onChoose={choose} />
            <span class="quiet">{count(model.degree[at * n + i])}</span>
          </li>
        ))}
      </ul>
      {listed.length > LISTED && <p class="quiet">and {count(listed.length - LISTED)} more; the CSV file has all.</p>}
    </div>
  );
}

function exportNodes(nodes: number[], at: number): void {
  const { facts, n } = model;
  const header = ["node_id", "label"];
  if (model.kind) header.push("kind");
  if (model.community) header.push("community");
  header.push(...facts.attributes.map(({ name }) => name), "first_seen", "links_in_window");
  const lines = nodes.map((i) => {
    const line: Cell[] = [model.nodeId[i], rawLabel(i)];
    if (model.kind) line.push(kindName(i));
    if (model.community) line.push(model.community[i] + 1);
    line.push(...facts.attributes.map((_, a) => attributeValue(a, i)));
    line.push(windowLabels()[model.firstSeen[i]] ?? null, model.degree[at * n + i]);
    return line;
  });
  download(`${fileName(facts.title, "nodes", stepLabels()[at])}.csv`, header, lines);
}
