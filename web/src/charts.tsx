/** Charts as SVG, each with its numbers in a table. */

import { useSignal } from "@preact/signals";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { css, inkOn, rampColour } from "./colours";
import { tip } from "./parts";
import { dark } from "./state";
import { cut } from "./text";

export interface Table {
  head: string[];
  rows: (string | number | null)[][];
  format?: (value: number, column: number) => string;
}

/** A chart with its title, and its numbers on demand. */
export function Figure(props: {
  title: string;
  choice?: ComponentChildren; // beside the title
  note?: string;
  test: string;
  table: Table;
  children: ComponentChildren;
}) {
  const { title, choice, note, test, table, children } = props;
  return (
    <figure class="chart" data-test={test}>
      <figcaption>
        <h3>{title}</h3>
        {choice}
        {note && (
          <p class="quiet">
            <bdi>{note}</bdi>
          </p>
        )}
      </figcaption>
      {children}
      <Numbers table={table} />
    </figure>
  );
}

export function Numbers({ table, summary = "Numbers" }: { table: Table; summary?: string }) {
  const open = useSignal(false);
  const { head, rows, format = String } = table;
  const isNumeric = head.map((_, column) => rows.some((row) => typeof row[column] === "number"));
  return (
    <details class="numbers" onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>{summary}</summary>
      {open.value && (
        <div class="scroll" tabIndex={0}>
          <table>
            <thead>
              <tr>
                {head.map((name, column) => (
                  <th scope="col" class={isNumeric[column] ? "number" : undefined}>
                    {cut(name, 80)}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <tr>
                  {row.map((value, column) =>
                    typeof value === "number" ? (
                      <td class="number" data-value={value}>
                        {format(value, column)}
                      </td>
                    ) : (
                      <td class={isNumeric[column] ? "number" : undefined}>
                        <bdi>{value === null ? "–" : cut(value, 200)}</bdi>
                      </td>
                    ),
                  )}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

/** Measure an element, and again whenever its width changes. */
function useWidth(initial: number) {
  const ref = useRef<HTMLDivElement>(null);
  const width = useSignal(initial);
  useLayoutEffect(() => {
    const element = ref.current!;
    const measure = () => {
      if (element.clientWidth) width.value = element.clientWidth;
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return [ref, width.value] as const;
}

const MARGIN = { top: 10, right: 14, bottom: 26, left: 40 };
const LETTER = 6.8; // width in pixels, on average, at the size of the axes

/** Return the labels that fit below an axis, counted from the last, with the places of their centres. */
function fitting(labels: string[], x: (i: number) => number, end: number): { label: string; at: number }[] {
  const longest = Math.max(...labels.map((label) => label.length), 1) * LETTER;
  const distance = labels.length > 1 ? x(1) - x(0) : end;
  const every = Math.max(1, Math.ceil((longest + 14) / distance));
  const result: { label: string; at: number }[] = [];
  let free = end;
  for (let i = labels.length - 1; i >= 0; i -= every) {
    const half = (labels[i].length * LETTER) / 2;
    const at = Math.max(half, Math.min(end - half, x(i)));
    if (at + half > free + 1) continue; // the last label was moved towards this one
    result.push({ label: labels[i], at });
    free = at - half - 8;
  }
  return result;
}

function XAxis(props: { labels: string[]; x: (i: number) => number; y: number; width: number }) {
  const { labels, x, y, width } = props;
  return (
    <g class="axis" aria-hidden="true">
      {fitting(labels, x, width).map(({ label, at }) => (
        <text x={at} y={y + 18} text-anchor="middle">
          {label}
        </text>
      ))}
    </g>
  );
}

function YAxis(props: { ticks: number[]; y: (value: number) => number; width: number; format: (value: number) => string }) {
  const { ticks, y, width, format } = props;
  return (
    <g class="axis" aria-hidden="true">
      {ticks.map((tick) => (
        <g>
          <line x1={MARGIN.left} x2={width - MARGIN.right} y1={y(tick)} y2={y(tick)} />
          <text x={MARGIN.left - 8} y={y(tick)} dy="0.32em" text-anchor="end">
            {format(tick)}
          </text>
        </g>
      ))}
    </g>
  );
}

export interface Series {
  name: string;
  values: (number | null)[];
  tone: 1 | 2 | 3; // of the style sheet; also the form of the marks
}

function mark(tone: number, x: number, y: number, r: number): string {
  if (tone === 1) return `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`;
  if (tone === 2) return `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`;
  return `M${x},${y - 1.3 * r}L${x + 1.3 * r},${y}L${x},${y + 1.3 * r}L${x - 1.3 * r},${y}Z`;
}

export function Key({ series, filled = false }: { series: { name: string; tone: number }[]; filled?: boolean }) {
  return (
    <ul class="key">
      {series.map(({ name, tone }) => (
        <li>
          <svg width="22" height="12" aria-hidden="true">
            {filled ? (
              <rect class={`tone-${tone} area`} x="5" y="1" width="12" height="10" />
            ) : (
              <>
                <path class={`tone-${tone} curve`} d="M0,6H22" />
                <path class={`tone-${tone} mark`} d={mark(tone, 11, 6, 3.5)} />
              </>
            )}
          </svg>
          {name}
        </li>
      ))}
    </ul>
  );
}

/** Figures per window, one line per series. */
export function Lines(props: {
  label: string;
  labels: string[];
  series: Series[];
  domain: [number, number];
  format: (value: number) => string;
  height?: number;
}) {
  const { label, labels, series, domain, format, height = 220 } = props;
  const [ref, width] = useWidth(520);
  const hovered = useSignal<number | null>(null);
  const [left, right] = [MARGIN.left + 14, width - MARGIN.right - 14];
  const distance = labels.length > 1 ? (right - left) / (labels.length - 1) : right - left;
  const x = (i: number) => (labels.length > 1 ? left + i * distance : (left + right) / 2);
  const y = scaleLinear(domain, [height - MARGIN.bottom, MARGIN.top]);
  const curve = line<[number, number | null]>()
    .defined(([, value]) => value !== null)
    .x(([i]) => x(i))
    .y(([, value]) => y(value!));
  const move = (event: PointerEvent) => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    const at = Math.round((((event.clientX - box.left) / box.width) * width - left) / distance);
    const i = Math.max(0, Math.min(labels.length - 1, labels.length > 1 ? at : 0));
    hovered.value = i;
    const lines = series.map(({ name, values }) => [name, values[i] === null ? "–" : format(values[i])]);
    tip.value = { x: event.clientX, y: event.clientY, title: labels[i], lines: lines as [string, string][] };
  };
  const leave = () => {
    hovered.value = null;
    tip.value = null;
  };
  return (
    <>
      {series.length > 1 && <Key series={series} />}
      <div class="plot" ref={ref}>
        <svg
          viewBox={`0 0 ${width} ${height}`}
          role="img"
          aria-label={label}
          onPointerMove={move}
          onPointerLeave={leave}
        >
          <YAxis ticks={y.ticks(4)} y={y} width={width} format={format} />
          <XAxis labels={labels} x={x} y={height - MARGIN.bottom} width={width} />
          {hovered.value !== null && (
            <line class="cursor" x1={x(hovered.value)} x2={x(hovered.value)} y1={MARGIN.top} y2={height - MARGIN.bottom} />
          )}
          {[...series].reverse().map(({ values, tone }) => (
            <g>
              <path class={`tone-${tone} curve`} d={curve(values.map((value, i) => [i, value])) ?? ""} />
              {values.map(
                (value, i) => value !== null && <path class={`tone-${tone} mark`} d={mark(tone, x(i), y(value), 3.5)} />,
              )}
            </g>
          ))}
        </svg>
      </div>
    </>
  );
}

/** Counts per window, stacked. */
export function Stacks(props: {
  label: string;
  labels: string[];
  series: Series[];
  format: (value: number) => string;
  height?: number;
  current?: number | null;
}) {
  const { label, labels, series, format, height = 220, current = null } = props;
  const [ref, width] = useWidth(520);
  const totals = labels.map((_, i) => series.reduce((sum, { values }) => sum + (values[i] ?? 0), 0));
  const y = scaleLinear([0, Math.max(1, ...totals)], [height - MARGIN.bottom, MARGIN.top]).nice(4);
  const distance = (width - MARGIN.left - MARGIN.right) / labels.length;
  const x = (i: number) => MARGIN.left + (i + 0.5) * distance;
  const thick = Math.max(1, Math.min(44, distance * 0.72));
  const ticks = y.ticks(4).filter(Number.isInteger);
  return (
    <>
      {series.length > 1 && <Key series={series} filled />}
      <div class="plot" ref={ref}>
        <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label} onPointerLeave={() => (tip.value = null)}>
          <YAxis ticks={ticks} y={y} width={width} format={format} />
          <XAxis labels={labels} x={x} y={height - MARGIN.bottom} width={width} />
          {labels.map((name, i) => {
            let below = 0;
            const lines = series.map(({ name: part, values }) => [part, format(values[i] ?? 0)] as [string, string]);
            if (series.length > 1) lines.push(["Total", format(totals[i])]);
            return (
              <g
                class={current === i ? "column current" : "column"}
                onPointerMove={(event) => (tip.value = { x: event.clientX, y: event.clientY, title: name, lines })}
              >
                <rect class="field" x={x(i) - distance / 2} y={MARGIN.top} width={distance} height={y(0) - MARGIN.top} />
                {series.map(({ values, tone }) => {
                  const value = values[i] ?? 0;
                  const [bottom, top] = [y(below), y(below + value)];
                  below += value;
                  return (
                    <rect
                      class={`tone-${tone} area`}
                      x={x(i) - thick / 2}
                      y={top}
                      width={thick}
                      height={Math.max(0, bottom - top - (bottom - top > 2 ? 1 : 0))}
                    />
                  );
                })}
              </g>
            );
          })}
        </svg>
      </div>
    </>
  );
}

/** Horizontal bars with their values, grouped. */
export function Bars(props: { label: string; groups: string[]; series: Series[]; max: number; format: (v: number) => string }) {
  const { label, groups, series, max, format } = props;
  const [ref, width] = useWidth(520);
  const [thick, gap] = [16, 14];
  const left = Math.max(...groups.map((group) => group.length), 2) * 7 + 14;
  const x = scaleLinear([0, max], [0, width - left - 60]);
  const group = thick * series.length + gap;
  const height = groups.length * group + 4;
  return (
    <>
      {series.length > 1 && <Key series={series} filled />}
      <div class="plot" ref={ref}>
        <svg viewBox={`0 0 ${width} ${height}`} role="img" aria-label={label}>
          {groups.map((name, g) => (
            <g class="axis">
              <text x={left - 8} y={g * group + (thick * series.length) / 2 + 2} dy="0.32em" text-anchor="end">
                {name}
              </text>
              {series.map(({ values, tone }, i) => {
                const value = values[g];
                const top = g * group + i * thick + 2;
                return (
                  <g>
                    <rect class="field faint" x={left} y={top} width={x.range()[1]} height={thick - 2} />
                    <rect class={`tone-${tone} area`} x={left} y={top} width={x(value ?? 0)} height={thick - 2} />
                    <text class="value" x={left + x(value ?? 0) + 6} y={top + thick / 2 - 1} dy="0.32em">
                      {value === null ? "–" : format(value)}
                    </text>
                  </g>
                );
              })}
            </g>
          ))}
        </svg>
      </div>
    </>
  );
}

export interface Curve {
  name: string;
  tone: 1 | 2 | 3;
  points: { x: number; y: number; weight: number }[];
}

/** Curves in the unit square, with the diagonal. */
export function Square(props: { label: string; curves: Curve[]; xName: string; yName: string; format: (v: number) => string }) {
  const { label, curves, xName, yName, format } = props;
  const [ref, full] = useWidth(420);
  const width = Math.min(full, 460);
  const height = Math.min(width, 320);
  const x = scaleLinear([0, 1], [MARGIN.left + 8, width - MARGIN.right]);
  const y = scaleLinear([0, 1], [height - MARGIN.bottom - 16, MARGIN.top]);
  const curve = line<{ x: number; y: number }>()
    .x((point) => x(point.x))
    .y((point) => y(point.y));
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return (
    <>
      <Key series={curves} />
      <div class="plot" ref={ref}>
        <svg viewBox={`0 0 ${width} ${height}`} class="square" role="img" aria-label={label} onPointerLeave={() => (tip.value = null)}>
          <g class="axis" aria-hidden="true">
            {ticks.map((tick) => (
              <g>
                <line x1={x(0)} x2={x(1)} y1={y(tick)} y2={y(tick)} />
                <text x={x(0) - 8} y={y(tick)} dy="0.32em" text-anchor="end">
                  {format(tick)}
                </text>
                <text x={x(tick)} y={y(0) + 17} text-anchor={tick === 1 ? "end" : "middle"}>
                  {format(tick)}
                </text>
              </g>
            ))}
            <text class="name" x={x(0.5)} y={height - 4} text-anchor="middle">
              {xName}
            </text>
            <text class="name" x={x(0) + 6} y={MARGIN.top + 4} dy="0.5em">
              {yName}
            </text>
          </g>
          <line class="diagonal" x1={x(0)} y1={y(0)} x2={x(1)} y2={y(1)} />
          {[...curves].reverse().map(({ name, tone, points }) => (
            <g>
              <path class={`tone-${tone} curve`} d={curve(points) ?? ""} />
              {points.map((point) => (
                <path
                  class={`tone-${tone} mark`}
                  d={mark(tone, x(point.x), y(point.y), 3.5)}
                  onPointerMove={(event) =>
                    (tip.value = {
                      x: event.clientX,
                      y: event.clientY,
                      title: name,
                      lines: [
                        [xName, format(point.x)],
                        [yName, format(point.y)],
                        ["Pairs", point.weight.toLocaleString("en-GB")],
                      ],
                    })
                  }
                />
              ))}
            </g>
          ))}
        </svg>
      </div>
    </>
  );
}

/** A matrix as a heat map: rows attend to columns. */
export function Heat(props: {
  label: string;
  rows: string[];
  columns: string[];
  values: (number | null)[][];
  max: number;
  isCut?: boolean; // some values are larger than max
  format: (value: number) => string;
  rowName: string;
  columnName: string;
}) {
  const { label, rows, columns, values, max, isCut = false, format, rowName, columnName } = props;
  const [ref, full] = useWidth(560);
  const theme = dark.value;
  const left = Math.min(110, Math.max(...rows.map((row) => row.length)) * LETTER + 16);
  const size = Math.max(6, Math.min(rows.length === 1 ? 72 : 52, (full - left - 4) / columns.length));
  const tall = rows.length === 1 ? 34 : Math.min(size, 40);
  const top = 24;
  const height = top + tall * rows.length + 26;
  return (
    <>
      <div class="plot" ref={ref}>
        <svg
          viewBox={`0 0 ${full} ${height}`}
          role="img"
          aria-label={label}
          onPointerLeave={() => (tip.value = null)}
        >
          <g class="axis" aria-hidden="true">
            <text class="name" x={left} y={12}>
              {columnName}
            </text>
            {rows.length > 1 && (
              <text class="name" x={left - 10} y={12} text-anchor="end">
                {rowName}
              </text>
            )}
            {rows.map((row, i) => (
              <text x={left - 10} y={top + (i + 0.5) * tall} dy="0.32em" text-anchor="end">
                {cut(row, 16)}
              </text>
            ))}
          </g>
          <XAxis labels={columns} x={(j) => left + (j + 0.5) * size} y={height - 26} width={full} />
          {values.map((line, i) =>
            line.map((value, j) => {
              if (value === null) return null;
              const fill = rampColour(value / (max || 1), theme);
              return (
                <g
                  onPointerMove={(event) =>
                    (tip.value = {
                      x: event.clientX,
                      y: event.clientY,
                      title: format(value),
                      lines: [
                        [rowName, rows[i]],
                        [columnName, columns[j]],
                      ],
                    })
                  }
                >
                  <rect
                    class="cell"
                    x={left + j * size}
                    y={top + i * tall}
                    width={size - 1}
                    height={tall - 1}
                    rx="2"
                    fill={css(fill)}
                    data-value={value}
                  />
                  {size >= 34 && (
                    <text
                      class="in-cell"
                      x={left + (j + 0.5) * size - 0.5}
                      y={top + (i + 0.5) * tall}
                      dy="0.32em"
                      text-anchor="middle"
                      fill={inkOn(fill)}
                    >
                      {format(value)}
                    </text>
                  )}
                </g>
              );
            }),
          )}
        </svg>
      </div>
      <Ramp low={format(0)} high={isCut ? `${format(max)} or more` : format(max)} />
    </>
  );
}

/** The scale of colours between two ends. */
export function Ramp({ low, high }: { low: string; high: string }) {
  const theme = dark.value;
  return (
    <div class="ramp">
      <span>{low}</span>
      <svg viewBox="0 0 128 10" preserveAspectRatio="none" aria-hidden="true">
        {Array.from({ length: 32 }, (_, i) => (
          <rect x={i * 4} y="0" width="4.2" height="10" fill={css(rampColour(i / 31, theme))} />
        ))}
      </svg>
      <span>{high}</span>
    </div>
  );
}
