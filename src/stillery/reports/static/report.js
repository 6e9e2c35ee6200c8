/* What the report's page does: light and dark, tables that sort and filter, charts, and the browser of examples.
   All text of data is put in with textContent; the charts are drawn by Vega without eval. */
"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const element = (name, text, mark) => {
    const made = document.createElement(name);
    if (text !== undefined) made.textContent = text;
    if (mark) made.className = mark;
    return made;
  };
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  let data = {};
  let drawn = [];
  let visible = null;

  // Light and dark

  const stored = () => {
    try { return localStorage.getItem("stillery-theme"); } catch { return null; }
  };
  const isDark = () => document.documentElement.dataset.theme === "dark";
  const applyTheme = () => {
    const theme = stored() || (prefersDark.matches ? "dark" : "light");
    document.documentElement.dataset.theme = theme;
    const button = find("theme");
    button.textContent = theme === "dark" ? "Light" : "Dark";
    button.setAttribute("aria-pressed", String(theme === "dark"));
    button.setAttribute("aria-label", `Switch to ${theme === "dark" ? "light" : "dark"} colours`);
  };
  const toggleTheme = () => {
    const next = isDark() ? "light" : "dark";
    try { localStorage.setItem("stillery-theme", next); } catch { /* The page then forgets it. */ }
    applyTheme();
    document.documentElement.dataset.theme = next;
    redraw();
  };

  // Tables

  const ROWS = 40;
  const sortedBy = {};
  const unfolded = new Set();
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.key === undefined) return null;
    return cell.classList.contains("number") && !Number.isNaN(Number(cell.dataset.key)) ? Number(cell.dataset.key) : cell.dataset.key;
  };
  const compare = (one, other) => {
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other), "en", { numeric: true });
  };
  const sortTable = (table, column, down) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, place) => {
      if (place === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => [keyOf(row, column), row]);
    rows.sort(([one], [other]) => {
      // What is not known comes last either way.
      if (one === null || other === null) return (one === null) - (other === null);
      return down ? compare(other, one) : compare(one, other);
    });
    body.append(...rows.map(([, row]) => row));
    sortedBy[table.id] = [column, down];
    table.dispatchEvent(new Event("sorted"));
  };
  const startTable = (table) => {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        // Numbers first go down: the highest is what is looked for.
        sortTable(table, column, now ? now === "ascending" : head.classList.contains("number"));
      });
    });
    if (sortedBy[table.id]) sortTable(table, ...sortedBy[table.id]);
    const search = find(`${table.id}-search`);
    if (!search) return;
    const task = find(`${table.id}-task`);
    const best = find(`${table.id}-best`);
    const all = find(`${table.id}-all`);
    best.closest("label").hidden = !table.querySelector("tr[data-best]");
    const filter = () => {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        const hit = words.every((word) => text.includes(word))
          && (!task || !task.value || row.cells[0].textContent === task.value)
          && (!best.checked || row.hasAttribute("data-best"));
        count += hit;
        row.hidden = !hit || (count > ROWS && !unfolded.has(table.id));
      }
      all.hidden = count <= ROWS || unfolded.has(table.id);
      all.textContent = `Show all ${count} rows`;
      find(`${table.id}-count`).textContent = `${count} of ${table.tBodies[0].rows.length} rows`;
    };
    for (const input of [search, task, best]) if (input) input.addEventListener("input", filter);
    all.addEventListener("click", () => { unfolded.add(table.id); filter(); });
    table.addEventListener("sorted", filter);
    filter();
  };

  // Charts

  const heights = {};
  const draw = async (place) => {
    const figure = place.closest("[data-figure]");
    const number = Number(place.dataset.chart);
    const key = `${figure.dataset.figure}-${number}`;
    const chart = data.figures[Number(figure.dataset.figure)][number];
    const config = structuredClone(isDark() ? data.dark : data.light);
    const width = place.clientWidth;
    // Names beside rows get at most a third of a narrow screen.
    config.axisY = { ...config.axisY, labelLimit: Math.max(90, Math.min(260, width * 0.34)) };
    const named = (spec) => spec.encoding?.color?.scale?.domain ?? spec.layer?.map(named).find((one) => one);
    const longest = Math.max(14, ...(named(chart.spec) ?? []).map((name) => name.length));
    // A legend begins where the names beside rows end.
    const columns = Math.max(1, Math.floor((width - config.axisY.labelLimit) / (longest * 7 + 28)));
    config.legend = { ...config.legend, labelLimit: width - 40, columns: Math.min(columns, 5) };
    place.dataset.state = "drawing";
    try {
      const made = await vegaEmbed(place, { $schema: data.schema, ...chart.spec }, {
        mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, config,
        tooltip: { disableDefaultStyle: true },
      });
      drawn.push(made);
      place.dataset.state = "drawn";
      heights[key] = place.offsetHeight;
    } catch (error) {
      place.dataset.state = "failed";
      place.textContent = `This chart cannot be drawn: ${error.message}`;
    }
  };
  const startCharts = () => {
    visible = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        visible.unobserve(entry.target);
        draw(entry.target);
      }
    }, { rootMargin: "400px" });
    for (const place of document.querySelectorAll(".chart")) {
      const known = heights[`${place.closest("[data-figure]").dataset.figure}-${place.dataset.chart}`];
      if (known) place.style.minHeight = `${known}px`;
      visible.observe(place);
    }
    for (const pick of document.querySelectorAll(".pick select")) {
      const shown = pick.value;
      pick.addEventListener("input", () => {
        const box = pick.closest("[data-figure]").querySelector(".charts");
        const made = pick.value.split(",").map((number) => {
          const place = element("div", undefined, "chart");
          place.dataset.chart = number;
          return place;
        });
        box.replaceChildren(...made);
        box.classList.toggle("alone", made.length === 1);
        made.forEach((place) => visible.observe(place));
      });
      if (shown !== pick.options[0].value) pick.dispatchEvent(new Event("input"));
    }
  };
  const redraw = () => {
    for (const made of drawn) made.finalize();
    drawn = [];
    for (const place of document.querySelectorAll('.chart[data-state="drawn"]')) {
      place.style.minHeight = `${place.offsetHeight}px`;
      place.dataset.state = "waiting";
      visible.observe(place);
    }
  };

  // Examples on which teacher and student disagree

  const PAGE = 20;
  const [RUN, TEXT, RIGHT, TEACHER, STUDENT, TEACHER_SURE, STUDENT_SURE] = [0, 1, 2, 3, 4, 5, 6];
  const words = (text) => text.split(/\s+/).filter(Boolean).length;
  const whoIsRight = (row) => {
    if (data.browser.answers[row[RIGHT]] === "") return "";
    if (row[TEACHER] === row[RIGHT]) return "teacher";
    return row[STUDENT] === row[RIGHT] ? "student" : "neither";
  };
  const pair = (name, text, sure, mark) => {
    const box = element("div");
    const shown = sure === null || sure === undefined ? text : `${text} ${sure.toFixed(2)}`;
    box.append(element("dt", name), element("dd", shown, mark));
    return box;
  };
  const item = (row, several) => {
    const { answers, texts, runs } = data.browser;
    const made = element("li");
    made.append(element("p", texts[row[TEXT]], "text"));
    const list = element("dl");
    const known = answers[row[RIGHT]] !== "" && !runs[row[RUN]].scores;
    const mark = (column) => (known ? (row[column] === row[RIGHT] ? "right" : "wrong") : "");
    if (answers[row[RIGHT]] !== "") list.append(pair("right:", answers[row[RIGHT]]));
    list.append(pair("teacher:", answers[row[TEACHER]], row[TEACHER_SURE], mark(TEACHER)));
    list.append(pair("student:", answers[row[STUDENT]], row[STUDENT_SURE], mark(STUDENT)));
    if (several) list.append(pair("of", runs[row[RUN]].name));
    made.append(list);
    return made;
  };
  const said = (run) => {
    if (run.scores) return `${run.name}: the ${run.shown} of ${run.of.toLocaleString("en")} examples on which it lies furthest from its teacher.`;
    const share = (100 * run.differ / run.of).toFixed(1);
    const right = run.teacher_right === null ? ""
      : ` The teacher is right on ${run.teacher_right} of them, the student on ${run.student_right}.`;
    return `${run.name} and its teacher give different answers on ${run.differ} of ${run.of.toLocaleString("en")} examples (${share}%).${right}`;
  };
  const startBrowser = () => {
    if (!data.browser) return;
    const { answers, texts, runs, rows } = data.browser;
    const value = (name) => find(`disagree-${name}`).value;
    const labels = [...new Set(rows.map((row) => answers[row[RIGHT]]))].filter((one) => one !== "" && one.length < 60).sort();
    const label = find("disagree-label");
    for (const name of labels.length <= 200 ? labels : []) label.append(new Option(name, name));
    label.closest("label").hidden = label.options.length < 2;
    const hasSure = rows.some((row) => row[TEACHER_SURE] !== null);
    for (const name of ["teacher", "student"]) find(`disagree-${name}`).closest("label").hidden = !hasSure;
    find("disagree-who").closest("label").hidden = !rows.some((row) => whoIsRight(row) !== "");
    let count = PAGE;
    const show = () => {
      const [from, to] = value("length").split("-").map(Number);
      const search = value("search").toLowerCase();
      const found = rows.filter((row) => {
        const length = words(texts[row[TEXT]]);
        return (value("run") === "" || row[RUN] === Number(value("run")))
          && (value("label") === "" || answers[row[RIGHT]] === value("label"))
          && (value("who") === "" || whoIsRight(row) === value("who"))
          && (row[TEACHER_SURE] ?? 1) >= Number(value("teacher"))
          && (row[STUDENT_SURE] ?? 1) >= Number(value("student"))
          && (value("length") === "" || (length >= from && (!to || length <= to)))
          && texts[row[TEXT]].toLowerCase().includes(search);
      });
      const order = value("order");
      const size = (row) => words(texts[row[TEXT]]);
      found.sort((one, other) => {
        if (order === "short") return size(one) - size(other);
        if (order === "long") return size(other) - size(one);
        return (other[Number(order)] ?? 0) - (one[Number(order)] ?? 0);
      });
      const several = value("run") === "" && runs.length > 1;
      find("disagree-list").replaceChildren(...found.slice(0, count).map((row) => item(row, several)));
      find("disagree-said").textContent = value("run") === "" ? "" : said(runs[Number(value("run"))]);
      find("disagree-count").textContent = `${found.length} of the ${rows.length} examples in this page fit; ${Math.min(count, found.length)} are shown.`;
      find("disagree-more").hidden = found.length <= count;
    };
    find("disagree-filters").addEventListener("input", () => { count = PAGE; show(); });
    find("disagree-filters").addEventListener("submit", (event) => event.preventDefault());
    find("disagree-more").addEventListener("click", () => { count += PAGE; show(); });
    show();
  };

  // A served page asks for news

  const start = () => {
    data = JSON.parse(find("data").textContent);
    for (const table of document.querySelectorAll("main table[id]")) startTable(table);
    startCharts();
    startBrowser();
  };
  const update = (text) => {
    const kept = {};
    for (const one of document.querySelectorAll("main input[id], main select[id]")) kept[one.id] = [one.value, one.checked];
    const open = [...document.querySelectorAll("main details")].map((one) => one.open);
    const focused = document.activeElement && document.activeElement.id;
    const at = window.scrollY;
    for (const made of drawn) made.finalize();
    drawn = [];
    if (visible) visible.disconnect();
    const parsed = new DOMParser().parseFromString(text, "text/html");
    find("main").replaceChildren(...document.adoptNode(parsed.body).childNodes);
    const restore = () => {
      for (const [id, [value, checked]] of Object.entries(kept)) {
        const one = find(id);
        if (!one || (one.options && ![...one.options].some((option) => option.value === value))) continue;
        one.value = value;
        if (one.type === "checkbox") one.checked = checked;
      }
    };
    restore();
    start();
    // Options that the start has made can be chosen only now.
    restore();
    for (const one of document.querySelectorAll("main select[id], main input[id]")) if (kept[one.id]) one.dispatchEvent(new Event("input", { bubbles: true }));
    [...document.querySelectorAll("main details")].forEach((one, place) => { if (open[place]) one.open = true; });
    window.scrollTo(0, at);
    if (focused && find(focused)) find(focused).focus({ preventScroll: true });
  };
  const follow = async () => {
    let tag = null;
    for (;;) {
      try {
        const answer = await fetch("main", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
        if (answer.status === 200) {
          const text = await answer.text();
          if (tag !== null) update(text);
          tag = answer.headers.get("ETag");
        }
        document.title = document.title.replace(/^\(ended\) /, "");
      } catch {
        if (!document.title.startsWith("(ended) ")) document.title = `(ended) ${document.title}`;
      }
      await new Promise((done) => { setTimeout(done, 3000); });
    }
  };

  find("theme").addEventListener("click", toggleTheme);
  prefersDark.addEventListener("change", () => { applyTheme(); redraw(); });
  applyTheme();
  start();
  if ("served" in document.body.dataset) follow();
})();
