// Frames per second of the map: node fps.mjs [NODES [LINK]]. Without a link, a dashboard before a made-up cluster is
// started, whose claims change while it is measured.
import { closeBrowser, dashboard, open } from "./harness.mjs";
import { FakeApi, live } from "./fake-api.mjs";
import { fleet } from "./fleet.mjs";
import { measure } from "./frames.mjs";

const [, , nodes = "5000", link] = process.argv;
const api = link ? null : new FakeApi(fleet({ nodes: Number(nodes) }));
const served = api ? await dashboard({ api }) : null;
const changes = api ? live(api, 100) : null;
const begun = performance.now();
const page = await open(link ?? served.link, { width: 1920, height: 1080 });
const loaded = performance.now() - begun;
await page.waitForFunction(() => document.querySelector(".figure strong") && !document.querySelector(".status.loading"));

console.log(`${await page.locator(".figure strong").nth(1).textContent()} devices on ${nodes} nodes, complete after ${(loaded / 1000).toFixed(1)} s`);
for (const kind of ["move", "zoom", "near"]) {
  await page.getByRole("button", { name: "Fit" }).click();
  const { fps, slow, worst } = await measure(page, kind);
  console.log(`${kind}: ${fps.toFixed(0)} frames a second; 95% of frames within ${slow.toFixed(0)} ms, the longest ${worst.toFixed(0)} ms`);
}
if (changes) clearInterval(changes);
await closeBrowser();
await served?.stop();
process.exit(0);
