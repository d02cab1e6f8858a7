// The summary inside the page, and the parts of it that the filters leave.

import { FILTERS, state } from "./state.js";

export const summary = JSON.parse(document.getElementById("summary").textContent);

// Facts of a sweep that a filter can ask for; grades belong to points.
const FACTS = {
  engine: (sweep) => sweep.deployment?.engine,
  family: (sweep) => sweep.deployment?.family,
  chip: (sweep) => sweep.deployment?.chip,
  tier: (sweep) => sweep.deployment?.tier,
  lengths: (sweep) => sweep.label,
};

export const TIERS = { logged: "server log kept", unlogged: "no server log" };

export function values(filter) {
  const all = summary.sweeps.flatMap((sweep) => (filter === "grade" ? sweep.points.map((point) => point.grade) : [FACTS[filter](sweep)]));
  return [...new Set(all.filter(Boolean))].sort();
}

export const title = ({ deployment, scenario, label }) =>
  deployment ? `${deployment.model} · ${deployment.chip} · ${deployment.precision} · ${deployment.layout} · ${label}` : `${scenario} · ${label}`;

// The sweeps that the filters leave, each with its place in the summary and the points that are left of it.
export function chosen() {
  const words = state.find.toLowerCase().split(/\s+/).filter(Boolean);
  return summary.sweeps
    .map((sweep, index) => ({ sweep, index, points: sweep.points.map((point, at) => ({ point, at })).filter(({ point }) => !state.grade || point.grade === state.grade) }))
    .filter(({ sweep, points }) => {
      const facts = FILTERS.every((filter) => filter === "grade" || !state[filter] || FACTS[filter](sweep) === state[filter]);
      const name = `${title(sweep)} ${sweep.scenario} ${sweep.deployment?.build ?? ""}`.toLowerCase();
      return facts && points.length > 0 && words.every((word) => name.includes(word));
    });
}

export const compared = (chosen, latency) =>
  chosen.flatMap(({ sweep, index, points }) => points.filter(({ point }) => point[`${latency}_error`] !== null).map(({ point, at }) => ({ sweep, index, point, at })));
