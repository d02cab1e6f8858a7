// Numbers as people read them. Each that comes from the summary keeps its exact value and its path, so that a test can compare the two.

import { h } from "./dom.js";

export const sign = (text, value) => (value > 0 ? `+${text}` : text.replace("-", "−"));
export const percent = (value) => `${value.toFixed(1)} %`;
export const signedPercent = (value) => sign(percent(value), Number(value.toFixed(1)));
export const ratio = (value) => value.toFixed(3);
export const count = (value) => value.toLocaleString("en-US");
export const throughput = (value) => (value >= 100 ? count(Math.round(value)) : value.toFixed(1));

export function milliseconds(us) {
  const ms = us / 1000;
  return ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : ms >= 100 ? `${ms.toFixed(0)} ms` : `${ms.toFixed(2)} ms`;
}

// Milliseconds at a round number, as axes have them.
export const short = (ms) => (ms >= 1000 ? `${Number((ms / 1000).toPrecision(3))} s` : `${Number(ms.toPrecision(3))} ms`);

// A value of the summary as text.
export function shown(path, value, write) {
  if (value === null || value === undefined) return h("span", { class: "none", "data-path": path }, "–");
  return h("data", { value, "data-path": path }, write(value));
}

// A figure: its value with its interval and what it covers, or that it covers too few points.
export function figure(path, figure, write, { interval = true, covers = false } = {}) {
  const { value, points, sweeps } = figure;
  const covered = h("span", { class: "covers" }, `n = `, shown(`${path}.points`, points, count), covers && ` in ${sweeps} sweeps`);
  if (value === null) return h("span", { class: "figure few", "data-path": `${path}.value` }, points === 0 ? "no points" : "too few points ", points > 0 && covered);
  const range = interval && figure.interval && h("span", { class: "interval" }, `[${figure.interval.map(write).join(", ")}]`);
  return h("span", { class: "figure" }, shown(`${path}.value`, value, write), " ", range, " ", covered);
}
