// Coverage: which models on which chips under which engines are simulated.

import { summary } from "../data.js";
import { h, table } from "../dom.js";

export function coverage() {
  const cells = new Map();
  for (const row of summary.coverage) {
    const cell = [row.model, row.chip, row.engine].join(" ");
    const sum = cells.get(cell) ?? { ...row, points: 0, simulated: 0, by_grade: {}, builds: new Set() };
    sum.points += row.points;
    sum.simulated += row.simulated;
    sum.builds.add(row.build);
    for (const [grade, n] of Object.entries(row.by_grade)) sum.by_grade[grade] = (sum.by_grade[grade] ?? 0) + n;
    cells.set(cell, sum);
  }
  const distinct = (name) => [...new Set(summary.coverage.map((row) => row[name]))].sort();
  const chips = distinct("chip");
  const head = h("tr", {}, h("th", { scope: "col" }, "model"), h("th", { scope: "col" }, "engine"), chips.map((chip) => h("th", { scope: "col" }, chip)));
  const rows = distinct("model").flatMap((model) => {
    const engines = distinct("engine").filter((engine) => chips.some((chip) => cells.has([model, chip, engine].join(" "))));
    return engines.map((engine, at) => h("tr", {}, at === 0 && h("th", { scope: "rowgroup", rowspan: engines.length }, model), h("td", { class: "text" }, engine), chips.map((chip) => entry(cells.get([model, chip, engine].join(" "))))));
  });
  return [table("Points simulated, of points, by model, engine and chip", head, rows, { class: "matrix" }), h("p", { class: "soft" }, "Each bar shows the grades of the cell's points; a cell without a number has no point to simulate.")];
}
coverage.present = () => summary.coverage.length > 0;

function entry(cell) {
  if (!cell) return h("td", { class: "none" }, "");
  const { points, simulated, by_grade, builds } = cell;
  const grades = Object.entries(by_grade).filter(([, n]) => n > 0);
  const label = grades.map(([grade, n]) => `${grade} ${n}`).join(", ");
  return h("td", { title: `${label}; builds: ${[...builds].join(", ")}` }, h("span", { "data-simulated": simulated, "data-points": points }, `${simulated} / ${points}`), h("span", { class: "stack thin", role: "img", "aria-label": label }, grades.map(([grade, n]) => h("span", { class: `grade ${grade}`, style: `flex:${n}` }))));
}
