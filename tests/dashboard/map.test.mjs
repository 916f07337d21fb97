import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fleet } from "./fleet.mjs";
import { dashboard, end, open } from "./harness.mjs";

let served;
let page;
before(async () => {
  served = await dashboard();
  page = await open(served.link);
});
after(end);

const figure = (at) => page.locator(".figure strong").nth(at);
const count = (state) => page.locator(".legend button", { hasText: state }).locator(".count");
const filter = page => page.locator("#filter");
const shows = (locator, text) => locator.filter({ hasText: text }).first().waitFor();

test("every device is counted in its state", async () => {
  await shows(figure(1), /^144$/);
  await shows(figure(2), /^18$/);
  await shows(count("Incomplete pool"), /^16$/);
  await shows(count("Unhealthy"), /^1$/);
  // One by its own taint, and the free devices of the pool that a rule taints.
  await shows(page.locator(".legend button", { hasText: "Tainted" }), /\d+$/);
});

test("keys go from device to device, and the details say who has it", async () => {
  await page.locator("canvas").focus();
  await page.keyboard.press("ArrowRight");
  const details = page.locator(".details");
  await shows(details.locator("h2"), "gpu-0");
  await shows(details, "gpu.example.com");
  await shows(details, "resource.kubernetes.io/pcieRoot");
  await shows(page.locator("[aria-live=polite]"), "gpu-0 on node-0");
  await filter(page).fill("node-0 research");
  await page.getByRole("button", { name: "Table" }).click();
  await page.locator("tbody button").first().click();
  await shows(details.locator(".holder"), /since .+\(/);
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Map", exact: true }).click();
  await filter(page).fill("");
});

test("a click on the map selects what is there", async () => {
  await filter(page).fill("node-5 gpu-3");
  await shows(figure(1), /^1$/);
  // One tile is in the middle of its box.
  const area = await page.locator("canvas").boundingBox();
  for (let dy = -40; dy <= 60 && (await page.locator(".details").count()) === 0; dy += 10) {
    await page.mouse.click(area.x + area.width / 2 - 20, area.y + area.height / 2 + dy);
    // What the click has changed is drawn after the second frame.
    await page.evaluate(() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go))));
  }
  await shows(page.locator(".details h2"), "gpu-3");
  await page.keyboard.press("Escape");
  await page.locator(".details").waitFor({ state: "detached" });
  await filter(page).fill("");
});

test("partitions are shown with what they share", async () => {
  await filter(page).fill("node-7 gpu-0-whole");
  await page.getByRole("button", { name: "Table" }).click();
  await page.locator("tbody button").first().click();
  await shows(page.locator(".details"), "10 partitions");
  assert.equal(await page.locator(".details progress").count(), 2);
  await page.locator(".parts button").first().click();
  await shows(page.locator(".details h3.name"), "gpu-0-whole");
  await page.getByRole("button", { name: "Close" }).click();
  await page.getByRole("button", { name: "Map", exact: true }).click();
  await filter(page).fill("");
});

test("an expression is evaluated as the scheduler does", async () => {
  const cel = page.getByRole("button", { name: "CEL" });
  await cel.click();
  await filter(page).fill('device.attributes["gpu.example.com"].model == "Borealis-24"');
  await shows(page.locator(".note"), /selects 8 devices|no answer on/);
  await shows(figure(1), /^8$/);
  await filter(page).fill("device.nothing ==");
  await shows(page.locator(".note.bad"), "compilation failed");
  await filter(page).fill("");
  await cel.click();
  await shows(figure(1), /^144$/);
});

test("devices are grouped by what they are and where they are", async () => {
  const by = page.getByLabel("Group by");
  for (const [way, groups] of [["Driver", 2], ["Device class", 3], ["PCIe root", null], ["NUMA node", null], ["Domain", null], ["Pool", null]]) {
    await by.selectOption({ label: way });
    if (groups !== null) await shows(figure(2), new RegExp(`^${groups}$`));
  }
  await by.selectOption({ label: "Node" });
  await shows(figure(2), /^18$/);
});

test("states can be chosen", async () => {
  const state = page.locator(".legend button", { hasText: "Incomplete pool" });
  await state.click();
  await shows(figure(2), /^2$/);
  await state.click();
  await shows(figure(2), /^18$/);
});

test("changes are seen as they come, over the end of a watch", async () => {
  const free = async () => Number((await count("Free").textContent()).replace(",", ""));
  const before = await free();
  const claim = served.api.list("resourceclaims").find((claim) => {
    const results = claim.status?.allocation?.devices.results ?? [];
    return results.length === 1 && results[0].driver === "gpu.example.com" && /^gpu-\d$/.test(results[0].device) && results[0].pool !== "node-4";
  });
  const name = `${claim.metadata.namespace}/${claim.metadata.name}`;
  served.api.remove("resourceclaims", name);
  await shows(count("Free"), new RegExp(`^${before + 1}$`));
  // The server drops the watch history: everything is listed again.
  served.api.expire();
  served.api.put("resourceclaims", claim);
  await shows(count("Free"), new RegExp(`^${before}$`));
  const slice = served.api.get("resourceslices", "node-0-gpu.example.com");
  served.api.remove("resourceslices", "node-0-gpu.example.com");
  await shows(figure(1), /^136$/);
  served.api.put("resourceslices", slice);
  await shows(figure(1), /^144$/);
});

/** Notes the middle of each rectangle that fades. */
function noteRings() {
  const { strokeRect } = CanvasRenderingContext2D.prototype;
  globalThis.rings = new Set();
  CanvasRenderingContext2D.prototype.strokeRect = function (x, y, width, height) {
    if (this.globalAlpha < 1) globalThis.rings.add(`${Math.round(x + width / 2)} ${Math.round(y + height / 2)}`);
    return strokeRect.call(this, x, y, width, height);
  };
}

test("regression: claims that were there when the page was opened have not changed", async () => {
  const own = await dashboard({ objects: fleet({ nodes: 180 }) });
  const page = await open(own.link, { script: noteRings });
  const free = page.locator(".legend button", { hasText: "Free" }).locator(".count");
  const before = Number(await free.textContent());
  const one = own.api.list("resourceclaims").find((claim) => {
    const results = claim.status?.allocation?.devices.results ?? [];
    return results.length === 1 && results[0].driver === "gpu.example.com" && /^gpu-\d$/.test(results[0].device) && results[0].pool === "node-20";
  });
  own.api.remove("resourceclaims", `${one.metadata.namespace}/${one.metadata.name}`);
  await shows(free, new RegExp(`^${before + 1}$`));
  await page.waitForFunction(() => globalThis.rings.size > 0);
  assert.equal(await page.evaluate(() => globalThis.rings.size), 1, "only what has changed has a ring");
  await own.stop();
});

test("nothing went wrong in the page", () => assert.deepEqual(page.problems, []));
