// Follows the state of a page: what the server sends replaces what differs from it, so that focus, selection and place stay.
(() => {
  const { events } = page.data;
  if (!events) return;
  const connection = document.getElementById("connection");
  const answer = document.querySelector(".answer");
  const state = document.getElementById("state");

  function say(text, isOff) {
    if (connection.textContent !== text) connection.textContent = text;
    connection.classList.toggle("off", isOff);
  }

  function patch(old, fresh) {
    if (old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.data !== fresh.data) old.data = fresh.data;
      return undefined;
    }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const nodes = [...fresh.childNodes];
    while (old.childNodes.length > nodes.length) old.lastChild.remove();
    nodes.forEach((node, index) => (index < old.childNodes.length ? patch(old.childNodes[index], node) : old.append(node)));
    return undefined;
  }

  function connect() {
    const source = new EventSource(events);
    source.onopen = () => say("live", false);
    source.onmessage = (event) => {
      const sent = JSON.parse(event.data);
      if (answer.textContent !== sent.answer) answer.textContent = sent.answer;
      const fresh = state.cloneNode(false);
      fresh.append(...new DOMParser().parseFromString(sent.state, "text/html").body.childNodes);
      patch(state, fresh);
      if (sent.over) {
        source.close();
        location.reload();
      }
    };
    source.onerror = () => {
      say("not connected, so this may be old; trying again", true);
      if (source.readyState === EventSource.CLOSED) setTimeout(connect, 10000);
    };
  }
  connect();
})();
