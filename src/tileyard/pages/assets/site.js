// The table of all cases. Without this script it shows all, the worst first.
"use strict";
(() => {
  const body = document.getElementById("cases").tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const count = document.getElementById("count");
  const heads = [...document.querySelectorAll("#cases th")].filter((head) => head.querySelector("button"));
  // A case on several devices has several rows.
  const countCases = (some) => new Set(some.map((row) => row.querySelector("a").href)).size;
  const all = countCases(rows);

  function valueOf(row, index) {
    const by = row.cells[heads[index].cellIndex].dataset.by;
    return by === "" ? null : Number.isNaN(Number(by)) ? by : Number(by);
  }

  function draw(found) {
    for (const row of rows) row.hidden = true;
    for (const row of found) row.hidden = false;
    body.append(...found);
    const shown = countCases(found);
    count.textContent = shown === all ? `${all} cases` : `${shown} of ${all} cases`;
  }

  controlTable({ filter: document.getElementById("filter"), select: document.getElementById("group"), heads, rows,
    textOf: (row) => texts.get(row), choiceOf: (row) => row.dataset.group, valueOf, draw }).find();
})();
