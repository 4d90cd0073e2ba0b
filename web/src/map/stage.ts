/** The map: points below, and above them labels, trajectories and the lasso. Knows nothing of the page around it. */

import { polygonContains } from "d3-polygon";
import { UNKNOWN } from "../format";
import { cut } from "../text";
import { DIM, place, type Cloud, type Frame, type Renderer, type Transform } from "./cloud";
import { rendererIn } from "./renderer";

const STEP_TIME = 1100; // milliseconds per step while playing
const MOVE_TIME = 450; // to a step that was chosen
const REACH = 12; // pixels around the pointer
const ZOOM: [number, number] = [0.5, 60]; // of the scale at which all is seen
const MOST_LABELS = 28;
const EXAMINED = 1500; // nodes that may get a label
const RANGE = 32767;

export interface Hooks {
  labels: string[];
  hover(node: number | null, x: number, y: number): void;
  choose(node: number | null, add: boolean): void;
  lasso(nodes: number[]): void;
  step(step: number): void;
  playing(playing: boolean): void;
}

export interface Look {
  colours: Uint8Array;
  marks: Uint8Array;
  outline: [number, number, number];
  ink: string;
  accent: string;
  halo: string;
}

export interface Focus {
  chosen: number | null;
  followed: number[];
  partners: number[]; // of the chosen node, in the window of the step
  expected: number[]; // its likely next contacts, at the last step
}

let remembered: { transform: Transform; width: number; height: number } | null = null;
let drawn = 0;

export function frames(): number {
  return drawn;
}

export class Stage {
  readonly renderer: Renderer;
  lassoing = false; // the next drag draws a lasso
  private context: CanvasRenderingContext2D;
  private transform: Transform = { scale: 1, x: 0, y: 0 };
  private fitted = 1;
  private clock: number;
  private goal: { from: number; to: number; start: number; time: number } | null = null;
  private playStart: { clock: number; time: number } | null = null;
  private waiting = 0;
  private look: Look | null = null;
  private focus: Focus = { chosen: null, followed: [], partners: [], expected: [] };
  private hovered: number | null = null;
  private path: [number, number][] | null = null;
  private pointers = new Map<number, { x: number; y: number }>();
  private moved = 0;
  private orders: (Uint32Array | null)[];
  private widths = new Map<number, number>();
  private observer: ResizeObserver;
  private still = matchMedia("(prefers-reduced-motion: reduce)");
  private width = 0;
  private height = 0;

  constructor(
    private host: HTMLElement,
    private overlay: HTMLCanvasElement,
    private cloud: Cloud,
    step: number,
    private hooks: Hooks,
  ) {
    this.renderer = rendererIn(host, cloud);
    this.context = overlay.getContext("2d")!;
    this.orders = new Array(cloud.s).fill(null);
    this.clock = step;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(host);
    this.resize();
    this.listen();
  }

  dispose(): void {
    this.observer.disconnect();
    cancelAnimationFrame(this.waiting);
    this.renderer.dispose();
  }

  // What is shown

  setLook(look: Look): void {
    this.look = look;
    this.renderer.colour(look.colours);
    this.renderer.mark(look.marks);
    this.request();
  }

  setFocus(focus: Focus): void {
    this.focus = focus;
    this.request();
  }

  /** Go to a step, smoothly. */
  goTo(step: number): void {
    if (this.playStart || Math.abs(this.goal ? this.goal.to - step : this.clock - step) < 1e-6) return;
    if (this.still.matches) {
      this.clock = step;
    } else {
      this.goal = { from: this.clock, to: step, start: performance.now(), time: MOVE_TIME };
    }
    this.request();
  }

  get playing(): boolean {
    return this.playStart !== null;
  }

  play(on: boolean): void {
    this.goal = null;
    if (on) {
      if (this.clock > this.cloud.s - 1.01) this.clock = 0;
      this.playStart = { clock: this.clock, time: performance.now() };
      this.hooks.step(Math.floor(this.clock));
    } else {
      this.playStart = null;
      const to = Math.round(this.clock);
      this.goal = { from: this.clock, to, start: performance.now(), time: MOVE_TIME };
      this.hooks.step(to);
    }
    this.hooks.playing(on);
    this.request();
  }

