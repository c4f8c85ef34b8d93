// Clicks through a page of `bench report` in a browser: light and dark, wide and narrow. Further pages are only looked at.
//
// Usage: node main.js BROWSER PAGE PICTURES [FURTHER...]. Prints a line for each scheme and width of a page, puts a picture of
// each of PAGE into the directory PICTURES, and ends with 1 if there is a fault.
"use strict";

const path = require("node:path");
const { pathToFileURL } = require("node:url");
const { chromium } = require("playwright-core");

const SCHEMES = ["light", "dark"];
const WIDTHS = [1280, 390];
const HEIGHT = 900;
// Contrasts required by WCAG 2, level AA, of text and of meaningful lines.
const TEXT_CONTRAST = 4.5;
const LINE_CONTRAST = 3;
// The page may send no requests, so the browser must not look for updates or host names either.
const QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

const problems = [];

function check(holds, problem) {
  if (!holds) problems.push(problem);
}

// Runs within the page: finds text and chart lines that are too faint on their background.
function faint([textContrast, lineContrast]) {
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const mixed = (over, under) => {
    const [r, g, b, alpha = 1] = parts(over);
    return [r, g, b].map((value, at) => value * alpha + under[at] * (1 - alpha));
  };
  const light = (colour) => colour.map((value) => value / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
    .reduce((sum, value, at) => sum + value * [0.2126, 0.7152, 0.0722][at], 0);
  const contrast = (one, other) => {
    const [high, low] = [light(one), light(other)].sort((first, second) => second - first);
    return (high + 0.05) / (low + 0.05);
  };
  const behind = (node) => (node ? mixed(getComputedStyle(node).backgroundColor, behind(node.parentElement)) : [255, 255, 255]);
  const found = [];
  const look = (node, colour, least) => {
    const measured = contrast(mixed(colour, behind(node)), behind(node));
    if (measured < least) found.push(`${node.tagName} "${node.textContent.slice(0, 30)}": contrast ${measured.toFixed(2)}`);
  };
  for (const node of document.body.querySelectorAll("*")) {
    if (!node.checkVisibility()) continue;
    const style = getComputedStyle(node);
    const hasText = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim() !== "");
    if (node.matches("polyline")) look(node, style.stroke, lineContrast);
    else if (hasText) look(node, node instanceof SVGElement ? style.fill : style.color, textContrast);
  }
  return found;
}

// Runs within the page: finds parts that reach out of the window, or out of a box that does not scroll sideways.
function overflowing() {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const moved = (node) => node.closest(".table, pre") !== null;
  for (const node of document.body.querySelectorAll("*")) {
    if (!node.checkVisibility() || moved(node)) continue;
    const box = node.getBoundingClientRect();
    if (box.right > innerWidth + 1 || box.left < -1) found.push(`${node.tagName} "${node.textContent.slice(0, 30)}" reaches out of the window`);
  }
  for (const text of document.querySelectorAll("svg text")) {
    const [box, frame] = [text.getBoundingClientRect(), text.ownerSVGElement.getBoundingClientRect()];
    if (box.left < frame.left - 1 || box.right > frame.right + 1) found.push(`"${text.textContent}" is cut off by its chart`);
  }
  // Numbers on an axis must not run into each other.
  for (const svg of document.querySelectorAll("svg")) {
    const boxes = [...svg.querySelectorAll("text")].map((text) => [text.textContent, text.getBoundingClientRect()]);
    boxes.forEach(([text, box], at) => {
      for (const [other, next] of boxes.slice(at + 1)) {
        const apart = box.right <= next.left || next.right <= box.left || box.bottom <= next.top + 1 || next.bottom <= box.top + 1;
        if (!apart) found.push(`"${text}" and "${other}" of a chart lie over each other`);
      }
    });
  }
  return found;
}

async function lookAround(page, where) {
  for (const problem of await page.evaluate(overflowing)) problems.push(`${where}: ${problem}`);
  for (const problem of await page.evaluate(faint, [TEXT_CONTRAST, LINE_CONTRAST])) problems.push(`${where}: ${problem}`);
}

// Runs within the page: name of each chart, points of its curves, number of its labels, and whether all points are numbers.
function drawn() {
  return [...document.querySelectorAll("svg")].map((svg) => {
    const lines = [...svg.querySelectorAll("polyline")];
    const numbers = lines.map((line) => line.getAttribute("points")).join(" ");
    return [svg.getAttribute("aria-label"), lines.map((line) => line.points.length), svg.querySelectorAll("text").length, !/NaN|Infinity/.test(numbers)];
  });
}

