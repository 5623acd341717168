// Elements, texts and numbers for all pages. Text always goes in as text nodes: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element. Props are `class`, `dataset`, `style` (an object), handlers such as `onclick`, properties and attributes. */
export function el(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** Make an SVG element, with the props of `el`. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) node.style.setProperty(key, each);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && node.namespaceURI !== SVG && name !== "list" && name !== "form") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  append(node, children);
  return node;
}

function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/** Replace all children of a node. */
export function replace(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

/** Set a node's text only where it differs, so that a selection of text survives an update. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
  return node;
}

/** Return a duration for people, as the command line prints it: 340 ms, 2.1 s, 3 min 05 s, 2 h 07 min. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  const s = Math.max(seconds, 0);
  if (s && s < 0.01) return s < 0.0001 ? "< 0.1 ms" : `${(s * 1e3).toFixed(1)} ms`;
  if (s < 1) return `${Math.round(s * 1e3)} ms`;
  if (s < 60) return `${s.toFixed(1)} s`;
  const two = (n) => String(Math.floor(n)).padStart(2, "0");
  if (s < 3600) return `${Math.floor(s / 60)} min ${two(s % 60)} s`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ${two((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}

/** Return a count for people: 1,234 and 1.23 M. */
export function count(number) {
  if (number === null || number === undefined) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"]]) if (Math.abs(number) >= size) return `${(number / size).toFixed(2)} ${unit}`;
  return number.toLocaleString("en-US", { maximumFractionDigits: Math.abs(number) < 10 ? 1 : 0 });
}

/** Return a size for people, in powers of 1024. */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let size = number;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (size < 1024) return `${size < 10 && unit !== "B" ? size.toFixed(1) : Math.round(size)} ${unit}`;
    size /= 1024;
  }
  return `${size.toFixed(1)} TiB`;
}

/** Return a share as a percentage; never 100 % unless it is all. */
export function percent(share) {
  if (share === null || share === undefined) return "–";
  return `${share < 1 ? Math.min(Math.round(share * 100), 99) : 100} %`;
}

/** Return epoch microseconds as UTC text; without the date if it is today's. */
export function clock(us, { full = false } = {}) {
  if (us === null || us === undefined) return "–";
  const at = new Date(us / 1e3);
  if (Number.isNaN(at.getTime())) return "–";
  const text = at.toISOString();
  const today = text.slice(0, 10) === new Date().toISOString().slice(0, 10);
  return `${full || !today ? `${text.slice(0, 10)} ` : ""}${text.slice(11, 19)} UTC`;
}

/** Return a low-watermark or a time as people read it: ISO text without T, to the millisecond. */
export function moment(value) {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value !== "string") return String(value);
  const found = /^(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d{1,3})?\d*(Z?)$/.exec(value);
  return found ? `${found[1]} ${found[2]}${(found[3] ?? "").replace(/\.?0+$/, "")}${found[4] ? " UTC" : ""}` : value;
}

/** Return an element whose text is the time since an instant. The application updates it each second. */
export function since(us, now) {
  return el("time", { dataset: { since: us }, dateTime: new Date(us / 1e3).toISOString() }, duration((now - us) / 1e6));
}

/** Return a value of a CSS variable, so that canvases follow the theme. */
export function css(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** Return a badge with a query's state. The word says it; the colour only helps. */
export function badge(state) {
  return el("span", { class: `badge state-${state}`, dataset: { state } }, state);
}

/** Return a card for an error: what is wrong, what was expected, and what to do. */
export function problem(error) {
  return el(
    "div",
    { class: "card problem", role: "alert" },
    el("strong", {}, error.error || error.message || String(error)),
    error.expected && el("p", {}, `Expected: ${error.expected}`),
    error.hint && el("p", {}, `What to do: ${error.hint}`),
  );
}

/** Return a card for a page that has nothing to show, with the reason. */
export function empty(title, text, ...more) {
  return el("div", { class: "card empty" }, el("strong", {}, title), text && el("p", {}, text), more);
}

/** Return a section with a heading. */
export function section(title, ...children) {
  return el("section", {}, el("h2", {}, title), children);
}

/**
 * Return a table with a sticky head. A column is {name, label, num, text(row), node(row)}; `onrow` makes rows
 * clickable, by mouse and by Enter.
 */
export function grid(columns, rows, { caption, onrow, none = "No rows." } = {}) {
  const body = rows.map((row) => {
    const cells = columns.map((column) => {
      const value = column.node ? column.node(row) : column.text ? column.text(row) : row[column.name];
      return el("td", { class: column.num ? "num" : column.wide ? "wide" : null }, value ?? el("span", { class: "null" }, "null"));
    });
    const open = onrow && (() => onrow(row));
    return el("tr", open ? { class: "link", tabindex: "0", onclick: open, onkeydown: (event) => event.key === "Enter" && open() } : {}, cells);
  });
  const filler = el("tr", {}, el("td", { colspan: columns.length, class: "muted" }, none));
  return el(
    "div",
    { class: "grid", tabindex: "0", role: "region", "aria-label": caption ?? "table" },
    el(
      "table",
      {},
      caption && el("caption", { class: "sr" }, caption),
      el("thead", {}, el("tr", {}, columns.map((each) => el("th", { scope: "col", class: each.num ? "num" : null, title: each.title }, each.label ?? each.name)))),
      el("tbody", {}, body.length ? body : filler),
    ),
  );
}

/** Return a function that runs `work` at most once in `ms`, and once more after the last call. */
export function calm(work, ms = 400) {
  let waiting = null;
  let last = 0;
  const run = () => {
    waiting = null;
    last = performance.now();
    work();
  };
  const called = () => {
    if (waiting === null) waiting = setTimeout(run, Math.max(ms - (performance.now() - last), 0));
  };
  called.cancel = () => clearTimeout(waiting);
  return called;
}
