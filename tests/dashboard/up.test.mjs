// The dashboard of a whole cluster of `allot up`: 18 nodes with hardware of several models, running and pending pods.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chrome, end, open, PATIENCE } from "./harness.mjs";
import { cluster } from "./populate.mjs";

let served;
let folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "up-"));
  served = await cluster(folder);
});
after(async () => {
  await end();
  rmSync(folder, { recursive: true, force: true });
});

const shows = (locator, text) => locator.filter({ hasText: text }).first().waitFor();
const figure = (page, at) => page.locator(".figure strong").nth(at);

test("a real cluster is shown as it is", async () => {
  const page = await open(served.link);
  await shows(figure(page, 2), /^18$/);
  for (const state of ["In use", "Partly used", "Unhealthy", "Incomplete pool"]) {
    await shows(page.locator(".legend button", { hasText: state }).locator(".count"), /[1-9]/);
  }
  await page.locator("#filter").fill("train-0");
  await page.getByRole("button", { name: "Table" }).click();
  await page.locator("tbody button").first().click();
  await shows(page.locator(".holder"), "pod train-0");
  await shows(page.locator(".holder"), "Running");
  await page.evaluate(() => (location.hash = "#pending"));
  const pod = page.getByRole("article", { name: "Pod default/too-large" });
  await shows(pod.locator(".funnel .miss"), "published");
  await page.evaluate(() => (location.hash = "#claims"));
  await shows(page.locator(".lives li").first(), /Reserved|Waiting/);
  await page.evaluate(() => (location.hash = "#history"));
  await shows(page.getByRole("article", { name: "gpu.nvidia.com", exact: true }), /largest request/);
  assert.deepEqual(page.problems, []);
});

test("several models are found, grouped and chosen", async () => {
  const page = await open(served.link);
  await shows(figure(page, 2), /^18$/);
  await page.getByLabel("Group by").selectOption({ label: "Driver" });
  // NVIDIA, its compute domains, AMD, Intel, Google, networks of two drivers, drives, and the one that has stopped.
  await shows(figure(page, 2), /^9$/);
  await page.getByLabel("Group by").selectOption({ label: "Node" });
  await page.getByRole("button", { name: "CEL" }).click();
  await page.locator("#filter").fill('device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].productName == "NVIDIA GB200"');
  // Six trays of four.
  await shows(figure(page, 1), /^24$/);
  await page.getByRole("button", { name: "CEL" }).click();
  // A GPU with its MIG partitions is one tile, whose parts can be looked at.
  await page.locator("#filter").fill("node-6 gpu-0-mig");
  await page.getByRole("button", { name: "Table" }).click();
  await page.locator("tbody button").first().click();
  await shows(page.locator(".details"), "partitions");
  assert.ok((await page.locator(".parts button").count()) > 20);
  assert.deepEqual(page.problems, []);
});

test("the API server's own port has the page, for readers with a token", async () => {
  const text = readFileSync(join(folder, "kubeconfig"), "utf8");
  const field = (name) => new RegExp(`${name}: (.*)`).exec(text)[1].trim();
  // Its certificate is of an authority that no browser knows.
  const context = await (await chrome()).newContext({ ignoreHTTPSErrors: true });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  await page.goto(`${field("server")}/dashboard`);
  await page.getByLabel("Token").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await shows(page.locator(".warn"), "Unauthorized");
  await page.getByLabel("Token").fill(field("token"));
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".status.live").waitFor();
  await shows(page.locator(".figure strong").nth(2), /^18$/);
  assert.equal(new URL(page.url()).search, "");
  assert.deepEqual(await context.cookies(), []);
  await page.evaluate(() => (location.hash = "#pending"));
  await page.getByRole("article", { name: "Pod default/too-large" }).locator(".funnel").first().waitFor();
  await context.close();
});
