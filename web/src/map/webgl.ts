import { UNKNOWN } from "../format";
import { DIM, type Cloud, type Frame, type Renderer } from "./cloud";

const VERTEX = `#version 300 es
in vec2 before; in vec2 after;
in float radiusBefore; in float radiusAfter;
in vec4 colourBefore; in vec4 colourAfter;
in float mark;
uniform vec4 transform; // scale and offset, in clip space
uniform float part, grow, ratio;
out vec4 colour;
flat out int shape;
out float radius;
void main() {
  float a = before.x > ${UNKNOWN + 1}.5 ? 1.0 : 0.0;
  float b = after.x > ${UNKNOWN + 1}.5 ? 1.0 : 0.0;
  float seen = mix(a, b, part);
  float way = a * b > 0.0 ? part : b;
  bool dim = mark >= ${DIM}.0;
  shape = int(mark) - (dim ? ${DIM} : 0);
  float size = mix(radiusBefore, radiusAfter, way) * 0.1;
  radius = size * grow * ratio;
  colour = vec4(mix(colourBefore, colourAfter, way).rgb, seen * (dim ? 0.1 : mix(0.5, 0.94, smoothstep(2.0, 3.0, size))));
  gl_Position = seen > 0.0 ? vec4(mix(before, after, way) * transform.xy + transform.zw, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  gl_PointSize = 2.0 * (radius + 1.5 * ratio) + 2.0;
}`;

const FRAGMENT = `#version 300 es
precision highp float;
in vec4 colour;
flat in int shape;
in float radius;
uniform vec3 outline;
uniform float ratio;
out vec4 pixel;
// Distance to the edge of a shape of radius 1, negative inside; all have about the same area.
float edge(vec2 p) {
  vec2 q = abs(p);
  if (shape == 1) return max(q.x, q.y) - 0.88;
  if (shape == 2) return (q.x + q.y - 1.2) * 0.7071;
  if (shape == 3) return max(q.x * 0.866 - p.y * 0.5, p.y) - 0.68;
  if (shape == 4) return max(min(q.x, q.y) - 0.38, max(q.x, q.y) - 1.1);
  if (shape == 5) return abs(length(p) - 0.8) - 0.3;
  if (shape == 6) return max(q.x * 0.866 + p.y * 0.5, -p.y) - 0.68;
  return length(p) - (shape == 7 ? 0.75 : 1.0);
}
void main() {
  float half_ = radius + 1.5 * ratio + 1.0;
  vec2 p = (gl_PointCoord * 2.0 - 1.0) * half_ / radius;
  if (shape == 3) p.y -= 0.2;
  if (shape == 6) p.y += 0.2;
  float distance_ = edge(p) * radius;
  float fill = clamp(0.5 - distance_, 0.0, 1.0);
  float around = clamp(0.5 - (distance_ - 0.7 * ratio), 0.0, 1.0);
  float alpha = around * colour.a;
  if (alpha <= 0.0) discard;
  pixel = vec4(mix(outline, colour.rgb, fill) * alpha, alpha);
}`;

/** Points as WebGL 2 draws them: nothing is computed per frame outside the shaders. */
export class WebGL implements Renderer {
  readonly name = "webgl2";
  private gl: WebGL2RenderingContext;
  private program!: WebGLProgram;
  private buffers: Record<"positions" | "radii" | "colours" | "marks", WebGLBuffer | null> = {
    positions: null,
    radii: null,
    colours: null,
    marks: null,
  };
  private uniforms: Record<string, WebGLUniformLocation | null> = {};
  private attributes: Record<string, number> = {};
  private colours: Uint8Array;
  private marks: Uint8Array;
  private last: Frame | null = null;

