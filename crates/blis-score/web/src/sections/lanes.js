// Errors by what points have in common: a chart of one measure, a table of all.

import { axis, chart, colour, tooltip, whiskers } from "../charts.js";
import { summary } from "../data.js";
import { h, select, table } from "../dom.js";
import { count, figure, percent, ratio, shown, signedPercent } from "../format.js";
import { change, state } from "../state.js";

const DIMENSIONS = { family: "model family", model: "model", chip: "chip", engine: "engine", layout: "layout", precision: "weight format", lengths: "lengths", concurrency: "concurrency", grade: "grade", tier: "server log" };
const MEASURES = { absolute: "mean absolute error", median: "median absolute error", signed: "signed mean error", shape: "shape error", percentiles: "percentile distance" };
const LATENCIES = { tpot: "time per output token", ttft: "time to first token" };

export function lanes() {
  const all = summary.lanes.map((lane, at) => ({ ...lane, at }));
  const known = [...new Set(all.map(({ dimension }) => dimension))];
  if (known.length === 0) return h("p", {}, "No point has both a prediction and a measurement.");
  const by = known.includes(state.dimension) ? state.dimension : known[0];
  const rows = all.filter(({ dimension }) => dimension === by);
  const pairs = (names, keys = Object.keys(names)) => keys.map((key) => [key, names[key]]);
  return [
    h(
      "div",
      { class: "choices" },
      select("By", by, pairs(DIMENSIONS, known), (dimension) => change({ dimension })),
      select("Of", state.latency, pairs(LATENCIES), (latency) => change({ latency })),
      select("As", state.measure, pairs(MEASURES), (measure) => change({ measure })),
    ),
    chart(`${MEASURES[state.measure]} by ${DIMENSIONS[by]}`, 70 + 34 * rows.length, () => bars(rows)),
    table(`Errors by ${DIMENSIONS[by]}`, head(DIMENSIONS[by]), rows.map(row)),
  ];
}

function bars(rows) {
  const of = ({ figures }) => figures[state.latency][state.measure];
  const write = state.measure === "signed" ? signedPercent : percent;
  const text = (row) => (of(row).value === null ? (of(row).points ? `too few points (${of(row).points})` : "no points") : `${write(of(row).value)}  n = ${of(row).points}`);
  const right = (row) => Math.max(of(row).value ?? 0, of(row).interval?.[1] ?? 0, 0);
  const ends = rows.map((row) => ({ value: [right(row), row.value], label: { show: true, position: "right", formatter: text(row), color: colour(of(row).value === null ? "soft" : "ink") } }));
  return {
    grid: { left: 8, right: 120, top: 8, bottom: 34, containLabel: true },
    tooltip: tooltip("item", { show: false }),
    xAxis: axis("value", `${MEASURES[state.measure]} (%)`),
    yAxis: axis("category", "", { data: rows.map(({ value }) => value), inverse: true, axisLabel: { color: colour("ink") } }),
    series: [
      { type: "bar", barMaxWidth: 20, data: rows.map((row) => of(row).value), itemStyle: { color: colour("simulated"), borderRadius: 2 } },
      whiskers(rows.flatMap((row) => (of(row).interval ? [[...of(row).interval, row.value]] : []))),
      { type: "scatter", silent: true, symbolSize: 1, itemStyle: { color: "transparent" }, labelLayout: { hideOverlap: false }, data: ends },
    ],
  };
}

function head(by) {
  const titles = ["mean absolute", "median", "signed", "shape"];
  return [
    h("tr", {}, h("th", { rowspan: 2, scope: "col" }, by), h("th", { rowspan: 2, scope: "col" }, "points"), ["Time per output token", "Time to first token"].map((text) => h("th", { colspan: 4, scope: "colgroup", class: "group" }, text)), h("th", { rowspan: 2, scope: "col" }, "KV cache ratio")),
    h("tr", {}, [...titles, ...titles].map((text, at) => h("th", { scope: "col", class: at % 4 === 0 && "group" }, text))),
  ];
}

function row({ value, figures, at }) {
  const cell = (latency, key, first) =>
    h("td", { class: first && "group" }, figure(`lanes.${at}.figures.${latency}.${key}`, figures[latency][key], key === "signed" ? signedPercent : percent, { interval: key === "absolute" }));
  const cells = ["tpot", "ttft"].flatMap((latency) => ["absolute", "median", "signed", "shape"].map((key, at) => cell(latency, key, at === 0)));
  return h("tr", {}, h("th", { scope: "row" }, value), h("td", {}, shown(`lanes.${at}.figures.points`, figures.points, count)), cells, h("td", {}, figure(`lanes.${at}.figures.kv_pool_ratio`, figures.kv_pool_ratio, ratio, { interval: false })));
}