async function charts(page, where) {
  const all = await page.evaluate(drawn);
  check(all.length > 0, `${where}: no chart`);
  for (const [name, points, labels, numbers] of all) {
    check(points.length > 0 && points.every((length) => length > 0), `${where}: ${name} has a curve without a point`);
    check(labels > 4, `${where}: ${name} has ${labels} labels`);
    check(numbers, `${where}: ${name} has points that are no numbers`);
  }
}

// Each name in a legend hides its curve and shows it again; all of them are clicked.
async function legends(page, where) {
  for (const figure of await page.locator("figure").all()) {
    const buttons = await figure.locator(".legend button").all();
    for (const [at, button] of buttons.entries()) {
      const curve = figure.locator("polyline").nth(at);
      const hidden = () => curve.evaluate((line) => getComputedStyle(line).display === "none");
      await button.click();
      check(await hidden() && (await button.getAttribute("aria-pressed")) === "false", `${where}: a click on "${await button.textContent()}" hides nothing`);
      await button.click();
      check(!(await hidden()) && (await button.getAttribute("aria-pressed")) === "true", `${where}: another click does not show it again`);
    }
  }
}

async function details(page, where) {
  for (const one of await page.locator("details").all()) {
    const within = one.locator("table, pre, ul").first();
    check(!(await within.isVisible()), `${where}: details are open before anybody asks`);
    await one.locator("summary").click();
    check(await within.isVisible(), `${where}: "${await one.locator("summary").textContent()}" shows nothing`);
  }
}

// Chooses every title alone, then all of them again.
async function filters(page, where) {
  const filter = page.locator("#filter");
  const titles = await filter.locator("option").evaluateAll((options) => options.map((option) => option.value));
  check(titles.length > 2, `${where}: there is nothing to choose`);
  for (const title of titles.filter((one) => one !== "")) {
    await filter.selectOption(title);
    const shown = await page.locator("section.group h2").allTextContents();
    check(shown.length === 1 && shown[0] === title, `${where}: chose "${title}" and found "${shown}"`);
    const surrounded = await page.locator("#environment li").allTextContents();
    check(surrounded.length > 0 && surrounded.every((one) => one === title), `${where}: chose "${title}" and found the environment of "${surrounded}"`);
  }
  await filter.selectOption("");
  check((await page.locator("section.group").count()) === titles.length - 1, `${where}: not all are there again`);
}

// A note that all runs of a workload share is shown once.
async function notes(page, where) {
  for (const list of await page.locator("ul.notes").all()) {
    const told = (await list.locator("li").allTextContents()).map((note) => note.slice(note.indexOf(": ") + 2));
    check(new Set(told).size === told.length, `${where}: a note stands there twice: ${told}`);
  }
}

// Runs within the page, whose functions it calls: checks medians, and that only runs of the same work stand side by side.
function reckoning() {
  const found = [];
  const middles = [[], [3], [4, 1], [9, 1, 2, 4], [5, null, 1, 0, 2], [0, 900, 0]].map((values) => middle(values, (value) => value));
  if (JSON.stringify(middles) !== "[null,3,2.5,3,1.5,0]") found.push(`medians are ${JSON.stringify(middles)}`);
  for (const [title, runs] of groups) {
    const machine = ({ cpu_model: processor, cores, memory_bytes: memory, kernel }) => [processor, cores, memory, kernel];
    const work = (run) => [run.scale, run.workers, run.replication.used, run.files, machine(run.environment)];
    const works = new Set(runs.map((run) => JSON.stringify(work(run))));
    if (works.size > 1) found.push(`"${title}" has runs of different work side by side`);
  }
  return found;
}

