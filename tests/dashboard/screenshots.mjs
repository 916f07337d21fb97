// The images of docs/images, from a cluster of `allot up` with modelled hardware: node screenshots.mjs
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { end, open } from "./harness.mjs";
import { cluster } from "./populate.mjs";

const file = (name) => fileURLToPath(new URL(`../../docs/images/dashboard-${name}.png`, import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "screenshots-"));
try {
  const { link } = await cluster(folder);
  /** The map with all its nodes; then it has been drawn. */
  const map = async (options) => {
    const page = await open(link, options);
    await page.locator(".figure strong").nth(2).filter({ hasText: /^18$/ }).waitFor();
    return page;
  };
  const drawn = (page) => page.evaluate(() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go))));
  const dark = await map();
  await drawn(dark);
  await dark.screenshot({ path: file("dark") });
  await dark.evaluate(() => (location.hash = "#pending"));
  await dark.getByRole("article", { name: "Pod default/too-large" }).locator(".funnel").first().waitFor();
  await dark.getByRole("article", { name: "Pod default/wrong-model" }).locator(".funnel").first().waitFor();
  await dark.screenshot({ path: file("pending") });
  const light = await map({ scheme: "light" });
  await light.locator("#filter").fill("node-7");
  await light.locator("canvas").focus();
  await light.keyboard.press("ArrowRight");
  await light.locator(".details").waitFor();
  await drawn(light);
  await light.screenshot({ path: file("light") });
} finally {
  await end();
  rmSync(folder, { recursive: true, force: true });
}
process.exit(0);
