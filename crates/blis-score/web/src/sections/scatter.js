// Every compared point: simulated over measured, with the line of equality.

import { axis, chart, colour, legend, logarithmic, palette, tooltip } from "../charts.js";
import { chosen, compared, summary, title } from "../data.js";
import { h } from "../dom.js";
import { milliseconds, short, signedPercent } from "../format.js";
import { change, state } from "../state.js";

const NAMES = { tpot: "time per output token", ttft: "time to first token" };

export function scatter() {
  const toggle = Object.entries(NAMES).map(([latency, name]) => h("button", { type: "button", class: "tab", "data-key": latency, "aria-pressed": String(state.latency === latency), onclick: () => change({ latency }) }, name));
  const points = compared(chosen(), state.latency);
  const body =
    points.length === 0
      ? h("p", {}, "No compared point is left; ", "choose other filters.")
      : chart(`simulated against measured ${NAMES[state.latency]}, ${points.length} points`, 440, () => options(points), open);
  return [h("div", { class: "tabs" }, toggle), body, h("p", { class: "soft" }, "The line is equality, the dashed ones 20 % to either side. A click opens the point's sweep.")];
}

function open({ data }) {
  if (!data?.open) return;
  change({ sweep: data.open.sweep, point: data.open.point });
  document.getElementById("sweeps").scrollIntoView();
}

export const key = (sweep) => `${sweep.scenario} ${sweep.label}`;

function options(points) {
  const field = `mean_${state.latency}_us`;
  const families = [...new Set(summary.sweeps.map((sweep) => sweep.deployment?.family ?? "all"))].sort();
  const colours = palette();
  const value = ({ sweep, point }) => ({
    value: [point.measured[field] / 1000, point.simulated[field] / 1000],
    open: { sweep: key(sweep), point: String(point.concurrency) },
    name: `${title(sweep)} at ${point.concurrency}`,
    error: point[`${state.latency}_error`],
  });
  const series = families
    .map((family, at) => ({
      name: family,
      type: "scatter",
      symbolSize: 8,
      itemStyle: { color: colours[at % colours.length], opacity: 0.75 },
      data: points.filter(({ sweep }) => (sweep.deployment?.family ?? "all") === family).map(value),
    }))
    .filter(({ data }) => data.length > 0);
  const all = series.flatMap(({ data }) => data.flatMap((datum) => datum.value));
  const scale = logarithmic([Math.min(...all) * 0.95, Math.max(...all) * 1.05]);
  const { min: low, max: high } = scale;
  const line = (factor, type) => ({ type: "line", silent: true, symbol: "none", z: 1, lineStyle: { color: colour("soft"), width: 1, type }, data: [[low, low * factor], [high, high * factor]] });
  series.push(line(1, "solid"), line(1.2, "dashed"), line(1 / 1.2, "dashed"));
  const log = (name, extra) => axis("log", name, { ...scale, axisLabel: { color: colour("soft"), hideOverlap: true, formatter: (ms) => short(ms) }, ...extra });
  return {
    legend: legend({ data: families }),
    grid: { left: 14, right: 18, top: 58, bottom: 34, containLabel: true },
    tooltip: tooltip("item", {
      formatter: ({ data, seriesName }) => `<b>${escape(data.name)}</b><br>measured ${milliseconds(data.value[0] * 1000)}, simulated ${milliseconds(data.value[1] * 1000)}<br>error ${signedPercent(data.error)} (${escape(seriesName)})`,
    }),
    xAxis: log("measured"),
    yAxis: log("simulated", { nameGap: 52 }),
    series,
  };
}

const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);
