// An artificial API server, the real `allot dashboard` in front of it, and a real Chromium in front
// of that.
import { execFile, spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { chromium } from "playwright-core";
import { FakeApi, kubeconfig } from "./fake-api.mjs";
import { fleet } from "./fleet.mjs";

const root = fileURLToPath(new URL("../..", import.meta.url));
const ALLOT = process.env.ALLOT_BIN ?? join(process.env.CARGO_TARGET_DIR ?? join(root, "target"), "debug/allot");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** How long anything may take: much longer than on a machine with a busy core. */
export const PATIENCE = 90_000;

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync",
];

let browser;
/** What runs: a test that fails stops nothing, and its file must end all the same. */
const running = new Set();

/** The browser of this process. */
export async function chrome() {
  if (!existsSync(CHROMIUM)) throw new Error(`there is no ${CHROMIUM}`);
  browser ??= await chromium.launch({ executablePath: CHROMIUM, args: FLAGS, timeout: PATIENCE });
  return browser;
}

/** Starts a program, and returns it with the first line that contains a word. */
export async function start(args, word, options = {}) {
  const child = spawn(ALLOT, args, { stdio: ["ignore", "pipe", "pipe"], ...options });
  running.add(child);
  let text = "";
  child.errors = "";
  child.stderr.on("data", (data) => (child.errors = (child.errors + data).slice(-100_000)));
  const line = await new Promise((found, failed) => {
    const timer = setTimeout(() => failed(new Error(`no ${word} in: ${text}${child.errors}`)), PATIENCE);
    child.on("error", failed);
    child.on("exit", (code) => failed(new Error(`${args[0]} ended with ${code}: ${child.errors}`)));
    child.stdout.on("data", (data) => {
      text += data;
      const line = text.split("\n").slice(0, -1).find((line) => line.includes(word));
      if (line === undefined) return;
      clearTimeout(timer);
      found(line);
    });
  });
  return { child, line };
}

/** What a command prints that ends by itself. */
export async function run(args) {
  return (await promisify(execFile)(ALLOT, args, { timeout: PATIENCE })).stdout;
}

export async function stop(child) {
  running.delete(child);
  if (child.exitCode !== null || child.signalCode !== null) return;
  const gone = new Promise((go) => child.once("exit", go));
  child.kill("SIGTERM");
  const late = setTimeout(() => child.kill("SIGKILL"), PATIENCE);
  await gone;
  clearTimeout(late);
}

/** A dashboard before a made-up cluster. */
export async function dashboard({ objects = fleet(), flags = [], api = new FakeApi(objects), namespace } = {}) {
  const url = await api.start();
  running.add(api);
  const folder = mkdtempSync(join(tmpdir(), "dashboard-test-"));
  const file = join(folder, "kubeconfig");
  writeFileSync(file, kubeconfig(url, namespace));
  const { child, line } = await start(["dashboard", "--kubeconfig", file, ...flags], "dashboard: ");
  const link = line.replace("dashboard: ", "").trim();
  return {
    api, link, child, file,
    async stop() {
      await stop(child);
      stopApi(api);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function stopApi(api) {
  if (running.delete(api)) api.stop();
}

/** A page that has everything from the cluster. What goes wrong in it is collected. */
export async function open(link, { scheme = "dark", width = 1440, height = 900, hash = "", script } = {}) {
  const context = await (await chrome()).newContext({ colorScheme: scheme, viewport: { width, height }, reducedMotion: "reduce" });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  if (script) await page.addInitScript(script);
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(error.message));
  page.on("console", (message) => {
    // The browser also logs responses that are rejected on purpose.
    if (message.type() === "error" && !/status of (40[0-9]|50[0-9])/.test(message.text())) page.problems.push(message.text());
  });
  page.on("dialog", (dialog) => {
    page.problems.push(`dialog: ${dialog.message()}`);
    void dialog.dismiss();
  });
  await page.goto(link);
  if (hash) await page.evaluate((to) => (location.hash = to), hash);
  await page.locator(".status.live").waitFor();
  return page;
}

/** Ends the browser. */
export async function closeBrowser() {
  await browser?.close();
  browser = undefined;
}

/** Ends everything that a file of tests has started. */
export async function end() {
  await closeBrowser();
  for (const started of running) await (started instanceof FakeApi ? stopApi(started) : stop(started));
}
