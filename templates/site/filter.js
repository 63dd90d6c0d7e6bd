"use strict";
// Adds a field above each long table that hides the rows without the typed text.
for (const table of document.querySelectorAll("main table")) {
  const rows = [...table.querySelectorAll("tbody tr")];
  if (rows.length < 10) continue;
  const field = document.createElement("input");
  const label = document.createElement("label");
  field.type = "search";
  label.append("Filter: " + table.caption.textContent + " ", field);
  table.closest(".wide").before(label);
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
}
