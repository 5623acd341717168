// What would help? Staleness of each policy as predicted for a load, beside what is seen.

import { clock, count, duration, el, empty, grid, percent, problem, replace, section } from "../dom.js";

export const title = "What if";
export const order = 9;

const FIELDS = [
  ["rate", "Rows per second", 1, "any"],
  ["keys", "Keys", 1, 1],
  ["skew", "Skew (Zipf's exponent)", 1, 0.05],
  ["cost_us", "Cost of a row, ms", 1000, "any"],
  ["fixed_us", "Cost of a batch, ms", 1000, "any"],
  ["budget", "Rows per batch at most", 1, 1],
];

export async function render(root, api) {
  const fields = {};
  const form = el("div", { class: "row" });
  for (const [name, label, , step] of FIELDS) {
    fields[name] = el("input", { id: `load-${name}`, type: "number", min: 0, step, onkeydown: (event) => event.key === "Enter" && ask() });
    form.append(el("div", { class: "field" }, el("label", { htmlFor: `load-${name}` }, label), fields[name]));
  }
  fields.budget.placeholder = "all that wait";
  const notes = el("p", { class: "muted" }, "\u00a0");
  const button = el("button", { class: "button primary", type: "button", onclick: () => ask() }, "Predict");
  const times = [0.5, 2, 10].map((by) => el("button", { class: "button", type: "button", onclick: () => scale(by) }, `${by} × the rate`));
  const measured = el("button", { class: "button", type: "button", onclick: () => fill() }, "As measured");
  const answer = el("div", { class: "stack" });
  const before = el("div", { class: "stack" });
  const advice = el("p", { hidden: true });
  root.append(advice, form, el("div", { class: "row" }, button, measured, times), notes, answer, before);
  let load = null;
  let seen = null;

  function fill() {
    for (const [name, , unit] of FIELDS) {
      const value = load?.[name];
      fields[name].value = value === null || value === undefined ? (name === "skew" ? 0 : "") : Number((value / unit).toPrecision(4));
    }
  }

  /** Return a mark for a prediction that misses what is seen by a factor of 2 or more; null for a better one. */
  function rough(ratio) {
    return ratio >= 2 || ratio <= 0.5 ? el("span", { class: "badge warn" }, `rough: ${ratio.toFixed(1)} × what was seen`) : null;
  }

  /** Return whether the fields have the measured load. */
  function isMeasured(question) {
    return load !== null && FIELDS.every(([name, , unit]) => Math.abs((question[name] ?? 0) - (load[name] ?? 0)) <= 0.001 * Math.abs(load[name] ?? 0) + 1e-9 * unit);
  }

  function scale(by) {
    fields.rate.value = Number((Number(fields.rate.value) * by).toPrecision(4));
    ask();
  }

  async function ask() {
    const question = {};
    for (const [name, , unit] of FIELDS) question[name] = fields[name].value === "" ? null : Number(fields[name].value) * unit;
    button.disabled = true;
    try {
      show(await api.send("POST", "/plan", question), isMeasured(question));
    } catch (error) {
      replace(answer, problem(error));
    } finally {
      button.disabled = false;
    }
  }

  function show(found, asMeasured) {
    const most = Math.max(...found.predictions.map((each) => each.mean), seen?.over_time?.[1] ?? 0, 1e-9);
    const bar = (value) => el("div", { class: "meter", "aria-hidden": "true" }, el("span", { style: { width: `${Math.min((value / most) * 100, 100)}%` } }));
    const middle = seen?.over_time ? (seen.over_time[0] + seen.over_time[1]) / 2 : null;
    const rows = found.predictions.map((each) => ({ ...each, name: each.policy === found.in_force ? `${each.policy}, in force` : each.policy }));
    const miss = (each) => (middle && asMeasured && each.policy === found.in_force ? rough(each.mean / middle) : null);
    if (middle !== null) {
      rows.push({ name: "seen now", mean: middle, range: seen.over_time, applied_per_s: seen.applied_per_s, pending: seen.pending, seen: true });
    }
    const age = (value) => (value === undefined || value === null ? "–" : duration(value));
    replace(
      answer,
      section(
        "Staleness of a random key at a random moment",
        el(
          "p",
          { class: "muted" },
          `The server can process ${Number.isFinite(found.capacity) && found.capacity ? count(found.capacity) : "any number of"} rows/s: the load is ${found.load === null ? "–" : found.load.toFixed(2)}. A rough simulation of ${duration(found.simulated_s)}.` +
            (found.left_out.length ? ` Not simulated for lack of time: ${found.left_out.join(", ")}.` : ""),
        ),
        grid(
          [
            { label: "policy", node: (each) => (each.seen ? el("strong", {}, each.name) : [`${each.name}${each.grows ? " (grows)" : ""} `, miss(each)]) },
            { label: "mean", num: true, text: (each) => (each.range ? `${duration(each.range[0])} to ${duration(each.range[1])}` : age(each.mean)) },
            { label: "", node: (each) => bar(each.mean) },
            { label: "p50", num: true, text: (each) => age(each.p50) },
            { label: "p99", num: true, text: (each) => age(each.p99) },
            { label: "max", num: true, text: (each) => age(each.max) },
            { label: "results/s", num: true, text: (each) => count(each.applied_per_s) },
            { label: "waiting", num: true, text: (each) => count(each.pending) },
            { label: "busy", num: true, text: (each) => (each.busy === undefined ? "–" : percent(each.busy)) },
          ],
          rows,
          { caption: "Predicted staleness by policy, and what is seen" },
        ),
        found.predictions.some((each) => each.grows) && el("p", { class: "muted" }, "(grows): still rising at the end of the simulation, so there is no limit."),
      ),
    );
  }

  function past(found) {
    if (!found.stretches.length) return;
    replace(
      before,
      section(
        "How good the last predictions were",
        el("p", { class: "muted" }, `Each is made from ${found.commits} commits, for the ${found.commits} after them, with the policy ${found.policy}. The median is ${found.median.toFixed(2)} × what was seen; nine in ten are within a factor of ${found.factor.toFixed(2)}. `, rough(found.median)),
        grid(
          [
            { label: "until", node: (each) => clock(each.at_us) },
            { label: "predicted", num: true, text: (each) => duration(each.predicted) },
            { label: "seen", num: true, text: (each) => duration(each.seen) },
            { label: "ratio", num: true, text: (each) => each.ratio.toFixed(2) },
          ],
          found.stretches.toReversed(),
          { caption: "Mean staleness as predicted from earlier commits, and as seen" },
        ),
      ),
    );
  }

  if (api.table) {
    const found = await api.get("/load");
    load = found.load;
    seen = found.seen;
    notes.textContent = found.notes.join(" ") || "\u00a0";
    if (load) {
      fill();
      await ask();
      api.get("/predictions").then(past, () => {}); // without them, the rest of the page stands
    }
  }
  if (!load) {
    Object.assign(fields.rate, { value: 10000 });
    Object.assign(fields.keys, { value: 5000 });
    Object.assign(fields.skew, { value: 0.5 });
    Object.assign(fields.cost_us, { value: 1 });
    Object.assign(fields.fixed_us, { value: 500 });
    replace(answer, empty("Nothing is measured yet", "These numbers are an example. Change them, and choose Predict."));
  }
  return {
    onVerdict(found) {
      advice.hidden = !found.advice;
      replace(advice, found.advice, " ", el("a", { href: api.link("control") }, "Control"));
    },
  };
}
