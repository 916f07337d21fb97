// Builds the page into crates/dashboard/assets, reproducibly: `npm ci && npm run build`. `--check` builds elsewhere and
// fails if the assets differ.
import { build } from "esbuild";
import { mkdtempSync, readFileSync, writeFileSync, copyFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const assets = join(here, "../crates/dashboard/assets");
const check = process.argv.includes("--check");
const out = check ? mkdtempSync(join(tmpdir(), "dashboard-")) : assets;

await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.tsx" },
  bundle: true,
  minify: true,
  format: "iife",
  target: ["chrome115", "firefox115", "safari16"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  charset: "utf8",
  outfile: join(out, "app.js"),
});
await build({
  absWorkingDir: here,
  entryPoints: ["src/app.css"],
  minify: true,
  outfile: join(out, "app.css"),
});
for (const file of ["index.html", "icon.svg"]) copyFileSync(join(here, "src", file), join(out, file));
const licence = readFileSync(join(here, "node_modules/preact/LICENSE"), "utf8");
writeFileSync(join(out, "licences.txt"), `This page contains Preact (https://preactjs.com):\n\n${licence}`);

if (check) {
  const differ = ["index.html", "icon.svg", "app.js", "app.css", "licences.txt"].filter(
    (file) => !readFileSync(join(out, file)).equals(readFileSync(join(assets, file))),
  );
  if (differ.length > 0) {
    console.error(`crates/dashboard/assets is not what web/ builds: ${differ.join(", ")}; run npm run build`);
    process.exit(1);
  }
}
