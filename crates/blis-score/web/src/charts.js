// Charts: ECharts with only the parts used, drawn as SVG in the page's own colours.

import { BarChart, CustomChart, LineChart, ScatterChart } from "echarts/charts";
import { AriaComponent, GridComponent, LegendComponent, TooltipComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";

import { h } from "./dom.js";

use([BarChart, CustomChart, LineChart, ScatterChart, AriaComponent, GridComponent, LegendComponent, TooltipComponent, SVGRenderer]);

const drawn = new Set();

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const palette = () => ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map((name) => colour(`series-${name}`));

// A chart in a frame of its own. `options` is called at every drawing, so that it reads the colours of the day.
export function chart(label, height, options, click) {
  const frame = h("div", { class: "chart", style: `height:${height}px`, "data-chart": label });
  const entry = { frame, options, instance: undefined };
  entry.draw = () => {
    if (!frame.isConnected) return;
    entry.instance ??= init(frame, undefined, { renderer: "svg" });
    entry.instance.setOption({ ...common(label), ...options() }, { notMerge: true });
    if (click && !entry.listens) {
      entry.listens = true;
      entry.instance.on("click", click);
    }
  };
  drawn.add(entry);
  const observer = new ResizeObserver(() => {
    if (!frame.isConnected) {
      observer.disconnect();
      entry.instance?.dispose();
      drawn.delete(entry);
    } else if (entry.instance) entry.instance.resize();
    else entry.draw();
  });
  observer.observe(frame);
  return frame;
}

export function redraw() {
  for (const entry of drawn) entry.draw();
}

function common(label) {
  return {
    animation: false,
    aria: { enabled: true, label: { description: label } },
    color: palette(),
    // By its name, since the width of a text is measured outside the page.
    textStyle: { color: colour("ink"), fontFamily: getComputedStyle(document.body).fontFamily },
    grid: { left: 8, right: 18, top: 34, bottom: 8, containLabel: true },
  };
}

export const tooltip = (trigger, extra = {}) => ({
  trigger,
  confine: true,
  backgroundColor: colour("card"),
  borderColor: colour("line"),
  textStyle: { color: colour("ink"), fontSize: 13 },
  ...extra,
});

export const legend = (extra = {}) => ({ top: 0, left: 0, type: "plain", itemWidth: 18, itemHeight: 8, itemGap: 14, textStyle: { color: colour("ink") }, ...extra });

export const axis = (type, name, extra = {}) => ({
  type,
  name,
  nameLocation: "middle",
  nameGap: 30,
  nameTextStyle: { color: colour("soft") },
  axisLabel: { color: colour("soft"), hideOverlap: true },
  axisLine: { lineStyle: { color: colour("line") } },
  axisTick: { lineStyle: { color: colour("line") } },
  splitLine: { lineStyle: { color: colour("grid") } },
  ...extra,
});

// A logarithmic axis whose ends hold every value: at powers of two where they span little, else at round numbers.
export function logarithmic(values) {
  if (values.length === 0) return { type: "log" };
  const [low, high] = [Math.min(...values), Math.max(...values)];
  if (high / low < 100) return { type: "log", logBase: 2, min: 2 ** Math.floor(Math.log2(low)), max: 2 ** Math.ceil(Math.log2(high)) };
  const round = (value, to) => {
    const unit = 10 ** Math.floor(Math.log10(value));
    return to(value / unit) * unit;
  };
  return { type: "log", min: round(low, Math.floor), max: round(high, Math.ceil) };
}

// A filled area between two lines of points; unlike stacked areas it is right on logarithmic axes too.
export const area = (name, upper, lower, fill) => ({
  name,
  type: "custom",
  silent: true,
  clip: true,
  z: 1,
  data: upper.map(([x, y], at) => [x, y, lower[at][1]]),
  encode: { x: 0, y: [1, 2] },
  itemStyle: { color: fill },
  renderItem: (params, api) => {
    if (params.dataIndexInside !== 0) return undefined;
    const line = (points) => points.map((point) => api.coord(point));
    return { type: "polygon", shape: { points: [...line(upper), ...line([...lower].reverse())] }, style: { fill } };
  },
});

// Whiskers across horizontal bars: data of [low, high, category].
export const whiskers = (data) => ({
  type: "custom",
  silent: true,
  z: 5,
  data,
  encode: { x: [0, 1], y: 2 },
  tooltip: { show: false },
  renderItem: (_, api) => {
    const [low, high] = [api.coord([api.value(0), api.value(2)]), api.coord([api.value(1), api.value(2)])];
    const stroke = { stroke: colour("ink"), lineWidth: 1.4, fill: "none" };
    const bar = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style: stroke });
    return { type: "group", children: [bar(low[0], low[1], high[0], high[1]), ...[low, high].map(([x, y]) => bar(x, y - 4, x, y + 4))] };
  },
});
