"use strict";
// Everything shown comes from the data as text; no part of it is read as markup.
const SVG = "http://www.w3.org/2000/svg";
const results = JSON.parse(document.getElementById("data").textContent).map((one) => ({ title: one.workload, ...one.riverrun }));

function element(name, attributes, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function drawn(name, attributes, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  return node;
}

function number(value, digits) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const places = digits !== undefined ? digits : value === 0 || Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 1 ? 2 : 3;
  return value.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
}

// Small shares get two digits: a paced run is only a trace of what the machine can carry.
function share(value) {
  return value >= 0.01 ? number(value, 3) : String(+value.toPrecision(2));
}

function brief(value) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    // Rounded as it is written: 999.6 is a thousand.
    if (Math.abs(value) >= 0.9995 * size) return `${+(value / size).toPrecision(3)}${unit}`;
  }
  return `${+value.toPrecision(3)}`;
}

// Microseconds in the unit that people use.
function time(us) {
  if (us === null || us === undefined) return "–";
  if (us >= 1e6) return `${+(us / 1e6).toPrecision(3)} s`;
  return us >= 1000 ? `${+(us / 1000).toPrecision(3)} ms` : `${+us.toPrecision(3)} µs`;
}

function durability(run) {
  const { wanted, reached, acked_when_synced: synced } = run.durability;
  if (reached) return wanted && wanted !== reached ? `level ${reached}, ${wanted} wanted` : `level ${reached}`;
  return synced === true ? "synced" : synced === false ? "page cache" : "not known";
}

// Figures of a backlog, over the time in which it was read: bytes a second, and the p99 of publishing meanwhile.
const drainRate = (run) => run.backlog && run.backlog.drainedBytes / run.backlog.drainS;
const meanwhile = (run) => run.backlog && run.backlog.publishMeanwhile && run.backlog.publishMeanwhile.p99_us;

// Rows of a group's table: name, figure, its format, and whether more is better (for the ratio).
const ROWS = [
  ["Durability of acked records", durability, String],
  ["Published, records/s", (run) => run.totals.publishRate, number, true],
  ["Highest rate kept up, records/s", (run) => run.search && run.search.keptUp, number, true],
  ["Published, MB/s", (run) => run.totals.publishBytesRate / 1e6, number, true],
  ["Published, share of loopback TCP", (run) => run.totals.publishToLoopback, share],
  ["Published, share of it without pacing", (run) => run.totals.publishToUnpacedLoopback, share],
  ["Read, records/s", (run) => run.totals.consumeRate, number, true],
  ["Read, MB/s", (run) => run.totals.consumeBytesRate / 1e6, number, true],
  ["Read, share of loopback TCP", (run) => run.totals.consumeToLoopback, share],
  ["Read, share of it without pacing", (run) => run.totals.consumeToUnpacedLoopback, share],
  ["Backlog: time to read it, s", (run) => run.backlog && run.backlog.drainS, number, false],
  ["Backlog: read, MB/s", (run) => run.backlog && drainRate(run) / 1e6, number, true],
  ["Backlog: read, share of loopback TCP", (run) => run.backlog && run.backlog.toLoopback, share],
  ["Backlog: read, share of it without pacing", (run) => run.backlog && run.backlog.toUnpacedLoopback, share],
  ["Publish p99 while the backlog is read", meanwhile, time, false],
  ["Acked while the disk was full, records", (run) => run.diskFull && run.diskFull.ackedMeanwhile, number, true],
  ["Room again: time to the first ack, s", (run) => run.diskFull && run.diskFull.firstAckS, number, false],
  ...[["Publish", "publish"], ["End to end", "endToEnd"], ["Poll", "poll"]].flatMap(([name, key]) =>
    [["mean", "mean_us"], ["p50", "p50_us"], ["p99", "p99_us"], ["p99.9", "p999_us"], ["p99.99", "p9999_us"], ["max", "max_us"]]
      .map(([label, field]) => [`${name} ${label}`, (run) => run[key] && run[key][field], time, false])),
  ["Not delivered, records", (run) => run.totals.failed, number],
  ["Due and not sent, records", (run) => run.totals.overdue, number],
  ["Sent and not acked, records", (run) => run.totals.unacked, number],
  ["Acked and not read, records", (run) => run.totals.unread, number],
  ["Server CPU, s", (run) => run.serverUsage && run.serverUsage.cpu_s, number],
  ["Server CPU by record, µs", (run) => run.totals.serverCpuUsPerRecord, number, false],
  ["Server memory, MB", (run) => run.serverUsage && run.serverUsage.resident_bytes_max / 1e6, number, false],
  ["Client CPU, s", (run) => run.clientUsage && run.clientUsage.cpu_s, number],
  ["Workers' CPU, s", (run) => run.workerUsage && run.workerUsage.reduce((sum, worker) => sum + worker.cpu_s, 0), number],
];

