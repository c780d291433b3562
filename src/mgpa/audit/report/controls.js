/* ---------- controls ---------- */
const COMPARED = Object.keys(D.metrics).filter(k => D.metrics[k].compared);
const OPTIONS = {
  tradeoff: {key: "y", label: "Vertical axis", of: COMPARED.filter(k => k !== "S").map(k => [k, D.metrics[k].short])},
  association: {key: "head", label: "Head", of: [["shortcut", "that learned the shortcut"], ["control", "control, trained without association"]]},
  participants: {key: "metric", label: "Metric", of: COMPARED.map(k => [k, D.metrics[k].short])},
};
function setup(id) {
  const host = document.getElementById(`chart-${id}`);
  if (!host) return;
  const opt = {}, o = OPTIONS[id];
  if (o && o.of.length) {
    opt[o.key] = o.of[0][0];
    if (o.of.length > 1) {
      const select = html("select", {id: `option-${id}`}, ...o.of.map(([v, words]) => html("option", {value: v}, words)));
      select.addEventListener("change", () => { opt[o.key] = select.value; chart.draw(); });
      host.before(html("div", {class: "tools"}, html("label", {for: `option-${id}`}, o.label, select)));
    }
  }
  if (id === "embedding") host.before(html("div", {class: "tools legend"}, ...D.sources.map((name, s) => {
    const svg = el("svg", {width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true"}, el("path", {d: SOURCE_SHAPES[s % 4](5), class: `dot k${s % 6}`}));
    return html("span", {class: "toggle"}, svg, html("span", {}, name));
  })));
  const chart = {id, at: -1, narrow: Boolean(host.closest(".pair")), marks: [], width: 0, draw(W = host.clientWidth) {
    if (W < 40) return;
    chart.width = W;
    const svg = el("svg", {role: "img", tabindex: "0", "aria-label": `${host.dataset.label} Arrow keys step through the values.`});
    const c = {svg, W, marks: [], opt};
    const H = Math.ceil(DRAW[id](c));
    svg.setAttribute("viewBox", `0 0 ${W} ${H}`);
    const focused = host.contains(document.activeElement);
    host.replaceChildren(svg);
    chart.svg = svg; chart.marks = c.marks; chart.at = -1;
    chart.cursor = el("circle", {r: 11, class: "cursor", visibility: "hidden"});
    svg.append(chart.cursor);
    if (focused) svg.focus({preventScroll: true});
    svg.addEventListener("pointermove", e => {
      const r = svg.getBoundingClientRect(), k = W / r.width, x = (e.clientX - r.left) * k, y = (e.clientY - r.top) * k;
      let best = -1, least = 22;
      chart.marks.forEach((m, i) => { const d = Math.hypot(m.x - x, m.y - y); if (d < least) { least = d; best = i; } });
      point(chart, best, false);
    });
    svg.addEventListener("pointerleave", () => point(chart, -1, false));
    svg.addEventListener("blur", () => point(chart, -1, false));
    svg.addEventListener("click", () => { const m = chart.marks[chart.at]; if (m && m.who !== undefined) choose(m.who === person ? -1 : m.who); });
    svg.addEventListener("keydown", e => {
      const n = chart.marks.length, step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[e.key];
      if (!n) return;
      if (step) point(chart, (Math.max(chart.at, step > 0 ? -1 : 0) + step + n) % n, true);
      else if (e.key === "Home") point(chart, 0, true);
      else if (e.key === "End") point(chart, n - 1, true);
      else if (e.key === "Escape") point(chart, -1, true);
      else return;
      e.preventDefault();
    });
  }};
  charts.push(chart);
  new ResizeObserver(() => { if (Math.abs(host.clientWidth - chart.width) > 1 && !matchMedia("print").matches) chart.draw(); }).observe(host);
  chart.draw();
}
function point(chart, i, aloud) {
  chart.at = i;
  const m = chart.marks[i];
  if (!m) { tip.hidden = true; chart.cursor.setAttribute("visibility", "hidden"); return; }
  tip.replaceChildren(html("b", {}, m.title), ...m.lines.map(t => html("div", {}, t)));
  tip.hidden = false;
  const r = chart.svg.getBoundingClientRect(), k = r.width / chart.width;
  const x = r.left + scrollX + m.x * k, y = r.top + scrollY + m.y * k;
  const left = Math.min(Math.max(x + 14, scrollX + 8), scrollX + document.documentElement.clientWidth - tip.offsetWidth - 8);
  tip.style.left = `${left}px`;
  tip.style.top = `${y - tip.offsetHeight - 14 < scrollY ? y + 16 : y - tip.offsetHeight - 14}px`;
  chart.cursor.setAttribute("cx", m.x); chart.cursor.setAttribute("cy", m.y); chart.cursor.setAttribute("visibility", "visible");
  if (aloud) say(`${m.title}. ${m.lines.join(". ")}`);
}
function redraw() { tip.hidden = true; charts.forEach(c => c.draw()); }
let who;
function choose(i) { person = i; if (who) who.value = String(i); redraw(); say(i < 0 ? "No participant highlighted" : `${D.people[i]} highlighted`); }

function keyFor(i) {
  const svg = el("svg", {width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true"});
  svg.append(marker(i, 0, 0, 5));
  return svg;
}
function controls() {
  const bar = document.getElementById("bar");
  bar.append(html("span", {class: "name"}, "Methods"));
  D.methods.forEach((M, i) => {
    const b = html("button", {type: "button", class: "toggle", "aria-pressed": "true", "data-method": i}, keyFor(i), html("span", {}, M.label));
    b.addEventListener("click", () => {
      off.has(i) ? off.delete(i) : off.add(i);
      b.setAttribute("aria-pressed", String(!off.has(i)));
      redraw(); say(`${M.label} ${off.has(i) ? "hidden" : "shown"}`);
    });
    bar.append(b);
  });
  if (D.people.length) {
    who = html("select", {id: "person"}, html("option", {value: "-1"}, "nobody"), ...D.people.map((p, i) => html("option", {value: i}, p)));
    who.addEventListener("change", () => choose(Number(who.value)));
    bar.append(html("label", {for: "person"}, "Highlight participant", who));
  }
  document.querySelectorAll("[data-key]").forEach(k => k.replaceChildren(keyFor(Number(k.dataset.key))));
}
function sorting() {
  document.querySelectorAll("table.sortable").forEach(table => {
    table.querySelectorAll("thead th").forEach((th, column) => {
      const words = th.textContent.trim(), hint = th.querySelector(".hint");
      const button = html("button", {type: "button"});
      button.append(...[...th.childNodes].filter(n => n !== hint));
      th.replaceChildren(button, ...(hint ? [hint] : []));
      button.addEventListener("click", () => {
        const up = th.getAttribute("aria-sort") !== "ascending", body = table.tBodies[0];
        table.querySelectorAll("thead th").forEach(o => o.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = row => { const v = row.cells[column].dataset.value; return v === undefined ? null : column ? Number(v) : v; };
        const rows = [...body.rows].sort((a, b) => {
          const x = value(a), y = value(b);
          if (x === null || y === null) return (x === null) - (y === null);
          return (column ? x - y : x.localeCompare(y)) * (up ? 1 : -1);
        });
        body.append(...rows);
        say(`Sorted by ${words}, ${up ? "ascending" : "descending"}`);
      });
    });
  });
}
function theme() {
  const button = document.querySelector("button.theme"), root = document.documentElement;
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const name = () => { button.textContent = dark() ? "Light theme" : "Dark theme"; };
  try { const kept = localStorage.getItem("mgpa-theme"); if (kept === "dark" || kept === "light") root.dataset.theme = kept; } catch { /* not available for local files everywhere */ }
  button.hidden = false; name();
  button.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark"; name();
    try { localStorage.setItem("mgpa-theme", root.dataset.theme); } catch { /* as above */ }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
}
function copying() {
  document.querySelectorAll("button.copy").forEach(button => {
    const text = document.getElementById(button.dataset.copy), words = button.textContent;
    const done = what => { button.textContent = what; say(what); setTimeout(() => { button.textContent = words; }, 4000); };
    /* Where a local file has no clipboard, the paragraph is selected and the older command tried. */
    const select = () => {
      getSelection().selectAllChildren(text);
      done(document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C");
    };
    button.hidden = false;
    button.addEventListener("click", () => {
      if (navigator.clipboard) navigator.clipboard.writeText(text.textContent).then(() => done("Copied"), select);
      else select();
    });
  });
}
copying(); theme(); controls(); sorting(); Object.keys(DRAW).forEach(setup);
const maps = [...document.querySelectorAll("#settings details")];
addEventListener("beforeprint", () => { tip.hidden = true; maps.forEach(d => { d.open = true; }); charts.forEach(c => c.draw(c.narrow ? 430 : 880)); });
addEventListener("afterprint", () => { maps.forEach(d => { d.open = false; }); redraw(); });
