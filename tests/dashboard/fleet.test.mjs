// The map of a large cluster stays fluid: 40 000 devices of 5 000 nodes, while claims change.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { closeBrowser, dashboard, open } from "./harness.mjs";
import { FakeApi, live } from "./fake-api.mjs";
import { fleet } from "./fleet.mjs";
import { measure } from "./frames.mjs";

/** Milliseconds of a frame, of 30 a second. */
const FRAME = 1000 / 30;

let served, changes, page, session;
before(async () => {
  const api = new FakeApi(fleet({ nodes: 5000 }));
  served = await dashboard({ api });
  changes = live(api, 100);
  page = await open(served.link, { width: 1920, height: 1080 });
  await page.waitForFunction(() => document.querySelector(".figure strong") && !document.querySelector(".status.loading"));
  session = await page.context().newCDPSession(page);
  // The time of the thread itself: that of the clock would be that of everything else that runs on the machine, too.
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
});
after(async () => {
  clearInterval(changes);
  await closeBrowser();
  await served?.stop();
});

/** Milliseconds for which the page's thread has worked. */
async function worked() {
  const { metrics } = await session.send("Performance.getMetrics");
  return 1000 * metrics.find(({ name }) => name === "TaskDuration").value;
}

test("40 000 devices of 5 000 nodes are shown", async () => {
  assert.equal(await page.locator(".figure strong").nth(1).textContent(), "40,000");
});

for (const kind of ["move", "zoom", "near"]) {
  test(`the map of 40 000 devices can be painted 30 times a second: ${kind}`, async (t) => {
    await page.getByRole("button", { name: "Fit" }).click();
    const begun = await worked();
    const { frames, fps } = await measure(page, kind, 3);
    const each = ((await worked()) - begun) / frames;
    t.diagnostic(`${fps.toFixed(0)} frames a second, ${each.toFixed(1)} ms of work for each`);
    assert.ok(frames > 3, `${frames} frames`);
    assert.ok(each < FRAME, `${each.toFixed(1)} ms of work for a frame`);
  });
}
