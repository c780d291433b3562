(() => {
  "use strict";
  const all = selector => [...document.querySelectorAll(selector)];
  const chosen = {method: "", person: ""};

  /* Highlight one method or one participant in every chart. */
  function paint() {
    for (const [kind, value] of Object.entries(chosen))
      for (const mark of all(`.chart [data-${kind}]`))
        mark.classList.toggle(`dim-${kind}`, value !== "" && mark.dataset[kind] !== value);
    for (const mark of all(".chart [data-person]"))
      mark.classList.toggle("followed", chosen.person !== "" && mark.dataset.person === chosen.person);
    for (const button of all("[data-choose]"))
      button.setAttribute("aria-pressed", String(button.dataset.choose === chosen.method));
    const select = document.getElementById("person");
    if (select) select.value = chosen.person;
  }
  function choose(kind, value) {
    chosen[kind] = chosen[kind] === value ? "" : value;
    paint();
  }
  document.addEventListener("click", event => {
    const button = event.target.closest("[data-choose]");
    if (button) return choose("method", button.dataset.choose);
    const point = event.target.closest(".chart [data-person]");
    if (point) return choose("person", point.dataset.person);
    const mark = event.target.closest(".chart [data-method]");
    if (mark) choose("method", mark.dataset.method);
  });
  document.addEventListener("change", event => {
    if (event.target.id !== "person") return;
    chosen.person = event.target.value;
    paint();
  });
  document.addEventListener("keydown", event => {
    if (event.key !== "Escape") return;
    chosen.method = chosen.person = "";
    paint();
  });

  /* Sort tables by a column. */
  for (const table of all("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const down = head.ariaSort === "ascending", body = table.tBodies[0];
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const value = row => row.cells[column].dataset.value ?? "";
        const compare = (a, b) => {
          if (!value(a) || !value(b)) return (value(a) ? 0 : 1) - (value(b) ? 0 : 1);
          const order = column ? value(a) - value(b) : value(a).localeCompare(value(b));
          return down ? -order : order;
        };
        body.append(...[...body.rows].sort(compare));
      });
    });
  }

  /* Light and dark. */
  const theme = document.querySelector("button.theme"), root = document.documentElement;
  const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const say = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; say(); });
  say();

  /* Save charts and tables. */
  function offer(place, name, kind, content) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "save";
    button.textContent = `Save as ${kind.toUpperCase()}`;
    button.addEventListener("click", () => {
      const link = document.createElement("a");
      link.href = URL.createObjectURL(new Blob([content()]));
      link.download = `${name}.${kind}`;
      link.click();
    });
    place.after(button);
  }
  for (const chart of all(".chart"))
    offer(chart, chart.closest("figure").id, "svg", () => {
      const colors = getComputedStyle(document.documentElement);
      const drawing = new XMLSerializer().serializeToString(chart.querySelector("svg"));
      return drawing.replace(/var\((--\w+)\)/g, (_, name) => colors.getPropertyValue(name).trim());
    });
  /* Names that a spreadsheet would compute are marked as text. */
  const cell = text => `"${text.replace(/\s+/g, " ").trim().replace(/^[=@]/, "'$&").replace(/"/g, '""')}"`;
  all("#numbers table").forEach((table, i) =>
    offer(table.parentElement, table.closest("details") ? "by-source" : ["estimates", "differences"][i], "csv", () =>
      [...table.rows].map(row => [...row.cells].map(one => cell(one.innerText)).join()).join("\r\n")));

  /* What is folded away is printed. */
  addEventListener("beforeprint", () => { for (const folded of all("details")) folded.open = true; });

  /* Copy a paragraph. */
  for (const button of all("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const text = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(text.textContent);
      } catch {
        getSelection().selectAllChildren(text);
        document.execCommand("copy");
      }
      button.textContent = "Copied";
    });
  }
})();