  fit(): void {
    const { positions } = this.cloud;
    let [left, right, low, high] = [RANGE, -RANGE, RANGE, -RANGE];
    for (let i = 0; i < positions.length; i += 2) {
      const [x, y] = [positions[i], positions[i + 1]];
      if (x === UNKNOWN) continue;
      if (x < left) left = x;
      if (x > right) right = x;
      if (y < low) low = y;
      if (y > high) high = y;
    }
    if (left > right) [left, right, low, high] = [-RANGE, RANGE, -RANGE, RANGE];
    const margin = Math.min(28, this.width / 12);
    const wide = Math.max(right - left, 1);
    const tall = Math.max(high - low, 1);
    const scale = Math.min((this.width - 2 * margin) / wide, (this.height - 2 * margin) / tall);
    this.fitted = scale;
    this.transform = {
      scale,
      x: this.width / 2 - (scale * (left + right)) / 2,
      y: this.height / 2 + (scale * (low + high)) / 2,
    };
    this.request();
  }

  zoom(factor: number, x = this.width / 2, y = this.height / 2): void {
    const { transform } = this;
    const scale = Math.max(ZOOM[0] * this.fitted, Math.min(ZOOM[1] * this.fitted, transform.scale * factor));
    const real = scale / transform.scale;
    this.transform = { scale, x: x - (x - transform.x) * real, y: y - (y - transform.y) * real };
    this.request();
  }

  pan(x: number, y: number): void {
    this.transform.x += x;
    this.transform.y += y;
    this.request();
  }

  /** Move a node into sight if it is not. */
  reveal(node: number): void {
    const [x, y, seen] = place(this.cloud, this.frame(), node);
    if (!seen) return;
    const margin = 40;
    const inside = x > margin && y > margin && x < this.width - margin && y < this.height - margin;
    if (!inside) this.pan(this.width / 2 - x, this.height / 2 - y);
  }

  /** Return the nodes in sight, with their places in the window of the browser. */
  points(): { node: number; x: number; y: number }[] {
    const frame = this.frame();
    const box = this.host.getBoundingClientRect();
    const result: { node: number; x: number; y: number }[] = [];
    for (let node = 0; node < this.cloud.n; node++) {
      const [x, y, seen] = place(this.cloud, frame, node);
      if (seen && x >= 0 && y >= 0 && x <= this.width && y <= this.height) {
        result.push({ node, x: x + box.left, y: y + box.top });
      }
    }
    return result;
  }

  // Drawing

  private request(): void {
    if (!this.waiting) this.waiting = requestAnimationFrame((now) => this.tick(now));
  }

  private tick(now: number): void {
    this.waiting = 0;
    const before = this.clock;
    if (this.playStart) {
      const end = this.cloud.s - 1;
      this.clock = Math.min(end, this.playStart.clock + Math.max(0, now - this.playStart.time) / STEP_TIME);
      if (Math.floor(this.clock) !== Math.floor(before)) this.hooks.step(Math.floor(this.clock));
      if (this.clock >= end) this.play(false);
      else this.request();
    } else if (this.goal) {
      const part = Math.min(1, Math.max(0, now - this.goal.start) / this.goal.time);
      this.clock = this.goal.from + (this.goal.to - this.goal.from) * part;
      if (part < 1) this.request();
      else this.goal = null;
    }
    this.draw();
  }

  private frame(): Frame {
    const from = Math.min(this.cloud.s - 1, Math.floor(this.clock + 1e-6));
    const way = Math.max(0, this.clock - from);
    return {
      ...this.transform,
      width: this.width,
      height: this.height,
      ratio: Math.min(2, devicePixelRatio || 1),
      from,
      to: Math.min(this.cloud.s - 1, from + 1),
      part: way * way * (3 - 2 * way),
      grow: Math.min(2.4, Math.max(0.8, (this.transform.scale / this.fitted) ** 0.35)) * this.base(),
      outline: this.look?.outline ?? [255, 255, 255],
      top: [...this.focus.partners, ...this.focus.followed, ...(this.focus.chosen === null ? [] : [this.focus.chosen])],
    };
  }

  /** Return the factor of the radii: many points on a small map are drawn smaller. */
  private base(): number {
    const room = (this.width * this.height) / Math.max(1, this.cloud.n);
    return Math.max(0.7, Math.min(1.5, Math.sqrt(room) / 16));
  }

