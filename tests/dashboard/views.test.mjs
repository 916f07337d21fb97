import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { dashboard, end, open } from "./harness.mjs";

let served;
before(async () => (served = await dashboard()));
after(end);
const shows = (locator, text) => locator.filter({ hasText: text }).first().waitFor();

test("a pod that waits is explained, check by check", async () => {
  const page = await open(served.link, { hash: "#pending" });
  await shows(page.locator("h1"), "3 pods wait for devices");
  const pod = page.getByRole("article", { name: "Pod research/waiting-1" });
  // A selector that no device matches.
  await shows(pod.locator(".funnel .miss"), "match the selector");
  await shows(pod.locator(".funnel .miss code"), "Aurora-96");
  await shows(pod.locator(".funnel .miss .left"), /^0$/);
  await shows(pod, "of 18 nodes");
  await shows(pod, "Nearest:");
  assert.deepEqual(page.problems, []);
  // A pod that got its devices is shown no more.
  served.api.remove("pods", "research/waiting-2");
  await shows(page.locator("h1"), "2 pods wait for devices");
});

test("regression: a pod that is held back by more than nodes is not said to fit", async () => {
  const page = await open(served.link, { hash: "#map" });
  const fits = { fits: false, nodeCount: 18, fitting: { count: 18, nodes: ["node-0"] } };
  const reports = {
    "research/waiting-1": {
      ...fits,
      gang: {
        group: "research/train", minCount: 3, pods: 3, placed: 1, fits: false, reason: "2 of 3 pods have places",
        members: [{ pod: "research/late", placed: false, reason: "its claim is not there" }],
        leftOut: {
          pod: "research/last", reason: "no node is left", nodeCount: 18,
          groups: [{ count: 18, nodes: ["node-7"], rejected: { plugin: "x", reason: "cannot be used" }, unavailable: ["claim a is elsewhere"] }],
        },
      },
    },
    "research/waiting-0": { ...fits, fits: true, problems: ["claim b: waits for the condition Ready"], quota: "exceeded quota: q" },
  };
  const asked = (url) => url.pathname.endsWith("/api/explain");
  await page.route(asked, (route) => {
    const pods = new URL(route.request().url()).searchParams.getAll("pod");
    return route.fulfill({ json: { pods: pods.map((pod) => ({ pod, ...(reports[pod] ?? { ...fits, fits: true }) })) } });
  });
  await page.evaluate(() => (location.hash = "#pending"));
  const gang = page.getByRole("article", { name: "Pod research/waiting-1" });
  for (const text of ["gang research/train", "2 of 3 pods have places", "research/late: its claim is not there", "research/last has no place beside", "node-7", "claim a is elsewhere"]) {
    await shows(gang, text);
  }
  const problems = page.getByRole("article", { name: "Pod research/waiting-0" });
  await shows(problems, "waits for the condition Ready");
  await shows(problems, "exceeded quota: q");
  for (const pod of [gang, problems]) assert.equal(await pod.getByText("fits on").count(), 0);
  assert.deepEqual(page.problems, []);
});

test("claims have lives, and leaks are named", async () => {
  const leaked = structuredClone(served.api.list("resourceclaims").find((c) => c.status?.reservedFor));
  delete leaked.status.reservedFor;
  served.api.put("resourceclaims", leaked);
  const page = await open(served.link, { hash: "#claims" });
  const leaks = page.getByRole("button", { name: /^Leaks/ });
  await shows(leaks, /[1-9]/);
  await leaks.click();
  await page.locator("#claims").fill(leaked.metadata.name);
  const row = page.locator(".lives li", { hasText: leaked.metadata.name });
  await shows(row, "allocated, and reserved for nobody");
  await row.getByRole("button").click();
  await shows(row.locator(".story"), /allocated \d+ device/);
  await shows(row.locator(".story"), "reserved for nobody");
  // A device that no slice has any longer.
  const gone = structuredClone(leaked);
  gone.status.reservedFor = [{ resource: "pods", name: "p", uid: "u" }];
  gone.status.allocation.devices.results[0].device = "vanished";
  served.api.put("resourceclaims", gone);
  await shows(row, "no slice has");
  assert.deepEqual(page.problems, []);
});

test("utilisation and fragmentation of each class are drawn", async () => {
  const page = await open(served.link, { hash: "#history" });
  for (const name of ["All devices", "gpu.example.com", "large.example.com", "nic.example.com"]) {
    const chart = page.getByRole("article", { name, exact: true });
    await shows(chart, /\d+% in use/);
    await chart.locator("polyline.used").waitFor({ state: "attached" });
  }
  assert.deepEqual(page.problems, []);
});

test("regression: the first sample of the history is of all devices with their claims, in all classes", async () => {
  const page = await open(served.link, { hash: "#history" });
  await page.locator(".chart").first().waitFor();
  const first = await page.locator(".chart svg").evaluateAll((all) => all.map((svg) => svg.getAttribute("aria-label")));
  assert.ok(first.length >= 4, `classes were not known: ${first}`);
  const [all] = first.filter((text) => text.startsWith("All devices: "));
  assert.doesNotMatch(all, /^All devices: 0% in use/, "claims were not known");
  assert.deepEqual(page.problems, []);
});

test("where rights are missing, the page says so and shows the rest", async () => {
  const own = await dashboard({ namespace: "research" });
  own.api.forbidden.add("resourceclaims");
  own.api.forbidden.add("deviceclasses");
  const page = await open(own.link);
  const troubles = page.getByRole("list", { name: "What is not shown" });
  await shows(troubles, "Only claims of namespace research are shown");
  await shows(troubles, "deviceclasses is forbidden");
  await shows(page.locator(".figure strong").nth(1), /^144$/);
  await own.stop();
});
