/** What the map draws: points between two steps. */

import { UNKNOWN } from "../format";

export interface Cloud {
  n: number;
  s: number;
  positions: Int16Array; // [s, n, 2]
  radii: Uint8Array; // [s, n], in tenths of a pixel
}

/** How positions become pixels of the page: pixel = position · scale + (x, y). */
export interface Transform {
  scale: number;
  x: number;
  y: number;
}

export interface Frame extends Transform {
  width: number; // in pixels of the page
  height: number;
  ratio: number; // pixels of the screen per pixel of the page
  from: number; // step
  to: number; // the next step
  part: number; // of the way between them
  grow: number; // factor of all radii
  outline: [number, number, number];
  top: number[]; // nodes drawn once more, above all others
}

export const DIM = 16; // added to the shape of a node that stands back

export interface Renderer {
  readonly name: string;
  /** Set the colours, red, green, blue and one byte more, of n nodes or of n nodes at each of s steps. */
  colour(colours: Uint8Array): void;
  /** Set the shape of each node, plus DIM. */
  mark(marks: Uint8Array): void;
  draw(frame: Frame): void;
  dispose(): void;
}

/** Return x, y and visibility of a node in a frame; visibility 0: not known yet. */
export function place(cloud: Cloud, frame: Frame, node: number): [number, number, number] {
  const { positions, n } = cloud;
  const a = 2 * (frame.from * n + node);
  const b = 2 * (frame.to * n + node);
  const before = positions[a] !== UNKNOWN;
  const after = positions[b] !== UNKNOWN;
  if (!before && !after) return [0, 0, 0];
  const part = before ? (after ? frame.part : 0) : 1;
  const x = positions[before ? a : b] * (1 - part) + positions[after ? b : a] * part;
  const y = positions[before ? a + 1 : b + 1] * (1 - part) + positions[after ? b + 1 : a + 1] * part;
  const seen = (before ? 1 - frame.part : 0) + (after ? frame.part : 0);
  return [x * frame.scale + frame.x, frame.y - y * frame.scale, seen];
}