// Runs within the page: compares its tables and curves with the results, which are read once more.
function figures() {
  const found = [];
  const data = JSON.parse(document.getElementById("data").textContent);
  const stored = new Map(data.map(({ riverrun }) => [riverrun.started, riverrun]));
  const sizes = { "": 1, k: 1e3, M: 1e6, G: 1e9, "µs": 1, ms: 1e3, s: 1e6 };
  const read = (text) => {
    const [, digits, unit] = text.replaceAll(",", "").match(/^([\d.]+) ?(\D*)$/) || [];
    return Number(digits) * sizes[unit];
  };
  const compare = (shown, meant, what) => {
    const isRight = meant === null || meant === undefined ? shown === "–" : Math.abs(read(shown) - meant) <= 0.01 * meant;
    if (!isRight) found.push(`${what} is ${meant}, and shown as ${shown}`);
  };
  const cells = [
    ["Published, records/s", (run) => run.totals.publishRate],
    ["Published, MB/s", (run) => run.totals.publishBytesRate / 1e6],
    ["Read, records/s", (run) => run.totals.consumeRate],
    ["Publish p99", (run) => run.publish && run.publish.p99_us],
    ["End to end max", (run) => run.endToEnd && run.endToEnd.max_us],
    ["Poll p99", (run) => run.poll && run.poll.p99_us],
    ["Server CPU, s", (run) => run.serverUsage.cpu_s],
  ];
  const texts = (node, selector) => [...node.querySelectorAll(selector)].map((one) => one.textContent);
  const rowsOf = (node) => new Map([...node.querySelectorAll("tbody tr")].map((row) => [row.querySelector("th").textContent, texts(row, "td:not(.ratio)")]));
  // Compares the points of a curve with the numbers on the axis beside it.
  const curve = (section, chart, name, values, turn) => {
    const svg = section.querySelector(`svg[aria-label="${chart}"]`);
    const line = svg && [...svg.querySelectorAll("polyline")].find((one) => one.querySelector("title").textContent === name);
    if (!line) return found.push(`"${chart}" has no curve "${name}"`);
    const ticks = [...svg.querySelectorAll('text[text-anchor="end"][x="48"]')].map((text) => [text.getAttribute("y") - 4, turn(read(text.textContent))]);
    const [[low, from], [high, to]] = [ticks[0], ticks[ticks.length - 1]];
    const places = line.getAttribute("points").split(" ").map((point) => point.split(",")[1]);
    const shown = places.map((y) => from + ((y - low) / (high - low)) * (to - from));
    const wrong = shown.length === values.length ? shown.findIndex((value, at) => Math.abs(value - turn(values[at])) > 0.01 * (to - from)) : 0;
    if (wrong >= 0) found.push(`"${chart}": point ${wrong} of "${name}" is ${turn(values[wrong])}, and drawn at ${shown[wrong]}`);
  };
  for (const [title, runs] of groups) {
    const section = [...document.querySelectorAll("section.group")].find((one) => one.querySelector("h2").textContent === title);
    const rows = rowsOf(section.querySelector(".figures"));
    const labels = texts(section, ".figures thead th:not(.ratio)").slice(1);
    runs.forEach((run, at) => {
      const meant = stored.get(run.started);
      if (labels[at] !== run.label || !run.label.startsWith(meant.server)) found.push(`"${title}": ${meant.server} stands under ${labels[at]}`);
      for (const [name, figure] of cells) {
        if (rows.has(name)) compare(rows.get(name)[at], figure(meant), `"${title}": ${name} of ${run.label}`);
        else if (figure(meant) > 0) found.push(`"${title}" has no ${name}`);
      }
      if (!meant.publish) return;
      curve(section, "Throughput over time", `${run.label} published`, meant.seconds.map((second) => second.publishRate), (value) => value);
      curve(section, "Publish latency by percentile", run.label, meant.publish.quantiles.map(([, us]) => us), Math.log10);
    });
    // The first figure of the overview.
    const shown = rowsOf(document.querySelector(".overview")).get(title);
    series.forEach((one, at) => {
      const rates = runs.filter((run) => run.series === one).map((run) => stored.get(run.started).totals.publishRate).sort((a, b) => a - b);
      const [low, high] = [rates[Math.ceil(rates.length / 2) - 1], rates[Math.floor(rates.length / 2)]];
      compare(shown[at], rates.length === 0 ? undefined : (low + high) / 2, `"${title}": the median of ${one}`);
    });
  }
  return found;
}

