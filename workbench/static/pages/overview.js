// Is it fresh? One sentence, the figures behind it, the last commits.

import { badge, clock, count, duration, el, empty, grid, moment, percent, replace, say, section, since } from "../dom.js";
import { TimeChart } from "../charts.js";

export const title = "Overview";
export const order = 1;

const COMMITS = 12;

export async function render(root, api) {
  if (!api.table) {
    root.append(empty(...api.nothing));
    return {};
  }
  const sentence = el("p", { class: "sentence", "aria-live": "polite" }, "…");
  const under = el("p", { class: "muted" }, "\u00a0");
  const state = el("span");
  const advice = el("p", { hidden: true });
  const letters = el("p", { hidden: true });
  const card = el("div", { class: "card verdict" }, state, sentence, advice, letters, under);
  const tiles = el("div", { class: "tiles" });
  root.append(card, tiles);
  const chart = new TimeChart(root, {
    title: "Staleness of the applied keys",
    height: 170,
    series: [
      { label: "p99", color: "--c2", fill: true },
      { label: "p50", color: "--c1" },
    ],
  });
  const list = el("div");
  root.append(section("Last commits", list));
  let commits = [];

  function draw(found) {
    if (card.dataset.state !== found.state) {
      card.dataset.state = found.state;
      replace(state, badge(found.state));
    }
    say(sentence, found.verdict);
    advice.hidden = !found.advice;
    if (found.advice !== card.dataset.advice) {
      card.dataset.advice = found.advice;
      replace(advice, `${found.advice} `, el("a", { href: api.link("whatif") }, "What if"), " · ", el("a", { href: api.link("control") }, "Control"));
    }
    if (!found.commit) {
      say(under, found.location);
      replace(tiles);
      return;
    }
    const last = found.commit;
    letters.hidden = !found.letters.rows;
    if (found.letters.rows !== Number(card.dataset.letters)) {
      card.dataset.letters = found.letters.rows;
      const rows = found.letters.rows === 1 ? "1 dead letter" : `${count(found.letters.rows)} dead letters`;
      replace(letters, el("a", { href: api.link("letters") }, rows), `, the first of ${found.letters.origin}: ${found.letters.reason}`);
    }
    replace(under, "Last commit ", since(last.committed_at_us, api.now()), ` ago: version ${count(last.version)}, batch ${count(last.batch_id)}`, found.writer ? "" : "; no query writes now");
    // Figures of the last commit are grey once they say nothing about now.
    const ago = `at the last commit, ${duration(found.since_commit_s)} ago`;
    const then = found.past ? "past" : "";
    const behind = found.behind_s !== null && !found.all_ended;
    const facts = [
      staleness(found, ago),
      target(found),
      ["Complete up to", found.all_ended ? "the end" : timeOf(found.complete_up_to), behind ? `${moment(found.complete_up_to).slice(0, 10)}, ${duration(found.behind_s)} behind the clock` : found.waits_for ? `waits for ${found.waits_for}` : ""],
      ["Waiting", last.pending === null || last.pending === undefined ? "no queue" : `${count(last.pending)} keys`, waiting(found, ago), last.pending ? then : ""],
      ["Arriving", found.rows_per_s === null ? "–" : `${count(found.rows_per_s)} rows/s`, rates(found), then],
      ["Keys", count(last.keys), rest(last)],
    ];
    chart.runTo(found);
    replace(
      tiles,
      facts.map(([label, value, more, kind]) => el("div", { class: `tile ${kind ?? ""}` }, el("div", { class: "label" }, label), el("div", { class: "value" }, value), el("div", { class: "more" }, more))),
    );
  }

  function timeOf(bound) {
    const text = moment(bound);
    return /^\d{4}-/.test(text) ? `${text.slice(11, 19)} UTC` : text;
  }

  function staleness(found, ago) {
    const text = (each) => `p50 ${duration(each.p50)}, p99 ${duration(each.p99)}, max ${duration(each.max)}`;
    const { staleness: then, staleness_now: now } = found;
    if (found.idle) return ["Staleness now", "no row waits", then ? `${duration(then.mean)} ${ago}` : ""];
    if (now) return ["Staleness now", `${found.at_least ? "≥ " : ""}${duration(now.mean)}`, `${text(now)}${found.past && then ? `; ${duration(then.mean)} ${ago}` : ""}`];
    return ["Staleness", then ? duration(then.mean) : "–", then ? `${text(then)}, ${ago}` : "no time of arrival is known", "past"];
  }

  function target(found) {
    const last = found.commit;
    if (!last.target) return ["Target", "none", "set one with target='p99 < 10 s'"];
    const needs = last.needed_budget ? `; a batch of ${count(last.needed_budget)} rows would meet it` : last.needed_rows_per_s ? `; ${count(last.needed_rows_per_s)} rows/s would meet it` : "";
    const verdict = found.target_met === null ? "no verdict" : found.target_met ? "met" : "missed";
    return ["Target", verdict, `${last.target}, met by ${percent(found.target_share)} of commits${needs}`, found.target_met === null ? "" : !found.target_met ? "bad" : found.staleness_now ? "good" : "past"];
  }

  function waiting(found, ago) {
    const oldest = found.commit.oldest ? `the oldest for ${duration(found.commit.oldest + found.since_commit_s)}` : "";
    return [oldest, found.commit.pending && found.past ? ago : ""].filter(Boolean).join("; ");
  }

  function rates(found) {
    if (found.past) return `before the last commit, ${duration(found.since_commit_s)} ago`;
    return found.superseded_share === null ? "" : `${percent(found.superseded_share)} superseded, ${count(found.applied_per_s)} keys/s applied`;
  }

  function rest(last) {
    const counts = [[last.sources?.late, "late"], [last.sources?.suspects, "suspect"], [last.conflicts, "in conflict"], [last.deleted, "deleted"]];
    return counts.filter(([many]) => many).map(([many, what]) => `${count(many)} ${what}`).join(", ");
  }

  function tell() {
    replace(
      list,
      grid(
        [
          { label: "version", num: true, text: (each) => count(each.version) },
          { label: "committed", text: (each) => clock(each.committed_at_us) },
          { label: "rows", num: true, text: (each) => count(each.rows) },
          { label: "keys changed", num: true, text: (each) => count(each.applied) },
          { label: "superseded", num: true, text: (each) => count(each.superseded) },
          { label: "p50", num: true, text: (each) => duration(each.staleness?.p50) },
          { label: "p99", num: true, text: (each) => duration(each.staleness?.p99) },
          { label: "waiting", num: true, text: (each) => count(each.pending) },
          { label: "complete up to", text: (each) => moment(each.low_watermark) },
        ],
        commits,
        { caption: "Last commits, newest first", none: "No commit of a query yet." },
      ),
    );
  }

  async function refresh() {
    const { columns, latest } = await api.get("/summaries", { points: 400, latest: COMMITS });
    commits = latest.reverse();
    chart.set([columns.at_s ?? [], columns.p99_s ?? [], columns.p50_s ?? []]);
    tell();
  }
  await refresh();
  return {
    refresh,
    onVerdict: draw,
    onCommit(commit) {
      commits = [commit, ...commits.filter((each) => each.version !== commit.version)].slice(0, COMMITS);
      chart.push([commit.committed_at_us / 1e6, commit.staleness?.p99, commit.staleness?.p50], 600);
      tell();
    },
    dispose: () => chart.dispose(),
  };
}
