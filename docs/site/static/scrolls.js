// On a phone a Python name shows its first sentence; the rest is folded.
addEventListener("load", () => {
  if (!matchMedia("(max-width: 700px)").matches) return;
  document.querySelectorAll("dl.py > dd").forEach((body) => {
    const rest = [...body.children].slice(1).filter((part) => !part.matches("dl.py"));
    if (!rest.length) return;
    const folded = document.createElement("details");
    folded.innerHTML = "<summary>Details</summary>";
    rest[0].before(folded);
    folded.append(...rest);
  });
});

// What is wider than the screen fades at its right edge until it is scrolled to its end.
addEventListener("load", () => {
  const look = (box) => box.classList.toggle("more", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
  const boxes = document.querySelectorAll(".bd-article table.table, .bd-article pre");
  const all = () => boxes.forEach(look);
  document.querySelectorAll(".bd-article table.table td").forEach((cell) => // fedskew.css: no column of single words
    cell.classList.toggle("wordy", cell.textContent.length > 25));
  document.querySelectorAll("code.literal .pre").forEach((word) => // fedskew.css: it breaks, shorter ones stay whole
    word.classList.toggle("long", word.textContent.length > (word.closest("td") ? 14 : 30)));
  boxes.forEach((box) => box.addEventListener("scroll", () => look(box)));
  addEventListener("resize", all);
  document.querySelectorAll("details").forEach((part) => part.addEventListener("toggle", all));
  all();
});

// A link to a heading or a name opens what is folded below it.
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const place = target?.matches("dt") ? target.nextElementSibling : target?.closest("section");
  place?.querySelectorAll(":scope > details").forEach((part) => { part.open = true; });
};
addEventListener("hashchange", unfold);
addEventListener("load", unfold);
