// Puts the parts of the page that have changed in place of the former ones. What is sent is markup of this server, in
// which all names are escaped. Without this script the pages work, and show what was when they were loaded.
"use strict";
(() => {
  const main = document.getElementById("main");
  if (!main.dataset.digest) return;

  const parse = (markup) => new DOMParser().parseFromString(markup, "text/html").body;

  // What has the focus, in words by which it is found again when its element has been replaced.
  const findFocus = (within) => {
    const active = document.activeElement;
    if (!active || !within.contains(active)) return null;
    return active.id ? `#${CSS.escape(active.id)}` : active.href ? `a[href="${CSS.escape(active.getAttribute("href"))}"]` : null;
  };

  const replace = (old, markup) => {
    const selector = findFocus(old);
    const open = [...old.querySelectorAll("details")].map((each) => each.open);
    const fresh = parse(markup).firstElementChild;
    [...fresh.querySelectorAll("details")].forEach((each, number) => { if (number in open) each.open = open[number]; });
    old.replaceWith(fresh);
    if (selector) fresh.querySelector(selector)?.focus({ preventScroll: true });
  };

  const replaceMain = (markup) => {
    const selector = findFocus(main);
    const values = [...main.querySelectorAll("input, select")].map((each) => each.value);
    main.replaceChildren(...parse(markup).childNodes);
    main.querySelectorAll("input, select").forEach((each, number) => { if (number in values) each.value = values[number]; });
    if (selector) main.querySelector(selector)?.focus({ preventScroll: true });
  };

  // A browser has six connections to a server, and a page in the background is to hold none of them.
  const page = location.pathname + location.search;
  let digest = main.dataset.digest;
  let updates = null;
  const on = (kind, show) => updates.addEventListener(kind, (event) => {
    digest = event.lastEventId;
    show(JSON.parse(event.data));
  });
  const open = () => {
    updates = new EventSource(`/updates?${new URLSearchParams({ page, digest })}`);
    on("parts", (parts) => Object.entries(parts).forEach(([id, markup]) => replace(document.getElementById(id), markup)));
    on("main", replaceMain);
    on("state", (markup) => replace(document.getElementById("state"), markup));
    updates.addEventListener("error", () => {
      const line = document.getElementById("state");
      line.className = "outdated";
      line.textContent = "kerf view does not answer: what is shown is not current.";
    });
  };
  document.addEventListener("visibilitychange", () => {
    updates?.close();
    updates = null;
    if (!document.hidden) open();
  });
  if (!document.hidden) open();
})();
