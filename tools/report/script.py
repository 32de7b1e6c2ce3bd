"""What a page does by itself, as Python text: Flower packs no other files into an app."""

SCRIPT = r"""
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

// Copying: the table as it is shown now, as CSV.
const quoted = text => /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const table = button.parentElement.querySelector("table");
    const lines = [...table.rows].map(
      row => [...row.cells].map(cell => quoted(cell.textContent.trim())).join(","));
    const text = lines.join("\n") + "\n";
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {  // not allowed here: show it, so that it can be copied by hand
      const area = document.createElement("textarea");
      area.value = text;
      area.rows = 8;
      area.setAttribute("aria-label", "The table as CSV");
      button.after(area);
      area.select();
      button.textContent = document.execCommand("copy") ? "Copied" : "Copy it from below";
      if (button.textContent === "Copied") area.remove();
    }
    setTimeout(() => { button.textContent = label; }, 2000);
  });
}

// Hovering: what a picture says where the pointer is.
const plots = JSON.parse(document.getElementById("plots").textContent);
const show = value => String(Number(Number(value).toPrecision(3)));

// What the lines say at x: each where it has a point nearest to there, unless it has ended before.
const readLines = (plot, wanted, span) => {
  const there = x => plot.log ? Math.log10(x) : x;
  const found = [];
  for (const [name, [xs, ys]] of Object.entries(plot.lines)) {
    let near = 0;
    xs.forEach((x, i) => {
      if (Math.abs(there(x) - wanted) < Math.abs(there(xs[near]) - wanted)) near = i;
    });
    const inside = there(xs[xs.length - 1]) >= wanted - 0.02 * span - 0.5 * (plot.xUnit === "round")
      && there(xs[0]) <= wanted + 0.02 * span + 0.5 * (plot.xUnit === "round");
    if (inside) found.push([name, ys[near]]);
  }
  if (plot.ranked) found.sort((a, b) => plot.ranked * (b[1] - a[1]));
  const at = plot.log ? 10 ** wanted : wanted;
  const place = plot.xUnit === "round" ? `round ${Math.round(at)}` : `${show(at)} ${plot.xUnit}`;
  return [place, ...found.map(([name, y]) => `${show(y)} ${plot.yUnit}  ${name}`)];
};

// Who was chosen when is packed into bits, eight columns a byte, row by row.
const unpacked = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
const readChoice = (plot, row, column) => {
  plot.bytes ??= unpacked(plot.chosen);
  plot.gone ??= plot.away ? unpacked(plot.away) : null;
  const width = Math.ceil(plot.columns.length / 8);
  const bit = (bytes, c) => bytes[row * width + (c >> 3)] >> (7 - (c & 7)) & 1;
  const chosen = c => bit(plot.bytes, c);
  if (chosen(column)) return "chosen";
  if (plot.gone && bit(plot.gone, column)) return "not connected";
  let since = column - 1;
  while (since >= 0 && !chosen(since)) since -= 1;
  const waited = column - Math.max(0, since);
  return since < 0 ? "never chosen so far" : `waiting for ${waited} round${waited > 1 ? "s" : ""}`;
};

const readCell = (plot, x, y) => {
  const column = Math.round(x - plot.x[0] - 0.5), row = Math.round(y - Math.min(...plot.y) - 0.5);
  if (!(row in plot.rows) || !(column in plot.columns)) return null;
  const value = plot.chosen ? readChoice(plot, row, column)
    : plot.names ? plot.names[plot.values[row][column]]
    : show(plot.values[row][column] / plot.parts);
  return [`${plot.rows[row]}, ${plot.columns[column]}`, value];
};

for (const holder of document.querySelectorAll("[data-plot]")) {
  const plot = plots[holder.dataset.plot];
  if (!plot) continue;
  const ruler = holder.querySelector(".ruler"), tip = holder.querySelector(".tip");
  const [left, top, right, bottom] = plot.box;
  const hide = () => { ruler.hidden = tip.hidden = true; };
  const move = event => {
    const area = holder.querySelector("svg").getBoundingClientRect();
    const across = (event.clientX - area.left) / area.width;
    const along = (event.clientY - area.top) / area.height;
    if (across < left || across > right) return hide();
    const [low, high] = plot.log ? plot.x.map(Math.log10) : plot.x;
    const x = low + (across - left) / (right - left) * (high - low);
    const y = plot.y[1] + (along - top) / (bottom - top) * (plot.y[0] - plot.y[1]);
    const lines = plot.lines ? readLines(plot, x, high - low) : readCell(plot, x, y);
    if (!lines) return hide();
    tip.textContent = lines.join("\n");
    tip.hidden = false;
    ruler.hidden = !plot.lines;
    ruler.style.left = `${100 * across}%`;
    ruler.style.top = `${top * area.height}px`;
    ruler.style.height = `${(bottom - top) * area.height}px`;
    const onLeft = across > 0.55;
    tip.style.left = onLeft ? "auto" : `calc(${100 * across}% + .6rem)`;
    tip.style.right = onLeft ? `calc(${100 * (1 - across)}% + .6rem)` : "auto";
    tip.style.top = plot.lines ? "" : `clamp(0px, ${100 * along}% - 3.5rem, 100%)`;
  };
  holder.addEventListener("pointermove", move);
  holder.addEventListener("pointerdown", move);
  holder.addEventListener("pointerleave", hide);
}
"""
