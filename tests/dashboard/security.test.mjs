// Attacks on the server by other pages and other programs, through the real program and a real browser.
import assert from "node:assert/strict";
import { request } from "node:http";
import { createServer } from "node:http";
import { connect } from "node:net";
import { after, before, test } from "node:test";
import { chrome, dashboard, end, open, PATIENCE } from "./harness.mjs";

let served;
before(async () => (served = await dashboard({ flags: [] })));
after(end);

/** A request as no browser would send it. */
function raw(url, headers = {}, method = "GET") {
  return new Promise((done, failed) => {
    const asked = request(url, { method, headers }, (response) => {
      let body = "";
      response.on("data", (data) => (body += data));
      response.on("end", () => done({ status: response.statusCode, headers: response.headers, body }));
    });
    asked.on("error", failed);
    asked.end();
  });
}

/** The cookie and the folder of the page. */
async function enter() {
  const { status, headers } = await raw(served.link);
  assert.equal(status, 303);
  return { cookie: headers["set-cookie"][0].split(";")[0], base: new URL(headers.location, served.link).href };
}

test("the link becomes a cookie that scripts cannot read, and leaves the address bar", async () => {
  const page = await open(served.link);
  assert.ok(!page.url().includes("token"), page.url());
  assert.equal(await page.evaluate(() => document.cookie), "");
  assert.equal(await page.evaluate(() => localStorage.length + sessionStorage.length), 0);
  const [cookie] = await page.context().cookies();
  assert.deepEqual([cookie.httpOnly, cookie.sameSite], [true, "Strict"]);
  assert.equal(cookie.path, new URL(page.url()).pathname, "other servers of this machine do not get it");
});

test("without the cookie, and under other names, there is nothing", async () => {
  const { cookie, base } = await enter();
  const port = new URL(served.link).port;
  assert.equal((await raw(`${base}api/session`, { cookie })).status, 200);
  for (const [headers, status] of [
    [{}, 401],
    [{ cookie: "allot-dashboard=0" }, 401],
    [{ cookie, host: "evil.example.com" }, 421],
    [{ cookie, host: `evil.example.com:${port}` }, 421],
    [{ cookie, origin: "https://evil.example.com" }, 403],
    [{ cookie, origin: "null" }, 403],
    [{ cookie, "sec-fetch-site": "cross-site", "sec-fetch-mode": "cors" }, 403],
    [{ cookie, "sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors" }, 403],
  ]) {
    const answer = await raw(`${base}api/list?kind=slices`, headers);
    assert.equal(answer.status, status, JSON.stringify(headers));
    assert.ok(!answer.body.includes("gpu-0"));
    assert.equal(answer.headers["access-control-allow-origin"], undefined);
  }
});

test("the API server sees nothing but reads of what the page shows", async () => {
  const page = await open(served.link, { hash: "#pending" });
  await page.locator(".funnel").first().waitFor();
  const { cookie, base } = await enter();
  for (const path of ["api/v1/secrets", "api/list?kind=secrets", "api/list?kind=claims&namespace=..%2F..%2Fsecrets", "apis/resource.k8s.io/v1/resourceslices", "api/pod?namespace=a&name=b%2Fexec", "..%2f..%2fapi/v1/secrets"]) {
    const { status } = await raw(base + path, { cookie });
    assert.ok(status >= 400 && status < 500, `${path}: ${status}`);
  }
  for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"]) {
    const { status } = await raw(`${base}api/list?kind=slices`, { cookie }, method);
    assert.equal(status, 405, method);
  }
  for (const { method, url } of served.api.requests) {
    assert.equal(method, "GET", url);
    assert.ok(!/\/(secrets|configmaps|exec|attach|log|proxy|portforward|\.\.)(\/|\?|$)/.test(url), url);
  }
});

test("what pods run does not reach the browser", async () => {
  const { cookie, base } = await enter();
  const { body } = await raw(`${base}api/list?kind=pods`, { cookie });
  assert.ok(body.includes("waiting-0") && !body.includes("hunter2"), body.slice(0, 500));
  const one = await raw(`${base}api/pod?namespace=research&name=waiting-0`, { cookie });
  assert.ok(one.body.includes("waiting-0") && !one.body.includes("hunter2"), one.body);
});

