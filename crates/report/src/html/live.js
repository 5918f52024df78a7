setInterval(async () => {
  try {
    const answer = await fetch("/", { cache: "no-store" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const open = [...document.querySelectorAll("details.finding")].map((part) => part.open);
    const scrolled = [...document.querySelectorAll(".scroll")].map((part) => part.scrollLeft);
    page.querySelectorAll("details.finding").forEach((part, n) => { if (n in open) part.open = open[n]; });
    for (const name of ["header", "main"]) {
      document.querySelector(name).replaceWith(page.querySelector(name));
    }
    document.querySelectorAll(".scroll").forEach((part, n) => { part.scrollLeft = scrolled[n] || 0; });
    document.title = page.title;
  } catch {
    // Whoever served it is gone: what is shown is the last that is known.
  }
}, 2000);
