// How to read the page: what each figure means, by which rules, of which files.

import { summary } from "../data.js";
import { h, table } from "../dom.js";

export function method() {
  const { rules, provenance } = summary;
  const files = Object.entries(provenance).filter(([, file]) => file?.sha256);
  return [
    h("ul", {}, [
      `A figure over fewer than ${rules.minimum_points} points is not shown, and one over fewer than ${rules.minimum_sweeps} sweeps has no interval.`,
      `Intervals are ${rules.confidence_percent} % intervals from ${rules.resamples.toLocaleString("en-US")} resamples of whole sweeps (seed ${rules.seed}).`,
      `Bands span ${rules.band_percent} % of other sweeps' points.`,
      `Verdicts of a paired comparison keep the chance of any false one at ${rules.familywise_percent} %.`,
    ].map((text) => h("li", {}, text))),
    h("dl", { class: "definitions" }, Object.entries(rules.definitions).map(([name, text]) => [h("dt", {}, name.replaceAll("_", " ")), h("dd", {}, text)])),
    table("Files compared", h("tr", {}, ["", "file", "sha256"].map((text) => h("th", { scope: "col" }, text))), files.map(([use, { name, sha256 }]) => h("tr", {}, h("th", { scope: "row" }, use), h("td", { class: "text" }, name), h("td", { class: "text hash" }, sha256))), { class: "texts" }),
  ];
}
