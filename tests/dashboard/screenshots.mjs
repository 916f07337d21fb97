// The images of docs/images, from an artificial cluster: node screenshots.mjs
import { fileURLToPath } from "node:url";
import { closeBrowser, dashboard, open } from "./harness.mjs";
import { fleet } from "./fleet.mjs";

const file = (name) => fileURLToPath(new URL(`../../docs/images/dashboard-${name}.png`, import.meta.url));
const served = await dashboard({ objects: fleet({ nodes: 180 }) });
const dark = await open(served.link);
await dark.locator(".figure strong").nth(1).filter({ hasText: "1,440" }).waitFor();
await dark.waitForTimeout(1000);
await dark.screenshot({ path: file("dark") });
await dark.evaluate(() => (location.hash = "#pending"));
await dark.locator(".funnel").first().waitFor();
await dark.screenshot({ path: file("pending") });
const light = await open(served.link, { scheme: "light" });
await light.locator("#filter").fill("node-13");
await light.locator("canvas").focus();
await light.keyboard.press("ArrowRight");
await light.locator(".details").waitFor();
await light.waitForTimeout(1000);
await light.screenshot({ path: file("light") });
await closeBrowser();
await served.stop();
process.exit(0);