  private draw(): void {
    if (!this.look || !this.width) return;
    drawn++;
    const frame = this.frame();
    this.renderer.draw(frame);
    this.drawOverlay(frame, this.look);
    remembered = { transform: this.transform, width: this.width, height: this.height };
  }

  private drawOverlay(frame: Frame, look: Look): void {
    const { context, overlay, focus } = this;
    const [width, height] = [Math.round(frame.width * frame.ratio), Math.round(frame.height * frame.ratio)];
    if (overlay.width !== width || overlay.height !== height) {
      overlay.width = width;
      overlay.height = height;
    }
    context.setTransform(frame.ratio, 0, 0, frame.ratio, 0, 0);
    context.clearRect(0, 0, frame.width, frame.height);
    context.lineJoin = "round";
    context.lineCap = "round";
    if (focus.chosen !== null) this.drawLinks(frame, look, focus.chosen);
    for (const node of focus.followed) if (node !== focus.chosen) this.drawTrajectory(frame, look, node, false);
    if (focus.chosen !== null) this.drawTrajectory(frame, look, focus.chosen, true);
    this.drawLabels(frame, look);
    if (this.path) {
      context.beginPath();
      this.path.forEach(([x, y]) => context.lineTo(x, y));
      context.closePath();
      context.globalAlpha = 0.12;
      context.fillStyle = look.accent;
      context.fill();
      context.globalAlpha = 1;
      context.setLineDash([5, 4]);
      context.lineWidth = 1.5;
      context.strokeStyle = look.accent;
      context.stroke();
      context.setLineDash([]);
    }
  }

  private drawLinks(frame: Frame, look: Look, chosen: number): void {
    const { context } = this;
    const [x, y, seen] = place(this.cloud, frame, chosen);
    if (!seen) return;
    const lines = (nodes: number[], color: string, alpha: number, width: number, dash: number[]) => {
      context.strokeStyle = color;
      context.globalAlpha = alpha;
      context.lineWidth = width;
      context.setLineDash(dash);
      context.beginPath();
      for (const other of nodes) {
        const [px, py, visible] = place(this.cloud, frame, other);
        if (!visible) continue;
        context.moveTo(x, y);
        context.lineTo(px, py);
      }
      context.stroke();
    };
    lines(this.focus.partners, look.ink, 0.3, 1, []);
    lines(this.focus.expected, look.accent, 0.9, 1.4, [2, 5]);
    context.setLineDash([]);
    context.globalAlpha = 1;
  }

  /** Draw where a node was at each step; what is still to come is fainter. */
  private drawTrajectory(frame: Frame, look: Look, node: number, chosen: boolean): void {
    const { context, cloud } = this;
    const stops: [number, number, number][] = []; // step, x, y
    for (let step = 0; step < cloud.s; step++) {
      const [x, y, seen] = place(cloud, { ...frame, from: step, to: step, part: 0 }, node);
      if (seen) stops.push([step, x, y]);
    }
    const [x, y, seen] = place(cloud, frame, node);
    const past = stops.filter(([step]) => step <= this.clock + 1e-6);
    context.strokeStyle = look.accent;
    context.fillStyle = look.accent;
    const line = (points: [number, number][], alpha: number) => {
      for (const [color, size, opacity] of [
        [look.halo, 4.5, 0.7 * alpha],
        [look.accent, chosen ? 2 : 1.4, alpha],
      ] as const) {
        context.strokeStyle = color;
        context.lineWidth = size;
        context.globalAlpha = opacity;
        context.beginPath();
        points.forEach(([px, py]) => context.lineTo(px, py));
        context.stroke();
      }
    };
    const now: [number, number][] = seen ? [[x, y]] : [];
    const future = stops.filter(([step]) => step > this.clock + 1e-6);
    if (future.length) line([...now, ...future.map(([, px, py]) => [px, py] as [number, number])], 0.25);
    if (past.length) line([...past.map(([, px, py]) => [px, py] as [number, number]), ...now], 0.95);
    for (const [step, px, py] of stops) {
      context.globalAlpha = step <= this.clock + 1e-6 ? 1 : 0.35;
      context.beginPath();
      context.arc(px, py, chosen ? 3 : 2.2, 0, 2 * Math.PI);
      context.fillStyle = look.halo;
      context.fill();
      context.lineWidth = 1.4;
      context.strokeStyle = look.accent;
      context.stroke();
    }
    context.globalAlpha = 1;
    if (!seen) return;
    context.beginPath();
    context.arc(x, y, this.radius(frame, node) + 4, 0, 2 * Math.PI);
    context.lineWidth = chosen ? 2.5 : 1.5;
    context.strokeStyle = look.accent;
    context.stroke();
  }

