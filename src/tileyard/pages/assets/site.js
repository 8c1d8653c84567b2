// The table of all cases, which the reader filters and sorts. Without this script it shows all, the worst first.
"use strict";
(() => {
  const table = document.getElementById("cases");
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
  const filter = document.getElementById("filter");
  const group = document.getElementById("group");
  const count = document.getElementById("count");
  // A case on several devices has several rows.
  const countCases = (some) => new Set(some.map((row) => row.querySelector("a").href)).size;

  function show() {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      row.hidden = !(words.every((word) => texts.get(row).includes(word)) && (!group.value || row.dataset.group === group.value));
    }
    const shown = countCases(rows.filter((row) => !row.hidden)), all = countCases(rows);
    count.textContent = shown === all ? `${all} cases` : `${shown} of ${all} cases`;
  }

  function sortBy(head, index) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[index].dataset.by;
    const compare = (one, other) => {
      const numbers = [Number(value(one)), Number(value(other))];
      return numbers.some(Number.isNaN) ? value(one).localeCompare(value(other)) : numbers[0] - numbers[1];
    };
    const sorted = [...rows].sort((one, other) => (down ? -1 : 1) * compare(one, other));
    body.append(...sorted);
  }

  [...table.tHead.rows[0].cells].forEach((head, index) => {
    const button = head.querySelector("button");
    if (button) button.addEventListener("click", () => sortBy(head, index));
  });
  filter.addEventListener("input", show);
  group.addEventListener("change", show);
  show();
})();
