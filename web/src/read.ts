/** Decode the data of the page. */

import type { ArrayType, Content, Facts } from "./format";

const ALIGNED = 8; // bytes

const TYPES = {
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  i16: Int16Array,
  f32: Float32Array,
  f64: Float64Array,
} satisfies Record<ArrayType, unknown>;

/** Return the facts and arrays in a text that `dysat.report.pack` wrote. */
export async function read(text: string): Promise<Content> {
  const bytes = await decoded(text.trim());
  const length = new DataView(bytes).getUint32(0, true);
  const facts = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length))) as Facts;
  if (facts.format !== 1) throw new Error(`this page cannot read format ${String(facts.format)}`);
  const start = Math.ceil((4 + length) / ALIGNED) * ALIGNED;
  return {
    facts,
    array(name) {
      if (!Object.hasOwn(facts.arrays, name)) return null;
      const { type, shape, at } = facts.arrays[name];
      return new TYPES[type](bytes, start + at, shape.reduce((product, size) => product * size, 1));
    },
  };
}

async function decoded(text: string): Promise<ArrayBuffer> {
  try {
    return await inflated(fromBase64(text));
  } catch {
    throw new Error("its data is damaged");
  }
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

function inflated(bytes: Uint8Array<ArrayBuffer>): Promise<ArrayBuffer> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}
