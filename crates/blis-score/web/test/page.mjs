// Opens a built site in headless Chromium and checks it as a reader would: node page.mjs SITE [FOLDER FOR SCREENSHOTS]
//
// The numbers on the page are compared with the site's own summary.json. Chromium is driven through chromedriver's HTTP interface.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [site, shots] = process.argv.slice(2);
const summary = JSON.parse(await readFile(resolve(site, "summary.json"), "utf8"));
const page = pathToFileURL(resolve(site, "index.html")).href;

const driver = spawn("chromedriver", ["--port=0"], { stdio: ["ignore", "pipe", "inherit"] });
const exited = once(driver, "exit");
let session;
try {
  const port = await started(driver.stdout);
  await browse(`http://127.0.0.1:${port}`);
  console.log("the page is as it should be");
} finally {
  if (session) await session("DELETE", "");
  driver.kill();
  await exited;
}

async function started(output) {
  let text = "";
  for await (const chunk of output) {
    text += chunk;
    const port = text.match(/started successfully on port (\d+)/)?.[1];
    if (port) return port;
  }
  throw new Error(`chromedriver did not start: ${text}`);
}

async function browse(base) {
  const options = { args: ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--force-prefers-reduced-motion", "--window-size=1280,1000"] };
  const always = { browserName: "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": { browser: "ALL" } };
  const call = async (path, method, body) => {
    const answer = await fetch(`${base}${path}`, { method, body: body && JSON.stringify(body) });
    const { value } = await answer.json();
    if (!answer.ok) throw new Error(`${method} ${path}: ${value.message}`);
    return value;
  };
  const { sessionId } = await call("/session", "POST", { capabilities: { alwaysMatch: always } });
  session = (method, path, body) => call(`/session/${sessionId}${path}`, method, body);
  const run = (script, ...args) => session("POST", "/execute/sync", { script, args });
  const press = (...keys) => session("POST", "/actions", { actions: [{ type: "key", id: "keys", actions: keys.flatMap((value) => [{ type: "keyDown", value }, { type: "keyUp", value }]) }] });
  const shot = async (name) => shots && writeFile(resolve(shots, `${name}.png`), Buffer.from(await session("GET", "/screenshot"), "base64"));
  const size = (width, height) => session("POST", "/goog/cdp/execute", { cmd: "Emulation.setDeviceMetricsOverride", params: { width, height, deviceScaleFactor: 1, mobile: width < 600 } });

  const open = async (hash = "") => {
    await session("POST", "/url", { url: "about:blank" });
    await session("POST", "/url", { url: page + hash });
    assert.equal(await run("return document.documentElement.dataset.ready"), "true", "the page was not built to its end");
  };
  const quiet = async () => assert.deepEqual(await session("POST", "/se/log", { type: "browser" }), [], "the console is not empty");

  await open();
  if (summary.counts.compared === 0 || summary.coverage.length === 0) {
    // A summary with less to show still makes a whole page.
    assert.ok((await run("return document.querySelectorAll('main > section').length")) >= 5);
    return quiet();
  }
  await numbers(run);
  await charts(run);
  await shot("light");
  await filters(run, press);
  await keyboard(run, press);
  await views(open, run);
  await widths(open, run, size, shot);
  await quiet();
}

// What stands at a path; a name on the way may hold dots itself.
function at(value, path) {
  if (path === "") return value;
  const key = Object.keys(value ?? {}).find((key) => path === key || path.startsWith(`${key}.`));
  return key === undefined ? undefined : at(value[key], path.slice(key.length + 1));
}

// Every number that says where it comes from is the one that stands there.
async function numbers(run, by = summary.lanes[0].dimension) {
  const shown = await run("return [...document.querySelectorAll('[data-path]')].map((e) => [e.dataset.path, e.tagName === 'DATA' ? e.value : null, e.textContent])");
  assert.ok(shown.length > 100, `only ${shown.length} numbers on the page`);
  for (const [path, value, text] of shown) {
    const stated = at(summary, path) ?? null;
    assert.equal(value === null ? null : Number(value), stated, path);
    if (value !== null && /^[+−]?\d+\.\d %$/.test(text) && !/price_(ranks|primitives)/.test(path)) {
      const read = Number(text.replace("−", "-").replace(" %", ""));
      assert.ok(Math.abs(read - stated) <= 0.05 + 1e-9, `${path} reads ${text} but is ${stated}`);
    }
  }
  const paths = new Set(shown.map(([path]) => path));
  for (const path of ["headline.tpot.absolute.value", "headline.ttft.shape.value", "counts.compared", "counts.by_grade.G5", "backlog.0.points"]) assert.ok(paths.has(path), `${path} is not on the page`);
  const lanes = summary.lanes.filter(({ dimension }) => dimension === by).length;
  assert.equal(await run("return document.querySelectorAll('#lanes tbody tr').length"), lanes, "one row for each lane");
  const covered = await run("return [...document.querySelectorAll('#coverage [data-points]')].reduce((sum, e) => sum + Number(e.dataset.points), 0)");
  assert.equal(covered, summary.counts.points, "the matrix counts every point once");
}

async function charts(run) {
  const drawn = await run("return [...document.querySelectorAll('.chart')].map((e) => [e.dataset.chart, e.querySelectorAll('svg path').length, e.hasAttribute('aria-label')])");
  assert.ok(drawn.length >= 5, `only ${drawn.length} charts`);
  for (const [name, paths, labelled] of drawn) {
    assert.ok(paths > 5, `the chart of ${name} is empty`);
    assert.ok(labelled, `the chart of ${name} says nothing to a screen reader`);
  }
}

// A filter leaves exactly the sweeps it asks for, and the mean over what is left is the mean of the summary's errors.
async function filters(run) {
  const chip = summary.sweeps.find(({ deployment, points }) => deployment && points.some(({ tpot_error }) => tpot_error !== null)).deployment.chip;
  await run("const list = document.querySelector('[data-choice=Chip]'); list.value = arguments[0]; list.dispatchEvent(new Event('change'))", chip);
  const left = summary.sweeps.filter(({ deployment }) => deployment.chip === chip);
  assert.equal(await run("return document.querySelectorAll('#sweeps .item').length"), left.length);
  const errors = left.flatMap(({ points }) => points.map(({ tpot_error }) => tpot_error)).filter((error) => error !== null).map(Math.abs);
  const shown = await run("return {...document.querySelector('[data-shown=tpot]').dataset}");
  assert.equal(Number(shown.points), errors.length);
  const mean = errors.reduce((sum, error) => sum + error, 0) / errors.length;
  if (errors.length >= summary.rules.minimum_points) assert.ok(Math.abs(Number(shown.value) - mean) < 1e-9);
  assert.match(await run("return location.hash"), new RegExp(`chip=${chip}`));
  await run("const find = document.querySelector('[data-choice=Find]'); find.value = 'no such sweep'; find.dispatchEvent(new Event('input'))");
  assert.match(await run("return document.querySelector('#sweeps').textContent"), /No sweep is left/);
  await run("[...document.querySelectorAll('.filters button')].find((e) => e.textContent === 'Show all').click()");
  assert.equal(await run("return document.querySelectorAll('#sweeps .item').length"), summary.sweeps.length);
}

// Everything can be reached and used without a pointer, and a rebuilt section keeps the focus.
async function keyboard(run, press) {
  const ENTER = "\uE007";
  const TAB = "\uE004";
  await run("document.activeElement.blur(); scrollTo(0, 0)");
  await press(TAB);
  assert.equal(await run("return document.activeElement.className"), "skip");
  const current = () => run("return document.querySelector('#sweeps .item[aria-current]').dataset.key");
  const first = await current();
  await run("document.querySelector('#sweeps [data-key=Next]').focus()");
  await press(ENTER);
  assert.notEqual(await current(), first, "Next shows the next sweep");
  assert.equal(await run("return document.activeElement.dataset.key"), "Next", "the focus stays where it was");
  await run("document.querySelector('#sweeps [data-key^=why]').focus()");
  await press(ENTER);
  assert.equal(await run("return document.querySelectorAll('#sweeps tr.why').length"), 1);
  assert.equal(await run("return document.activeElement.getAttribute('aria-expanded')"), "true");
  const unnamed = await run("return [...document.querySelectorAll('button, select, input, a')].filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim())).length");
  assert.equal(unnamed, 0, "a control has no name");
}

// A view is in its address, and a point's details show what the summary says of it.
async function views(open, run) {
  const sweep = summary.sweeps.find(({ points }) => points.some(({ price_ranks }) => price_ranks));
  const point = sweep.points.find(({ price_ranks }) => price_ranks);
  await open(`#${new URLSearchParams({ sweep: `${sweep.scenario} ${sweep.label}`, point: point.concurrency, latency: "ttft", dimension: "concurrency" })}`);
  const text = await run("return document.querySelector('#sweeps tr.why').textContent");
  for (const reason of point.grade_reasons) assert.ok(text.includes(reason.text), `${reason.text} is not among the details`);
  for (const method of Object.keys(point.price_ranks)) assert.ok(text.includes(method.replaceAll("_", " ")), `${method} is not among the prices`);
  for (const primitive of Object.keys(point.price_primitives ?? {})) assert.ok(text.includes(primitive.replaceAll("_", " ")), `${primitive} is not among what the time goes to`);
  await numbers(run, "concurrency");
}

// Nothing makes the page scroll sideways, on a phone or in the dark.
async function widths(open, run, size, shot) {
  const compared = summary.sweeps.find(({ points }) => points.some(({ tpot_error }) => tpot_error !== null));
  const view = { theme: "dark", sweep: `${compared.scenario} ${compared.label}`, point: compared.points.find(({ tpot_error }) => tpot_error !== null).concurrency };
  for (const [name, width, theme] of [["phone", 390, "dark"], ["tablet", 820, "light"], ["wide", 1280, "dark"]]) {
    await size(width, 900);
    await open(`#${new URLSearchParams({ ...view, theme })}`);
    const wide = await run("return [document.documentElement.scrollWidth, innerWidth]");
    assert.ok(wide[0] <= wide[1], `${name}: the page is ${wide[0]} wide in a window of ${wide[1]}`);
    assert.equal(await run("return getComputedStyle(document.documentElement).colorScheme"), theme);
    await charts(run);
    await size(width, await run("return document.documentElement.scrollHeight"));
    await shot(name);
  }
  await run("document.querySelector('header button').click()");
  assert.equal(await run("return document.documentElement.dataset.theme"), "light", "the button changes the theme");
}
