import { DIM, place, type Cloud, type Frame, type Renderer } from "./cloud";

/** Return the outline of a shape of radius 1, scaled and moved: the same shapes as in the shader. */
export function shapePath(shape: number, x: number, y: number, r: number): string {
  const at = (...points: [number, number][]) =>
    `M${points.map(([px, py]) => `${(x + px * r).toFixed(2)},${(y + py * r).toFixed(2)}`).join("L")}Z`;
  const circle = (size: number) =>
    `M${x - size * r},${y}a${size * r},${size * r} 0 1,0 ${2 * size * r},0a${size * r},${size * r} 0 1,0 ${-2 * size * r},0Z`;
  const hole = (size: number) =>
    `M${x - size * r},${y}a${size * r},${size * r} 0 1,1 ${2 * size * r},0a${size * r},${size * r} 0 1,1 ${-2 * size * r},0Z`;
  const [a, b] = [0.38, 1.1];
  if (shape === 1) return at([-0.88, -0.88], [0.88, -0.88], [0.88, 0.88], [-0.88, 0.88]);
  if (shape === 2) return at([0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]);
  if (shape === 3) return at([0, -1.16], [1.18, 0.88], [-1.18, 0.88]);
  if (shape === 4) {
    return at([-a, -b], [a, -b], [a, -a], [b, -a], [b, a], [a, a], [a, b], [-a, b], [-a, a], [-b, a], [-b, -a], [-a, -a]);
  }
  if (shape === 5) return circle(1.1) + hole(0.5);
  if (shape === 6) return at([0, 1.16], [1.18, -0.88], [-1.18, -0.88]);
  return circle(shape === 7 ? 0.75 : 1);
}

/** Points on a canvas without WebGL. */
export class Plain implements Renderer {
  readonly name = "canvas";
  private context: CanvasRenderingContext2D | null;
  private colours: Uint8Array;
  private marks: Uint8Array;

  constructor(
    private canvas: HTMLCanvasElement,
    private cloud: Cloud,
  ) {
    this.context = canvas.getContext("2d");
    this.colours = new Uint8Array(4 * cloud.n);
    this.marks = new Uint8Array(cloud.n);
  }

  colour(colours: Uint8Array): void {
    this.colours = colours;
  }

  mark(marks: Uint8Array): void {
    this.marks = marks;
  }

  draw(frame: Frame): void {
    const { context, canvas, cloud } = this;
    if (!context) return;
    canvas.width = Math.round(frame.width * frame.ratio);
    canvas.height = Math.round(frame.height * frame.ratio);
    context.setTransform(frame.ratio, 0, 0, frame.ratio, 0, 0);
    for (let node = 0; node < cloud.n; node++) this.point(frame, node);
    for (const node of frame.top) this.point(frame, node);
  }

  private point(frame: Frame, node: number): void {
    const [x, y, seen] = place(this.cloud, frame, node);
    if (!seen || x < -20 || y < -20 || x > frame.width + 20 || y > frame.height + 20) return;
    const { n, radii } = this.cloud;
    const context = this.context!;
    const size = 0.1 * (radii[frame.from * n + node] * (1 - frame.part) + radii[frame.to * n + node] * frame.part);
    const r = frame.grow * size;
    const step = frame.part < 0.5 ? frame.from : frame.to;
    const at = 4 * (this.colours.length > 4 * n ? step * n + node : node);
    const dim = this.marks[node] >= DIM;
    context.globalAlpha = seen * (dim ? 0.1 : 0.5 + 0.44 * Math.max(0, Math.min(1, size - 2)));
    context.fillStyle = `rgb(${this.colours[at]}, ${this.colours[at + 1]}, ${this.colours[at + 2]})`;
    context.fill(new Path2D(shapePath(this.marks[node] % DIM, x, y, r)));
  }

  dispose(): void {}
}
