// Charts: time series by uPlot, and a heat map on a canvas. Colours come from the theme's CSS variables.

const { uPlot } = globalThis; // vendor/uPlot.iife.min.js
import { clock, count, css, duration, el } from "./dom.js";

const FONT = "12px system-ui, sans-serif";
const DARK = matchMedia("(prefers-color-scheme: dark)");

/**
 * Draw series over time in a box of fixed height, which keeps the page from jumping.
 *
 * `series` are {label, color, value(v), fill, dash, stepped}; `data` are columns, the first in epoch seconds. `onzoom`
 * gets the seconds of a selection by mouse, or null after a double click.
 */
export class TimeChart {
  constructor(root, { title, height = 220, series, value = duration, log = false, x = "time", sync = null, onzoom = null, range = null }) {
    this.box = el("div", { class: "chart", style: { height: `${height + 34}px` } });
    root.append(el("figure", {}, title && el("figcaption", {}, title), this.box));
    this.height = height;
    const axis = (more) => ({
      stroke: () => css("--muted"),
      grid: { stroke: () => css("--line"), width: 1 },
      ticks: { show: false },
      font: FONT,
      ...more,
    });
    this.options = {
      width: 300,
      height,
      tzDate: (at) => uPlot.tzDate(new Date(at * 1e3), "Etc/UTC"),
      cursor: { y: false, points: { size: 6 }, drag: { x: onzoom !== null, y: false }, ...(sync && { sync: { key: sync } }) },
      legend: { live: true },
      scales: {
        x: { time: x === "time", distr: x === "log" ? 3 : 1, range: x === "time" ? (_, low, high) => this.#span(low, high) : undefined },
        y: log ? { distr: 3, range: log === true ? undefined : log } : { range: range ?? ((_, low, high) => [0, high > 0 ? high * 1.08 : 1]) },
      },
      axes: [
        axis({ size: 30, values: x === "time" ? TIMES : (_, splits) => splits.map((each) => (each === null ? "" : duration(each))) }),
        axis({ size: 68, values: (_, splits) => splits.map((each) => (each === null ? "" : value(each))) }),
      ],
      series: [
        { label: x === "time" ? "at" : "age", value: (_, v) => (v === null || v === undefined ? "–" : x === "time" ? clock(v * 1e6) : duration(v)) },
        ...series.map((each) => ({
          label: each.label,
          stroke: () => css(each.color),
          width: 1.75,
          dash: each.dash,
          fill: each.fill ? () => `${css(each.color)}22` : undefined,
          paths: each.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
          points: { show: each.points ?? ((chart) => chart.data[0].length < 3), size: 5 }, // a line needs two
          spanGaps: true,
          value: (_, v) => (v === null || v === undefined ? "–" : (each.value ?? value)(v)),
        })),
      ],
      hooks: {
        drawClear: [(chart) => this.#shade(chart)],
        setSelect: [
          (chart) => {
            if (!onzoom || chart.select.width < 4) return;
            onzoom([chart.posToVal(chart.select.left, "x"), chart.posToVal(chart.select.left + chart.select.width, "x")]);
            chart.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          },
        ],
      },
    };
    if (onzoom) this.box.addEventListener("dblclick", () => onzoom(null));
    this.sizes = new ResizeObserver(() => this.#fit());
    this.sizes.observe(this.box);
    this.repaint = () => this.plot?.redraw(false, true);
    DARK.addEventListener("change", this.repaint);
  }

  set(data) {
    this.data = data;
    if (!this.plot) {
      this.plot = new uPlot({ ...this.options, width: this.#width() }, data, this.box);
    } else this.plot.setData(data);
  }

  /** Append a point to the columns, and let go of the oldest beyond `most`. */
  push(values, most = 1000) {
    if (!this.data) return;
    const first = this.data[0];
    if (first.length && values[0] <= first[first.length - 1]) return;
    this.set(this.data.map((column, at) => [...column, values[at] ?? null].slice(-most)));
  }

  /** Let the chart end now, with the time since the last point shaded if that is a gap; an ended table's ends with it. */
  runTo(verdict) {
    this.until = verdict && verdict.state !== "ended" ? verdict.now_us / 1e6 : null;
    this.gap = verdict?.past;
    if (this.data?.[0].length) this.set(this.data);
  }

  dispose() {
    this.sizes.disconnect();
    DARK.removeEventListener("change", this.repaint);
    this.plot?.destroy();
  }

  #span(low, high) {
    if (this.data?.[0].length === 1) high = low; // uPlot gives a single point years
    const end = Math.max(high, this.until ?? high);
    return low === null || end > low ? [low, low === null ? high : end] : [low - 60, end + 60];
  }

  #shade(chart) {
    const last = chart.data[0].at(-1);
    if (!this.gap || last === undefined || !(this.until > last)) return;
    const { left, top, width, height } = chart.bbox;
    const from = Math.max(chart.valToPos(last, "x", true), left);
    chart.ctx.fillStyle = css("--calm-ground");
    chart.ctx.fillRect(from, top, left + width - from, height);
  }

  #width() {
    return Math.max(this.box.clientWidth, 120);
  }

  #fit() {
    if (this.plot && Math.abs(this.plot.width - this.#width()) > 1) this.plot.setSize({ width: this.#width(), height: this.height });
  }
}

// UTC, with the date where it changes.
function TIMES(_, splits, __, ___, step) {
  let day = "";
  return splits.map((at) => {
    const text = new Date(at * 1e3).toISOString();
    const time = text.slice(11, step < 60 ? 19 : 16);
    const shown = step >= 86400 || (day && day !== text.slice(0, 10)) ? text.slice(5, 10) : time;
    day = text.slice(0, 10);
    return shown;
  });
}

// Cividis (light to dark in one hue order), which people with any colour vision read alike.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

function hue(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.floor(at);
  const mix = (one, other) => Math.round(one + (other - one) * (at - low));
  const part = (text, from) => parseInt(text.slice(from, from + 2), 16);
  const [one, other] = [CIVIDIS[low], CIVIDIS[Math.min(low + 1, CIVIDIS.length - 1)]];
  return [1, 3, 5].map((from) => mix(part(one, from), part(other, from)));
}

/** Draw counts by time and age: a column is a stretch of time, a row a range of ages, brightness the log of the count. */
export class HeatMap {
  constructor(root, { title, height = 240 }) {
    this.height = height;
    this.canvas = el("canvas", { class: "heat", role: "img", "aria-label": title, height, style: { height: `${height}px` } });
    this.note = el("output", { class: "muted heat-note" }, "Point at a cell for its count.");
    root.append(el("figure", {}, el("figcaption", {}, title), el("div", { class: "chart", style: { height: `${height}px` } }, this.canvas), this.note));
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => (this.note.textContent = "Point at a cell for its count."));
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(this.canvas.parentElement);
    this.repaint = () => this.draw();
    DARK.addEventListener("change", this.repaint);
  }

  /** `map` is {times: edges in epoch seconds, ages: edges in seconds, counts: by column, then row}. */
  set(map) {
    this.map = map;
    this.draw();
  }

  draw() {
    const { map, canvas } = this;
    const scale = devicePixelRatio || 1;
    const width = Math.max(canvas.parentElement.clientWidth, 120);
    canvas.style.width = `${width}px`;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(this.height * scale);
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.clearRect(0, 0, width, this.height);
    if (!map || !map.counts.length) return;
    const [columns, rows] = [map.counts.length, map.ages.length - 1];
    const most = Math.log1p(Math.max(1, ...map.counts.map((column) => Math.max(0, ...column))));
    const picture = new ImageData(columns, rows);
    map.counts.forEach((column, x) =>
      column.forEach((held, row) => {
        const at = 4 * ((rows - 1 - row) * columns + x);
        if (held) picture.data.set([...hue(Math.log1p(held) / most), 255], at);
      }),
    );
    const small = new OffscreenCanvas(columns, rows);
    small.getContext("2d").putImageData(picture, 0, 0);
    this.area = { left: 68, top: 6, width: width - 76, height: this.height - 32 };
    const { left, top, height } = this.area;
    pen.fillStyle = css("--sunken");
    pen.fillRect(left, top, this.area.width, height);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, left, top, this.area.width, height);
    pen.fillStyle = css("--muted");
    pen.font = FONT;
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const step = Math.max(1, Math.ceil(rows / (height / 24)));
    for (let row = 0; row <= rows; row += step) pen.fillText(duration(map.ages[row]), left - 6, top + height - (row / rows) * height);
    pen.textBaseline = "top";
    const labels = Math.max(2, Math.floor(this.area.width / 150));
    for (let at = 0; at <= labels; at += 1) {
      pen.textAlign = at === 0 ? "left" : at === labels ? "right" : "center";
      const edge = map.times[0] + ((map.times.at(-1) - map.times[0]) * at) / labels;
      pen.fillText(clock(edge * 1e6).replace(" UTC", ""), left + (this.area.width * at) / labels, top + height + 8);
    }
  }

  #point(event) {
    if (!this.map?.counts.length || !this.area) return;
    const { left, top, width, height } = this.area;
    const x = Math.floor(((event.offsetX - left) / width) * this.map.counts.length);
    const row = Math.floor((1 - (event.offsetY - top) / height) * (this.map.ages.length - 1));
    const held = this.map.counts[x]?.[row];
    if (held === undefined) return;
    const [from, to] = [this.map.ages[row], this.map.ages[row + 1]];
    this.note.textContent = `${count(held)} keys, ${duration(from)} to ${duration(to)} old, committed from ${clock(this.map.times[x] * 1e6)}`;
  }

  dispose() {
    this.sizes.disconnect();
    DARK.removeEventListener("change", this.repaint);
  }
}
