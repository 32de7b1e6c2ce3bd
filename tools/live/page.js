// What the live page does by itself: listen, and put pieces into their places. The pieces are HTML in
// which everything that strangers wrote is escaped (fragments.py); the page's policy lets no script
// run but this one.
"use strict";
const place = document.getElementById("runs"), list = document.getElementById("choices");
const together = document.getElementById("together"), link = document.getElementById("link");
let source = null, asked = new URLSearchParams(location.search).getAll("run");

const query = () => asked.map(name => "run=" + encodeURIComponent(name)).join("&");

const section = (id, label) => {
  let found = document.getElementById(id);
  if (!found) {
    found = document.createElement("section");
    found.id = id;
    found.setAttribute("aria-label", label);
    (id === "all" ? together : place).append(found);
  }
  return found;
};

// A piece of a run: made once, then filled again whenever the server sends it.
const piece = (home, name) => {
  let found = [...home.children].find(child => child.dataset.part === name);
  if (!found) {
    found = document.createElement("div");
    found.dataset.part = name;
    if (name === "status") found.setAttribute("role", "status");
    home.append(found);
  }
  return found;
};

const show = message => {
  const home = section(message.id, message.label);
  for (const [name, html] of Object.entries(message.parts)) piece(home, name).innerHTML = html;
  message.order.forEach(name => home.append(piece(home, name)));
  [...home.children].forEach(child => {
    if (!message.order.includes(child.dataset.part)) child.remove();
  });
};

const choose = () => {
  asked = [...list.querySelectorAll("input:checked")].map(box => box.value);
  history.replaceState(null, "", asked.length ? "?" + query() : location.pathname);
  listen();
};

const offer = message => {
  const key = JSON.stringify(message.runs);
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...message.runs.map(run => {
      const label = document.createElement("label"), box = document.createElement("input");
      box.type = "checkbox";
      box.value = run.name;
      box.checked = run.shown;
      box.addEventListener("change", choose);
      label.append(box, " " + run.name);
      return label;
    }));
  }
  document.getElementById("count").textContent = message.runs.length;
  document.getElementById("empty").hidden = message.runs.length > 0;
  const kept = new Set(message.shown);
  [...together.children, ...place.children].forEach(child => {
    if (!kept.has(child.id)) child.remove();
  });
};

const tell = (text, bad) => { link.textContent = text; link.className = bad ? "lost" : ""; };

// EventSource connects again by itself, unless the server answered with an error.
const listen = () => {
  if (source) source.close();
  const here = source = new EventSource("events?" + query());
  here.addEventListener("open", () => tell("live", false));
  here.addEventListener("list", event => offer(JSON.parse(event.data)));
  here.addEventListener("run", event => show(JSON.parse(event.data)));
  here.addEventListener("error", () => {
    tell("not connected; trying again", true);
    if (here.readyState === EventSource.CLOSED) {
      setTimeout(() => { if (source === here) listen(); }, 2000);
    }
  });
};
listen();
