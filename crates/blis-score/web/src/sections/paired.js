// Two sets of predictions against each other: the verdict of each lane.

import { summary } from "../data.js";
import { h, table } from "../dom.js";
import { count, shown, sign } from "../format.js";

const OUTCOMES = { better: "better", worse: "worse", not_distinguished: "not distinguished" };
const points = (value) => sign(`${value.toFixed(2)}`, value);

export function paired() {
  const { only_base, only_candidate, lanes_compared, lanes } = summary.paired;
  const head = h("tr", {}, ["points by", "of", "n", "sweeps", "error less base's (percentage points)", "interval", "p, corrected", "verdict"].map((text) => h("th", { scope: "col" }, text)));
  const rows = lanes.map(({ dimension, value, latency, points: n, sweeps, difference, interval, corrected_p, outcome }, at) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, dimension ? `${dimension} ${value}` : "all"),
      h("td", { class: "text" }, latency.toUpperCase()),
      h("td", {}, count(n)),
      h("td", {}, count(sweeps)),
      h("td", {}, shown(`paired.lanes.${at}.difference`, difference, points)),
      h("td", {}, interval ? `[${interval.map(points).join(", ")}]` : "–"),
      h("td", {}, shown(`paired.lanes.${at}.corrected_p`, corrected_p, (p) => p.toFixed(3))),
      h("td", { class: `text ${outcome ?? ""}` }, OUTCOMES[outcome] ?? "too few points"),
    ),
  );
  const { name } = summary.provenance.base;
  return [
    h("p", {}, `Against ${name}, on the points that both answer; ${count(only_candidate)} points are answered only now, ${count(only_base)} only by the base. Holm's correction covers ${lanes_compared} verdicts.`),
    table("Candidate against base", head, rows),
  ];
}
paired.present = () => summary.paired !== null;