  private radius(frame: Frame, node: number): number {
    const { radii, n } = this.cloud;
    const [a, b] = [radii[frame.from * n + node], radii[frame.to * n + node]];
    return 0.1 * frame.grow * (a + (b - a) * frame.part);
  }

  /** Return the nodes in the order in which they get labels. */
  private order(step: number): Uint32Array {
    const { n, radii } = this.cloud;
    return (this.orders[step] ??= Uint32Array.from({ length: n }, (_, i) => i).sort(
      (a, b) => radii[step * n + b] - radii[step * n + a] || a - b,
    ));
  }

  private drawLabels(frame: Frame, look: Look): void {
    const { context, focus } = this;
    const taken: [number, number, number, number][] = [];
    const first = [focus.chosen, this.hovered, ...focus.followed].filter((node) => node !== null);
    const strong = new Set(first);
    let placed = 0;
    const draw = (node: number): void => {
      const [x, y, seen] = place(this.cloud, frame, node);
      if (seen < 0.5 || x < 0 || y < 0 || x > frame.width || y > frame.height) return;
      const important = strong.has(node);
      context.font = `${important ? 600 : 500} ${important ? 13 : 11.5}px system-ui, sans-serif`;
      const letters = Math.min(important ? 40 : 24, Math.floor(frame.width / 22));
      const text = cut(this.hooks.labels[node], letters);
      let wide = important ? undefined : this.widths.get(node);
      if (wide === undefined) {
        wide = context.measureText(text).width;
        if (!important) this.widths.set(node, wide);
      }
      const gap = this.radius(frame, node) + (important ? 8 : 4);
      const left = x + gap + wide > frame.width - 4 ? Math.max(4, x - gap - wide) : x + gap;
      const box: [number, number, number, number] = [left - 3, y - 9, left + wide + 3, y + 9];
      if (!important) {
        if (taken.some((other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1])) return;
      }
      taken.push(box);
      placed++;
      context.textBaseline = "middle";
      context.lineWidth = 4;
      context.strokeStyle = look.halo;
      context.globalAlpha = important ? 1 : 0.9;
      context.strokeText(text, left, y);
      context.fillStyle = look.ink;
      context.fillText(text, left, y);
      context.globalAlpha = 1;
    };
    strong.forEach(draw);
    // While playing, the same few labels stay, so that nothing flickers.
    const moving = this.playing;
    const order = this.order(moving ? this.cloud.s - 1 : Math.round(this.clock));
    const room = Math.round((frame.width * frame.height) / 20000);
    const most = moving ? 10 : Math.min(MOST_LABELS, room) + strong.size;
    for (let i = 0; i < Math.min(EXAMINED, order.length) && placed < most; i++) {
      const node = order[i];
      if (!strong.has(node) && look.marks[node] < DIM) draw(node);
    }
  }

  // Input

  private resize(): void {
    const { clientWidth, clientHeight } = this.host;
    if (!clientWidth || !clientHeight) return;
    const first = !this.width;
    const [before, beforeHeight] = [this.width, this.height];
    [this.width, this.height] = [clientWidth, clientHeight];
    if (first || before !== clientWidth || beforeHeight !== clientHeight) {
      const kept = first ? remembered : null;
      const zoomed = !first && this.transform.scale !== this.fitted;
      const old = this.transform;
      this.fit();
      if (kept && kept.width === this.width && kept.height === this.height) this.transform = kept.transform;
      if (zoomed) {
        this.transform = {
          scale: old.scale,
          x: old.x + (this.width - before) / 2,
          y: old.y + (this.height - beforeHeight) / 2,
        };
      }
    }
    this.request();
  }

