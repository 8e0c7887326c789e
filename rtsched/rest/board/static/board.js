// Brings the board up to date, and answers its forms as one types. Without it the forms still work.
"use strict";

const EVERY_MS = 5000, PAUSE_MS = 300;
const byId = (id) => document.getElementById(id);

async function fill(id, url) {
  const answer = await fetch(url, { headers: { accept: "text/html" }, credentials: "same-origin" });
  const text = await answer.text();
  if (!answer.ok) throw new Error(answer.status === 401 ? "ended" : String(answer.status));
  byId(id).innerHTML = text;
}

function query(form) {
  const values = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    const local = name === "deadline" && value ? new Date(value).getTime() : NaN;
    values.set(name, Number.isNaN(local) ? value : String(Math.floor(local / 1000)));
  }
  return values.toString();
}

async function refresh() {
  const part = byId("now");
  if (document.hidden || part.contains(document.activeElement)) return;
  try {
    await fill("now", "now?" + query(document.querySelector("[data-view]")));
    byId("trouble").textContent = "";
  } catch (error) {
    byId("trouble").textContent = error.message === "ended"
      ? "This session has ended. Run “rtsched board” to open a new one."
      : "The server does not answer; what you see may be out of date.";
  }
}

const latest = {};
async function answer(form) {
  const part = form.dataset.part, mine = latest[part] = {};
  try {
    const url = part + "?" + query(form);
    const text = await (await fetch(url, { credentials: "same-origin" })).text();
    if (latest[part] === mine) byId(part).innerHTML = text;
  } catch {
    byId("trouble").textContent = "The server does not answer.";
  }
}

async function hold(button) {
  const form = document.querySelector('[data-part="when"]');
  const url = "hold?" + query(form) + "&choice=" + encodeURIComponent(button.dataset.hold);
  try {
    const answer = await fetch(url, {
      method: "POST", headers: { "rtsched-board": "1" }, credentials: "same-origin",
    });
    byId("held").innerHTML = await answer.text();
    const command = byId("take");
    if (!command) return;
    await navigator.clipboard.writeText(command.textContent);
    button.textContent = "Copied";
  } catch {
    byId("trouble").textContent = "The server does not answer.";
  }
}

for (const form of document.querySelectorAll("[data-part]")) {
  let timer = 0;
  form.addEventListener("submit", (event) => { event.preventDefault(); answer(form); });
  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(() => answer(form), PAUSE_MS);
  });
}

const view = document.querySelector("[data-view]");
view.addEventListener("submit", (event) => { event.preventDefault(); refresh(); });
view.addEventListener("change", refresh);

document.addEventListener("click", async (event) => {
  const link = event.target.closest("[data-job]");
  if (link) {
    event.preventDefault();
    byId("job").value = link.dataset.job;
    await answer(document.querySelector('[data-part="why"]'));
    byId("why-title").scrollIntoView();
    byId("job").focus();
  }
  const choice = event.target.closest("[data-hold]");
  if (choice) await hold(choice);
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    await navigator.clipboard.writeText(byId(copy.dataset.copy).textContent);
    copy.textContent = "Copied";
  }
});

setInterval(refresh, EVERY_MS);
