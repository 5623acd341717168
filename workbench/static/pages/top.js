// The worst first: stalest keys, buckets, shards.

import { bytes, calm, count, duration, el, empty, grid, moment, replace, section } from "../dom.js";

export const title = "Top N";
export const order = 7;

const LABELS = { first_arrival: "first arrival", age_s: "age", covered: "updates" };

export async function render(root, api) {
  if (!api.table) {
    root.append(empty("No table yet"));
    return {};
  }
  const keys = el("div");
  const hot = el("div");
  const hottest = el("div");
  const parts = el("div", { class: "stack" });
  root.append(section("Keys that wait longest in the queue", keys), hottest, parts);

  function show(place, found, caption) {
    if (found.why) return replace(place, empty("The queue reports no keys", found.why));
    const names = found.columns.map((each) => each.name);
    const key = names.slice(0, -3);
    replace(
      place,
      grid(
        names.map((name, at) => ({ label: (at >= key.length && LABELS[name]) || name, num: at >= key.length, text: (row) => (name === "age_s" ? duration(row[at]) : name === "first_arrival" ? moment(row[at]) : String(row[at])) })),
        found.rows,
        { caption, none: "No key waits.", onrow: (row) => api.go("why", Object.fromEntries(key.map((name, at) => [name, row[at]]))) },
      ),
    );
  }

  async function load() {
    const [stalest, updated, shards] = await Promise.all([api.get("/stalest", { count: 50 }), api.get("/stalest", { count: 50, by: "updates" }), api.get("/shards")]);
    show(keys, stalest, "Stalest keys");
    show(hot, updated, "Keys with the most updates that wait");
    replace(hottest, updated.why ? null : section("Keys with the most updates that wait", hot));
    const most = Math.max(1, ...shards.buckets.map((each) => each.rows ?? 0));
    replace(
      parts,
      section(
        "Largest buckets",
        grid(
          [
            { label: "bucket", num: true, text: (each) => String(each.bucket ?? "all") },
            { label: "rows", num: true, text: (each) => count(each.rows) },
            { label: "", node: (each) => el("div", { class: "meter", "aria-hidden": "true" }, el("span", { style: { width: `${((each.rows ?? 0) / most) * 100}%` } })) },
            { label: "size", num: true, text: (each) => bytes(each.bytes) },
            { label: "files", num: true, text: (each) => count(each.files) },
            { label: "dead rows", num: true, text: (each) => count(each.dead) },
          ],
          shards.buckets,
          { caption: "Buckets of the table, most rows first" },
        ),
      ),
      shards.queues.length > 0 &&
        section(
          "Shards of the queue",
          grid(
            [
              { label: "queue", num: true, text: (each) => String(each.queue) },
              { label: "shard", num: true, text: (each) => String(each.shard) },
              { label: "waiting", num: true, text: (each) => count(each.waiting) },
              { label: "oldest", num: true, text: (each) => (each.oldest_us === null ? "–" : duration((api.now() - each.oldest_us) / 1e6)) },
              { label: "arrived", num: true, text: (each) => count(each.arrived) },
              { label: "applied", num: true, text: (each) => count(each.applied) },
              { label: "superseded", num: true, text: (each) => count(each.superseded) },
              { label: "state written", num: true, text: (each) => bytes(each.state_bytes) },
            ],
            shards.queues,
            { caption: "Shards of the queue, fullest first" },
          ),
        ),
      shards.operators.length > 0 &&
        section(
          "Shards of other steps",
          grid(
            [
              { label: "step", text: (each) => each.operator },
              { label: "shard", num: true, text: (each) => String(each.shard) },
              { label: "rows kept", num: true, text: (each) => count(each.kept) },
              { label: "due", num: true, text: (each) => count(each.due) },
              { label: "state written", num: true, text: (each) => bytes(each.state_bytes) },
            ],
            shards.operators,
            { caption: "Shards of windows, joins and other steps, fullest first" },
          ),
        ),
    );
  }
  await load();
  const soon = calm(load, 4000);
  return { refresh: load, onCommit: soon, dispose: () => soon.cancel() };
}
