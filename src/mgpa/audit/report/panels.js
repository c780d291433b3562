const D = JSON.parse(document.getElementById("data").textContent);
const NS = document.getElementById("ns").namespaceURI;
const tip = document.getElementById("tip"), live = document.getElementById("live");
const off = new Set(), charts = [];
let person = -1;

/* ---------- small helpers ---------- */
function filled(e, attrs, kids) {
  for (const [k, v] of Object.entries(attrs)) if (v !== null && v !== undefined) e.setAttribute(k, v);
  e.append(...kids);
  return e;
}
const el = (tag, attrs = {}, ...kids) => filled(document.createElementNS(NS, tag), attrs, kids);
const html = (tag, attrs = {}, ...kids) => filled(document.createElement(tag), attrs, kids);
function fmt(x, digits = 3, sign = false) {
  if (x === null || x === undefined) return "–";
  const rounded = Number(x.toFixed(digits));
  const text = Math.abs(rounded).toFixed(digits).replace(/^0\./, ".");
  return (rounded < 0 ? "−" : sign ? "+" : "") + text;
}
const ci = (e, d = 3, s = false) => `${fmt(e[0], d, s)} [${fmt(e[1], d, s)}, ${fmt(e[2], d, s)}]`;
const pen = document.createElement("canvas").getContext("2d");
function textWidth(text, size = 12) {
  pen.font = `${size}px system-ui, "Segoe UI", Roboto, Arial, "Liberation Sans", sans-serif`;
  return pen.measureText(text).width;
}
function short(text, width = 150, size = 12) {
  if (textWidth(text, size) <= width) return text;
  while (text.length > 1 && textWidth(text + "…", size) > width) text = text.slice(0, -1);
  return text + "…";
}
function scale(d0, d1, r0, r1) { const k = (r1 - r0) / ((d1 - d0) || 1); return v => r0 + (v - d0) * k; }
function ticks(a, b, n) {
  const raw = ((b - a) || 1) / Math.max(n, 1), p = 10 ** Math.floor(Math.log10(raw)), f = raw / p;
  const step = p * (f < 1.5 ? 1 : f < 3 ? 2 : f < 7 ? 5 : 10), out = [];
  for (let t = Math.ceil(a / step - 1e-9) * step; t <= b + step * 1e-9; t += step) out.push(Number(t.toFixed(10)));
  return out;
}
function decimals(values) {
  for (let d = 0; d < 5; d++) if (values.every(v => Math.abs(v - Number(v.toFixed(d))) < 1e-9)) return d;
  return 5;
}
function range(values, pad = .06) {
  const v = values.filter(Number.isFinite);
  if (!v.length) return [0, 1];
  const a = Math.min(...v), b = Math.max(...v), w = (b - a) || Math.abs(a) * .1 || .1;
  return [a - w * pad, b + w * pad];
}
const SHAPES = {
  o: r => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`,
  s: r => { r *= .9; return `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`; },
  "^": r => `M0,${-1.15 * r}L${1.1 * r},${.85 * r}H${-1.1 * r}z`,
  v: r => `M0,${1.15 * r}L${1.1 * r},${-.85 * r}H${-1.1 * r}z`,
  "<": r => `M${-1.15 * r},0L${.85 * r},${1.1 * r}V${-1.1 * r}z`,
  ">": r => `M${1.15 * r},0L${-.85 * r},${1.1 * r}V${-1.1 * r}z`,
  D: r => { r *= 1.2; return `M0,${-r}L${r},0L0,${r}L${-r},0z`; },
  P: r => { const a = r * 1.1, b = r * .42; return `M${-b},${-a}H${b}V${-b}H${a}V${b}H${b}V${a}H${-b}V${b}H${-a}V${-b}H${-b}z`; },
  X: r => { const a = r * .95, b = r * .4; return `M${-a},${-a + b}L${-a + b},${-a}L0,${-b}L${a - b},${-a}L${a},${-a + b}L${b},0L${a},${a - b}L${a - b},${a}L0,${b}L${-a + b},${a}L${-a},${a - b}L${-b},0z`; },
};
SHAPES.p = SHAPES.h = SHAPES.D;
const SOURCE_SHAPES = [SHAPES.o, SHAPES.s, SHAPES["^"], SHAPES.D];
function marker(m, x, y, r = 5.5, extra = "") {
  const M = D.methods[m];
  return el("path", {d: (SHAPES[M.marker] || SHAPES.o)(r), transform: `translate(${x.toFixed(2)},${y.toFixed(2)})`, class: `dot c${M.color}${M.blind ? "" : " hollow"} ${extra}`});
}
function line(x1, y1, x2, y2, cls) { return el("line", {x1, y1, x2, y2, class: cls}); }
function text(x, y, s, attrs = {}) {
  const parts = s.split(/\bT_([fr])\b/);
  if (parts.length === 1) return el("text", {x, y, ...attrs}, s);
  const kids = parts.flatMap((part, i) => i % 2 ? ["T", el("tspan", {dy: 3, "font-size": "9px", class: "sub"}, part), el("tspan", {dy: -3}, parts[i + 1])] : i ? [] : [part]);
  return el("text", {x, y, ...attrs}, ...kids);
}
function shown(all = true) { return D.methods.map((_, i) => i).filter(i => !off.has(i) && (all || i !== D.identity)); }
function say(words) { live.textContent = words; }

/* ---------- a panel with axes ---------- */
function panel(svg, o) {
  const {left, right, top, bottom} = o, x = scale(...o.x, left, right), y = scale(...o.y, bottom, top);
  const xt = o.xticks || ticks(...o.x, Math.max(2, (right - left) / 60)), yt = o.yticks || ticks(...o.y, Math.max(2, (bottom - top) / 55));
  if (o.gridx) xt.forEach(t => svg.append(line(x(t), top, x(t), bottom, "grid")));
  if (o.gridy !== false) yt.forEach(t => svg.append(line(left, y(t), right, y(t), "grid")));
  if (o.xaxis !== false) {
    svg.append(line(left, bottom, right, bottom, "axis"));
    const d = decimals(xt);
    xt.forEach((t, i) => {
      svg.append(line(x(t), bottom, x(t), bottom + 4, "axis"));
      const words = o.xnames ? o.xnames[i] : [fmt(t, d)];
      words.forEach((w, k) => svg.append(text(x(t), bottom + 17 + 14 * k, w, {"text-anchor": "middle", class: "tick"})));
    });
    if (o.xlabel) svg.append(text((left + right) / 2, bottom + (o.xnames ? 50 : 36), o.xlabel, {"text-anchor": "middle"}));
  }
  if (o.yaxis !== false) {
    const d = decimals(yt);
    yt.forEach(t => svg.append(text(left - 7, y(t) + 4, fmt(t, d), {"text-anchor": "end", class: "tick"})));
    if (o.ylabel) svg.append(text(left - 7, top - 10, o.ylabel, {"text-anchor": "start", transform: `translate(${-(left - (o.edge || 0)) + 7},0)`}));
  }
  if (o.title) svg.append(text(o.titleAt ?? left, top - (o.ylabel ? 26 : 9), short(o.title, o.titleAt === undefined ? right - left + 6 : o.titleWidth || 300, BOLD), {class: "head"}));
  return {x, y};
}
// Titles are bold and a point larger than other words: they are measured as words of this size.
const BOLD = 14.5;
// What names at the ends of lines may take.
const ROOM = 132;
const nameWidth = () => Math.min(150, Math.max(...D.methods.map(m => textWidth(m.label))) + 4);

function placeLabels(svg, points, boxes, frame) {
  const taken = boxes.map(b => [...b, 1]);
  points.forEach(p => taken.push([p.x - 6, p.y - 6, p.x + 6, p.y + 6, 4]));
  for (const p of points) {
    const label = short(p.label), w = textWidth(label) + 4, h = 14;
    let best = null;
    for (const reach of [8, 12, 18, 26, 36, 48, 62]) for (let a = 0; a < 360; a += 30) {
      const ux = Math.cos(a * Math.PI / 180), uy = Math.sin(a * Math.PI / 180);
      const cx = p.x + ux * (reach + w / 2), cy = p.y + uy * (reach + h / 2), b = [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2];
      let cost = 0;
      for (const t of taken) cost += Math.max(0, Math.min(b[2], t[2]) - Math.max(b[0], t[0])) * Math.max(0, Math.min(b[3], t[3]) - Math.max(b[1], t[1])) * t[4];
      cost += 40 * (Math.max(0, frame[0] - b[0]) + Math.max(0, frame[1] - b[1]) + Math.max(0, b[2] - frame[2]) + Math.max(0, b[3] - frame[3]));
      const gap = q => Math.hypot(Math.max(b[0] - q.x, q.x - b[2], 0), Math.max(b[1] - q.y, q.y - b[3], 0));
      const other = Math.min(99, ...points.filter(q => q !== p).map(gap));
      cost += 25 * Math.max(0, gap(p) + 4 - other) + 2 * gap(p);
      if (!best || cost < best.cost) best = {cost, cx, cy, b, reach};
    }
    taken.push([...best.b, 6]);
    if (best.reach > 12) {
      const ex = Math.max(best.b[0], Math.min(p.x, best.b[2])), ey = Math.max(best.b[1], Math.min(p.y, best.b[3]));
      svg.append(el("g", {class: `c${p.color}`}, line(p.x, p.y, ex, ey, "lead")));
    }
    svg.append(text(best.cx, best.cy + 4, label, {"text-anchor": "middle", class: "halo"}));
  }
}
function labelEnds(svg, ends, gap = 15) {
  const sorted = ends.slice().sort((a, b) => a.y - b.y);
  sorted.forEach(e => { e.to = e.y; });
  for (let k = 0; k < 200; k++) {
    let moved = false;
    for (let i = 1; i < sorted.length; i++) if (sorted[i].to - sorted[i - 1].to < gap - .01) {
      const mid = (sorted[i].to + sorted[i - 1].to) / 2;
      sorted[i - 1].to = mid - gap / 2; sorted[i].to = mid + gap / 2; moved = true;
    }
    if (!moved) break;
  }
  for (const e of sorted) {
    svg.append(el("g", {class: `c${e.color}`}, line(e.from ?? e.x + 3, e.y, e.x + 14, e.to, "lead")));
    svg.append(text(e.x + 17, e.to + 4, short(e.label, e.room), {class: "halo"}));
  }
}
function forest(c, o) {
  const rows = o.rows, step = 26, top = o.top, bottom = top + step * rows.length;
  const p = panel(c.svg, {left: o.left, right: o.right, top, bottom, x: o.x, y: [0, 1], yaxis: false, gridy: false, gridx: true, xlabel: o.xlabel, title: o.title, titleAt: o.titleAt});
  (o.refs || []).forEach(r => c.svg.append(line(p.x(r.v), top, p.x(r.v), bottom, r.cls)));
  rows.forEach((r, i) => {
    const y = top + step * (i + .5), M = D.methods[r.m];
    if (o.names) c.svg.append(text(o.left - 10, y + 4, short(M.label), {"text-anchor": "end"}));
    const g = el("g", {class: `c${M.color}`});
    if (r.from !== undefined) g.append(line(p.x(r.from), y, p.x(r.e[0]), y, "link"));
    if (r.e[1] !== undefined && r.e[1] !== null) g.append(line(p.x(r.e[1]), y, p.x(r.e[2]), y, "whisker"));
    c.svg.append(g);
    (r.dots || []).forEach((v, k) => {
      const dy = ((k * 7) % 11 - 5) * .9, dot = el("circle", {cx: p.x(v), cy: y + dy, r: 3.2, class: `dot c${M.color} faded`});
      c.svg.append(dot);
      if (k === person) c.svg.append(el("circle", {cx: p.x(v), cy: y + dy, r: 6, class: "ring"}));
      c.marks.push({x: p.x(v), y: y + dy, title: `${M.label}, without ${D.people[k]}`, lines: r.tell(v)});
    });
    if (r.dots) c.svg.append(line(p.x(r.e[0]), y - 9, p.x(r.e[0]), y + 9, "mean"));
    else { c.svg.append(marker(r.m, p.x(r.e[0]), y)); c.marks.push({x: p.x(r.e[0]), y, title: M.label, lines: r.lines}); }
  });
  return bottom;
}
function grid(W, n, least, most = 4) {
  const rows = Math.ceil(n / Math.max(1, Math.min(n, most, Math.floor(W / least)))), columns = Math.ceil(n / rows);
  return {columns, rows, width: W / columns};
}
function empty(c, words) { c.svg.append(text(0, 24, words, {class: "tick"})); return 40; }
