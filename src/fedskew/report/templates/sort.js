"use strict";
// Without this script the page lacks nothing but the sorting of tables.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length !== 1) [...table.tHead.rows[0].cells].forEach(function (head, column) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", function () {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const number = function (text) {
        const plain = text.replaceAll(",", "").replace("\u2212", "-");
        return plain.trim() === "" ? NaN : Number(plain);
      };
      const rows = [...body.rows].map(function (row) {
        const text = row.cells[column].textContent;
        return { row: row, text: text, value: number(text) };
      });
      rows.sort(function (a, b) {
        const both = !isNaN(a.value) ? !isNaN(b.value) : false;
        const order = both ? a.value - b.value : a.text.localeCompare(b.text);
        return down ? -order : order;
      });
      body.append(...rows.map(function (item) { return item.row; }));
    });
  });
}
