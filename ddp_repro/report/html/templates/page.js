"use strict";
(() => {
  const holder = document.getElementById("data");
  for (const box of document.querySelectorAll("#launches input")) {
    box.addEventListener("change", () => {
      for (const line of document.querySelectorAll("polyline[data-launch]")) {
        if (line.dataset.launch === box.dataset.launch) line.classList.toggle("hidden", !box.checked);
      }
    });
  }
  if (!holder) return;
  const { spans, letters, names, rows } = JSON.parse(holder.textContent);
  const map = document.getElementById("map");
  const canvas = map.querySelector("canvas");
  const cursor = document.getElementById("cursor");
  const details = document.getElementById("details");
  const height = Math.max(4, Math.min(26, Math.floor(420 / rows.length)));
  let at = null;

  // Of each row, the place of each of its cells that differ.
  for (const row of rows) {
    row.cellOf = new Map();
    for (let column = 0; column < row.signs.length; column += 1) {
      if (row.signs[column] in letters) row.cellOf.set(column, row.cells[row.cellOf.size]);
    }
  }

  function draw() {
    const width = map.clientWidth - 2;
    const ratio = window.devicePixelRatio || 1;
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    canvas.width = Math.max(1, Math.round(width * ratio));
    canvas.height = Math.round(rows.length * height * ratio);
    canvas.style.height = rows.length * height + "px";
    const pen = canvas.getContext("2d");
    const cell = canvas.width / spans.length;
    const tall = height * ratio;
    const gap = height > 7 ? ratio : 0;
    const paint = { "=": colour("--equal"), ".": colour("--surface") };
    for (const [letter, one] of Object.entries(letters)) paint[letter] = colour("--p" + one.place);
    pen.fillStyle = paint["."];
    pen.fillRect(0, 0, canvas.width, canvas.height);
    rows.forEach((row, line) => {
      // What differs is drawn last and from the right, so that no narrow first difference is covered.
      for (const differs of [false, true]) {
        for (let column = spans.length - 1; column >= 0; column -= 1) {
          const sign = row.signs[column];
          if (sign === "." || sign in letters !== differs) continue;
          const left = Math.round(column * cell);
          const wide = Math.max(Math.round((column + 1) * cell) - left - (cell > 5 * ratio ? ratio : 0), Math.ceil(ratio));
          pen.fillStyle = paint[sign];
          pen.fillRect(left, Math.round(line * tall), wide, Math.round((line + 1) * tall) - Math.round(line * tall) - gap);
        }
      }
    });
    place();
  }

  function label() {
    const ranks = document.getElementById("ranks");
    const every = Math.ceil(rows.length / Math.max(1, Math.floor((rows.length * height) / 18)));
    let widest = 1;
    rows.forEach((row, line) => {
      widest = Math.max(widest, row.label.length);
      if (line % every) return;
      const text = document.createElement("span");
      text.textContent = row.label;
      text.style.top = (line + 0.5) * height + "px";
      ranks.append(text);
    });
    ranks.style.width = widest * 0.6 + 0.4 + "rem";
  }

  function place() {
    if (!at) return;
    const wide = (map.clientWidth - 2) / spans.length;
    cursor.style.display = "block";
    cursor.style.left = at.column * wide - 1 + "px";
    cursor.style.top = at.line * height - 1 + "px";
    cursor.style.width = Math.max(6, wide + 2) + "px";
    cursor.style.height = Math.max(6, height + 2) + "px";
  }

  function steps(span) {
    if (span[0] < 0) return "before step 0";
    return span[0] === span[1] ? "step " + span[0] : "steps " + span[0] + " to " + span[1];
  }

  function counted(count, noun) {
    return count.toLocaleString("en") + " " + noun + (count === 1 ? "" : "s");
  }

  function tell() {
    const row = rows[at.line];
    const span = spans[at.column];
    const sign = row.signs[at.column];
    const where = (row.label.includes(" ") ? "Ranks " : "Rank ") + row.label + ", " + steps(span) + ": ";
    if (sign === "=") return where + "equal in bits.";
    if (sign === ".") return where + "not compared.";
    const [step, rank, name, count, many] = row.cellOf.get(at.column);
    const first = step < 0 ? "before step 0" : "at step " + step;
    const several = span[1] > span[0] || row.label.includes(" ");
    return where + "differs first " + (several ? first + " on rank " + rank + " " : "") + "in " + letters[sign].called +
      ", " + names[name] + "; " + counted(count, "observation") + " of that step differ" + (count === 1 ? "s" : "") +
      (span[1] > span[0] ? "; " + counted(many, "step") + " of " + (span[1] - span[0] + 1) + " differ" + (many === 1 ? "s" : "") : "") + ".";
  }

  function go(line, column) {
    at = {
      line: Math.max(0, Math.min(rows.length - 1, line)),
      column: Math.max(0, Math.min(spans.length - 1, column)),
    };
    place();
    details.textContent = tell();
  }

  // Cells that differ by column, then by row: in time, then by rank.
  const differing = [];
  rows.forEach((row, line) => { for (const column of row.cellOf.keys()) differing.push([column, line]); });
  differing.sort((a, b) => a[0] - b[0] || a[1] - b[1]);

  function first() {
    if (!differing.length) { details.textContent = "Nothing differs: every cell that was compared is equal in bits."; return; }
    // The earliest step, and in it the causally first phase.
    const rank = ([column, line]) => [rows[line].cellOf.get(column)[0], letters[rows[line].signs[column]].place];
    let best = differing[0];
    for (const one of differing) {
      if (one[0] > best[0]) break;
      const [here, known] = [rank(one), rank(best)];
      if (here[0] < known[0] || (here[0] === known[0] && here[1] < known[1])) best = one;
    }
    go(best[1], best[0]);
  }

  function next() {
    if (!at || !differing.length) { first(); return; }
    const after = differing.find((one) => one[0] > at.column || (one[0] === at.column && one[1] > at.line));
    if (after) go(after[1], after[0]); else first();
  }

  function under(event) {
    const box = canvas.getBoundingClientRect();
    return [
      Math.floor((event.clientY - box.top) / height),
      Math.floor(((event.clientX - box.left) / box.width) * spans.length),
    ];
  }

  map.addEventListener("pointermove", (event) => { if (event.pointerType === "mouse") go(...under(event)); });
  map.addEventListener("click", (event) => go(...under(event)));
  map.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key in moves) {
      if (at) go(at.line + moves[event.key][0], at.column + moves[event.key][1]); else go(0, 0);
    } else if (event.key === "Home") first();
    else if (event.key === "n") next();
    else return;
    event.preventDefault();
  });
  document.getElementById("first").addEventListener("click", first);
  document.getElementById("next").addEventListener("click", next);
  window.addEventListener("resize", draw);
  window.addEventListener("beforeprint", draw);
  window.addEventListener("afterprint", draw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  window.matchMedia("print").addEventListener("change", draw);
  label();
  first();
  draw();
})();
