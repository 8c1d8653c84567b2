// The steps of a block: replays what each step wrote, and draws tiles as heat maps.
"use strict";
(() => {
  const { data, make, colour } = page;
  const byName = new Map(data.buffers.map((one) => [one.name, one]));
  const byNumber = new Map(data.statements.map((one) => [one.number, one]));
  const find = (id) => document.getElementById(id);
  const decoded = new Map();

  function content(at) {
    if (!decoded.has(at)) {
      const bytes = Uint8Array.from(atob(data.contents[at]), (one) => one.charCodeAt(0));
      decoded.set(at, new Float32Array(bytes.buffer));
    }
    return decoded.get(at);
  }
  const product = (sizes) => sizes.reduce((all, one) => all * one, 1);
  const number = (text) => ({ inf: Infinity, "-inf": -Infinity, nan: NaN })[text] ?? Number(text);
  const show = (value) => (Number.isNaN(value) ? "undefined" : Number.isFinite(value) ? String(Number(value.toPrecision(5))) : value > 0 ? "inf" : "-inf");
  const place = (starts, extents) => starts.map((at, axis) => (extents[axis] === 1 ? at : `${at}:${at + extents[axis]}`)).join(", ");
  const name = (part) => `${part.buffer}[${place(part.starts, part.extents)}]`;
  const loops = (step) => step.loops.map(([variable, value]) => `${variable}=${value}`).join(", ");

  // ---- replay -----------------------------------------------------------------------------

  // The values of each buffer, and which of them are lost: their content was not kept.
  let tiles = new Map(), done = -1;
  function apply(part) {
    const buffer = byName.get(part.buffer);
    if (!buffer) return;
    const starts = part.starts.map((at, axis) => Math.max(at, buffer.starts[axis]));
    const extents = starts.map((at, axis) => Math.min(part.starts[axis] + part.extents[axis], buffer.starts[axis] + buffer.extents[axis]) - at);
    if (extents.some((size) => size <= 0)) return;
    const tile = tiles.get(buffer.name), values = part.content >= 0 ? content(part.content) : null;
    const isLost = !values && !part.value, fill = isLost ? NaN : number(part.value);
    const rank = extents.length, total = product(extents), index = new Array(rank).fill(0);
    for (let at = 0; at < total; at++) {
      let flat = 0;
      for (let axis = 0; axis < rank; axis++) flat = flat * buffer.extents[axis] + index[axis] + starts[axis] - buffer.starts[axis];
      tile.values[flat] = values ? values[at] : fill;
      tile.lost[flat] = isLost ? 1 : 0;
      for (let axis = rank - 1; axis >= 0 && ++index[axis] === extents[axis]; axis--) index[axis] = 0;
    }
  }
  function replay(to) {
    if (to < done || done < 0) {
      tiles = new Map(data.buffers.map((one) => [one.name, { values: new Float32Array(product(one.extents)).fill(NaN), lost: new Uint8Array(product(one.extents)) }]));
      done = -1;
    }
    while (done < to) {
      const step = data.steps[++done];
      for (const part of [...step.before, ...step.writes]) apply(part);
    }
  }

  // ---- heat maps --------------------------------------------------------------------------

  function mix(from, to, share) {
    return from.map((one, at) => Math.round(one + (to[at] - one) * share));
  }
  function channels(text) {
    const canvas = document.createElement("canvas").getContext("2d");
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  }
  const palette = () => ({ back: channels(colour("--back")), low: channels(colour("--blue")), high: channels(colour("--orange")), none: channels(colour("--grey")), red: channels(colour("--red")) });

  const rowsOf = (extents) => product(extents.slice(0, -1));
  const columnsOf = (extents) => (extents.length ? extents[extents.length - 1] : 1);

  // The size of a map: elements are squares if both sides are readable then, else the shorter side is stretched,
  // and the longer one may take twice the room.
  function sizeOf(rows, columns, side) {
    const scale = Math.min(side / columns, side / rows, 24), least = side / 4;
    const stretch = (count, other) => (other * scale < Math.min(least, other * 24) ? Math.min(2 * side, count * 24) : count * scale);
    const width = stretch(columns, rows), height = stretch(rows, columns);
    return { width: Math.max(width, Math.min(least, columns * 24)), height: Math.max(height, Math.min(least, rows * 24)), isStretched: width > columns * scale || height > rows * scale };
  }
  // Draws values on a canvas, one pixel each, or one for several of which the largest shows.
  function draw(canvas, values, extents, most, side) {
    const { width, height } = sizeOf(rowsOf(extents), columnsOf(extents), side);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const pooled = pool(values, rowsOf(extents), columnsOf(extents), Math.ceil(rowsOf(extents) / height), Math.ceil(columnsOf(extents) / width));
    const { rows, columns } = pooled;
    canvas.width = columns;
    canvas.height = rows;
    const context = canvas.getContext("2d"), image = context.createImageData(columns, rows), colours = palette();
    for (let at = 0; at < rows * columns; at++) {
      const value = pooled.values[at], x = at % columns, y = Math.floor(at / columns);
      let pixel;
      if (Number.isNaN(value)) pixel = (x + y) % 4 < 2 ? colours.none : colours.back;
      else if (!Number.isFinite(value)) pixel = value > 0 ? colours.high : colours.low;
      else pixel = mix(colours.back, value < 0 ? colours.low : colours.high, most ? Math.sqrt(Math.min(Math.abs(value) / most, 1)) : 0);
      image.data.set([...pixel, 255], 4 * at);
    }
    context.putImageData(image, 0, 0);
  }
  function pool(values, rows, columns, down, across) {
    const found = { rows: Math.ceil(rows / down), columns: Math.ceil(columns / across), values };
    if (down === 1 && across === 1) return found;
    found.values = new Float32Array(found.rows * found.columns);
    for (let y = 0; y < rows; y++) {
      for (let x = 0; x < columns; x++) {
        const at = Math.floor(y / down) * found.columns + Math.floor(x / across), value = values[y * columns + x];
        const isFirst = y % down === 0 && x % across === 0;
        if (isFirst || !(Math.abs(value) <= Math.abs(found.values[at]))) found.values[at] = value;
      }
    }
    return found;
  }
  function range(values) {
    let low = Infinity, high = -Infinity, missing = 0;
    for (const value of values) {
      if (Number.isNaN(value)) missing++;
      else if (Number.isFinite(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    }
    return { low, high, missing, most: Math.max(Math.abs(low), Math.abs(high)) };
  }
  function about(values, found, lost = 0) {
    const missing = found.missing - lost;
    if (missing === values.length) return "nothing written yet, or undefined";
    if (lost === values.length) return "values were not kept, to save memory";
    const rest = (lost ? `, ${lost} not kept` : "") + (missing ? `, ${missing} undefined` : "");
    if (found.missing === values.length) return rest.slice(2);
    return found.low > found.high ? `only infinities${rest}` : `from ${show(found.low)} to ${show(found.high)}${rest}`;
  }
  const count = (lost) => lost.reduce((all, one) => all + one, 0);
  function figure(title, words, values, extents, most, side = 320, onpick = null) {
    const canvas = make("canvas", { role: "img", "aria-label": `${title}: ${words}` });
    if (onpick) {
      canvas.addEventListener("click", (event) => {
        const box = canvas.getBoundingClientRect();
        onpick(Math.floor(((event.clientY - box.top) / box.height) * rowsOf(extents)), Math.floor(((event.clientX - box.left) / box.width) * columnsOf(extents)));
      });
    }
    draw(canvas, values, extents, most, side);
    if (sizeOf(rowsOf(extents), columnsOf(extents), side).isStretched) words += "; not to scale";
    return make("figure", { class: "map" }, canvas, make("figcaption", {}, make("strong", {}, title), make("br"), words));
  }

  // ---- outputs ----------------------------------------------------------------------------

  function drawOutputs() {
    for (const box of document.querySelectorAll("[data-output]")) {
      const output = data.outputs[Number(box.dataset.output)], buffer = byName.get(output.name);
      replay(data.steps.length - 1);
      const { values: got, lost } = tiles.get(output.name), where = `${output.name}[${place(buffer.starts, buffer.extents)}]`;
      const found = range(got), children = [];
      if (output.want >= 0) {
        const want = content(output.want), mask = content(output.mask);
        const most = Math.max(range(want).most, 1e-30);
        const wrong = got.map((_, at) => (mask[at] ? 1 : 0));
        children.push(figure("the kernel's", `${where}, ${about(got, found, count(lost))}`, got, buffer.extents, most));
        children.push(figure("the reference's", `${where}, ${about(want, range(want))}`, want, buffer.extents, most));
        children.push(figure("wrong elements", `${output.wrong.toLocaleString("en")} of ${output.total.toLocaleString("en")}, coloured`, wrong, buffer.extents, 1));
      } else children.push(figure("the kernel's", `${where}, ${about(got, found, count(lost))}`, got, buffer.extents, found.most));
      box.replaceChildren(...children);
    }
  }

  // ---- one step ---------------------------------------------------------------------------

  // The values that are shown: those of the tile that a step writes, until the reader chooses a tile.
  let current = 0, picked = { buffer: "", row: 0, column: 0 }, isChosen = false;
  const kinds = { run: "", issue: " (issued: it has not happened yet)", land: " (arrives now)", sync: "" };

  function words(step) {
    const stmt = byNumber.get(step.number), who = step.role ? `, role ${step.role}` : "", unit = step.unit ? ` by ${step.unit}` : "";
    const around = loops(step) ? `, ${loops(step)}` : "";
    return `Step ${step.index}, line ${stmt.line || "?"}${around}${who}: ${step.text || stmt.text}${unit}${kinds[step.kind]}`;
  }
  function go(to) {
    current = Math.max(0, Math.min(to, data.steps.length - 1));
    const step = data.steps[current];
    replay(current);
    find("slider").value = String(current);
    find("slider").setAttribute("aria-valuetext", words(step));
    find("jump").value = String(current);
    find("previous").disabled = find("first").disabled = current === 0;
    find("next").disabled = find("last").disabled = current === data.steps.length - 1;
    find("now").textContent = (step.skipped ? `(${step.skipped} steps left out) ` : "") + words(step);
    markLine(byNumber.get(step.number).line);
    const reads = step.reads.map(name).join(", "), writes = step.writes.map(name).join(", ");
    find("effects").textContent = [reads && `reads ${shorten(reads)}`, writes && `writes ${shorten(writes)}`].filter(Boolean).join("; ");
    find("conflicts").textContent = byNumber.get(step.number).conflicts.map((one) => `${one.buffer} is ${one.how}: ${one.ways === 1 ? "no bank conflicts (1-way)" : `${one.ways}-way bank conflicts`}`).join("; ");
    drawTiles(step);
    drawValues();
    drawState(step);
  }
  const shorten = (text) => (text.length > 300 ? `${text.slice(0, 300)} ...` : text);
  function markLine(line) {
    for (const row of find("source").rows) row.classList.toggle("current", Number(row.dataset.line) === line);
    const row = find("source").querySelector(".current"), box = document.querySelector(".source-box");
    if (row) box.scrollTop = row.offsetTop - box.clientHeight / 2;
  }
  function drawTiles(step) {
    const written = new Set(step.writes.map((one) => one.buffer)), read = new Set(step.reads.map((one) => one.buffer));
    const used = data.buffers.filter((one) => written.has(one.name) || read.has(one.name));
    const rest = data.buffers.filter((one) => !used.includes(one) && one.first >= 0 && one.first <= step.index && step.index <= one.last);
    find("tiles").replaceChildren(
      ...[...used, ...rest].map((one) => {
        const { values, lost } = tiles.get(one.name), found = range(values);
        const how = [written.has(one.name) && "written now", read.has(one.name) && "read now"].filter(Boolean).join(", ");
        const cut = one.extents.join() === one.shape.join() ? "" : ` shown: [${place(one.starts, one.extents)}];`;
        const text = `${one.scope}, ${one.dtype}, ${one.shape.join(" x ")}${one.layout && `, ${one.layout}`};${cut} ${about(values, found, count(lost))}${how ? `; ${how}` : ""}`;
        const made = figure(one.name, text, values, one.extents, found.most, how ? 300 : 150, (row, column) => { picked = { buffer: one.name, row, column }; isChosen = true; drawValues(); });
        made.classList.toggle("small", !how);
        made.classList.toggle("written", written.has(one.name));
        made.classList.toggle("read", read.has(one.name) && !written.has(one.name));
        return made;
      }),
    );
    const first = step.writes.find((one) => byName.has(one.buffer));
    if (first && !isChosen && first.buffer !== picked.buffer) picked = { buffer: first.buffer, row: 0, column: 0 };
    if (!byName.has(picked.buffer)) picked = { buffer: data.buffers.length ? data.buffers[0].name : "", row: 0, column: 0 };
  }
  const SIDE = 8;
  function drawValues() {
    const buffer = byName.get(picked.buffer);
    if (!buffer) return;
    const focus = document.activeElement ? document.activeElement.id : "";
    const rows = rowsOf(buffer.extents), columns = columnsOf(buffer.extents), { values, lost } = tiles.get(buffer.name);
    picked.row = Math.max(0, Math.min(picked.row, rows - 1)) || 0;
    picked.column = Math.max(0, Math.min(picked.column, columns - 1)) || 0;
    const top = Math.max(0, Math.min(picked.row - SIDE / 2, rows - SIDE)), left = Math.max(0, Math.min(picked.column - SIDE / 2, columns - SIDE));
    const choose = make("select", { id: "pick-tile", onchange: (event) => { picked = { buffer: event.target.value, row: 0, column: 0 }; isChosen = true; drawValues(); } },
      ...data.buffers.map((one) => make("option", { value: one.name, selected: one.name === buffer.name }, one.name)));
    const field = (id, label, value, most, change) => [make("label", { for: id }, label), make("input", { id, type: "number", min: 0, max: most, value, onchange: (event) => { change(Number(event.target.value)); drawValues(); } })];
    const line = (row) => {
      const index = [];
      let left_ = row;
      for (const size of buffer.extents.slice(0, -1).reverse()) { index.unshift(left_ % size); left_ = Math.floor(left_ / size); }
      return index.map((at, axis) => at + buffer.starts[axis]).join(", ") || "0";
    };
    const offset = buffer.starts.length ? buffer.starts[buffer.starts.length - 1] : 0;
    const head = make("tr", {}, make("th", { scope: "col" }, buffer.name));
    for (let x = left; x < Math.min(left + SIDE, columns); x++) head.append(make("th", { scope: "col" }, String(x + offset)));
    const body = make("tbody");
    for (let y = top; y < Math.min(top + SIDE, rows); y++) {
      const row = make("tr", {}, make("th", { scope: "row" }, line(y)));
      for (let x = left; x < Math.min(left + SIDE, columns); x++)
        row.append(make("td", { class: y === picked.row && x === picked.column ? "picked" : null }, lost[y * columns + x] ? "not kept" : show(values[y * columns + x])));
      body.append(row);
    }
    find("values").replaceChildren(
      make("div", { class: "pick" }, make("label", { for: "pick-tile" }, "Values of"), choose,
        ...field("pick-row", "near row", picked.row, rows - 1, (value) => { picked.row = value; }),
        ...field("pick-column", "column", picked.column, columns - 1, (value) => { picked.column = value; })),
      make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Values of ${buffer.name}` }, make("table", { class: "numbers" }, make("thead", {}, head), body)));
    if (focus.startsWith("pick-") && find(focus)) find(focus).focus();
  }
  function table(heads, rows) {
    return make("table", {}, make("thead", {}, make("tr", {}, ...heads.map((one) => make("th", { scope: "col" }, one)))),
      make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((one) => make("td", {}, String(one)))))));
  }
  function drawState(step) {
    const state = data.states[step.state], parts = [];
    for (const buffer of data.buffers.filter((one) => one.slots)) {
      const slots = [];
      for (let slot = 0; slot < buffer.slots; slot++) {
        const mine = (one) => one.into.buffer === buffer.name && one.into.starts[0] <= slot && slot < one.into.starts[0] + one.into.extents[0];
        const flying = step.in_flight.map((at) => data.copies[at]).filter(mine);
        const landed = data.copies.filter((one) => mine(one) && one.landed >= 0 && one.landed <= step.index);
        const last = landed.sort((a, b) => a.landed - b.landed).pop();
        const text = flying.length ? `in flight: ${name(flying[0].source)}` : last ? `holds ${name(last.source)}` : "empty";
        slots.push(make("span", { class: flying.length ? "slot flying" : "slot" }, `${buffer.name}[${slot}] ${text}`));
      }
      parts.push(make("h3", {}, `Slots of ${buffer.name}`), ...slots);
    }
    if (state.barriers.length)
      parts.push(make("h3", {}, "Barriers"), table(["Barrier", "Phase", "Parity", "Arrived", "Bytes missing"], state.barriers.map((one) => [one.name, one.phase, one.phase % 2, `${one.arrived} of ${one.expected}`, one.pending])));
    const groups = state.groups.filter((one) => one.open || one.groups.length);
    if (groups.length)
      parts.push(make("h3", {}, "Groups in flight"), table(["Unit", "Role", "Not committed", "Operations in each group, the oldest first"], groups.map((one) => [one.unit, one.role || "all", one.open, one.groups.join(", ") || "none"])));
    const flights = step.in_flight.map((at) => data.copies[at]);
    if (flights.length)
      parts.push(make("h3", {}, "Copies in flight"), table(["From", "To", "Issued"], flights.map((one) => [name(one.source), name(one.into), `step ${one.issued}`])));
    const used = Object.entries(step.used_bytes).map(([scope, bytes]) => `${bytes.toLocaleString("en")} bytes of ${scope} memory`);
    if (used.length) parts.push(make("p", {}, `In use at this step: ${used.join(", ")}.`));
    find("state").replaceChildren(...parts);
  }

  // ---- the page ---------------------------------------------------------------------------

  function begin() {
    const suspects = new Set(data.suspects);
    find("source").replaceChildren(...data.source.map((text, at) =>
      make("tr", { "data-line": at + data.first_line, class: suspects.has(at + data.first_line) ? "suspect" : null }, make("td", {}, String(at + data.first_line)), make("td", {}, text || " "))));
    if (!data.steps.length) return;
    find("jump").replaceChildren(...data.steps.map((step, at) => make("option", { value: at }, words(step).slice(0, 110))));
    find("slider").addEventListener("input", (event) => go(Number(event.target.value)));
    find("jump").addEventListener("change", (event) => go(Number(event.target.value)));
    const moves = { first: () => 0, previous: () => current - 1, next: () => current + 1, last: () => data.steps.length - 1 };
    for (const [id, to] of Object.entries(moves)) find(id).addEventListener("click", () => go(to()));
    for (const link of document.querySelectorAll("[data-step]")) {
      const at = data.steps.findIndex((step) => step.index === Number(link.dataset.step));
      if (at < 0) link.replaceWith(link.textContent);
      else link.addEventListener("click", () => go(at));
    }
    drawOutputs();
    go(data.start);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawOutputs(); go(current); });
  }
  begin();
})();