function known(value) {
  return value !== null && value !== undefined && (typeof value !== "number" || Number.isFinite(value));
}

// How many times better the first of two figures is: by more if more is better, else by less.
function ratio(first, other, more) {
  const times = more ? first / other : other / first;
  return more !== undefined && known(first) && known(other) && Number.isFinite(times) && times > 0 ? `${+times.toPrecision(3)}×` : "";
}

// Tables that do not fit scroll sideways, by the keyboard too.
function framed(label, ...parts) {
  return element("div", { class: "table", tabindex: "0", role: "region", "aria-label": label }, element("table", {}, ...parts));
}

// Ratios are against the first run.
function table(title, runs) {
  const head = element("tr", {}, element("th", {}, ""));
  runs.forEach((run, at) => {
    head.append(element("th", { scope: "col" }, run.label));
    if (at > 0) head.append(element("th", { scope: "col", class: "ratio" }, "ratio"));
  });
  const body = element("tbody", {});
  for (const [name, figure, write, more] of ROWS) {
    const values = runs.map(figure);
    if (!values.some((value) => known(value) && value !== 0)) continue;
    const row = element("tr", {}, element("th", { scope: "row" }, name));
    values.forEach((value, at) => {
      row.append(element("td", {}, known(value) ? write(value) : "–"));
      if (at > 0) row.append(element("td", { class: "ratio" }, ratio(values[0], value, more)));
    });
    body.append(row);
  }
  const meaning = runs.length > 1 ? element("p", { class: "meaning" }, `ratio: how many times better ${runs[0].label} is`) : null;
  return element("div", { class: "figures" }, framed(`Figures of ${title}`, element("thead", {}, head), body), meaning);
}

const WIDTH = 400, HEIGHT = 240, LEFT = 54, RIGHT = 8, TOP = 10, BOTTOM = 36;

// A chart of curves: points [x, y]. `across` and `up` map a figure to a place between 0 and 1.
function chart(title, curves, across, up, labels) {
  const x = (value) => LEFT + across.place(value) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - up.place(value) * (HEIGHT - TOP - BOTTOM);
  const svg = drawn("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": title });
  for (const value of up.ticks) {
    svg.append(drawn("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
    svg.append(drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, up.write(value)));
  }
  for (const value of across.ticks) {
    // The last label would reach out of the picture.
    const anchor = across.place(value) > 0.99 ? "end" : "middle";
    svg.append(drawn("line", { class: "grid", x1: x(value), x2: x(value), y1: TOP, y2: HEIGHT - BOTTOM }));
    svg.append(drawn("text", { x: anchor === "end" ? WIDTH - 2 : x(value), y: HEIGHT - BOTTOM + 15, "text-anchor": anchor }, across.write(value)));
  }
  svg.append(drawn("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle" }, labels));
  const legend = element("div", { class: "legend" });
  for (const curve of curves) {
    const points = curve.points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
    const line = drawn("polyline", { class: "curve", points, style: `stroke: var(--c${curve.colour % 6})`, "stroke-dasharray": curve.dashed ? "5 3" : "none" });
    line.append(drawn("title", {}, curve.name));
    svg.append(line);
    const button = element("button", { type: "button", "aria-pressed": "true" }, element("i", { style: `border-top: .2em ${curve.dashed ? "dashed" : "solid"} var(--c${curve.colour % 6})` }), curve.name);
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!shown));
      line.style.display = shown ? "none" : "";
    });
    legend.append(button);
  }
  return element("figure", {}, element("h3", {}, title), legend, svg);
}

// No spread into Math.max: a run of a day has more seconds than a function takes arguments.
function most(values, least) {
  return values.reduce((greatest, value) => Math.max(greatest, value), least);
}

function linear(values, write) {
  const top = most(values, 1e-9);
  const step = [1, 2, 2.5, 5, 10].map((part) => part * 10 ** Math.floor(Math.log10(top / 4))).find((size) => top / size <= 5) || top / 4;
  const end = Math.ceil(top / step - 1e-9) * step;
  const ticks = [];
  for (let value = 0; value <= end + step / 2; value += step) ticks.push(value);
  return { place: (value) => value / end, ticks, write };
}

