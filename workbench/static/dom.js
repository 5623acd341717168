// Elements without markup in text: a value from a table never becomes HTML.

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name in node && name !== "list" && name !== "form") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((each) => each !== null && each !== undefined));
  return node;
}

export function replace(root, ...children) {
  root.replaceChildren(...children.flat().filter((each) => each !== null && each !== undefined));
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const size = Math.abs(seconds);
  if (size < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (size < 99.95) return `${seconds.toPrecision(size < 9.995 ? 2 : 3)} s`;
  if (size < 5400) return `${Math.round(seconds / 60)} min`;
  if (size < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

export function count(number) {
  if (number === null || number === undefined) return "–";
  return number.toLocaleString("en-US", { maximumFractionDigits: number < 10 ? 2 : 0 });
}

export function clock(us) {
  return us === null || us === undefined ? "–" : new Date(us / 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";
}

export function problem(error) {
  const said = [error.error ?? String(error), error.expected && `Expected: ${error.expected}.`, error.hint && `What to do: ${error.hint}.`];
  return el("p", { class: "problem", role: "alert" }, said.filter(Boolean).join(" "));
}
