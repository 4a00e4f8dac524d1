"use strict";
// Without this script the page lacks nothing but the sorting of tables, the button that copies, and the note at a wide table.
function button(text, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.append(...text);
  made.addEventListener("click", act);
  return made;
}
function number(text) {
  const plain = text.split("\n")[0].replaceAll(",", "").replace("\u2212", "-").replace("\u00d7", "");
  return plain.trim() === "" ? NaN : Number(plain);
}
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length !== 1) [...table.tHead.rows[0].cells].forEach(function (head, column) {
    head.append(button([...head.childNodes], function () {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map(function (row) {
        const text = row.cells[column].innerText;
        return { row: row, text: text, value: number(text) };
      });
      rows.sort(function (a, b) {
        const both = !isNaN(a.value) ? !isNaN(b.value) : false;
        const order = both ? a.value - b.value : a.text.localeCompare(b.text);
        return down ? -order : order;
      });
      body.append(...rows.map(function (item) { return item.row; }));
    }));
  });
}
function look(box) {
  const right = box.scrollWidth - box.clientWidth - box.scrollLeft > 1;
  const down = box.scrollHeight - box.clientHeight - box.scrollTop > 1;
  const way = [...(right ? ["right \u2192"] : []), ...(down ? ["below \u2193"] : [])];
  box.nextElementSibling.textContent = way.length !== 0 ? "This table goes on: " + way.join(", ") : "";
}
for (const box of document.querySelectorAll(".scroll")) {
  box.addEventListener("scroll", function () { look(box); });
  new ResizeObserver(function () { look(box); }).observe(box);
}
for (const code of document.querySelectorAll("pre")) {
  const copy = button(["Copy"], function () {
    const range = document.createRange();
    range.selectNodeContents(code.querySelector("code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    copy.textContent = document.execCommand("copy") ? "Copied" : "Selected: press Ctrl+C";
  });
  code.before(copy);
}
