// The filters: what every section below them shows.

import { chosen, compared, summary, TIERS, values } from "../data.js";
import { h, select } from "../dom.js";
import { count, percent } from "../format.js";
import { change, FILTERS, onChange, reset, state } from "../state.js";

const NAMES = { engine: "Engine", family: "Family", chip: "Chip", lengths: "Lengths", grade: "Grade", tier: "Settings" };

export function filters() {
  const choices = FILTERS.map((filter) => [filter, values(filter)]).filter(([, values]) => values.length > 1);
  const lists = choices.map(([filter, values]) =>
    select(NAMES[filter], state[filter], [["", "all"], ...values.map((value) => [value, TIERS[value] ?? value])], (value) => change({ [filter]: value })),
  );
  const find = h("input", { type: "search", value: state.find, placeholder: "words of its name", "data-choice": "Find", oninput: (event) => change({ find: event.target.value }) });
  const clear = h("button", { type: "button", class: "quiet", onclick: reset }, "Show all");
  const result = h("p", { class: "result", role: "status", "aria-live": "polite" });
  const update = () => {
    for (const [at, [filter]] of choices.entries()) lists[at].querySelector("select").value = state[filter];
    if (find.value !== state.find) find.value = state.find;
    result.replaceChildren(...outcome());
  };
  onChange(update);
  update();
  return h("form", { class: "filters", "aria-label": "Filters", onsubmit: (event) => event.preventDefault() }, lists, h("label", { class: "choice" }, h("span", {}, "Find"), find), clear, result);
}

// What is left, with its mean errors where they cover enough points.
function outcome() {
  const left = chosen();
  const points = left.reduce((sum, { points }) => sum + points.length, 0);
  const error = (latency) => {
    const errors = compared(left, latency).map(({ point }) => Math.abs(point[`${latency}_error`]));
    const few = errors.length < summary.rules.minimum_points;
    const mean = errors.reduce((sum, error) => sum + error, 0) / errors.length;
    const text = errors.length === 0 ? "no points" : few ? "too few points" : percent(mean);
    return h("span", { "data-shown": latency, "data-points": errors.length, "data-value": few ? undefined : mean }, ` · ${latency.toUpperCase()} error `, h("b", {}, text), ` (n = ${count(errors.length)})`);
  };
  return [h("span", { "data-shown": "points", "data-points": points }, `${count(left.length)} sweeps, ${count(points)} points`), error("tpot"), error("ttft")];
}
