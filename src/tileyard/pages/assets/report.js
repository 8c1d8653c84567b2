// What reports draw: the best time so far, the map of two parameters, tables. The numbers come from the page's data.
"use strict";
(() => {
  const { data, make, colour } = page;
  const UNITS = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];
  const plain = (number) => String(Number(number.toPrecision(4)));
  // For places of an axis and whole numbers, of which no digit may be left out.
  const exact = (number) => String(Number(number.toPrecision(12)));

  // Three or four significant digits with a suitable unit.
  function sayTime(ns) {
    const [unit, size] = UNITS.find(([, size]) => ns >= size) || UNITS[3];
    return `${plain(ns / size)} ${unit}`;
  }

  // Called again when the colours change and when the width does.
  function keepDrawn(place, draw) {
    let width = 0;
    const again = () => { width = place.clientWidth; if (width) draw(width); };
    new ResizeObserver(() => { if (place.clientWidth !== width) again(); }).observe(place);
    for (const media of ["(prefers-color-scheme: dark)", "print"]) matchMedia(media).addEventListener("change", again);
  }

  // ---- the best time so far -------------------------------------------------------------------------------

  const WHOLE = [0, 1, 2, 3, 4, 5, 6].flatMap((power) => [1, 2, 5].map((one) => one * 10 ** power));

  function drawProgress(place, { seconds, times, best, unit, size, isLog, marks }, { configs }) {
    const parameters = configs.columns.flatMap(({ name, parameter }, index) => (parameter ? [[name, index]] : []));
    const ended = configs.columns.findIndex(({ name, parameter }) => name === "ended" && !parameter);
    const rowOf = new Map(configs.rows.map((row) => [row[ended], row]));  // of many configs some have no row
    const sayConfig = (row) => !row ? "" : parameters.filter(([, index]) => row[index] !== null).map(([name, index]) => `${name}=${row[index]}`).join(" ");
    const figure = place.closest("figure");
    const read = figure.querySelector("[data-read]");
    const scaled = (values) => values.map((one) => (one === null ? null : one / size));
    const all = scaled(times), lowest = scaled(best);
    const numbers = times.map((_, index) => index + 1);
    let by = "trials", plot = null;

    function draw(width) {
      if (plot) plot.destroy();
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") },
        font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif" };
      plot = new uPlot({
        width, height: 320, legend: { show: false },
        cursor: { drag: { x: true, y: false }, points: { show: false } },
        scales: { x: { time: false }, y: { distr: isLog ? 3 : 1 } },
        axes: [
          { ...axis, ...(by === "trials" ? { label: "configs that have ended", incrs: WHOLE } : { label: "seconds since the start" }) },
          { ...axis, size: 64, label: `time of a launch, ${unit}`, values: (_, ticks) => ticks.map((one) => (one === null ? "" : exact(one))) },
        ],
        series: [
          {},
          { stroke: colour("--grey"), paths: () => null, points: { show: true, size: 5, fill: colour("--grey"), width: 0 } },
          { stroke: colour("--orange"), width: 2.5, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } },
        ],
        hooks: { draw: [({ ctx, bbox, valToPos }) => {
          ctx.strokeStyle = ctx.fillStyle = colour("--text");
          ctx.lineWidth = 2 * devicePixelRatio;
          ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
          for (const [name, index] of marks) {
            if (times[index] === null) continue;
            const x = valToPos(by === "trials" ? index + 1 : seconds[index], "x", true), y = valToPos(all[index], "y", true);
            const beside = 9 * devicePixelRatio, isLeft = x + beside + ctx.measureText(name).width > bbox.left + bbox.width;
            ctx.beginPath();
            ctx.arc(x, y, 6 * devicePixelRatio, 0, 2 * Math.PI);
            ctx.stroke();
            ctx.textAlign = isLeft ? "right" : "left";
            ctx.fillText(name, x + (isLeft ? -beside : beside), y - 6 * devicePixelRatio);
          }
        }], setCursor: [({ cursor: { idx } }) => {
          read.textContent = idx === null || idx === undefined ? "" :
            `config ${idx + 1}${seconds ? `, after ${exact(seconds[idx])} s` : ""}: ${sayConfig(rowOf.get(idx + 1))}: ` +
            `${times[idx] === null ? "no time" : sayTime(times[idx])}; best so far ${best[idx] === null ? "none" : sayTime(best[idx])}`;
        }] },
      }, [by === "trials" ? numbers : seconds, all, lowest], place);
    }

    for (const button of figure.querySelectorAll("[data-axis]")) {
      button.addEventListener("click", () => {
        by = button.dataset.axis;
        for (const one of figure.querySelectorAll("[data-axis]")) one.setAttribute("aria-pressed", String(one === button));
        draw(place.clientWidth);
      });
    }
    keepDrawn(place, draw);
  }

  // ---- the map of two parameters --------------------------------------------------------------------------

  const SHADES = [[0, 34, 78], [87, 93, 109], [165, 156, 116], [254, 232, 56]];  // ordered in grey, too

  function shade(share) {
    const at = Math.min(share * (SHADES.length - 1), SHADES.length - 1.001), low = Math.floor(at);
    return SHADES[low].map((one, index) => Math.round(one + (at - low) * (SHADES[low + 1][index] - one)));
  }

  function drawMap(controls, { parameters, maps, unit, size }) {
    const [table, caption] = ["[data-map]", "[data-caption]"].map((name) => controls.closest("figure").querySelector(name));
    const selects = ["across", "down"].map((name) => controls.querySelector(`[data-${name}]`));
    for (const [index, select] of selects.entries()) {
      parameters.forEach((name, value) => select.append(make("option", { value, selected: value === index }, name)));
      select.addEventListener("change", () => {
        const other = selects[1 - index];
        if (other.value === select.value) other.value = String((Number(select.value) + 1) % parameters.length);
        draw();
      });
    }

    function draw() {
      const [across, down] = selects.map((one) => Number(one.value));
      const found = maps.find((one) => one.across === Math.min(across, down) && one.down === Math.max(across, down));
      const turned = across > down;
      const [columns, rows] = turned ? [found.rows, found.columns] : [found.columns, found.rows];
      const cell = (y, x) => (turned ? found.cells[x][y] : found.cells[y][x]);
      const known = found.cells.flat().map(([, best]) => best).filter((one) => one !== null);
      const low = Math.log(Math.min(...known)), high = Math.log(Math.max(...known));
      const body = rows.map((name, y) => make("tr", {}, make("th", { scope: "row" }, name), ...columns.map((_, x) => {
        const [tried, best] = cell(y, x);
        if (best === null) return make("td", { class: "none", title: `${tried} tried, none is right` }, tried ? "x" : "");
        const share = high > low ? (Math.log(best) - low) / (high - low) : 0;
        const own = found.marks.filter(([, row, column]) => (turned ? row === x && column === y : row === y && column === x)).map(([name]) => name);
        const kind = own.length ? (own[0].startsWith("winner") ? "best" : "kept") : "";
        const made = make("td", { class: kind, title: [`${tried} tried, best ${sayTime(best)}`, ...own].join("; ") }, plain(best / size));
        const [red, green, blue] = shade(share);
        made.style.backgroundColor = `rgb(${red} ${green} ${blue})`;
        made.style.color = 0.3 * red + 0.59 * green + 0.11 * blue > 117 ? "#000" : "#fff";  // from there on black is read better
        return made;
      })));
      caption.textContent = `Best time in each cell, ${unit}. Columns: ${parameters[across]}. Rows: ${parameters[down]}.` +
        found.marks.map(([name]) => ` ${name.startsWith("winner") ? "Framed" : "Dashed"}: ${name}.`).join("");
      table.replaceChildren(
        make("thead", {}, make("tr", {}, make("td", {}, ""), ...columns.map((name) => make("th", { scope: "col" }, name)))),
        make("tbody", {}, ...body),
      );
    }
    draw();
  }

  // ---- the timeline ---------------------------------------------------------------------------------------

  const KIND_COLOURS = { preparing: "--sky", golden: "--yellow", building: "--blue", starting: "--line", waiting: "--grey", paused: "--pause",
    running: "--orange", judging: "--green", check: "--pink" };
  const NAME_PX = 18, BAR_PX = 16, LANE_PX = NAME_PX + BAR_PX + 6, AXIS_PX = 24, LEAST_MS = 5;

  function drawTimeline(place, { milliseconds, kinds, work, lanes, cases, path }) {
    const figure = place.closest("figure"), read = figure.querySelector("[data-read]"), legend = figure.querySelector("[data-legend]");
    const all = [0, Math.max(milliseconds, 1)];
    let view = all, dragged = null;
    // Begin, end, kind and case of each span.
    const spans = lanes.map(({ spans: numbers }) => {
      const found = [];
      for (let at = 0, index = 0; index < numbers.length; index += 4) {
        const begin = at + numbers[index];
        at = begin + numbers[index + 1];
        found.push([begin, at, numbers[index + 2], numbers[index + 3]]);
      }
      return found;
    });
    const canvas = make("canvas"), context = canvas.getContext("2d");
    place.append(canvas);
    const used = new Set(spans.flat().map(([, , kind]) => kind));
    for (const kind of [...used].sort((a, b) => a - b)) {
      const mark = make("span", { class: "swatch" });
      legend.append(make("li", {}, mark, kinds[kind] + (work.includes(kinds[kind]) ? "" : " (idle)")));
      mark.dataset.kind = kinds[kind];
    }
    const height = lanes.length * LANE_PX + AXIS_PX;
    const top = (lane) => lane * LANE_PX + NAME_PX;

    function draw(width) {
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      const [low, high] = view, scale = width / (high - low), x = (ms) => (ms - low) * scale;
      const colours = kinds.map((kind) => colour(KIND_COLOURS[kind] || "--grey"));
      for (const mark of legend.querySelectorAll(".swatch")) mark.style.backgroundColor = colour(KIND_COLOURS[mark.dataset.kind] || "--grey");
      context.font = "12px system-ui, sans-serif";
      lanes.forEach(({ name, idle }, lane) => {
        context.fillStyle = colour("--panel");
        context.fillRect(0, top(lane), width, BAR_PX);
        for (const [begin, end, kind] of spans[lane]) {
          if (end < low || begin > high) continue;
          context.fillStyle = colours[kind];
          context.fillRect(x(begin), top(lane), Math.max((end - begin) * scale, 0.5), BAR_PX);
        }
        context.fillStyle = colour("--soft");
        context.fillText(`${name}: ${idle} idle`, 2, top(lane) - 4);
      });
      context.fillStyle = colour("--text");
      for (const [begin, end, lane] of path) {
        if (lane >= 0 && end >= low && begin <= high) context.fillRect(x(begin), top(lane) + BAR_PX, Math.max((end - begin) * scale, 1), 3);
      }
      context.fillStyle = colour("--soft");
      const step = [1, 2, 5].flatMap((one) => [-3, -2, -1, 0, 1, 2, 3, 4, 5, 6].map((power) => one * 10 ** power)).sort((a, b) => a - b)
        .find((one) => (high - low) / 1000 / one <= Math.max(width / 90, 2));
      for (let at = Math.ceil(low / 1000 / step); at * step <= high / 1000; at += 1) {
        const label = `${exact(at * step)} s`, left = x(at * step * 1000);
        context.fillRect(left, height - AXIS_PX, 1, 5);
        context.fillText(label, Math.min(left + 3, width - context.measureText(label).width), height - 6);
      }
      if (dragged) {
        context.globalAlpha = 0.2;
        context.fillRect(Math.min(...dragged), 0, Math.abs(dragged[1] - dragged[0]), height);
        context.globalAlpha = 1;
      }
    }

    const redraw = () => draw(place.clientWidth);
    const timeAt = (px) => view[0] + px / place.clientWidth * (view[1] - view[0]);

    function show(low, high) {
      const length = Math.min(Math.max(high - low, LEAST_MS), all[1]), begin = Math.min(Math.max(low, 0), all[1] - length);
      view = [begin, begin + length];
      redraw();
    }

    function tell(px, py) {
      const lane = Math.floor(py / LANE_PX), at = timeAt(px);
      const found = spans[lane] && spans[lane].find(([begin, end]) => begin <= at && at <= end);
      const what = found ? `${kinds[found[2]]}${found[3] >= 0 ? ` ${cases[found[3]]}` : ""}, ${plain((found[1] - found[0]) / 1000)} s` : "nothing";
      read.textContent = lanes[lane] ? `${lanes[lane].name} at ${(at / 1000).toFixed(3)} s: ${what}` : "";
    }

    canvas.addEventListener("pointerdown", (event) => { dragged = [event.offsetX, event.offsetX]; });
    canvas.addEventListener("pointermove", (event) => {
      if (dragged && event.buttons) { dragged[1] = event.offsetX; redraw(); }
      tell(event.offsetX, event.offsetY);
    });
    window.addEventListener("pointerup", () => {
      if (!dragged) return;
      const [from, to] = dragged.slice().sort((a, b) => a - b);
      dragged = null;
      if (to - from > 4) show(timeAt(from), timeAt(to));
      else redraw();
    });
    canvas.addEventListener("dblclick", () => show(...all));
    const MOVES = { in: [0.25, 0.75], out: [-0.5, 1.5], left: [-0.5, 0.5], right: [0.5, 1.5] };
    for (const button of figure.querySelectorAll("[data-zoom]")) {
      button.addEventListener("click", () => {
        const move = MOVES[button.dataset.zoom], length = view[1] - view[0];
        if (move) show(view[0] + move[0] * length, view[0] + move[1] * length);
        else show(...all);
      });
    }
    keepDrawn(place, draw);
  }

  // ---- tables -----------------------------------------------------------------------------------------------

  const FIRST = 50, MORE = 500;
  const SHOWN = { time: sayTime, number: (one) => (Number.isInteger(one) ? exact : plain)(one), percent: (share) => `${plain(100 * share)} %`, seconds: (one) => `${plain(one)} s` };

  function drawTable(place, { columns, rows, choice, by, texts }) {
    const [filter, select, count, table, more, chosen] = ["[data-filter]", "[data-choice]", "[data-count]", "table", "[data-more]",
      "[data-chosen]"].map((name) => place.querySelector(name));
    chosen.textContent = columns[choice].name;
    // A text that many rows share is a number of this list.
    const value = (row, index) => (columns[index].kind === "shared" && row[index] !== null ? texts[row[index]] : row[index]);
    const say = (row, index) => {
      const one = value(row, index);
      return one === null ? "" : typeof one === "number" && SHOWN[columns[index].kind] ? SHOWN[columns[index].kind](one) : String(one);
    };
    const searched = rows.map((row) => ` ${row.map((_, index) =>
      columns[index].parameter ? `${columns[index].name}=${say(row, index)}` : say(row, index)).join(" ")} `.toLowerCase());
    // block=6 is not block=64.
    const isIn = (text, word) => text.includes(word.includes("=") ? ` ${word} ` : word);
    const numbers = rows.map((_, index) => index);
    let shown = FIRST;

    for (const one of ["", ...new Set(rows.map((row) => value(row, choice)))].sort()) select.append(make("option", { value: one }, one || "all"));

    function draw(found) {
      body.replaceChildren(...found.slice(0, shown).map((number) => make("tr", {}, ...columns.map((column, index) =>
        make("td", { class: column.kind === "text" || column.kind === "shared" ? (column.isLong ? "long" : null) : "number" }, say(rows[number], index))))));
      count.textContent = `${found.length} of ${rows.length}`;
      more.hidden = found.length <= shown;
      more.textContent = more.hidden ? "" : `show ${Math.min(MORE, found.length - shown)} more`;
    }

    const heads = columns.map((column) => make("th",
      { scope: "col", "aria-sort": "none", class: column.kind === "text" || column.kind === "shared" ? null : "number" },
      make("button", { type: "button" }, column.name)));
    const body = make("tbody");
    table.append(make("thead", {}, make("tr", {}, ...heads)), body);
    for (const [control, kind] of [[filter, "input"], [select, "change"]]) control.addEventListener(kind, () => { shown = FIRST; });
    const { find, sort } = controlTable({ filter, select, heads, rows: numbers, textOf: (number) => searched[number], isIn,
      choiceOf: (number) => value(rows[number], choice), valueOf: (number, index) => value(rows[number], index), draw });
    more.addEventListener("click", () => { shown += MORE; find(); });
    sort(by);
  }

  // The end of a log is what matters.
  for (const log of document.querySelectorAll("details pre")) {
    const details = log.closest("details"), end = () => { log.scrollTop = log.scrollHeight; };
    details.addEventListener("toggle", end, { once: true });
    if (details.open) end();
  }

  const DRAW = { progress: drawProgress, map: drawMap, timeline: drawTimeline, table: drawTable };
  for (const place of document.querySelectorAll("[data-draw]")) {
    const { draw, subject, name } = place.dataset;
    DRAW[draw](place, data[Number(subject)][name || draw], data[Number(subject)]);
  }
})();