function logarithmic(values, write) {
  const positive = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(positive.reduce((least, value) => Math.min(least, value), 1e12)));
  const high = Math.max(Math.ceil(Math.log10(most(positive, 1))), low + 1);
  const ticks = [];
  for (let power = low; power <= high; power += 1) ticks.push(10 ** power);
  return { place: (value) => (Math.log10(Math.max(value, 10 ** low)) - low) / (high - low), ticks, write };
}

// Percentiles by their number of nines, so that the tail is as wide as the rest.
const NINES = 5;
const percentiles = {
  place: (percentile) => Math.min(-Math.log10(Math.max(1 - percentile / 100, 10 ** -NINES)) / NINES, 1),
  ticks: [0, 90, 99, 99.9, 99.99, 99.999],
  write: (percentile) => `${percentile}`,
};

function throughput(runs) {
  const curves = [];
  runs.forEach((run, colour) => {
    for (const [name, field, dashed] of [["published", "publishRate", false], ["read", "consumeRate", true], ["caught up", "catchUpRate", true]]) {
      const points = run.seconds.map((second) => [second.atS, second[field]]);
      if (points.some(([, rate]) => rate > 0)) curves.push({ name: `${run.label} ${name}`, points, colour, dashed });
    }
  });
  const all = curves.flatMap((curve) => curve.points);
  if (all.length === 0) return null;
  return chart("Throughput over time", curves, linear(all.map(([at]) => at), (at) => `${+at.toPrecision(3)}`), linear(all.map(([, rate]) => rate), brief), "seconds; records a second");
}

function latencies(runs, key, title) {
  const curves = runs.map((run, colour) => ({ name: run.label, colour, dashed: false, points: run[key] ? run[key].quantiles : [] }))
    .filter((curve) => curve.points.length > 0);
  if (curves.length === 0) return null;
  const values = curves.flatMap((curve) => curve.points.map(([, us]) => us));
  return chart(title, curves, percentiles, logarithmic(values, time), "percentile");
}

function latencyOverTime(runs, key, title) {
  const curves = runs.map((run, colour) => ({ name: `${run.label} p99`, colour, dashed: false,
    points: run.seconds.filter((second) => second[key]).map((second) => [second.atS, second[key].p99_us]) }))
    .filter((curve) => curve.points.length > 1);
  if (curves.length === 0) return null;
  const all = curves.flatMap((curve) => curve.points);
  return chart(title, curves, linear(all.map(([at]) => at), (at) => `${+at.toPrecision(3)}`), logarithmic(all.map(([, us]) => us), time), "seconds");
}

function facts(pairs) {
  const rows = pairs.filter(([, value]) => known(value) && value !== "")
    .map(([name, value]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "text" }, String(value))));
  return framed("Facts", element("tbody", {}, ...rows));
}

// The value used, and the file's value if it differs.
function asked(figures) {
  return figures.used === figures.wanted ? figures.used : `${figures.used}, where the file says ${figures.wanted}`;
}

// Older results lack the result of a search.
function rateOf({ setup, search }) {
  if (setup.rate === "fixed") return `${setup.wantedRate} records/s`;
  if (!search) return setup.rate;
  const end = search.refused ? `${brief(search.refused)} was not` : "none above it was tried for as long";
  return `searched: ${brief(search.keptUp)} records/s kept up for ${search.periodS} s, ${end}`;
}

function setup(run) {
  const { setup, replication } = run;
  const settings = (all) => Object.entries(all).map(([key, value]) => `${key}=${value}`).join(" ");
  return facts([
    ["Topics, partitions in all", `${setup.topics}, ${setup.partitions}`],
    ["Producers, consumers", `${setup.producers}, ${setup.consumers}`],
    // Older results lack it.
    ["Members of groups with partitions", run.members && `${run.members.assigned} of ${run.members.members}`],
    ["Bytes of a value", setup.valueBytes],
    ["Rate", rateOf(run)],
    ["In flight, at most", setup.inFlight],
    ["Warm-up and measurement, s", `${number(setup.warmupS, 0)}, ${number(run.totals.testS, run.totals.testS < 10 ? 1 : 0)}`],
    ["Durability wanted", run.durability.asked],
    ["Log directories: partitions in each", run.logDirs.map((dir) => dir.partitions).join(", ")],
    ["Replicas", asked(replication)],
    ["In sync before an ack, at least", replication.minInSync && asked(replication.minInSync)],
    ["Shrunk to", run.scale === 1 ? "" : `${run.scale} of its sizes${run.shrunk && run.shrunk.floorApplied ? ", and no time below its least" : ""}`],
    ["Load from", run.workers > 1 ? `${run.workers} workers` : "one process"],
    ["Page cache before the run", run.pageCache.dropped ? "dropped" : `not dropped: ${run.pageCache.reason}`],
    ["Latency from", run.latencyFrom],
    ["Producer settings", settings(setup.producerSettings)],
    ["Consumer settings", settings(setup.consumerSettings)],
  ]);
}

