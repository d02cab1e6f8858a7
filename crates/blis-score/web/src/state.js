// What the reader has chosen, kept in the address so that a view can be sent to somebody.

const DEFAULTS = { engine: "", family: "", chip: "", lengths: "", grade: "", tier: "", find: "", sweep: "", point: "", latency: "tpot", measure: "absolute", dimension: "family", kind: "", theme: "" };

export const FILTERS = ["engine", "family", "chip", "lengths", "grade", "tier"];

const listeners = [];
export const state = { ...DEFAULTS };

function read() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const [name, value] of Object.entries(DEFAULTS)) state[name] = given.get(name) ?? value;
}

export function onChange(listener) {
  listeners.push(listener);
}

export function change(changes) {
  Object.assign(state, changes);
  const kept = Object.entries(state).filter(([name, value]) => value !== DEFAULTS[name]);
  history.replaceState(null, "", kept.length ? `#${new URLSearchParams(kept)}` : location.pathname + location.search);
  for (const listener of listeners) listener(Object.keys(changes));
}

export function reset() {
  change(Object.fromEntries([...FILTERS, "find"].map((name) => [name, ""])));
}

addEventListener("hashchange", () => {
  if (location.hash === "#main") return;
  read();
  for (const listener of listeners) listener(Object.keys(DEFAULTS));
});
read();
