// Keeps a page's times readable, and says when it is not fresh any more. Everything else is in the page itself.
"use strict";
(() => {
  const SECOND = 1000;
  const zone = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

  function ago(milliseconds) {
    const seconds = Math.max(0, Math.round(milliseconds / SECOND));
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit} ago`;
    }
    return `${seconds} s ago`;
  }

  function writeTimes() {
    const now = Date.now();
    for (const element of document.querySelectorAll("time.ago[datetime]")) {
      const at = Date.parse(element.dateTime);
      const text = at > now ? `in ${ago(at - now).replace(" ago", "")}` : ago(now - at);
      if (element.textContent !== text) element.textContent = text;
    }
    for (const element of document.querySelectorAll("time[datetime]:not([title])")) {
      const utc = new Date(element.dateTime).toISOString().replace("T", " ").slice(0, 19);
      element.title = `${zone.format(new Date(element.dateTime))} here, ${utc} UTC`;
    }
  }

  function showStale(text) {
    const banner = document.getElementById("stale");
    banner.hidden = !text;
    if (banner.textContent !== text) banner.textContent = text;
  }

  // Whoever writes or reads a menu is not disturbed, and a page that nobody looks at asks for nothing.
  function isInUse() {
    const live = document.getElementById("live"), focused = document.activeElement;
    const writes = live && live.contains(focused) && focused.matches("input, select, textarea");
    return document.hidden || writes || (live && live.contains(getSelection().anchorNode) && !getSelection().isCollapsed);
  }

  const clock = () => new Date().toLocaleTimeString();

  document.addEventListener("DOMContentLoaded", () => {
    writeTimes();
    setInterval(writeTimes, SECOND);
    if (globalThis.Idiomorph) {
      // A time that says the same moment keeps what is written there, and what a person has opened stays open.
      Idiomorph.defaults.callbacks.beforeNodeMorphed = (old, fresh) =>
        !(old.nodeName === "TIME" && fresh.nodeName === "TIME" && old.dateTime === fresh.dateTime && old.title);
      Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, element) =>
        !(name === "open" && element.nodeName === "DETAILS");
    }
    document.body.addEventListener("htmx:beforeRequest", (event) => {
      if (event.detail.elt.id === "live" && isInUse()) event.preventDefault();
    });
    // A log is read at its end, until somebody scrolls up.
    let isAtEnd = true;
    const log = () => document.querySelector(".log");
    const toEnd = () => { if (log() && isAtEnd) log().scrollTop = log().scrollHeight; };
    document.body.addEventListener("htmx:beforeSwap", () => {
      if (log()) isAtEnd = log().scrollTop + log().clientHeight > log().scrollHeight - 40;
    });
    document.body.addEventListener("htmx:afterSettle", toEnd);
    toEnd();
    // What was done just now is no part of the page's address.
    const address = new URL(location);
    if (address.searchParams.has("did")) {
      address.searchParams.delete("did");
      history.replaceState(null, "", address);
    }
    document.body.addEventListener("htmx:afterRequest", (event) => {
      if (event.detail.successful) showStale("");
    });
    document.body.addEventListener("htmx:afterSwap", writeTimes);
    document.body.addEventListener("htmx:sendError", () => {
      showStale(`Not fresh since ${clock()}: the console does not answer.`);
    });
    document.body.addEventListener("htmx:responseError", (event) => {
      const { status, responseText } = event.detail.xhr;
      if (status === 401) showStale(responseText);
      else showStale(`Not fresh since ${clock()}: the page answers with ${status}. Load it again to see why.`);
    });
  });

  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, select, textarea")) return;
    event.preventDefault();
    document.getElementById("q").focus();
  });

  // Of a job's form and its file, the one that was changed last is meant.
  document.addEventListener("input", (event) => {
    const from = event.target.form?.elements.namedItem("from");
    if (from) from.value = event.target.id === "yaml" ? "yaml" : "form";
  });

  // One press, one act: the form is sent once.
  document.addEventListener("submit", (event) => {
    if (event.target.method !== "post") return;
    if (event.target.dataset.sent) event.preventDefault();
    event.target.dataset.sent = "yes";
  });
  addEventListener("pageshow", () => document.querySelectorAll("form").forEach((form) => delete form.dataset.sent));
})();
