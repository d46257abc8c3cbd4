"use strict";
// Keeps a page current: listens to the stream, fetches the page again when something changed, swaps what differs.
// The server is the only one that writes HTML; nothing from the stream is put into the page.

const body = document.body;
const pulse = document.getElementById("pulse");
const word = document.getElementById("pulse-word");
const RETRY_MS = 5000;
const GATHER_MS = 150;
let lastId = "";
let gathering = 0;
let lost = false;

function show(state, text) {
  pulse.className = `pulse ${state}`;
  word.textContent = text;
}

function age(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s ago`;
  if (s < 3600) return `${Math.floor(s / 60)} min ago`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min ago`;
  return `${Math.floor(s / 86400)} d ago`;
}

function tick() {
  const now = new Date();
  document.getElementById("now").textContent = `${now.toISOString().slice(11, 19)} UTC`;
  for (const time of document.querySelectorAll(".when time, .started time")) {
    const moment = Date.parse(time.dateTime);
    if (Number.isNaN(moment)) continue;
    let note = time.parentNode.querySelector(".age");
    if (!note) {
      note = document.createElement("span");
      note.className = "age";
      time.before(note, " ");
    }
    note.textContent = age(now - moment);
  }
}

function keyed(list) {
  return new Map([...list.children].map((row) => [row.dataset.key, row]));
}

function swapRows(next) {
  const list = document.getElementById("feed");
  const old = keyed(list);
  const rows = [...next.getElementById("feed").children].map((row) => {
    const before = old.get(row.dataset.key);
    if (before && before.dataset.revision === row.dataset.revision) return before;
    const adopted = document.adoptNode(row);
    adopted.classList.add("fresh");
    return adopted;
  });
  list.replaceChildren(...rows);
}

function swap(next, selector) {
  const [here, there] = [document.querySelector(selector), next.querySelector(selector)];
  if (here && there) here.replaceWith(document.adoptNode(there));
  else if (here) here.remove();
  else if (there) document.getElementById("main").append(document.adoptNode(there));
}

async function refresh() {
  gathering = 0;
  let answer;
  try {
    answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  } catch {
    return;
  }
  if (!answer.ok) return;
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  swapRows(next);
  swap(next, "#empty");
  swap(next, ".tabs");
  swap(next, ".above h1");
  document.title = next.title;
  tick();
}

function changed(event) {
  if (event.lastEventId) lastId = event.lastEventId;
  if (body.dataset.incident) {
    const split = lastId.lastIndexOf(":");
    const newer = lastId.slice(0, split) === body.dataset.incident && lastId.slice(split + 1) !== body.dataset.revision;
    if (newer) document.getElementById("newer").hidden = false;
    return;
  }
  gathering ||= setTimeout(refresh, GATHER_MS);
}

function connect() {
  const address = new URL(body.dataset.stream, location.href);
  if (lastId) address.searchParams.set("last_event_id", lastId);
  const stream = new EventSource(address);
  stream.onopen = () => {
    if (lost && !body.dataset.incident) refresh();
    lost = false;
    show("live", "live");
  };
  stream.onerror = () => {
    lost = true;
    show("lost", "connection lost, this may be old");
    // A refused stream (too many open) is not retried by the browser.
    if (stream.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  };
  stream.addEventListener("incident", changed);
  stream.addEventListener("reset", changed);
  addEventListener("pagehide", () => stream.close(), { once: true });
}

// After "back", a page comes out of the browser's cache with its stream closed.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
tick();
setInterval(tick, 1000);
connect();
