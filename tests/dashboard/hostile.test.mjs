// Names, attributes and messages of attackers: drivers, users and tenants write them, the reader's browser shows them.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { fleet } from "./fleet.mjs";
import { dashboard, end, open } from "./harness.mjs";

const ATTACKS = [
  "<img src=x onerror=\"window.pwned=1;alert(1)\">",
  "<script>window.pwned=1</script>",
  "\"><svg onload=window.pwned=1>",
  "javascript:window.pwned=1",
  "{{constructor.constructor('window.pwned=1')()}}",
  "\u202egnp.\u0000\u001b[31m",
  "__proto__", "constructor", "toString", "x".repeat(5000), "",
];

/** Every text of an object that is not needed to find it, made hostile. */
function poisoned() {
  const objects = fleet({ nodes: 18 });
  let turn = 0;
  const attack = () => ATTACKS[turn++ % ATTACKS.length];
  for (const slice of objects.resourceslices) {
    const { spec } = slice;
    if (slice.metadata.name.startsWith("node-1")) spec.nodeName = attack() || "n";
    for (const device of spec.devices) {
      if (slice.metadata.name.startsWith("node-2")) device.name = attack() || "d";
      const attributes = Object.entries(device.attributes).map(([name]) => [name, { string: attack() }]);
      device.attributes = Object.fromEntries([...attributes, ...ATTACKS.map((name) => [name, { string: attack() }])]);
      device.attributes.odd = { list: [null, { deep: true }], other: null };
      if (slice.metadata.name.startsWith("node-3")) device.taints = [{ key: attack(), value: attack(), effect: "NoExecute" }];
    }
  }
  // The API would not store this; a proxy or a bug may send it nevertheless.
  objects.resourceslices.push(
    { metadata: { name: "no-spec" } },
    { metadata: { name: "no-devices" }, spec: { driver: "x", pool: { name: "p" }, devices: null } },
    { metadata: { name: "strange" }, spec: { driver: 7, pool: { name: [] }, nodeName: {}, devices: [{ name: 5, attributes: [], capacity: "x", taints: {}, consumesCounters: 7 }] } },
    { metadata: { name: "__proto__" }, spec: { driver: "__proto__", pool: { name: "__proto__" }, devices: [{ name: "__proto__", attributes: { "": {} } }] } },
  );
  for (const claim of objects.resourceclaims.slice(0, 60)) {
    for (const consumer of claim.status?.reservedFor ?? []) consumer.name = attack() || "p";
    claim.metadata.ownerReferences = [{ kind: attack(), name: attack() }];
    if (claim.status) {
      claim.status.devices = claim.status.allocation.devices.results.map((r) => ({
        ...r, conditions: [{ type: "Ready", status: "False", message: attack(), lastTransitionTime: attack() }],
      }));
    }
  }
  objects.resourceclaims.push({ metadata: { name: "odd", namespace: "x", creationTimestamp: "never" }, status: { allocation: { devices: { results: "none" } }, reservedFor: {} } });
  for (const pod of objects.pods) pod.status.conditions = [{ type: "PodScheduled", status: "False", message: attack() }];
  objects.deviceclasses.push({ metadata: { name: "<b>bold</b>" }, spec: { selectors: [{ cel: { expression: "<img src=x onerror=alert(1)>" } }] } });
  return objects;
}

let served;
before(async () => (served = await dashboard({ objects: poisoned() })));
after(end);

async function unharmed(page) {
  assert.equal(await page.evaluate(() => globalThis.pwned), undefined);
  assert.equal(await page.evaluate(() => ({}).polluted ?? Object.prototype.string), undefined);
  const made = await page.evaluate(() => document.querySelectorAll("#app img, #app script, #app [onerror], #app [onload], #app iframe, #app a[href^=javascript]").length);
  assert.equal(made, 0, "text became markup");
  assert.deepEqual(page.problems, []);
}

test("hostile devices are shown as text, on the map and in the table", async () => {
  const page = await open(served.link);
  await page.locator("canvas").focus();
  for (let i = 0; i < 30; i++) {
    await page.keyboard.press("ArrowRight");
    await page.locator(".details").waitFor();
  }
  for (const way of await page.getByLabel("Group by").locator("option").all()) {
    await page.getByLabel("Group by").selectOption(await way.getAttribute("value"));
  }
  await page.getByLabel("Group by").selectOption("node");
  await page.getByRole("button", { name: "Table" }).click();
  for (const text of ["__proto__", "\"><svg", "nic.example.com <img"]) {
    await page.locator("#filter").fill(text);
    await page.locator("tbody button").first().click();
    await page.locator(".details").waitFor();
  }
  await page.locator(".details").getByText("<img src=x onerror").first().waitFor();
  await unharmed(page);
});

test("hostile claims and pods are shown as text", async () => {
  const page = await open(served.link, { hash: "#claims" });
  const rows = page.locator(".lives > li > button");
  await rows.first().waitFor();
  for (let i = 0; i < 12; i++) await rows.nth(i).click();
  await page.evaluate(() => (location.hash = "#pending"));
  await page.locator("article").first().waitFor();
  await page.evaluate(() => (location.hash = "#history"));
  await page.locator(".chart").first().waitFor();
  await unharmed(page);
});

test("what a filter says is text", async () => {
  const page = await open(served.link);
  await page.getByRole("button", { name: "CEL" }).click();
  await page.locator("#filter").fill("'<img src=x onerror=window.pwned=1>'");
  await page.locator(".note.bad").waitFor();
  await unharmed(page);
});
