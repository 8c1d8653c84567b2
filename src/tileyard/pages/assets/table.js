// A table that the reader filters by words and a choice, and sorts by its heads: which rows it has, in which order.
"use strict";
const NUMERIC = new Intl.Collator(undefined, { numeric: true });

// What has no value is last, whatever the order.
function compareValues(one, other, way) {
  if (one === null || other === null) return (one === null) - (other === null);
  return way * (typeof one === "number" && typeof other === "number" ? one - other : NUMERIC.compare(String(one), String(other)));
}

// Rows with a text in small letters, and a choice; `valueOf(row, index)` is that below a head, and `draw` gets the rows that are found.
function controlTable({ filter, select, heads, rows, textOf, choiceOf, valueOf, draw, isIn = (text, word) => text.includes(word) }) {
  let order = rows;
  const find = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    draw(order.filter((row) => (!select.value || choiceOf(row) === select.value) && words.every((word) => isIn(textOf(row), word))));
  };
  const sort = (index) => {
    const way = heads[index].getAttribute("aria-sort") === "ascending" ? -1 : 1;
    heads.forEach((head, number) => head.setAttribute("aria-sort", number !== index ? "none" : way > 0 ? "ascending" : "descending"));
    order = [...rows].sort((one, other) => compareValues(valueOf(one, index), valueOf(other, index), way));
    find();
  };
  heads.forEach((head, index) => head.querySelector("button").addEventListener("click", () => sort(index)));
  filter.addEventListener("input", find);
  select.addEventListener("change", find);
  return { find, sort };
}
