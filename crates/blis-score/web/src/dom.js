// Elements without a framework: h("p", { class: "x" }, "text", child).

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(3).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

// A choice with a label. `options` are [value, text] pairs.
export function select(label, value, options, change) {
  const list = h(
    "select",
    { onchange: (event) => change(event.target.value), "data-choice": label },
    options.map(([option, text]) => h("option", { value: option, selected: option === value }, text)),
  );
  return h("label", { class: "choice" }, h("span", {}, label), list);
}

// A table that scrolls sideways inside its own frame, never the page.
export function table(caption, head, rows, attributes = {}) {
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h("table", attributes, h("caption", {}, caption), h("thead", {}, head), h("tbody", {}, rows)),
  );
}
