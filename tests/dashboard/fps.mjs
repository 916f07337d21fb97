// Frames per second of the map: node fps.mjs [NODES [LINK]]. Without a link, a dashboard before a made-up cluster is
// started, whose claims change while it is measured. Every frame moves or zooms the whole map, so that every frame is
// painted anew.
import { closeBrowser, dashboard, open } from "./harness.mjs";
import { FakeApi, live } from "./fake-api.mjs";
import { fleet } from "./fleet.mjs";

const [, , nodes = "5000", link] = process.argv;
const api = link ? null : new FakeApi(fleet({ nodes: Number(nodes) }));
const served = api ? await dashboard({ api }) : null;
const changes = api ? live(api, 100) : null;
const begun = performance.now();
const page = await open(link ?? served.link, { width: 1920, height: 1080 });
const loaded = performance.now() - begun;
await page.waitForFunction(() => document.querySelector(".figure strong") && !document.querySelector(".status.loading"));

const measure = (kind) =>
  page.evaluate(async (kind) => {
    const canvas = document.querySelector("canvas");
    const area = canvas.getBoundingClientRect();
    const at = { clientX: area.left + area.width / 2, clientY: area.top + area.height / 2, bubbles: true };
    const wheel = (deltaY) => canvas.dispatchEvent(new WheelEvent("wheel", { ...at, deltaY, cancelable: true }));
    const frames = [];
    let last = performance.now();
    const end = last + 10_000;
    let turn = 0;
    canvas.setPointerCapture = () => {};
    if (kind === "near") for (let i = 0; i < 12; i++) wheel(-120);
    canvas.dispatchEvent(new PointerEvent("pointerdown", { ...at, pointerId: 1 }));
    while (last < end) {
      await new Promise(requestAnimationFrame);
      const now = performance.now();
      frames.push(now - last);
      last = now;
      turn++;
      if (kind === "zoom") wheel(Math.sin(turn / 20) * 40);
      else {
        const [dx, dy] = [Math.sin(turn / 25) * 200, Math.cos(turn / 18) * 120];
        canvas.dispatchEvent(new PointerEvent("pointermove", { ...at, clientX: at.clientX + dx, clientY: at.clientY + dy, pointerId: 1 }));
      }
    }
    canvas.dispatchEvent(new PointerEvent("pointerup", { ...at, pointerId: 1 }));
    frames.sort((a, b) => a - b);
    const sum = frames.reduce((all, frame) => all + frame, 0);
    return { fps: (1000 * frames.length) / sum, slow: frames[Math.floor(frames.length * 0.95)], worst: frames.at(-1) };
  }, kind);

console.log(`${await page.locator(".figure strong").nth(1).textContent()} devices on ${nodes} nodes, complete after ${(loaded / 1000).toFixed(1)} s`);
for (const kind of ["move", "zoom", "near"]) {
  await page.getByRole("button", { name: "Fit" }).click();
  const { fps, slow, worst } = await measure(kind);
  console.log(`${kind}: ${fps.toFixed(0)} frames a second; 95% of frames within ${slow.toFixed(0)} ms, the longest ${worst.toFixed(0)} ms`);
}
if (changes) clearInterval(changes);
await closeBrowser();
await served?.stop();
process.exit(0);