test("a page of another origin gets nothing, whatever it tries", async () => {
  const page = await open(served.link);
  const base = page.url();
  const foreign = createServer((_, response) => {
    response.setHeader("content-type", "text/html");
    response.end("<!doctype html><title>evil</title><body>");
  });
  await new Promise((go) => foreign.listen(0, "127.0.0.1", go));
  // In the same browser, with its cookies, even on the same host.
  const other = await page.context().newPage();
  for (const host of ["127.0.0.1", "localhost"]) {
    await other.goto(`http://${host}:${foreign.address().port}/`);
    const read = await other.evaluate(async (base) => {
      const found = [];
      const attempt = async (name, what) => {
        try {
          found.push(`${name}: ${await what()}`);
        } catch {
          // As it should be.
        }
      };
      for (const mode of ["cors", "no-cors"]) {
        await attempt(`fetch ${mode}`, async () => {
          const answer = await fetch(`${base}api/list?kind=slices`, { credentials: "include", mode });
          return answer.type === "opaque" ? Promise.reject(new Error()) : answer.text();
        });
      }
      await attempt("script", () => new Promise((done, failed) => {
        const script = document.createElement("script");
        script.src = `${base}app.js`;
        script.onload = () => done("ran");
        script.onerror = failed;
        document.body.append(script);
      }));
      await attempt("frame", () => new Promise((done, failed) => {
        const frame = document.createElement("iframe");
        frame.src = base;
        frame.onload = () => {
          // Chromium shows an error page of its own origin for pages that may not be framed.
          try {
            done(frame.contentDocument.body.textContent);
          } catch (error) {
            failed(error);
          }
        };
        document.body.append(frame);
      }));
      await attempt("post", async () => {
        const answer = await fetch(`${base}api/filter`, { method: "POST", body: "{\"expression\":\"true\"}", credentials: "include" });
        return answer.text();
      });
      return found;
    }, base);
    assert.deepEqual(read, [], host);
  }
  foreign.close();
});

test("a connection that says nothing does not hold up others", async () => {
  const { port, hostname } = new URL(served.link);
  const silent = Array.from({ length: 100 }, () => connect(Number(port), hostname).on("error", () => {}));
  const closed = silent.map((socket) => new Promise((go) => socket.once("close", go).resume()));
  await Promise.all(silent.map((socket) => new Promise((go) => socket.once("connect", go))));
  silent.forEach((socket) => socket.write("GET / HT"));
  const { cookie, base } = await enter();
  assert.equal((await raw(`${base}api/session`, { cookie })).status, 200);
  // They are closed by the server, which has a deadline for the head of a request.
  const late = new Promise((_, failed) => setTimeout(() => failed(new Error("still open")), PATIENCE).unref());
  await Promise.race([Promise.all(closed), late]);
});

test("in the form for clusters, the reader's token is passed on and kept nowhere", async () => {
  const own = await dashboard({ flags: ["--login", "token"] });
  const context = await (await chrome()).newContext();
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  await page.goto(own.link);
  // The server has no rights of its own: it only looks whether there is an API server.
  for (const { url, authorization } of own.api.requests) assert.deepEqual([url, authorization], ["/version", undefined]);
  await page.getByLabel("Token").fill("of-the-reader");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator(".status.live").waitFor();
  const asked = own.api.requests.filter(({ url }) => url !== "/version");
  assert.ok(asked.length > 0);
  for (const { url, authorization } of asked) assert.equal(authorization, "Bearer of-the-reader", url);
  const kept = await page.evaluate(() => JSON.stringify([localStorage, sessionStorage, document.cookie, location.href, document.documentElement.outerHTML]));
  assert.ok(!kept.includes("of-the-reader"), kept);
  assert.deepEqual(await context.cookies(), []);
  await page.reload();
  await page.getByLabel("Token").waitFor();
  assert.ok(!own.child.errors.includes("of-the-reader"), "no credentials in logs");
  await own.stop();
});

test("nothing secret is logged, also not when everything is", async () => {
  const own = await dashboard({ flags: ["-v"] });
  const page = await open(own.link);
  await page.context().close();
  const token = new URL(own.link).searchParams.get("token");
  const { errors } = own.child;
  assert.ok(!errors.includes(token) && !errors.includes("of-the-kubeconfig"), errors.slice(-2000));
  await own.stop();
});