// Setups of the last run of each series; one that several series share is shown once.
function setups(runs) {
  const told = [];
  for (const [name, run] of new Map(runs.map((run) => [run.series, run]))) {
    const facts = setup(run);
    const same = told.find((one) => one.facts.isEqualNode(facts));
    if (same) same.names.push(name);
    else told.push({ names: [name], facts });
  }
  const title = (one) => (told.length === 1 ? "What was run" : `What was run, ${one.names.join("; ")}`);
  return told.map((one) => element("details", {}, element("summary", {}, title(one)), one.facts));
}

// A note that all runs share is shown once, without a run's name.
function notesOf(runs) {
  const isShared = (note) => runs.length > 1 && runs.every((run) => run.notes.includes(note));
  const shared = [...new Set(runs[0].notes.filter(isShared))].map((note) => `all: ${note}`);
  return shared.concat(runs.flatMap((run) => run.notes.filter((note) => !isShared(note)).map((note) => `${run.label}: ${note}`)));
}

// Links to the environments of these runs.
function measuredWhere(runs) {
  const all = new Map(runs.map((run) => [environmentAnchor(run), measuredOn(run)]));
  const links = [...all].flatMap(([to, text], at) => [at > 0 ? " and " : "Measured on ", element("a", { href: `#${to}` }, text)]);
  return element("p", { class: "meaning" }, ...links);
}

function group(title, runs) {
  const section = element("section", { class: "group" }, element("h2", { id: anchor(title) }, title), measuredWhere(runs));
  const charts = [
    throughput(runs),
    latencies(runs, "publish", "Publish latency by percentile"),
    latencies(runs, "endToEnd", "End-to-end latency by percentile"),
    latencies(runs, "poll", "Latency of polls by percentile"),
    latencyOverTime(runs, "publish", "Publish latency over time"),
    latencyOverTime(runs, "endToEnd", "End-to-end latency over time"),
  ];
  // More columns than these leave no room for charts beside them.
  section.append(element("div", { class: runs.length > 3 ? "drawn" : "drawn beside" }, table(title, runs), element("div", { class: "charts" }, ...charts)));
  const notes = notesOf(runs);
  if (notes.length > 0) section.append(element("ul", { class: "notes" }, ...notes.map((note) => element("li", {}, note))));
  section.append(...setups(runs));
  for (const [name, text] of Object.entries(Object.assign({}, ...runs.map((run) => run.files)))) {
    section.append(element("details", {}, element("summary", {}, `File ${name}`), element("pre", {}, text)));
  }
  return section;
}

// Older results have one figure only.
function loopback(figures) {
  const unpaced = figures.unpaced_bytes_per_s;
  return megabytes(figures.bytes_per_s) + (unpaced ? `, ${megabytes(unpaced)} without pacing` : "");
}

function megabytes(bytesPerS) {
  return `${number(bytesPerS / 1e6, 0)} MB/s`;
}

// The machine of a measurement and its limit, in a line.
function measuredOn(run) {
  const { cpu_model: processor, cores, loopback: limit } = run.environment;
  const which = machines.length > 1 ? `${machineName(run)}: ` : "";
  return `${which}${processor || "unknown processor"}, ${cores} cores${limit ? `; loopback TCP ${loopback(limit)}` : ""}`;
}

