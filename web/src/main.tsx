/** The page of a run. */

import { render } from "preact";
import type { ComponentType } from "preact";
import { frames } from "./map/stage";
import type { Content } from "./format";
import { model, setModel } from "./model";
import { Tooltip } from "./parts";
import { read } from "./read";
import { choose, dark, keepInAddress, keepTheme, snapshot, switchTheme, view, VIEWS, type View } from "./state";
import { Attention } from "./views/attention";
import { Forecast, Printed } from "./views/forecast";
import { MapView, stage } from "./views/map";
import { NodeView } from "./views/node";
import { Overview } from "./views/overview";

const TABS: Record<View, [string, ComponentType]> = {
  overview: ["Overview", Overview],
  forecast: ["Forecast", Forecast],
  map: ["Map", MapView],
  node: ["Node", NodeView],
  attention: ["Attention", Attention],
};

function Tabs() {
  const move = (event: KeyboardEvent) => {
    const moves: Record<string, number> = { ArrowLeft: VIEWS.length - 1, ArrowRight: 1 };
    const at = VIEWS.indexOf(view.value);
    let to = Object.hasOwn(moves, event.key) ? (at + moves[event.key]) % VIEWS.length : -1;
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = VIEWS.length - 1;
    if (to < 0) return;
    event.preventDefault();
    view.value = VIEWS[to];
    document.getElementById(`tab-${VIEWS[to]}`)?.focus();
  };
  return (
    <div role="tablist" aria-label="Views" class="tabs" onKeyDown={move}>
      {VIEWS.map((name) => (
        <button
          type="button"
          role="tab"
          id={`tab-${name}`}
          data-test={`tab-${name}`}
          aria-selected={view.value === name}
          aria-controls={`view-${name}`}
          tabIndex={view.value === name ? 0 : -1}
          onClick={() => (view.value = name)}
        >
          {TABS[name][0]}
        </button>
      ))}
    </div>
  );
}

function App() {
  const { facts } = model;
  return (
    <>
      <header class="top">
        <div class="title">
          <h1>
            <bdi>{facts.title}</bdi>
          </h1>
          <p class="quiet">
            {facts.method} · forecast for {facts.next.label}
          </p>
        </div>
        <Tabs />
        <button
          type="button"
          class="theme"
          data-test="theme"
          aria-label={dark.value ? "Light colours" : "Dark colours"}
          title={dark.value ? "Light colours" : "Dark colours"}
          onClick={switchTheme}
        >
          <svg viewBox="0 0 16 16" aria-hidden="true">
            {dark.value ? (
              <path d="M8,5a3,3 0 1,0 0,6a3,3 0 1,0 0,-6M8,1v1.6M8,13.4V15M1,8h1.6M13.4,8H15M3,3l1.2,1.2M11.8,11.8L13,13M3,13l1.2,-1.2M11.8,4.2L13,3" />
            ) : (
              <path d="M13.5,9.6A6,6 0 0,1 6.4,2.5A6,6 0 1,0 13.5,9.6Z" />
            )}
          </svg>
        </button>
      </header>
      <main>
        {VIEWS.map((name) => {
          const Body = TABS[name][1];
          const active = view.value === name;
          return (
            <section id={`view-${name}`} role="tabpanel" aria-labelledby={`tab-${name}`} class={active ? "view" : "view inactive"}>
              {(active || name === "overview") && <Body />}
              {name === "forecast" && <Printed />}
            </section>
          );
        })}
      </main>
      <footer class="quiet">Made by {facts.made_by}. This file is complete: it loads nothing from the network.</footer>
      <Tooltip />
    </>
  );
}

async function start(): Promise<void> {
  const root = document.getElementById("app")!;
  try {
    if (typeof DecompressionStream === "undefined") throw new Error("the browser is too old for it");
    page.content = await read(document.getElementById("data")!.textContent ?? "");
    setModel(page.content);
  } catch (error) {
    const message = document.createElement("p");
    message.className = "loading";
    message.textContent = `This page cannot be shown: ${error instanceof Error ? error.message : String(error)}.`;
    root.replaceChildren(message);
    throw error;
  }
  keepTheme();
  keepInAddress();
  root.replaceChildren();
  render(<App />, root);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
}

/** For tests and for the console. */
const page = {
  content: null as Content | null,
  get state() {
    return snapshot();
  },
  ready: Promise.resolve(),
  select: (node: number | null) => choose(node),
  points: () => stage.value?.points() ?? [],
  frames,
  get renderer() {
    return stage.value?.renderer.name ?? null;
  },
};

declare global {
  interface Window {
    dysatPage: typeof page;
  }
}

window.dysatPage = page;
page.ready = start();
