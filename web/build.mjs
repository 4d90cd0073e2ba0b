/** Bundle the page into the template that `dysat.report.pack` fills, and collect the licences of what it contains. */

import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "src", "dysat", "report");

const common = {
  absWorkingDir: here,
  bundle: true,
  minify: true,
  write: false,
  charset: "utf8",
  legalComments: "none",
  target: ["chrome105", "firefox121", "safari16.4"],
};
const bundle = await build({
  ...common,
  entryPoints: ["src/main.tsx"],
  format: "iife",
  metafile: true,
  jsx: "automatic",
  jsxImportSource: "preact",
});
const sheet = await build({ ...common, entryPoints: ["src/style.css"] });

const script = bundle.outputFiles[0].text.trim();
const style = sheet.outputFiles[0].text.trim();
for (const forbidden of ["</script", "<!--", "{{title}}", "{{data}}", "\r"]) {
  if (script.includes(forbidden)) throw new Error(`the script contains ${JSON.stringify(forbidden)}`);
}
for (const forbidden of ["</style", "{{", "\r", "url("]) {
  if (style.includes(forbidden)) throw new Error(`the style sheet contains ${JSON.stringify(forbidden)}`);
}

const policy = [
  "default-src 'none'",
  `script-src '${hash(script)}'`,
  `style-src '${hash(style)}'`,
  "img-src data: blob:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
let page = readFileSync(join(here, "src", "template.html"), "utf8");
const terms = licences(Object.keys(bundle.metafile.inputs));
if (terms.includes("--")) throw new Error("a licence would end the comment that it stands in");
for (const [name, text] of Object.entries({ csp: policy, style, script, licences: terms })) {
  page = page.replace(`%${name}%`, () => text);
}
writeFileSync(join(target, "page.html"), page);
writeFileSync(join(target, "licences.txt"), terms);
console.log(`page.html: ${Math.round(Buffer.byteLength(page) / 1024)} kB`);

function hash(text) {
  return `sha256-${createHash("sha256").update(text).digest("base64")}`;
}

/** Return the licences of the packages that the bundle contains code of; each text once. */
function licences(inputs) {
  const names = new Set();
  for (const path of inputs) {
    const found = /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path);
    if (found) names.add(found[1]);
  }
  const packages = new Map();
  for (const name of [...names].sort()) {
    const folder = join(here, "node_modules", name);
    const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (!file) throw new Error(`${name} has no licence file`);
    const text = readFileSync(join(folder, file), "utf8").replaceAll("\r\n", "\n").trim();
    packages.set(text, [...(packages.get(text) ?? []), `${name} ${version} (${license})`]);
  }
  const parts = [...packages].map(([text, names]) => `${names.join("\n")}\n\n${text}\n`);
  return ["This page contains code of the following packages.\n", ...parts].join(`\n${"=".repeat(80)}\n`);
}
