"use strict";
// Sorting: a click on a column's title, or Enter on it; once more turns the order round.
for (const table of document.querySelectorAll("table.sortable")) {
  const titles = [...table.tHead.rows[0].cells];
  titles.forEach((title, place) => {
    const button = title.querySelector("button");
    button.addEventListener("click", () => {
      const down = title.getAttribute("aria-sort") !== "descending";
      const sign = down ? -1 : 1;
      titles.forEach(other => other.removeAttribute("aria-sort"));
      title.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = row => row.cells[place].dataset.key;
      const rows = [...table.tBodies[0].rows].sort((one, two) => {
        const a = key(one), b = key(two);
        if (a === "" || b === "") return (a === "") - (b === "");  // unknown ones last
        const gap = isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b;
        return sign * gap;
      });
      table.tBodies[0].append(...rows);
    });
  });
}

// Hovering: what every line says where the pointer is.
const plots = JSON.parse(document.getElementById("plots").textContent);
const show = (value, digits) => Number(value).toPrecision(digits).replace(/\.?0+$/, "");
for (const holder of document.querySelectorAll("[data-plot]")) {
  const plot = plots[holder.dataset.plot];
  const ruler = holder.querySelector(".ruler"), tip = holder.querySelector(".tip");
  const [left, top, right, bottom] = plot.box;
  const there = x => plot.log ? Math.log10(x) : x;
  const [low, high] = plot.x.map(there);
  const hide = () => { ruler.hidden = tip.hidden = true; };
  const move = event => {
    const frame = holder.querySelector("svg").getBoundingClientRect();
    const share = (event.clientX - frame.left) / frame.width;
    if (share < left || share > right) return hide();
    const wanted = low + (share - left) / (right - left) * (high - low);
    const found = [];
    for (const [name, [xs, ys]] of Object.entries(plot.lines)) {
      let near = 0;
      xs.forEach((x, i) => {
        if (Math.abs(there(x) - wanted) < Math.abs(there(xs[near]) - wanted)) near = i;
      });
      if (there(xs[xs.length - 1]) >= wanted - 0.02 * (high - low)) found.push([name, ys[near]]);
    }
    found.sort((a, b) => b[1] - a[1]);
    const at = plot.log ? 10 ** wanted : wanted;
    const lines = found.map(([name, y]) => `${show(100 * y, 3)} %  ${name}`);
    const place = plot.unit === "rounds" ? `round ${Math.round(at)}` : `${show(at, 3)} ${plot.unit}`;
    tip.textContent = [place, ...lines].join("\n");
    ruler.hidden = tip.hidden = false;
    ruler.style.left = `${100 * share}%`;
    ruler.style.top = `${top * frame.height}px`;
    ruler.style.height = `${(bottom - top) * frame.height}px`;
    const onLeft = share > 0.55;
    tip.style.left = onLeft ? "auto" : `calc(${100 * share}% + .6rem)`;
    tip.style.right = onLeft ? `calc(${100 * (1 - share)}% + .6rem)` : "auto";
  };
  holder.addEventListener("pointermove", move);
  holder.addEventListener("pointerdown", move);
  holder.addEventListener("pointerleave", hide);
}
