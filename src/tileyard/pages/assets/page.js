// What all pages share. Foreign text is only ever set as textContent.
"use strict";
const page = (() => {
  const data = JSON.parse(document.getElementById("data").textContent);

  // An element with attributes and children, which are elements or texts.
  function make(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children);
    return made;
  }

  // The present value of a colour variable such as "--blue".
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  return { data, make, colour };
})();