function environmentFacts(runs) {
  const found = runs[0].environment;
  const named = (one) => `${one.name} at ${one.bootstrap}${one.software ? `, ${one.software}` : ""}`;
  const servers = new Set(runs.flatMap((run) => run.environment.servers.map(named)));
  const disk = found.disk;
  return facts([
    ["Runs", `${runs.length}, ${days(runs)}`],
    ["Processor", `${found.cpu_model || "unknown"}, ${found.cores} cores`],
    ["Memory", found.memory_bytes && `${number(found.memory_bytes / 2 ** 30, 1)} GiB`],
    ["Kernel", found.kernel],
    ["File system", found.file_system && `${found.file_system.kind} on ${found.file_system.source} (${found.file_system.options})`],
    ["Disk, sequential", disk && megabytes(disk.sequential_bytes_per_s)],
    // Older results lack it.
    ["Page cache, one writer", disk && disk.page_cache_bytes_per_s && megabytes(disk.page_cache_bytes_per_s)],
    ["Disk, 4 KiB write and sync", disk && `p50 ${time(disk.sync_4k.p50_us)}, p99 ${time(disk.sync_4k.p99_us)}, max ${time(disk.sync_4k.max_us)}`],
    ["Loopback TCP", found.loopback && loopback(found.loopback)],
    ["TCP congestion control", found.tcp_congestion_control],
    ["Load average before", found.load_average],
    ["vm.*", Object.entries(found.vm).map(([key, value]) => `${key}=${value}`).join(" ")],
    ["Transparent huge pages", found.transparent_hugepage],
    ["Client", found.client],
    [servers.size > 1 ? "Servers" : "Server", [...servers].join("; ")],
  ]);
}

function environment(runs) {
  const titles = [...new Set(runs.map((run) => run.title))];
  const links = titles.map((title) => element("li", {}, element("a", { href: `#${anchor(title)}` }, title)));
  const told = element("summary", {}, titles.length === 1 ? "Its workload" : `Its ${titles.length} workloads`);
  return element("section", { class: "measured" }, element("h3", { id: environmentAnchor(runs[0]) }, measuredOn(runs[0])),
    environmentFacts(runs), element("details", {}, told, element("ul", {}, ...links)));
}

// The environments of these runs: each measurement once.
function environments(runs) {
  const wanted = measurements.map((one) => runs.filter((run) => run.measurement === one)).filter((found) => found.length > 0);
  return [element("h2", {}, wanted.length > 1 ? "Environments" : "Environment"), ...wanted.map(environment)];
}

function days(runs) {
  const all = runs.map(day).sort();
  return all[0] === all[all.length - 1] ? `${all[0]} UTC` : `${all[0]} to ${all[all.length - 1]} UTC`;
}

function day(run) {
  return run.started.slice(0, 16).replace("T", " ");
}

// The driver of a file's run; suites have theirs in their titles.
function driver(run) {
  return (run.case && run.case.driver) || "";
}

// Runs of the same work stand side by side, those of the server that was measured first before the others, so that
// every ratio on the page is against the same server; repetitions are numbered.
results.sort((one, other) => (one.started < other.started ? -1 : 1));
for (const run of results) run.series = driver(run) === "" ? run.server : `${run.server}, ${driver(run)}`;
const series = [...new Set(results.map((run) => run.series))];
// A machine is identified by its description in the results. A measurement is everything that a command found out about
// it before its first run: the whole environment but the servers, of which each run has its own.
for (const run of results) {
  const { cpu_model: processor, cores, memory_bytes: memory, kernel } = run.environment;
  run.machine = JSON.stringify([processor, cores, memory, kernel]);
  run.measurement = JSON.stringify({ ...run.environment, servers: null });
}
const machines = [...new Set(results.map((run) => run.machine))];
const measurements = [...new Set(results.map((run) => run.measurement))];
function machineName(run) {
  return `machine ${machines.indexOf(run.machine) + 1}`;
}
// Properties that make runs of one title different work, neither repetitions of each other nor comparable: each with
// its wording for a title that has several.
function kinds(run) {
  const file = ([name, text]) => {
    const of = driver(run) !== "" && name !== run.suite ? `driver ${driver(run)}` : "the file";
    return [of, text, (texts) => `version ${texts.indexOf(text) + 1} of ${of}`];
  };
  const replicas = run.replication && run.replication.used;
  return [
    ["machine", run.machine, () => machineName(run)],
    ["scale", run.scale, () => `scale ${run.scale}`],
    ["workers", run.workers, () => (run.workers > 1 ? `${run.workers} workers` : "one process")],
    ["replicas", replicas, () => `replicas ${replicas}`],
    ...Object.entries(run.files || {}).map(file),
  ];
}
const varied = new Map();
const place = (run, kind) => JSON.stringify([run.title, kind]);
for (const run of results) {
  for (const [kind, value] of kinds(run)) varied.set(place(run, kind), new Set(varied.get(place(run, kind))).add(value));
}
// Computed for all runs before any title changes.
const suffixes = results.map((run) => {
  const several = kinds(run).map(([kind, , tell]) => [[...varied.get(place(run, kind))], tell]).filter(([values]) => values.length > 1);
  return several.length === 0 ? "" : ` (${several.map(([values, tell]) => tell(values)).join(", ")})`;
});
results.forEach((run, at) => {
  run.title += suffixes[at];
});
const groups = new Map();
for (const run of results) {
  if (!groups.has(run.title)) groups.set(run.title, []);
  groups.get(run.title).push(run);
}
for (const runs of groups.values()) {
  runs.sort((one, other) => series.indexOf(one.series) - series.indexOf(other.series));
  const repeated = new Set(runs.map((run) => run.series)).size < runs.length;
  const seen = {};
  for (const run of runs) {
    seen[run.series] = (seen[run.series] || 0) + 1;
    run.label = repeated ? `${run.series} #${seen[run.series]}` : run.series;
  }
}

