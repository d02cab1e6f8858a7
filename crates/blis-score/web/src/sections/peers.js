// Other estimators beside ours, each on the points that both answer.

import { summary } from "../data.js";
import { h, table } from "../dom.js";
import { count, figure, percent, shown } from "../format.js";

const MEASURES = [["tpot", "absolute"], ["tpot", "shape"], ["ttft", "absolute"], ["ttft", "shape"]];

export function peers() {
  const titles = ["TPOT error", "TPOT shape", "TTFT error", "TTFT shape"];
  const head = [
    h("tr", {}, h("th", { scope: "col", rowspan: 2 }, "points by"), h("th", { scope: "col", rowspan: 2 }, "n"), titles.map((text) => h("th", { scope: "colgroup", colspan: 2, class: "group" }, text))),
    h("tr", {}, titles.map(() => [h("th", { scope: "col", class: "group" }, "theirs"), h("th", { scope: "col" }, "BLIS")])),
  ];
  return summary.peers.map(({ estimator, unmatched, lanes }, arm) => [
    h("h3", {}, estimator),
    table(`BLIS and ${estimator} on the same points`, head.map((row) => row.cloneNode(true)), lanes.map((lane, at) => row(lane, `peers.${arm}.lanes.${at}`))),
    unmatched > 0 && h("p", { class: "soft" }, shown(`peers.${arm}.unmatched`, unmatched, count), ` of its answers are to points that we do not compare.`),
  ].filter(Boolean));
}
peers.present = () => summary.peers.length > 0;

function row({ dimension, value, theirs, ours }, path) {
  const cells = MEASURES.flatMap(([latency, key]) => {
    const [a, b] = [theirs[latency][key], ours[latency][key]];
    const better = (one, other) => one.value !== null && other.value !== null && one.value < other.value && "better";
    const few = (side, figureOf) => figure(`${path}.${side}.${latency}.${key}`, figureOf, percent, { interval: false });
    return [h("td", { class: `group ${better(a, b) || ""}` }, few("theirs", a)), h("td", { class: better(b, a) }, few("ours", b))];
  });
  return h("tr", {}, h("th", { scope: "row" }, dimension ? `${dimension} ${value}` : "all"), h("td", {}, shown(`${path}.theirs.points`, theirs.points, count)), cells);
}
