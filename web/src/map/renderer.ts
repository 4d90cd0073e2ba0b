/** Points drawn by the graphics card, or on a plain canvas where there is none. */

import type { Cloud, Renderer } from "./cloud";
import { Plain } from "./plain";
import { WebGL } from "./webgl";

/** Add a canvas to the host, below what is there, and return what draws on it. */
export function rendererIn(host: HTMLElement, cloud: Cloud): Renderer {
  let canvas = document.createElement("canvas");
  let renderer: Renderer;
  try {
    renderer = new WebGL(canvas, cloud);
  } catch {
    canvas = document.createElement("canvas"); // a canvas keeps its first kind of context
    renderer = new Plain(canvas, cloud);
  }
  canvas.setAttribute("aria-hidden", "true");
  host.prepend(canvas);
  return renderer;
}
