/** Parts that several views share. */

import { useSignal, signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import { kindName, model, reasonsOf, search } from "./model";
import { show } from "./state";
import { count, cut, percent, signed } from "./text";

const LONGEST = 160; // characters of a label in a list; the style sheet cuts it further

/** A label, apart from the direction of the text around it. */
export function Label({ node, length = LONGEST }: { node: number; length?: number }) {
  return <bdi class="label">{cut(model.facts.labels[node], length) || "(empty label)"}</bdi>;
}

/** A label that chooses its node. */
export function Chooser({ node, onChoose = show }: { node: number; onChoose?: (node: number) => void }) {
  return (
    <button
      type="button"
      class="chooser"
      data-node={model.nodeId[node]}
      title={cut(model.facts.labels[node], 300)}
      onClick={(event) => {
        event.stopPropagation();
        onChoose(node);
      }}
    >
      <Label node={node} />
    </button>
  );
}

/** A sentence that says what a view lacks, with the reasons that the run gave. */
export function Lacking({ children, about }: { children: ComponentChildren; about: RegExp }) {
  const reasons = model.facts.missing.filter((reason) => about.test(reason));
  return (
    <div class="lacking" data-test="lacking">
      <p>{children}</p>
      {reasons.map((reason) => (
        <p>{reason}</p>
      ))}
    </div>
  );
}

/** Why a pair has its score: reasons with bars to the right where they raise it and to the left where they lower it. */
export function Why({ row }: { row: number }) {
  const reasons = reasonsOf(row);
  if (!reasons.length) return <p class="quiet">This run gives no reasons for its scores.</p>;
  const largest = Math.max(...reasons.map(({ share }) => Math.abs(share)), 1e-9);
  const rest = 1 - reasons.reduce((sum, { share }) => sum + Math.abs(share), 0);
  return (
    <div class="why" data-test="why">
      <ol>
        {reasons.map(({ phrase, share }) => (
          <li class={share < 0 ? "lowers" : "raises"}>
            <span class="phrase">
              <bdi>{phrase}</bdi>
            </span>
            <span class="bar" aria-hidden="true">
              <span class="fill" style={{ width: `${(50 * Math.abs(share)) / largest}%` }} />
            </span>
            <span class="share" data-value={share} title={share < 0 ? "lowers the score" : "raises the score"}>
              {signed(share)}
            </span>
          </li>
        ))}
      </ol>
      <p class="quiet">
        + raises the score, − lowers it.{rest > 0.005 ? ` All other reasons together: ${percent(rest)}.` : ""}
      </p>
    </div>
  );
}

/** A box that finds nodes by their label. */
export function Search({ onChoose, label = "Find a node" }: { onChoose: (node: number) => void; label?: string }) {
  const id = useId();
  const text = useSignal("");
  const open = useSignal(false);
  const active = useSignal(0);
  const box = useRef<HTMLDivElement>(null);
  const found = open.value ? search(text.value, 12) : [];
  useEffect(() => {
    const close = (event: Event) => {
      if (!box.current?.contains(event.target as Node)) open.value = false;
    };
    document.addEventListener("pointerdown", close);
    return () => document.removeEventListener("pointerdown", close);
  }, []);
  const take = (node: number) => {
    open.value = false;
    text.value = "";
    onChoose(node);
  };
  return (
    <div class="search" ref={box}>
      <input
        type="text"
        role="combobox"
        data-test="search"
        aria-label={label}
        placeholder={`${label} among ${count(model.n)}`}
        aria-expanded={found.length > 0}
        aria-controls={`${id}-list`}
        aria-activedescendant={found.length ? `${id}-${active.value}` : undefined}
        autocomplete="off"
        spellcheck={false}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          open.value = true;
          active.value = 0;
        }}
        onFocus={() => (open.value = true)}
        onKeyDown={(event) => {
          if (event.key === "Escape") open.value = false;
          if (event.key === "Tab") open.value = false;
          if (event.key === "Enter" && found.length) take(found[Math.min(active.value, found.length - 1)]);
          if ((event.key === "ArrowDown" || event.key === "ArrowUp") && found.length) {
            event.preventDefault();
            const move = event.key === "ArrowDown" ? 1 : found.length - 1;
            active.value = (active.value + move) % found.length;
          }
        }}
      />
      {open.value && text.value.trim() !== "" && (
        <ul class="found" role="listbox" id={`${id}-list`} aria-label="Nodes found">
          {found.map((node, i) => (
            <li
              role="option"
              id={`${id}-${i}`}
              aria-selected={i === active.value}
              data-node={model.nodeId[node]}
              onPointerMove={() => (active.value = i)}
              onClick={() => take(node)}
            >
              <Label node={node} />
              <span class="quiet">{kindName(node) ?? `${count(model.totalDegree[node])} links`}</span>
            </li>
          ))}
          {!found.length && <li class="none">No label contains this text.</li>}
        </ul>
      )}
    </div>
  );
}

interface Tip {
  x: number;
  y: number;
  title: string;
  lines: [string, string][];
}

export const tip = signal<Tip | null>(null);

/** What the mark under the pointer stands for. */
export function Tooltip() {
  const ref = useRef<HTMLDivElement>(null);
  const shown = tip.value;
  useEffect(() => {
    const box = ref.current;
    if (!box || !shown) return;
    const { width, height } = box.getBoundingClientRect();
    const left = shown.x + 14 + width > innerWidth - 8 ? shown.x - width - 14 : shown.x + 14;
    const top = shown.y + 14 + height > innerHeight - 8 ? shown.y - height - 10 : shown.y + 14;
    box.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
  }, [shown]);
  return (
    <div class="tooltip" ref={ref} hidden={!shown} aria-hidden="true" data-test="tooltip">
      {shown && (
        <>
          <bdi class="label">{cut(shown.title, 120)}</bdi>
          {shown.lines.map(([name, value]) => (
            <div>
              <span class="quiet">{name}</span> {value}
            </div>
          ))}
        </>
      )}
    </div>
  );
}
