// Sweeps: a list, and of one of them the curves, the points and how it was run.

import { area, axis, chart, colour, legend, logarithmic, palette, tooltip } from "../charts.js";
import { chosen, TIERS, title } from "../data.js";
import { h, table } from "../dom.js";
import { count, milliseconds, ratio, short, shown, signedPercent, throughput } from "../format.js";
import { change, state } from "../state.js";
import { key } from "./scatter.js";

export function sweeps() {
  const left = chosen();
  if (left.length === 0) return h("p", {}, "No sweep is left; choose other filters.");
  const first = [({ sweep }) => key(sweep) === state.sweep, ({ points }) => points.some(({ point }) => point.tpot_error !== null), () => true];
  const at = left.findIndex(first.find((wanted) => left.some(wanted)));
  const step = (by, text) => h("button", { type: "button", class: "quiet", "data-key": text, disabled: !left[at + by], onclick: () => change({ sweep: key(left[at + by].sweep), point: "" }) }, text);
  const list = h("div", { class: "list", "data-keep": true, tabindex: "-1" }, h("ul", {}, left.map((entry, position) => item(entry, position === at))));
  requestAnimationFrame(() => reveal(list));
  const steps = h("div", { class: "steps" }, h("h3", {}, title(left[at].sweep)), step(-1, "Previous"), h("span", { class: "soft" }, `${at + 1} of ${left.length}`), step(1, "Next"));
  return [h("div", { class: "sweeps" }, list, h("div", { class: "sweep" }, steps, curves(left[at].sweep))), points(left[at]), left[at].sweep.deployment && deployment(left[at].sweep.deployment)].filter(Boolean);
}