  constructor(
    private canvas: HTMLCanvasElement,
    private cloud: Cloud,
  ) {
    const gl = canvas.getContext("webgl2", { alpha: true, antialias: false, premultipliedAlpha: true });
    if (!gl) throw new Error("no WebGL 2");
    this.gl = gl;
    this.colours = new Uint8Array(4 * cloud.n);
    this.marks = new Uint8Array(cloud.n);
    this.start();
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => {
      this.start();
      if (this.last) this.draw(this.last);
    });
  }

  private start(): void {
    const { gl, cloud } = this;
    this.program = linked(gl);
    gl.useProgram(this.program);
    for (const name of ["before", "after", "radiusBefore", "radiusAfter", "colourBefore", "colourAfter", "mark"]) {
      this.attributes[name] = gl.getAttribLocation(this.program, name);
      gl.enableVertexAttribArray(this.attributes[name]);
    }
    for (const name of ["transform", "part", "grow", "ratio", "outline"]) {
      this.uniforms[name] = gl.getUniformLocation(this.program, name);
    }
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    for (const name of ["positions", "radii", "colours", "marks"] as const) this.buffers[name] = gl.createBuffer();
    this.fill("positions", cloud.positions);
    this.fill("radii", cloud.radii);
    this.fill("colours", this.colours);
    this.fill("marks", this.marks);
  }

  private fill(name: keyof typeof this.buffers, data: ArrayBufferView<ArrayBufferLike>): void {
    const { gl } = this;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffers[name]);
    gl.bufferData(gl.ARRAY_BUFFER, data as ArrayBufferView<ArrayBuffer>, gl.STATIC_DRAW);
  }

  colour(colours: Uint8Array): void {
    this.colours = colours;
    this.fill("colours", colours);
  }

  mark(marks: Uint8Array): void {
    this.marks = marks;
    this.fill("marks", marks);
  }

  draw(frame: Frame): void {
    this.last = frame;
    const { gl, uniforms, attributes, buffers } = this;
    const { n } = this.cloud;
    const [width, height] = [Math.round(frame.width * frame.ratio), Math.round(frame.height * frame.ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    const point = (name: string, buffer: WebGLBuffer | null, size: number, type: number, unit: boolean, at: number) => {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.vertexAttribPointer(attributes[name], size, type, unit, 0, at);
    };
    point("before", buffers.positions, 2, gl.SHORT, false, 4 * n * frame.from);
    point("after", buffers.positions, 2, gl.SHORT, false, 4 * n * frame.to);
    point("radiusBefore", buffers.radii, 1, gl.UNSIGNED_BYTE, false, n * frame.from);
    point("radiusAfter", buffers.radii, 1, gl.UNSIGNED_BYTE, false, n * frame.to);
    const perStep = this.colours.length > 4 * n ? 4 * n : 0;
    point("colourBefore", buffers.colours, 4, gl.UNSIGNED_BYTE, true, perStep * frame.from);
    point("colourAfter", buffers.colours, 4, gl.UNSIGNED_BYTE, true, perStep * frame.to);
    point("mark", buffers.marks, 1, gl.UNSIGNED_BYTE, false, 0);
    gl.uniform4f(
      uniforms.transform,
      (2 * frame.scale) / frame.width,
      (2 * frame.scale) / frame.height,
      (2 * frame.x) / frame.width - 1,
      1 - (2 * frame.y) / frame.height,
    );
    gl.uniform1f(uniforms.part, frame.part);
    gl.uniform1f(uniforms.grow, frame.grow);
    gl.uniform1f(uniforms.ratio, frame.ratio);
    gl.uniform3f(uniforms.outline, frame.outline[0] / 255, frame.outline[1] / 255, frame.outline[2] / 255);
    gl.drawArrays(gl.POINTS, 0, n);
    for (const node of frame.top) gl.drawArrays(gl.POINTS, node, 1);
  }

  dispose(): void {
    this.gl.getExtension("WEBGL_lose_context")?.loseContext();
  }
}

function linked(gl: WebGL2RenderingContext): WebGLProgram {
  const program = gl.createProgram();
  for (const [type, source] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(type)!;
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  if (!gl.getProgramParameter(program, gl.LINK_STATUS) && !gl.isContextLost()) {
    throw new Error("the shaders do not link");
  }
  return program;
}
