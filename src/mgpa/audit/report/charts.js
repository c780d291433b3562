/* ---------- the charts ---------- */
const DRAW = {
  tradeoff(c) {
    const yKey = c.opt.y, ms = shown(), H = Math.min(460, Math.max(320, c.W * .5));
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const get = (m, k) => D.methods[m].est[k], better = k => ({lower: ", lower is better", higher: ", higher is better ↑", neither: ""})[D.metrics[k].better];
    const xr = range([.5, ...ms.flatMap(m => get(m, "S"))]), ys = ms.flatMap(m => get(m, yKey)), auroc = D.metrics[yKey].auroc;
    // Differences that are next to nothing look like that, and no tick stands at an AUROC that cannot be.
    const yr = range(auroc ? [...ys, Math.max(...ys) - .02] : ys, .09), yticks = ticks(...yr, Math.max(2, (H - 72) / 55)).filter(t => !auroc || t < 1 + 1e-9);
    const box = {left: 46, right: c.W - 12, top: 26, bottom: H - 46};
    const p = panel(c.svg, {...box, x: xr, y: yr, yticks, gridx: true, xlabel: `← ${D.metrics.S.short}${better("S")}`, ylabel: `${D.metrics[yKey].short}${better(yKey)}`});
    c.svg.append(line(p.x(.5), box.top, p.x(.5), box.bottom, "chance"), text(p.x(.5) + 5, box.bottom - 6, "chance", {class: "small"}));
    const id = D.methods[D.identity].est[yKey];
    const boxes = [[p.x(.5), box.bottom - 18, p.x(.5) + 46, box.bottom]];
    if (!off.has(D.identity) && auroc) {
      // The words stand where no marker does.
      const y = p.y(id[0]), width = textWidth("without correction", 11) + 4, spots = [[box.right - width, box.right], [p.x(.5) + 5, p.x(.5) + 5 + width], [(box.left + box.right - width) / 2, (box.left + box.right + width) / 2]];
      const taken = ([a, b]) => ms.filter(m => p.x(get(m, "S")[0]) > a - 8 && p.x(get(m, "S")[0]) < b + 8 && Math.abs(p.y(get(m, yKey)[0]) - y) < 24).length;
      const [start, end] = spots.reduce((a, b) => taken(b) < taken(a) ? b : a);
      c.svg.append(line(box.left, y, box.right, y, "before"), text(start, y - 5, "without correction", {class: "small halo"}));
      boxes.push([box.left, y - 1, box.right, y + 1], [start, y - 17, end, y]);
    }
    const points = [];
    for (const m of ms) {
      const M = D.methods[m], ex = get(m, "S"), ey = get(m, yKey), g = el("g", {class: `c${M.color}`});
      g.append(line(p.x(ex[1]), p.y(ey[0]), p.x(ex[2]), p.y(ey[0]), "whisker"), line(p.x(ex[0]), p.y(ey[1]), p.x(ex[0]), p.y(ey[2]), "whisker"));
      c.svg.append(g);
      boxes.push([p.x(ex[1]), p.y(ey[0]) - 2, p.x(ex[2]), p.y(ey[0]) + 2], [p.x(ex[0]) - 2, p.y(ey[2]), p.x(ex[0]) + 2, p.y(ey[1])]);
    }
    for (const m of ms) {
      const M = D.methods[m], x = p.x(get(m, "S")[0]), y = p.y(get(m, yKey)[0]);
      c.svg.append(marker(m, x, y, 6.5));
      points.push({x, y, label: M.label, color: M.color});
      const lines = [`S ${ci(get(m, "S"))}`, `${yKey} ${ci(get(m, yKey))}`];
      if (m !== D.identity) lines.push(`change of S ${ci(M.delta.S, 3, true)}`);
      lines.push(M.blind ? "source-blind" : "source-aware: told the source of every row");
      c.marks.push({x, y, title: M.label, lines});
    }
    placeLabels(c.svg, points, boxes, [box.left, box.top, box.right, box.bottom]);
    return H;
  },
  readers(c) {
    const ms = shown(false);
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const names = D.readers, before = D.methods[D.identity].readers, rowH = names.length > 16 ? 15 : 19, side = Math.min(c.W < 500 ? 150 : 220, Math.max(...names.map(r => textWidth(r[1])), ...names.map(r => textWidth(r[0], 12.5))) + 6);
    const rows = []; let y0 = 0;
    names.forEach((r, i) => { if (i === 0 || r[0] !== names[i - 1][0]) { rows.push({group: r[0], y: y0}); y0 += rowH; } rows.push({i, y: y0}); y0 += rowH; });
    const G = grid(c.W - side, ms.length, 200), width = (c.W - side) / G.columns, height = y0 + 74;
    const xr = range([.5, ...ms.concat(D.identity).flatMap(m => D.methods[m].readers.map(e => e[0]))], .04);
    ms.forEach((m, k) => {
      const M = D.methods[m], left = side + (k % G.columns) * width + 8, right = side + (k % G.columns + 1) * width - 12, top = Math.floor(k / G.columns) * height + 26;
      const p = panel(c.svg, {left, right, top, bottom: top + y0 + 4, x: xr, y: [0, 1], yaxis: false, gridy: false, gridx: true, xlabel: "Source AUROC", title: M.label});
      c.svg.append(line(p.x(.5), top, p.x(.5), top + y0 + 4, "chance"));
      for (const r of rows) {
        const y = top + r.y + rowH / 2 + 2;
        if (r.group !== undefined) { if (k % G.columns === 0) c.svg.append(text(side, y + 4, r.group, {"text-anchor": "end", class: "strong"})); continue; }
        if (k % G.columns === 0) c.svg.append(text(side, y + 4, short(names[r.i][1], side - 4), {"text-anchor": "end", class: "tick"}));
        const a = before[r.i], b = M.readers[r.i];
        c.svg.append(el("g", {class: `c${M.color}`}, line(p.x(a[0]), y, p.x(b[0]), y, "link")));
        c.svg.append(el("circle", {cx: p.x(a[0]), cy: y, r: 3.4, class: "dot c0"}), marker(m, p.x(b[0]), y, 4.4));
        if (r.i === M.best) c.svg.append(el("circle", {cx: p.x(b[0]), cy: y, r: 9, class: "ring"}));
        c.marks.push({x: p.x(b[0]), y, title: `${M.label}: ${names[r.i][1]}`, lines: [`before ${ci(a)}`, `after ${ci(b)}`, ...(r.i === M.best ? ["this reader sets S"] : [])]});
      }
    });
    return G.rows * height;
  },
  association(c) {
    const ms = shown(), head = c.opt.head;
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const H = Math.min(420, Math.max(320, c.W * .55)), at = (q, x) => (q[0] * x + q[1]) * x + q[2];
    const xs = Array.from({length: 61}, (_, i) => -1 + i / 30);
    const values = ms.flatMap(m => { const q = D.methods[m].curves[head]; return [...xs.map(x => at(q.abc, x)), ...(q.worst || [])]; });
    const side = nameWidth() + 22, box = {left: 46, right: c.W - side, top: 26, bottom: H - 64};
    const p = panel(c.svg, {...box, x: [-1, 1], y: range([.5, ...values], .05), xticks: [-1, 0, 1], xnames: box.right - box.left < 230 ? [["−1"], ["0"], ["1"]] : [["−1", "reversed"], ["0", "independent"], ["1", "aligned"]], xlabel: box.right - box.left < 230 ? "ξ: reversed −1, aligned 1" : "Association ξ of device and label", ylabel: "AUROC"});
    c.svg.append(line(box.left, p.y(.5), box.right, p.y(.5), "chance"), text(box.left + 12, p.y(.5) - 5, "chance", {class: "small halo"}));
    const ends = [];
    for (const m of ms) {
      const M = D.methods[m], q = M.curves[head], g = el("g", {class: `c${M.color}`});
      g.append(el("path", {class: "line", "stroke-dasharray": M.blind ? null : "6 4", d: "M" + xs.map(x => `${p.x(x).toFixed(1)},${p.y(at(q.abc, x)).toFixed(1)}`).join("L")}));
      if (q.worst) g.append(line(p.x(q.min[0]), p.y(q.worst[1]), p.x(q.min[0]), p.y(q.worst[2]), "whisker"));
      c.svg.append(g);
      ends.push({x: box.right, y: p.y(at(q.abc, 1)), label: M.label, color: M.color});
    }
    for (const m of ms) {
      const M = D.methods[m], q = M.curves[head], lines = [`lowest ${fmt(q.min[1])} at ξ = ${fmt(q.min[0], 2)}`];
      if (q.worst) lines.push(`worst-association AUROC ${ci(q.worst)}`);
      lines.push(`reversed ${fmt(at(q.abc, -1))}, independent ${fmt(q.abc[2])}, aligned ${fmt(at(q.abc, 1))}`);
      c.svg.append(marker(m, p.x(q.min[0]), p.y(q.min[1]), 6));
      c.marks.push({x: p.x(q.min[0]), y: p.y(q.min[1]), title: M.label, lines});
    }
    labelEnds(c.svg, ends);
    return H;
  },
  movement(c) {
    const ms = shown(false), staged = ms.filter(m => D.methods[m].stages.length);
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const wide = staged.length && c.W > 760, names = nameWidth();
    let H = 0, left = 0;
    if (staged.length) {
      const right = wide ? c.W * .52 : c.W, side = Math.min(ROOM, names) + 22, h = 300;
      const paths = staged.flatMap(m => D.methods[m].stages);
      const box = {left: 46, right: right - side, top: 42, bottom: h - 46};
      const last = Math.max(...paths.map(q => q.length - 1));
      const p = panel(c.svg, {...box, x: [0, last], xticks: ticks(0, last, (box.right - box.left) / 60).filter(Number.isInteger), y: [0, Math.max(...paths.flat()) * 1.05 || 1], xlabel: "Stage", ylabel: "relative movement", title: "Stage by stage, validation rows", titleAt: 0});
      const ends = [];
      for (const m of staged) {
        const M = D.methods[m], g = el("g", {class: `c${M.color}`});
        M.stages.forEach((q, f) => {
          g.append(el("path", {class: "line thin", d: "M" + q.map((v, i) => `${p.x(i).toFixed(1)},${p.y(v).toFixed(1)}`).join("L")}));
          const n = q.length - 1;
          [...new Set([Math.round(n / 4), Math.round(n / 2), Math.round(3 * n / 4), n])].filter(i => i > 0).forEach(i => c.marks.push({x: p.x(i), y: p.y(q[i]), title: `${M.label}, fit ${f + 1}`, lines: [`after stage ${i} of ${n}: ${fmt(q[i])}`]}));
        });
        c.svg.append(g);
        M.stages.forEach(q => c.svg.append(marker(m, p.x(q.length - 1), p.y(q[q.length - 1]), 4.5)));
        const longest = M.stages.reduce((a, b) => b.length > a.length ? b : a);
        ends.push({x: p.x(longest.length - 1), y: p.y(longest[longest.length - 1]), label: M.label, room: ROOM, color: M.color});
      }
      labelEnds(c.svg, ends);
      H = h; if (wide) left = right + 10;
    }
    const top = wide || !staged.length ? 25 : H + 34;
    const rows = ms.map(m => ({m, e: D.methods[m].est.M, lines: [`M ${ci(D.methods[m].est.M)}`, ...D.methods[m].bySource.map((v, i) => `${D.sources[i]}: ${fmt(v)}`)]}));
    const bottom = forest(c, {left: left + names + 12, right: c.W - 12, top, rows, x: [0, Math.max(...rows.map(r => r.e[2])) * 1.06 || 1], names: true, xlabel: "Relative movement M", title: "In all, evaluation participants", titleAt: left});
    return Math.max(H, bottom + 46);
  },
  pairs(c) {
    const P = D.pairs, last = P.coverage.length, H = 330;
    const box = {left: 46, right: c.W - 12, top: 26, bottom: H - 46};
    const p = panel(c.svg, {...box, x: [.5, Math.max(last, 2) + .5], y: [0, 1.04], xticks: ticks(1, Math.max(last, 2), Math.min(12, c.W / 60)).filter(t => Number.isInteger(t)), yticks: [0, .2, .4, .6, .8, 1], xlabel: "Directions in the gate", ylabel: "share of held-out pairs' directions inside"});
    const at = (v, i) => `${p.x(i + 1).toFixed(1)},${p.y(v).toFixed(1)}`, [low, middle, high] = P.shuffled;
    c.svg.append(el("g", {class: "c0"}, el("path", {class: "band", d: `M${high.map(at).join("L")}L${low.map(at).reverse().join("L")}Z`}), el("path", {class: "line thin", d: "M" + middle.map(at).join("L")})));
    c.svg.append(el("g", {class: "accent"}, el("path", {class: "line", d: "M" + P.coverage.map(at).join("L")})));
    if (P.rank) {
      c.svg.append(line(p.x(P.rank), box.top, p.x(P.rank), box.bottom, "chance"), text(p.x(P.rank) + 5, box.bottom - 8, `${P.rank} direction${P.rank > 1 ? "s" : ""} supported`, {class: "small halo"}));
    }
    P.coverage.forEach((v, i) => {
      c.svg.append(el("circle", {cx: p.x(i + 1), cy: p.y(v), r: 3, class: "dot accent"}));
      c.marks.push({x: p.x(i + 1), y: p.y(v), title: `${i + 1} direction${i ? "s" : ""}`, lines: [`held-out pairs ${fmt(100 * v, 1)} %`, `views exchanged ${fmt(100 * middle[i], 1)} % [${fmt(100 * low[i], 1)}, ${fmt(100 * high[i], 1)}]`]});
    });
    return H;
  },
  gate(c) {
    const gates = D.gates.filter(g => g.methods.some(m => !off.has(m)));
    if (!gates.length) return empty(c, "Switch a method with a gate on to see it here.");
    const H = 360, last = Math.max(...gates.map(g => g.shown));
    const box = {left: 46, right: c.W - 12, top: 26, bottom: H - 46};
    const p = panel(c.svg, {...box, x: [.5, last + .5], y: [0, 1.04], xticks: ticks(1, last, Math.min(12, c.W / 60)).filter(t => Number.isInteger(t)), yticks: [0, .2, .4, .6, .8, 1], xlabel: "Directions in the gate", ylabel: "share of the paired contrasts' energy"});
    const near = [];
    for (const g of gates) {
      const m = g.methods.find(k => !off.has(k)), M = D.methods[m], box_ = el("g", {class: `c${M.color}`}), e = g.energy.slice(0, last);
      box_.append(el("path", {class: "line", d: "M" + e.map((v, i) => `${p.x(i + 1).toFixed(1)},${p.y(v).toFixed(1)}`).join("L")}));
      c.svg.append(box_);
      e.forEach((v, i) => {
        c.svg.append(el("circle", {cx: p.x(i + 1), cy: p.y(v), r: 3, class: `dot c${M.color}`}));
        c.marks.push({x: p.x(i + 1), y: p.y(v), title: g.names, lines: [`${i + 1} direction${i ? "s" : ""}: ${fmt(100 * v, 1)} %`, ...(i + 1 === g.rank ? ["the rank the gate took"] : [])]});
      });
      const x = p.x(g.rank), y = p.y(g.energy[g.rank - 1]);
      c.svg.append(el("circle", {cx: x, cy: y, r: 9, class: "ring"}));
      near.push({x, y, words: `${gates.length > 1 ? short(g.names, 110) + ", " : ""}ring: rank ${g.rank}, ${fmt(100 * g.energy[g.rank - 1], 1)} %`});
      if (g.coverage !== null) {
        const yc = p.y(g.coverage);
        c.svg.append(el("path", {d: SHAPES.D(5.5), transform: `translate(${x},${yc})`, class: `dot hollow c${M.color}`}));
        c.marks.push({x, y: yc, title: g.names, lines: [`of held-out contrasts: ${fmt(100 * g.coverage, 1)} %`]});
        near[near.length - 1].words += `; diamond: held out ${fmt(100 * g.coverage, 1)} %`;
      }
    }
    near.forEach((n, i) => c.svg.append(text(box.right - 6, box.bottom - 12 - 17 * (near.length - 1 - i), n.words, {class: "halo", "text-anchor": "end"})));
    return H;
  },
  participants(c) {
    const ms = shown(false), key = c.opt.metric, before = D.methods[D.identity].people[key];
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const G = grid(c.W - 40, ms.length, 130, 6), width = Math.min(240, (c.W - 40) / G.columns), h = 270;
    const yr = range([...before, ...ms.flatMap(m => D.methods[m].people[key]), ...(D.metrics[key].auroc ? [.5] : [])], .05);
    ms.forEach((m, k) => {
      const M = D.methods[m], after = M.people[key], first = k % G.columns === 0;
      const left = 40 + (k % G.columns) * width + 4, right = left + width - 20, top = Math.floor(k / G.columns) * h + 30, bottom = top + h - 66;
      const p = panel(c.svg, {left, right, top, bottom, x: [-.35, 1.35], y: yr, yaxis: first, xticks: [0, 1], xnames: [["before"], ["after"]], title: M.label});
      if (D.metrics[key].auroc) c.svg.append(line(left, p.y(.5), right, p.y(.5), "chance"));
      before.forEach((v, i) => c.svg.append(line(p.x(0), p.y(v), p.x(1), p.y(after[i]), i === person ? "chosen" : "person")));
      const mean = q => q.reduce((a, b) => a + b, 0) / q.length;
      before.forEach((v, i) => {
        c.svg.append(el("circle", {cx: p.x(0), cy: p.y(v), r: 3.2, class: "dot c0 faded"}), marker(m, p.x(1), p.y(after[i]), 3.6, "faded"));
        if (i === person) c.svg.append(el("circle", {cx: p.x(0), cy: p.y(v), r: 6.5, class: "ring"}), el("circle", {cx: p.x(1), cy: p.y(after[i]), r: 6.5, class: "ring"}));
        c.marks.push({x: p.x(1), y: p.y(after[i]), who: i, title: `${D.people[i]}, ${M.label}`, lines: [`before ${fmt(v)}`, `after ${fmt(after[i])}`, `change ${fmt(after[i] - v, 3, true)}`]});
      });
      c.svg.append(line(p.x(0), p.y(mean(before)), p.x(1), p.y(mean(after)), "mean"));
    });
    return G.rows * h;
  },
  embedding(c) {
    const ms = [D.identity, ...shown(false)], P = D.picture, G = grid(c.W, ms.length, c.W < 500 ? 140 : 210);
    const tall = Math.max(.45, Math.min(1.1, P.size[1] / P.size[0])), side = G.width - 12, h = side * tall + 44;
    ms.forEach((m, k) => {
      const M = D.methods[m], left = (k % G.columns) * G.width + 1, top = Math.floor(k / G.columns) * h + 26;
      const q = Math.min(side / P.size[0], side * tall / P.size[1]), x = v => left + (side - P.size[0] * q) / 2 + v * q, y = v => top + side * tall - (side * tall - P.size[1] * q) / 2 - v * q;
      c.svg.append(text(left, top - 8, short(m === D.identity ? `${M.label} (before)` : M.label, side, BOLD), {class: "head"}));
      c.svg.append(el("rect", {x: left, y: top, width: side, height: side * tall, class: "frame", rx: 4}));
      const n = P.source.length, size = Math.max(2.2, Math.min(4.5, 90 / Math.sqrt(n)));
      for (let part = 0; part < 4; part++) D.sources.forEach((_, s) => {
        let d = "";
        for (let i = part; i < n; i += 4) if (P.source[i] === s) d += `M${x(M.picture[2 * i]).toFixed(1)},${y(M.picture[2 * i + 1]).toFixed(1)}h0`;
        if (d) c.svg.append(el("g", {class: `k${s % 6}`}, el("path", {class: "cloud", d, "stroke-width": size})));
      });
      D.sources.forEach((name, s) => {
        const [mx, my] = M.means[s];
        c.svg.append(el("path", {d: SOURCE_SHAPES[s % 4](s ? 5 : 8), transform: `translate(${x(mx)},${y(my)})`, class: `dot k${s % 6}`}));
        c.marks.push({x: x(mx), y: y(my), title: `${M.label}: mean of ${name}`, lines: [`${M.counts} rows drawn`, M.gap === null ? "" : `sources' means ${fmt(M.gap, 2)} apart, in units of the rows' spread`].filter(Boolean)});
      });
    });
    return G.rows * h;
  },
  variance(c) {
    const ms = shown(), names = nameWidth();
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const G = grid(c.W - names, D.factors.length, 200), width = (c.W - names) / G.columns, h = 26 * ms.length + 92;
    D.factors.forEach((f, k) => {
      const left = names + (k % G.columns) * width + 12, before = D.methods[D.identity].variance[f][0], chance = D.methods[D.identity].variance[f][1];
      const rows = ms.map(m => { const v = D.methods[m].variance[f]; return {m, from: before, e: [v[0]], lines: [`${fmt(100 * v[0], 2)} % of the variance between ${f === "label" ? "task labels" : f + "s"}`, `by chance ${fmt(100 * v[1], 2)} %`, `before ${fmt(100 * before, 2)} %`]}; });
      const widest = Math.max(before, ...rows.map(r => r.e[0]));
      forest(c, {left, right: left + width - 24, top: Math.floor(k / G.columns) * h + 30, rows, x: [-.03 * widest, widest * 1.08 || 1], names: k % G.columns === 0, xlabel: "share of variance", title: {source: "Between sources", participant: "Between participants", label: "Between task labels"}[f] || f, refs: [{v: chance, cls: "chance"}, {v: before, cls: "before"}]});
    });
    return G.rows * h;
  },
  calibration(c) {
    const ms = shown().filter(m => D.methods[m].reliability);
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const H = 360, side = Math.min(c.W - 60, H - 72), names = Math.min(ROOM, nameWidth()) + 22, box = {left: 46, right: Math.min(c.W - names, 46 + side * 1.35), top: 26, bottom: H - 46};
    const p = panel(c.svg, {...box, x: [0, 1], y: [0, 1], gridx: true, xlabel: `stated probability of ${short(D.second, 120)}`, ylabel: "how often it was"});
    c.svg.append(line(p.x(0), p.y(0), p.x(1), p.y(1), "before"));
    const most = Math.max(...ms.flatMap(m => D.methods[m].reliability.n));
    for (const m of ms) {
      const M = D.methods[m], q = M.reliability;
      c.svg.append(el("g", {class: `c${M.color}`}, el("path", {class: "line thin", d: "M" + q.p.map((v, i) => `${p.x(v)},${p.y(q.o[i])}`).join("L")})));
    }
    for (const m of ms) {
      const M = D.methods[m], q = M.reliability;
      q.p.forEach((v, i) => {
        c.svg.append(marker(m, p.x(v), p.y(q.o[i]), 2.5 + 4.5 * Math.sqrt(q.n[i] / most), "faded"));
        c.marks.push({x: p.x(v), y: p.y(q.o[i]), title: M.label, lines: [`reader: ${q.reader}`, `stated ${fmt(v, 2)}, observed ${fmt(q.o[i], 2)} (${q.n[i]} rows)`, `calibration error ${fmt(q.error)}`]});
      });
    }
    labelEnds(c.svg, ms.map(m => { const M = D.methods[m], q = M.reliability; return {x: box.right, y: p.y(q.o[q.o.length - 1]), label: M.label, room: ROOM, color: M.color, from: p.x(q.p[q.p.length - 1])}; }));
    return H;
  },
  influence(c) {
    const ms = shown(), names = nameWidth(), keys = Object.keys(D.methods[D.identity].influence);
    if (!ms.length) return empty(c, "Switch a method on to see it here.");
    const G = grid(c.W - names, keys.length, 280), width = (c.W - names) / G.columns, h = 26 * ms.length + 92;
    keys.forEach((k, i) => {
      const left = names + (i % G.columns) * width + 12;
      const rows = ms.map(m => { const e = D.methods[m].est[k]; return {m, e: [0, e[1] - e[0], e[2] - e[0]], dots: D.methods[m].influence[k].map(v => v - e[0]), tell: v => [`${k} ${fmt(e[0] + v)} without, ${fmt(e[0])} with everyone`, `change ${fmt(v, 4, true)}`]}; });
      forest(c, {left, right: left + width - 24, top: Math.floor(i / G.columns) * h + 30, rows, x: range(rows.flatMap(r => [...r.dots, ...r.e])), names: i % G.columns === 0, xlabel: `change of ${k} without one person`, title: D.metrics[k].short});
    });
    return G.rows * h;
  },
};
