import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { dashboard, end, open } from "./harness.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
let served;
before(async () => (served = await dashboard()));
after(end);

/** What axe finds, one line each. */
async function findings(page) {
  // By the debugger, which the page's policy does not bind.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" | ")}`);
}

const READY = { "#map": ".figures", "#pending": ".funnel", "#claims": ".lives li", "#history": ".chart" };

for (const scheme of ["dark", "light"]) {
  for (const width of [1024, 1920]) {
    let page;
    const shown = async (hash) => {
      page ??= await open(served.link, { scheme, width });
      await page.evaluate((to) => (location.hash = to), hash);
      await page.locator(READY[hash]).first().waitFor();
    };
    for (const hash of Object.keys(READY)) {
      test(`${hash} is accessible, ${scheme}, ${width} pixels wide`, async () => {
        await shown(hash);
        if (hash === "#map") {
          await page.locator("canvas").focus();
          await page.keyboard.press("ArrowRight");
          await page.locator(".details").waitFor();
          assert.deepEqual(await findings(page), []);
          await page.getByRole("button", { name: "Table" }).click();
          await page.locator("tbody").waitFor();
        }
        if (hash === "#claims") {
          await page.locator(".lives button").first().click();
          await page.locator(".story").waitFor();
        }
        assert.deepEqual(await findings(page), []);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `it is ${wide} pixels too wide`);
      });
    }
  }
}
