// Updates the changing part of a page. An event of the console says that something has changed; then
// the script requests that part again. Pages work without this script.
"use strict";
(() => {
  const live = document.getElementById("live");
  const connection = document.getElementById("connection");
  if (!live) {
    return;
  }

  // The age of each time, in words.
  const units = [["day", 86400], ["hour", 3600], ["minute", 60]];
  const ago = new Intl.RelativeTimeFormat("en");
  const sayAges = () => {
    for (const time of live.querySelectorAll("time")) {
      const seconds = (Date.now() - Date.parse(time.dateTime)) / 1000;
      const unit = units.find(([, length]) => seconds >= length);
      const words = unit ? ago.format(-Math.floor(seconds / unit[1]), unit[0]) : "less than a minute ago";
      const shown = time.querySelector("span") || time.appendChild(document.createElement("span"));
      if (shown.textContent !== " (" + words + ")") {
        shown.textContent = " (" + words + ")";
      }
    }
  };
  sayAges();
  setInterval(sayAges, 20000);

  if (!live.dataset.parts || !window.EventSource) {
    return;
  }
  const debounce = 250;        // ms: changes come in bursts
  const askingRests = 3;       // requests take at most a quarter of the time
  const announcedApart = 15000; // ms: a screen reader must not speak all the time
  let tag = "";
  let timer = 0;
  let asking = false;
  let again = false;
  let rests = 0; // time of the next request
  let announced = 0;
  let lost = false; // older data is shown

  const say = (text, force) => {
    const now = Date.now();
    if (!force && now - announced < announcedApart) {
      return;
    }
    announced = now;
    connection.textContent = text;
  };
  const lose = (text) => {
    lost = true;
    connection.className = "lost";
    say(text, true);
  };
  const gone = "The console does not answer; older data is shown. Is “vicinity console” still running?";

  const linksTo = (href) => [...live.querySelectorAll("a[href]")].filter((a) => a.getAttribute("href") === href);

  // Keep what the reader has opened, scrolled and focused.
  const remember = () => {
    const focused = live.contains(document.activeElement) ? document.activeElement : null;
    const regions = [...live.querySelectorAll(".scroll")];
    const href = focused && focused.getAttribute("href");
    const region = focused && focused.closest(".scroll");
    return {
      open: [...live.querySelectorAll("details[open]")].map((d) => d.id),
      scrolled: regions.map((r) => [r.getAttribute("aria-label"), r.scrollLeft]),
      focused: focused !== null,
      id: focused && (focused.matches("summary") ? focused.parentElement.id : focused.id),
      href,
      nth: href ? linksTo(href).indexOf(focused) : 0,
      region: region && region.getAttribute("aria-label"),
    };
  };
  const restore = (kept) => {
    for (const id of kept.open) {
      const details = document.getElementById(id);
      if (details) {
        details.open = true;
      }
    }
    for (const region of live.querySelectorAll(".scroll")) {
      const before = kept.scrolled.find(([label]) => label === region.getAttribute("aria-label"));
      if (before) {
        region.scrollLeft = before[1];
      }
    }
    if (!kept.focused) {
      return;
    }
    // The same element, or else its table, or the changing part of the page.
    const links = kept.href ? linksTo(kept.href) : [];
    let target = links[kept.nth] || links[0];
    if (!target && kept.id) {
      const found = document.getElementById(kept.id);
      target = found && found.matches("details") ? found.querySelector("summary") : found;
    }
    target ||= [...live.querySelectorAll(".scroll")].find((r) => r.getAttribute("aria-label") === kept.region);
    (target || live).focus({ preventScroll: true });
  };

  const ask = async () => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    const began = Date.now();
    try {
      const headers = { "X-Vicinity-Fragment": "1" };
      if (tag) {
        headers["If-None-Match"] = tag;
      }
      const answer = await fetch(location.href, { headers, cache: "no-store", credentials: "same-origin" });
      if (answer.status === 200) {
        const text = await answer.text();
        tag = answer.headers.get("ETag") || "";
        const made = new DOMParser().parseFromString(text, "text/html");
        const kept = remember();
        live.replaceChildren(...made.body.childNodes);
        restore(kept);
        sayAges();
        live.dataset.updates = String(Number(live.dataset.updates || 0) + 1);
      } else if (answer.status !== 304) {
        lose("This view cannot be updated, so older data is shown: " + answer.statusText + ". Reload the page.");
        return;
      }
      if (lost) {
        lost = false;
        connection.className = "";
        say("Live again.", true);
      } else if (answer.status === 200) {
        say("Updated " + new Date().toLocaleTimeString());
      }
    } catch {
      lose(gone);
    } finally {
      asking = false;
      rests = Date.now() + askingRests * (Date.now() - began);
      if (again) {
        again = false;
        soon();
      }
    }
  };
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, Math.max(debounce, rests - Date.now()));
  };

  const query = live.dataset.parts.split(" ").map((part) => "part=" + encodeURIComponent(part)).join("&");
  let events = null;
  // A hidden tab does not listen: a browser opens few connections to one address, and the console reads
  // proxies while a page is open.
  const listen = () => {
    if (document.hidden) {
      if (events) {
        events.close();
        events = null;
      }
      return;
    }
    if (events) {
      return;
    }
    events = new EventSource("/events?" + query);
    events.addEventListener("changed", soon);
    events.addEventListener("open", () => {
      if (!lost) { // otherwise the next update says so
        say("Live: the page follows the cluster.", true);
      }
    });
    events.addEventListener("error", () => {
      if (events.readyState === EventSource.CLOSED) { // refused: the browser does not try again
        events = null;
        lose("The console does not tell this page of changes, so older data is shown. Close other pages of it, and reload this one.");
      } else if (!lost) {
        lose(gone);
      }
    });
  };
  document.addEventListener("visibilitychange", listen);
  listen();
})();
