// The page: what stands still is built once, what depends on a choice is built again when it changes.

import { redraw } from "./charts.js";
import { summary } from "./data.js";
import { h } from "./dom.js";
import { filters } from "./sections/filters.js";
import { headline } from "./sections/headline.js";
import { lanes } from "./sections/lanes.js";
import { scatter } from "./sections/scatter.js";
import { sweeps } from "./sections/sweeps.js";
import { coverage } from "./sections/coverage.js";
import { backlog } from "./sections/backlog.js";
import { peers } from "./sections/peers.js";
import { paired } from "./sections/paired.js";
import { method } from "./sections/method.js";
import { change, onChange, state } from "./state.js";

// Each section with the choices that it depends on.
const SECTIONS = [
  ["accuracy", "Accuracy", headline, []],
  ["lanes", "Where the errors are", lanes, ["dimension", "latency", "measure"]],
  ["points", "Every point", scatter, ["latency", "engine", "family", "chip", "lengths", "grade", "tier", "find"]],
  ["sweeps", "Sweeps", sweeps, ["sweep", "point", "engine", "family", "chip", "lengths", "grade", "tier", "find"]],
  ["coverage", "Coverage", coverage, []],
  ["backlog", "Backlog", backlog, ["kind"]],
  ["peers", "Beside other estimators", peers, []],
  ["paired", "Against the base", paired, []],
  ["method", "How to read this", method, []],
];

function theme() {
  if (state.theme) document.documentElement.dataset.theme = state.theme;
  else delete document.documentElement.dataset.theme;
  redraw();
}

function themeButton() {
  const dark = () => (state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  const button = h("button", { type: "button", class: "quiet", onclick: () => change({ theme: dark() ? "light" : "dark" }) });
  const label = () => (button.textContent = dark() ? "Light" : "Dark");
  onChange(label);
  label();
  return button;
}

function build() {
  const present = SECTIONS.filter(([, , make]) => make.present?.() ?? true);
  const main = h("main", { id: "main" });
  const made = present.map(([id, title, make, depends]) => {
    const body = h("div", { class: "body" }, make());
    const section = h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), body);
    if (id === "points") main.append(filters());
    main.append(section);
    return { id, body, make, depends };
  });
  const links = present.map(([id, title]) => h("a", { href: `#${id}`, onclick: (event) => jump(event, id) }, title));
  const { version, predictions } = summary.provenance;
  document.getElementById("page").replaceChildren(
    h(
      "header",
      {},
      h("div", { class: "title" }, h("h1", {}, "BLIS: simulated against measured"), themeButton()),
      h("p", { class: "soft" }, `Version ${version} · ${predictions.name} · sha256 ${predictions.sha256.slice(0, 12)}`),
      h("nav", { "aria-label": "Sections" }, links),
    ),
    main,
    h("footer", {}, h("p", {}, "All figures come from the summary inside this page, ", h("a", { href: "summary.json" }, "summary.json"), ".")),
  );
  onChange((names) => {
    if (names.includes("theme")) theme();
    for (const { body, make, depends } of made) if (depends.some((name) => names.includes(name))) rebuild(body, make);
  });
}

// Builds a section again and puts the reader back where they were.
function rebuild(body, make) {
  const focused = body.contains(document.activeElement) && document.activeElement.dataset;
  const key = focused && (focused.choice ?? focused.key);
  const scrolled = body.querySelector("[data-keep]")?.scrollTop;
  body.replaceChildren(...[make()].flat());
  const kept = body.querySelector("[data-keep]");
  if (scrolled && kept) kept.scrollTop = scrolled;
  if (key) [...body.querySelectorAll("[data-choice],[data-key]")].find(({ dataset }) => (dataset.choice ?? dataset.key) === key)?.focus();
}

// Sections are reached without touching the address, which holds the choices.
function jump(event, id) {
  event.preventDefault();
  const heading = document.getElementById(`${id}-title`);
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  heading.scrollIntoView();
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
theme();
build();
document.documentElement.dataset.ready = "true";
