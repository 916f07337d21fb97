// The dashboard of a whole cluster of `allot up`: 18 nodes, devices of several drivers, running and pending pods.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { chrome, end, open, PATIENCE, start } from "./harness.mjs";
import { populate } from "./populate.mjs";

let up;
let served;
let folder;
before(async () => {
  folder = mkdtempSync(join(tmpdir(), "up-"));
  const kubeconfig = join(folder, "kubeconfig");
  up = await start(["up", "--dashboard", "--in-memory", "--listen", "127.0.0.1:0", "--nodes", "18", "--runtime", "simulated", "--kubeconfig-out", kubeconfig], "ready: ");
  await populate(kubeconfig);
  served = await start(["dashboard", "--kubeconfig", kubeconfig], "dashboard: ");
});
after(async () => {
  await end();
  rmSync(folder, { recursive: true, force: true });
});

const shows = (locator, text) => locator.filter({ hasText: text }).first().waitFor();

test("a real cluster is shown as it is", async () => {
  const page = await open(served.line.replace("dashboard: ", ""));
  await shows(page.locator(".figure strong").nth(2), /^18$/);
  await shows(page.locator(".legend button", { hasText: "In use" }).locator(".count"), /[1-9]/);
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
  await shows(page.getByRole("article", { name: "gpu.example.com", exact: true }), /largest request/);
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