// Brings the current sweep into view within the list, without moving the page.
function reveal(list) {
  const { offsetTop, offsetHeight } = list.querySelector("[aria-current]");
  if (offsetTop < list.scrollTop || offsetTop + offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = offsetTop - list.clientHeight / 3;
}

function item({ sweep, points }, current) {
  const errors = points.map(({ point }) => point.tpot_error).filter((error) => error !== null);
  const simulated = points.some(({ point }) => point.simulated);
  const span = errors.length ? `TPOT ${signedPercent(Math.min(...errors))} to ${signedPercent(Math.max(...errors))}` : simulated ? "not measured" : "not simulated";
  return h(
    "li",
    {},
    h("button", { type: "button", class: "item", "data-key": key(sweep), "aria-current": current && "true", onclick: () => change({ sweep: key(sweep), point: "" }) }, h("span", {}, title(sweep)), h("span", { class: "soft" }, [sweep.deployment?.engine, span].filter(Boolean).join(" · "))),
  );
}

function curves(sweep) {
  const drawable = sweep.points.some(({ simulated, measured }) => simulated || measured);
  const band = sweep.tpot_band ?? sweep.ttft_band;
  const charts = [
    curve(sweep, "tpot", "Time per output token (ms)"),
    curve(sweep, "ttft", "Time to first token (ms)"),
    sweep.deployment && trade(sweep),
  ];
  return [
    drawable ? h("div", { class: "curves" }, charts) : h("p", {}, "No point of this sweep is simulated or measured: ", sweep.points.find(({ refused }) => refused)?.refused ?? "there is no prediction", "."),
    drawable && band && h("p", { class: "soft" }, `Bands: where the errors of ${band.over} (${band.points} points) lead one to expect the measurement.`),
  ];
}

const estimators = (sweep) => [...new Set(sweep.points.flatMap(({ peers }) => peers.map(({ estimator }) => estimator)))].sort();

const line = (name, data, color, extra = {}) => ({ name, type: "line", data, symbol: "circle", symbolSize: 7, itemStyle: { color }, lineStyle: { color, width: 2 }, z: 3, ...extra });

function curve(sweep, latency, name) {
  const field = `mean_${latency}_us`;
  const at = (value) => sweep.points.filter((point) => value(point) != null).map((point) => [point.concurrency, value(point) / 1000]);
  const simulated = at(({ simulated }) => simulated?.[field]);
  const measured = at(({ measured }) => measured?.[field]);
  const band = sweep[`${latency}_band`];
  const banded = band && simulated.length > 1;
  const edge = (factor) => simulated.map(([concurrency, ms]) => [concurrency, ms * factor]);
  const peer = (estimator) => at(({ peers }) => peers.find((peer) => peer.estimator === estimator)?.[field]);
  const lines = [simulated, measured, ...estimators(sweep).map(peer), ...(banded ? [edge(band.low), edge(band.high)] : [])];
  const all = lines.flatMap((line) => line.map(([, ms]) => ms));
  const options = () => ({
    legend: legend(),
    grid: { left: 14, right: 14, top: 56, bottom: 32, containLabel: true },
    tooltip: tooltip("axis", { valueFormatter: (ms) => (typeof ms === "number" ? milliseconds(ms * 1000) : "") }),
    xAxis: axis("log", "concurrency", { logBase: 2, min: "dataMin", max: "dataMax" }),
    yAxis: axis("log", "", { axisLabel: { color: colour("soft"), hideOverlap: true, formatter: (ms) => short(ms) }, ...logarithmic(all) }),
    series: [
      ...(banded ? [area("expected", edge(band.high), edge(band.low), colour("band"))] : []),
      ...(simulated.length ? [line("simulated", simulated, colour("simulated"))] : []),
      ...(measured.length ? [line("measured", measured, colour("measured"), { symbol: "diamond", symbolSize: 9, lineStyle: { color: colour("measured"), width: 2, type: "dashed" } })] : []),
      ...estimators(sweep).map((estimator, at) => line(estimator, peer(estimator), palette()[at + 2], { symbolSize: 5, lineStyle: { color: palette()[at + 2], width: 1.2 }, z: 2 })),
    ],
  });
  return h("figure", {}, h("figcaption", {}, name), chart(`${name} of ${title(sweep)}`, 290, options));
}

function trade(sweep) {
  const at = (side) =>
    sweep.points
      .filter((point) => point[side]?.output_tok_s_gpu != null)
      .map((point) => ({ value: [1e6 / point[side].mean_tpot_us, point[side].output_tok_s_gpu], name: String(point.concurrency) }));
  const options = () => ({
    legend: legend(),
    grid: { left: 14, right: 14, top: 56, bottom: 32, containLabel: true },
    tooltip: tooltip("item", { formatter: ({ seriesName, name, value }) => `${seriesName} at concurrency ${name}<br>${throughput(value[1])} output tok/s per chip<br>${value[0].toFixed(1)} tok/s per user` }),
    xAxis: axis("value", "tokens per second and user", { min: 0 }),
    yAxis: axis("value", ""),
    series: [
      line("simulated", at("simulated"), colour("simulated"), { label: { show: true, formatter: ({ name }) => name, position: "top", color: colour("ink"), fontSize: 11 } }),
      line("measured", at("measured"), colour("measured"), { symbol: "diamond", symbolSize: 9, lineStyle: { color: colour("measured"), width: 2, type: "dashed" } }),
    ].filter(({ data }) => data.length > 0),
  });
  return h("figure", {}, h("figcaption", {}, "Output tokens per second and chip, over interactivity"), chart(`throughput per chip over interactivity of ${title(sweep)}`, 290, options));
}

function points({ sweep, index, points }) {
  const groups = ["Time per output token", "Time to first token", "Output tok/s per chip"];
  const head = [
    h("tr", {}, ["concurrency", "grade", ""].map((text) => h("th", { scope: "col", rowspan: 2 }, text)), groups.map((text, at) => h("th", { scope: "colgroup", colspan: at < 2 ? 3 : 2, class: "group" }, text)), h("th", { scope: "col", rowspan: 2 }, "KV ratio")),
    h("tr", {}, groups.map((_, at) => ["simulated", "measured", at < 2 && "error"].filter(Boolean).map((text) => h("th", { scope: "col", class: text === "simulated" && "group" }, text)))),
  ];
  const rows = points.flatMap(({ point, at }) => {
    const path = `sweeps.${index}.points.${at}`;
    const open = state.point === String(point.concurrency);
    const time = (side, field) => h("td", { class: side === "simulated" && "group" }, shown(`${path}.${side}.${field}`, point[side]?.[field], milliseconds));
    const rate = (side) => h("td", { class: side === "simulated" && "group" }, shown(`${path}.${side}.output_tok_s_gpu`, point[side]?.output_tok_s_gpu, throughput));
    const error = (latency) => h("td", { class: "error" }, shown(`${path}.${latency}_error`, point[`${latency}_error`], signedPercent));
    const why = h("button", { type: "button", class: "quiet", "data-key": `why ${point.concurrency}`, "aria-expanded": String(open), "aria-label": `Details of concurrency ${point.concurrency}`, onclick: () => change({ sweep: key(sweep), point: open ? "" : String(point.concurrency) }) }, open ? "Less" : "Why");
    const cells = [h("th", { scope: "row" }, shown(`${path}.concurrency`, point.concurrency, count)), h("td", {}, h("span", { class: `grade tag ${point.grade ?? "none"}` }, point.grade ?? "none")), h("td", {}, why)];
    for (const latency of ["tpot", "ttft"]) cells.push(time("simulated", `mean_${latency}_us`), time("measured", `mean_${latency}_us`), error(latency));
    cells.push(rate("simulated"), rate("measured"), h("td", {}, shown(`${path}.kv_pool_ratio`, point.kv_pool_ratio, ratio)));
    return [h("tr", { "data-point": point.concurrency }, cells), open && h("tr", { class: "why" }, h("td", { colspan: 12 }, drill(point, path)))].filter(Boolean);
  });
  return table(`Points of ${title(sweep)}`, head, rows);
}

function drill(point, path) {
  const facts = [
    ["output tokens per second, simulated", "simulated.output_tok_s", throughput],
    ["KV cache tokens, simulated", "simulated.kv_tokens", count],
    ["KV cache tokens, logged", "measured.kv_tokens", count],
    ["preemptions", "simulated.preemptions", count],
  ];
  const value = (name) => name.split(".").reduce((value, key) => value?.[key], point);
  const shares = Object.entries(point.price_ranks ?? {}).filter(([, share]) => share > 0);
  const primitives = Object.entries(point.price_primitives ?? {}).sort(([, one], [, other]) => other - one);
  const share100 = (share) => `${(100 * share).toFixed(1)} %`;
  return h(
    "div",
    { class: "drill" },
    h("div", {}, h("h4", {}, point.refused ? "Why it is not simulated" : `Why the grade is ${point.grade ?? "missing"}`), h("ul", {}, point.grade_reasons.length ? point.grade_reasons.map(({ code, text }) => h("li", {}, h("span", { class: "soft" }, `${code.replaceAll("_", " ")}: `), text)) : h("li", {}, point.grade ? "nothing lowers it" : "no prediction answers this point"))),
    primitives.length > 0 && h("div", {}, h("h4", {}, "What its time goes to"), h("ul", { class: "plain bars" }, primitives.map(([name, share]) => h("li", {}, h("span", {}, name.replaceAll("_", " ")), h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: `width:${(100 * share) / primitives[0][1]}%` })), shown(`${path}.price_primitives.${name}`, share, share100))))),
    shares.length > 0 && h("div", {}, h("h4", {}, "What its time is priced by"), h("div", { class: "stack", role: "img", "aria-label": shares.map(([method, share]) => `${method} ${(100 * share).toFixed(0)} %`).join(", ") }, shares.map(([method, share]) => h("span", { class: `price ${method}`, style: `flex:${share}` }))), h("ul", { class: "plain" }, shares.map(([method, share], at) => h("li", {}, h("i", { class: `price dot ${method}` }), ` ${method.replaceAll("_", " ")} `, shown(`${path}.price_ranks.${method}`, share, share100))))),
    h("div", {}, h("h4", {}, "More of it"), h("dl", {}, facts.filter(([, name]) => value(name) != null).map(([text, name, write]) => [h("dt", {}, text), h("dd", {}, shown(`${path}.${name}`, value(name), write))]), point.peers.map(({ estimator, mean_tpot_us, mean_ttft_us }, at) => [h("dt", {}, `${estimator}, TPOT`), h("dd", {}, shown(`${path}.peers.${at}.mean_tpot_us`, mean_tpot_us, milliseconds)), h("dt", {}, `${estimator}, TTFT`), h("dd", {}, shown(`${path}.peers.${at}.mean_ttft_us`, mean_ttft_us, milliseconds))]))),
  );
}

function deployment({ command, env, logged, build, engine, gpus, run_date, tier }) {
  const settings = (logged?.all ? [["passed, by the server's log", logged.all.passed], ["resolved, by the server's log", logged.all.resolved]] : [["by the server's log", logged]]).filter(([, values]) => values && Object.keys(values).length);
  const rows = [
    ...Object.entries(env).map(([name, value]) => [name, value, "environment, by the launch recipe"]),
    ...settings.flatMap(([source, values]) => Object.entries(values).map(([name, value]) => [name, typeof value === "string" ? value : JSON.stringify(value), source])),
  ];
  return h(
    "details",
    {},
    h("summary", {}, "How it was run"),
    h("p", {}, `${engine} ${build} on ${gpus} ${gpus === 1 ? "chip" : "chips"}${run_date ? `, ${run_date}` : ""}; ${TIERS[tier]}.`),
    h("pre", { tabindex: "0", "aria-label": "Launch line" }, command),
    rows.length > 0 && table("Settings with their sources", h("tr", {}, ["setting", "value", "source"].map((text) => h("th", { scope: "col" }, text))), rows.map(([name, value, source]) => h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "text" }, value), h("td", { class: "text" }, source))), { class: "texts" }),
  );
}