// Runs within the page: checks that every measurement of a machine is shown once, with its runs and their figures.
function surroundings() {
  const found = [];
  const stored = JSON.parse(document.getElementById("data").textContent).map(({ riverrun }) => riverrun);
  const told = [...document.querySelectorAll("#environment section")];
  const different = new Set(stored.map((run) => JSON.stringify({ ...run.environment, servers: null }))).size;
  if (told.length !== different) found.push(`${different} measurements of machines are told as ${told.length}`);
  const titlesOf = (section) => [...section.querySelectorAll("li")].map((one) => one.textContent);
  for (const [title, runs] of groups) {
    const section = [...document.querySelectorAll("section.group")].find((one) => one.querySelector("h2").textContent === title);
    for (const { started } of runs) {
      const { kernel, loopback } = stored.find((run) => run.started === started).environment;
      const limit = `loopback TCP ${(loopback.bytes_per_s / 1e6).toLocaleString("en", { maximumFractionDigits: 0 })} MB/s`;
      const own = told.filter((one) => titlesOf(one).includes(title) && one.textContent.includes(kernel) && one.querySelector("h3").textContent.includes(limit));
      const link = own.length === 1 && section.querySelector(`a[href="#${own[0].querySelector("h3").id}"]`);
      if (!link || !link.textContent.includes(limit)) found.push(`"${title}" of ${started} stands in ${own.length} environments, or names another`);
    }
  }
  for (const link of document.querySelectorAll("#environment a")) {
    const target = document.querySelector(link.getAttribute("href"));
    if (!target || target.textContent !== link.textContent) found.push(`the environment's "${link.textContent}" leads elsewhere`);
  }
  return found;
}

async function overview(page, where) {
  const links = await page.locator(".overview a").all();
  check(links.length > 0 && links.length === (await page.locator("section.group").count()), `${where}: the overview does not name every workload`);
  for (const link of links) {
    const title = await link.textContent();
    await link.click();
    const top = await page.locator("h2", { hasText: title }).first().evaluate((node) => node.getBoundingClientRect().top);
    check(top >= 0 && top < HEIGHT, `${where}: "${title}" leads elsewhere`);
  }
}

async function open(browser, url, scheme, width, where) {
  const context = await browser.newContext({ viewport: { width, height: HEIGHT }, colorScheme: scheme });
  const page = await context.newPage();
  page.on("console", (message) => problems.push(`${where}: the console says "${message.text()}"`));
  page.on("pageerror", (error) => problems.push(`${where}: ${error.message}`));
  page.on("request", (request) => check(request.url().split("#")[0] === url, `${where}: asks for ${request.url()}`));
  await page.goto(url);
  return [context, page];
}

// Checks that a page of real results is drawn, fits into the window and is readable.
async function glance(browser, file, scheme, width) {
  const where = `${path.basename(file)}, ${scheme}, ${width} wide`;
  const before = problems.length;
  const [context, page] = await open(browser, pathToFileURL(file).href, scheme, width, where);
  await charts(page, where);
  await lookAround(page, where);
  check((await page.locator(".overview a").count()) > 0, `${where}: no overview`);
  await context.close();
  console.log(`${where}: ${problems.length === before ? "right" : "wrong"}`);
}

async function look(browser, url, scheme, width, pictures) {
  const where = `${scheme}, ${width} wide`;
  const before = problems.length;
  const [context, page] = await open(browser, url, scheme, width, where);
  for (const within of [reckoning, figures, surroundings]) {
    for (const problem of await page.evaluate(within)) problems.push(`${where}: ${problem}`);
  }
  await page.screenshot({ path: path.join(pictures, `${scheme}-${width}.png`) });
  await charts(page, where);
  await lookAround(page, where);
  await legends(page, where);
  await notes(page, where);
  await overview(page, where);
  await filters(page, where);
  await details(page, where);
  await lookAround(page, `${where}, all open`);
  await page.screenshot({ path: path.join(pictures, `${scheme}-${width}-open.png`), fullPage: true });
  await context.close();
  console.log(`${where}: ${problems.length === before ? "right" : "wrong"}`);
}

async function main([program, file, pictures, ...further]) {
  const browser = await chromium.launch({ executablePath: program, args: QUIET });
  const url = pathToFileURL(file).href;
  for (const scheme of SCHEMES) {
    for (const width of WIDTHS) {
      await look(browser, url, scheme, width, pictures);
      for (const one of further) await glance(browser, one, scheme, width);
    }
  }
  await browser.close();
  for (const problem of problems) console.error(problem);
  process.exitCode = problems.length === 0 ? 0 : 1;
}

main(process.argv.slice(2));