  private at(event: PointerEvent | WheelEvent): { x: number; y: number } {
    const box = this.host.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  private nearest(x: number, y: number, reach: number): number | null {
    const frame = this.frame();
    let [best, least] = [null as number | null, reach * reach];
    for (let node = 0; node < this.cloud.n; node++) {
      const [px, py, seen] = place(this.cloud, frame, node);
      if (seen < 0.5) continue;
      const distance = (px - x) ** 2 + (py - y) ** 2;
      if (distance < least) [best, least] = [node, distance];
    }
    return best;
  }

  private hover(node: number | null, event: PointerEvent): void {
    this.hooks.hover(node, event.clientX, event.clientY);
    if (node === this.hovered) return;
    this.hovered = node;
    this.overlay.classList.toggle("over", node !== null);
    this.request();
  }

  private listen(): void {
    const { overlay } = this;
    overlay.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      overlay.setPointerCapture(event.pointerId);
      const at = this.at(event);
      this.pointers.set(event.pointerId, at);
      this.moved = 0;
      if ((this.lassoing || event.shiftKey) && this.pointers.size === 1) this.path = [[at.x, at.y]];
      else this.path = null;
    });
    overlay.addEventListener("pointermove", (event) => {
      const at = this.at(event);
      const old = this.pointers.get(event.pointerId);
      if (!old) {
        this.hover(this.nearest(at.x, at.y, REACH), event);
        return;
      }
      this.moved += Math.hypot(at.x - old.x, at.y - old.y);
      if (this.path) {
        this.path.push([at.x, at.y]);
        this.request();
      } else if (this.pointers.size === 1) {
        if (this.moved > 3) this.pan(at.x - old.x, at.y - old.y);
      } else {
        const [other] = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
        const before = Math.hypot(old.x - other.x, old.y - other.y);
        const after = Math.hypot(at.x - other.x, at.y - other.y);
        this.pan((at.x - old.x) / 2, (at.y - old.y) / 2);
        if (before > 0) this.zoom(after / before, (at.x + other.x) / 2, (at.y + other.y) / 2);
      }
      this.pointers.set(event.pointerId, at);
    });
    const up = (event: PointerEvent) => {
      if (!this.pointers.delete(event.pointerId)) return;
      const { path } = this;
      if (path) {
        this.path = null;
        if (path.length > 2 && this.moved > 8) this.hooks.lasso(this.within(path));
        this.request();
      } else if (this.moved <= 3 && event.type === "pointerup") {
        const at = this.at(event);
        const node = this.nearest(at.x, at.y, event.pointerType === "touch" ? 2 * REACH : REACH);
        this.hooks.choose(node, event.ctrlKey || event.metaKey);
      }
    };
    overlay.addEventListener("pointerup", up);
    overlay.addEventListener("pointercancel", up);
    overlay.addEventListener("pointerleave", (event) => this.hover(null, event));
    overlay.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        const at = this.at(event);
        const unit = event.deltaMode === 1 ? 20 : 1;
        this.zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY * unit)) * 0.0022), at.x, at.y);
      },
      { passive: false },
    );
    overlay.addEventListener("keydown", (event) => {
      const far = 60;
      const keys: Record<string, () => void> = {
        ArrowLeft: () => this.pan(far, 0),
        ArrowRight: () => this.pan(-far, 0),
        ArrowUp: () => this.pan(0, far),
        ArrowDown: () => this.pan(0, -far),
        "+": () => this.zoom(1.3),
        "=": () => this.zoom(1.3),
        "-": () => this.zoom(1 / 1.3),
        "0": () => this.fit(),
        " ": () => this.play(!this.playing),
        Escape: () => this.hooks.choose(null, false),
      };
      if (event.ctrlKey || event.metaKey || event.altKey || !Object.hasOwn(keys, event.key)) return;
      event.preventDefault();
      keys[event.key]();
    });
  }

  private within(path: [number, number][]): number[] {
    const frame = this.frame();
    const thin = path.length > 400 ? path.filter((_, i) => i % Math.ceil(path.length / 400) === 0) : path;
    const nodes: number[] = [];
    for (let node = 0; node < this.cloud.n; node++) {
      const [x, y, seen] = place(this.cloud, frame, node);
      if (seen >= 0.5 && polygonContains(thin, [x, y])) nodes.push(node);
    }
    return nodes;
  }
}
