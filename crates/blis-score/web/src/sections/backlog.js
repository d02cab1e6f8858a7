// The backlog: what lowers coverage or grade, what holds back most first.

import { summary } from "../data.js";
import { h, table } from "../dom.js";
import { count, percent, shown } from "../format.js";
import { change, state } from "../state.js";

const KINDS = { refused: "not simulated", demoted: "lower grade", price: "price not fitted" };
const FIRST = 20;

export function backlog() {
  const rows = summary.backlog.map((row, at) => ({ ...row, at })).filter(({ kind }) => !state.kind || kind === state.kind);
  const tabs = [["", "everything"], ...Object.entries(KINDS)].map(([kind, text]) => h("button", { type: "button", class: "tab", "data-key": `kind ${kind}`, "aria-pressed": String(state.kind === kind), onclick: () => change({ kind }) }, text));
  const most = Math.max(...rows.map(({ points }) => points), 1);
  const head = h("tr", {}, ["", "what", "engine", "points", "nothing else does", "sweeps", "models", "chips"].map((text) => h("th", { scope: "col" }, text)));
  const body = rows.map((row) => line(row, most));
  const rest = h("tbody", { hidden: true }, body.slice(FIRST));
  const frame = table("What lowers coverage or grade, by points", head, body.slice(0, FIRST), { class: "texts" });
  frame.querySelector("table").append(rest);
  const more = body.length > FIRST && h("button", { type: "button", class: "quiet", onclick: (event) => { rest.hidden = false; event.target.remove(); } }, `Show ${body.length - FIRST} more`);
  return [h("div", { class: "tabs" }, tabs), rows.length ? frame : h("p", {}, "Nothing does."), more].filter(Boolean);
}

function line({ kind, code, subject, what, engine, points, alone, sweeps, models, chips, time_percent, at }, most) {
  const share = time_percent !== null && h("span", { class: "covers" }, " (", shown(`backlog.${at}.time_percent`, time_percent, percent), " of their time)");
  return h(
    "tr",
    { "data-kind": kind },
    h("td", { class: "kind soft" }, KINDS[kind]),
    h("th", { scope: "row" }, h("span", { class: "soft" }, `${code.replaceAll("_", " ")}: `), kind === "price" ? subject.replaceAll("_", " ") : what, share),
    h("td", { class: "text" }, engine ?? ""),
    h("td", { class: "metered" }, h("span", { class: "meter", "aria-hidden": "true" }, h("span", { style: `width:${(100 * points) / most}%` })), shown(`backlog.${at}.points`, points, count)),
    h("td", {}, shown(`backlog.${at}.alone`, alone, count)),
    h("td", {}, shown(`backlog.${at}.sweeps`, sweeps, count)),
    h("td", { class: "text many" }, models.join(", ")),
    h("td", { class: "text" }, chips.join(", ")),
  );
}
