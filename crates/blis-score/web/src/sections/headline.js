// The headline: errors over every compared point, with counts and grades.

import { summary } from "../data.js";
import { h } from "../dom.js";
import { count, figure, percent, ratio, shown, signedPercent } from "../format.js";

const GRADES = {
  G1: "everything recorded and modelled",
  G2: "some settings by the engine's own rules",
  G3: "another release, same code",
  G4: "another release",
  G5: "not simulated",
};

export function headline() {
  return h("div", { class: "cards" }, latency("tpot", "Time per output token"), latency("ttft", "Time to first token"), grades(), memory());
}

function latency(name, title) {
  const errors = summary.headline[name];
  const row = (label, key, write) => h("div", { class: "row" }, h("span", {}, label), figure(`headline.${name}.${key}`, errors[key], write));
  return h(
    "article",
    { class: "card" },
    h("h3", {}, title),
    h("p", { class: "big" }, figure(`headline.${name}.absolute`, errors.absolute, percent, { covers: true })),
    h("p", { class: "soft" }, "mean absolute error"),
    row("median", "median", percent),
    row("signed mean", "signed", signedPercent),
    row("shape", "shape", percent),
    errors.percentiles.points > 0 && row("percentiles", "percentiles", percent),
  );
}

function grades() {
  const { counts } = summary;
  const total = Math.max(1, counts.points);
  const all = Object.entries(counts.by_grade);
  const bar = all.filter(([, n]) => n > 0).map(([grade, n]) => h("span", { class: `grade ${grade}`, style: `flex:${n}`, title: `${grade}: ${n}` }, n / total > 0.07 ? grade : ""));
  if (counts.unanswered) bar.push(h("span", { class: "grade none", style: `flex:${counts.unanswered}` }));
  const rows = all.map(([grade, n]) =>
    h("div", { class: "row" }, h("span", {}, h("i", { class: `grade dot ${grade}` }), ` ${grade} `, h("span", { class: "soft" }, GRADES[grade])), h("span", {}, shown(`counts.by_grade.${grade}`, n, count), h("span", { class: "covers" }, ` ${((100 * n) / total).toFixed(0)} %`))),
  );
  return h(
    "article",
    { class: "card" },
    h("h3", {}, "Coverage and grades"),
    h("p", { class: "big" }, shown("counts.simulated", counts.simulated, count), h("span", { class: "covers" }, " of ", shown("counts.points", counts.points, count), " points simulated, ", shown("counts.compared", counts.compared, count), " compared")),
    h("div", { class: "stack", role: "img", "aria-label": all.map(([grade, n]) => `${grade} ${n}`).join(", ") }, bar),
    rows,
    counts.unanswered > 0 && h("div", { class: "row" }, h("span", {}, "no prediction"), shown("counts.unanswered", counts.unanswered, count)),
  );
}

function memory() {
  const pool = summary.headline.kv_pool_ratio;
  if (pool.points === 0) return undefined;
  return h("article", { class: "card" }, h("h3", {}, "KV cache size"), h("p", { class: "big" }, figure("headline.kv_pool_ratio", pool, ratio, { covers: true })), h("p", { class: "soft" }, "simulated over logged tokens"));
}