function anchor(title) {
  return `workload-${[...groups.keys()].indexOf(title)}`;
}

function environmentAnchor(run) {
  return `environment-${measurements.indexOf(run.measurement)}`;
}

// The median of a figure over the repetitions of a run; of an even number, the mean of the two in the middle.
function middle(runs, figure) {
  const values = runs.map(figure).filter(known).sort((one, other) => one - other);
  if (values.length === 0) return undefined;
  const [low, high] = [values[Math.floor((values.length - 1) / 2)], values[Math.floor(values.length / 2)]];
  return low + (high - low) / 2;
}

// The most important figures of a run, shown if any run has them.
const OVERVIEW = [
  ["Published, records/s", (run) => (run.setup.producers > 0 ? run.totals.publishRate : undefined), brief, true],
  ["Read, records/s", (run) => (run.setup.consumers > 0 ? run.totals.consumeRate : undefined), brief, true],
  ["Backlog read, MB/s", (run) => run.backlog && drainRate(run) / 1e6, number, true],
  ["Publish p99 meanwhile", meanwhile, time, false],
  ["Publish p99", (run) => run.publish && run.publish.p99_us, time, false],
  ["End to end p99", (run) => run.endToEnd && run.endToEnd.p99_us, time, false],
].filter(([, figure]) => results.some((run) => figure(run) > 0));

function overview(wanted) {
  const named = element("tr", {}, element("th", { rowspan: "2" }, "Workload"));
  const head = element("tr", {});
  for (const [name] of OVERVIEW) {
    named.append(element("th", { scope: "colgroup", class: "first", colspan: String(2 * series.length - 1) }, name));
    series.forEach((one, at) => {
      head.append(element("th", { scope: "col", class: at === 0 ? "first" : "" }, one));
      if (at > 0) head.append(element("th", { scope: "col", class: "ratio" }, "ratio"));
    });
  }
  const rows = wanted.map(([title, runs]) => {
    const row = element("tr", {}, element("th", { scope: "row" }, element("a", { href: `#${anchor(title)}` }, title)));
    for (const [, figure, write, more] of OVERVIEW) {
      const values = series.map((one) => middle(runs.filter((run) => run.series === one), figure));
      values.forEach((value, at) => {
        row.append(element("td", { class: at === 0 ? "first" : "" }, known(value) ? write(value) : "–"));
        if (at > 0) row.append(element("td", { class: "ratio" }, ratio(values[0], value, more)));
      });
    }
    return row;
  });
  const meaning = series.length > 1 ? `ratio: how many times better ${series[0]} is; ` : "";
  return element("section", { class: "overview" },
    framed("All workloads", element("thead", {}, named, head), element("tbody", {}, ...rows)),
    element("p", { class: "meaning" }, `${meaning}of repetitions the median`));
}

const servers = [...new Set(results.map((run) => run.server))];
const places = machines.length > 1 ? `, on ${machines.length} machines` : "";
document.getElementById("summary").textContent =
  `${results.length} runs of ${groups.size} workloads on ${servers.join(", ")}${places}; ${days(results)}`;
const filter = document.getElementById("filter");
filter.append(element("option", { value: "" }, "all workloads"), ...[...groups.keys()].map((title) => element("option", { value: title }, title)));

function show() {
  const wanted = [...groups].filter(([title]) => filter.value === "" || title === filter.value);
  const parts = wanted.map(([title, runs]) => group(title, runs));
  if (wanted.length > 1) parts.unshift(overview(wanted));
  document.getElementById("runs").replaceChildren(...parts);
  document.getElementById("environment").replaceChildren(...environments(wanted.flatMap(([, runs]) => runs)));
}
filter.addEventListener("change", show);
show();
