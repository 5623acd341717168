import { clock, count, duration, el, replace } from "../dom.js";

export const title = "Overview";
export const order = 1;

export async function render(root, api) {
  const figures = el("dl", { class: "figures" });
  root.append(figures);
  function draw(commit) {
    const facts = commit === null ? [["commits", "none yet"]] : [
      ["last commit", clock(commit.committed_at_us)],
      ["rows", count(commit.rows)],
      ["keys", count(commit.keys)],
      ["staleness p99", duration(commit.staleness?.p99)],
      ["waiting", count(commit.pending)],
    ];
    replace(figures, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }
  draw(null);
  return { onCommit: draw };
}
