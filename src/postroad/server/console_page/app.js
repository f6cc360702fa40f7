"use strict";
// The console: asks its broker every two seconds and draws what it says. Nothing is loaded from elsewhere, and whatever
// clients chose (logins, topics, selectors) is only ever put into the page as text.

const EVERY_MS = 2000;
const MOST_ROWS = 500;
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const state = { data: null, before: null, chosen: null, journey: null, places: new Map() };

// --- small helpers ---------------------------------------------------------------------------------------------------

function make(name, attributes = {}, ...children) {
  const found = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  found.append(...children);
  return found;
}

function draw(name, attributes = {}, text = null) {
  const found = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) found.setAttribute(key, value);
  if (text !== null) found.textContent = text;
  return found;
}

const count = (value) => value.toLocaleString("en-US", { maximumFractionDigits: value < 10 ? 1 : 0 });

function short(value) {
  if (value >= 1e6) return (value / 1e6).toFixed(1) + "M";
  if (value >= 1e4) return (value / 1e3).toFixed(0) + "k";
  return count(value);
}

function duration(ms) {
  return ms < 1000 ? ms.toFixed(0) + " ms" : (ms / 1000).toFixed(1) + " s";
}

// Clocks of messages have milliseconds: nothing smaller is known.
function within(ms) {
  return ms < 1 ? "under 1 ms" : "within " + duration(ms);
}

async function ask(path) {
  const token = sessionStorage.getItem("postroad-token");
  const headers = token ? { Authorization: "Bearer " + token } : {};
  const answer = await fetch(path, { headers, cache: "no-store" });
  if (answer.status === 401) throw Object.assign(new Error("token"), { token: true, wrong: Boolean(token) });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

// --- rates: differences of counts, which begin again when a broker is started again ---------------------------------------

function brokerBefore(number) {
  return state.before && state.before.brokers.find((each) => each.number === number);
}

function rate(broker, of) {
  const before = brokerBefore(broker.number);
  const seconds = before ? (broker.time - before.time) / 1000 : 0;
  const change = before ? of(broker) - of(before) : 0;
  return seconds > 0 && change >= 0 ? change / seconds : 0;
}

function linkRate(broker, neighbour) {
  const sent = (each) => {
    const link = each.links.find((one) => one.neighbour === neighbour);
    return link ? link.sent : 0;
  };
  return rate(broker, sent);
}

// --- the map -----------------------------------------------------------------------------------------------------------

function edges(data) {
  const found = new Map();
  for (const broker of data.brokers) {
    for (const link of broker.links) {
      const key = [broker.number, link.neighbour].sort((a, b) => a - b).join("-");
      const edge = found.get(key) || { ends: key.split("-").map(Number), up: true, crowded: false, known: false };
      edge.up = edge.up && link.up;
      edge.known = edge.known || link.up !== null;
      edge.crowded = edge.crowded || link.crowded;
      found.set(key, edge);
    }
  }
  for (const [one, other] of data.other_links) {
    const key = [one, other].sort((a, b) => a - b).join("-");
    if (!found.has(key)) found.set(key, { ends: [one, other], up: true, crowded: false, known: false });
  }
  return [...found.values()];
}

// Springs along links, repulsion between all: begun on a circle, so that the same network always looks the same.
function layout(numbers, links) {
  const key = numbers.join() + "|" + links.map((edge) => edge.ends.join("-")).join();
  if (state.places.key === key) return;
  const places = new Map(numbers.map((number, at) => {
    const angle = (2 * Math.PI * at) / numbers.length - Math.PI / 2;
    return [number, { x: Math.cos(angle), y: Math.sin(angle) }];
  }));
  for (let step = 0; step < 300 && numbers.length > 2; step++) {
    const heat = 0.06 * (1 - step / 300);
    const push = new Map(numbers.map((number) => [number, { x: 0, y: 0 }]));
    for (const a of numbers) for (const b of numbers) {
      if (a === b) continue;
      const one = places.get(a), other = places.get(b);
      const x = one.x - other.x, y = one.y - other.y, square = Math.max(0.01, x * x + y * y);
      push.get(a).x += (0.15 * x) / square;
      push.get(a).y += (0.15 * y) / square;
    }
    for (const edge of links) {
      const [a, b] = edge.ends, one = places.get(a), other = places.get(b);
      if (!one || !other) continue;
      const x = other.x - one.x, y = other.y - one.y, length = Math.hypot(x, y);
      push.get(a).x += 0.6 * x * length; push.get(a).y += 0.6 * y * length;
      push.get(b).x -= 0.6 * x * length; push.get(b).y -= 0.6 * y * length;
    }
    for (const number of numbers) {
      const { x, y } = push.get(number), size = Math.hypot(x, y) || 1;
      places.get(number).x += (x / size) * Math.min(size, heat);
      places.get(number).y += (y / size) * Math.min(size, heat);
    }
  }
  const xs = [...places.values()].map((at) => at.x), ys = [...places.values()].map((at) => at.y);
  const wide = Math.max(0.001, Math.max(...xs) - Math.min(...xs)), high = Math.max(0.001, Math.max(...ys) - Math.min(...ys));
  for (const at of places.values()) {
    at.x = numbers.length === 1 ? 300 : 60 + (480 * (at.x - Math.min(...xs))) / wide;
    at.y = numbers.length === 1 ? 210 : 62 + (288 * (at.y - Math.min(...ys))) / high;
  }
  state.places = places;
  state.places.key = key;
}

function shortened(from, to, margin) {
  const x = to.x - from.x, y = to.y - from.y, length = Math.hypot(x, y) || 1;
  return { x: to.x - (x / length) * margin, y: to.y - (y / length) * margin };
}

function showMap(data) {
  const links = edges(data);
  const numbers = [...new Set([...data.brokers.map((each) => each.number), ...links.flatMap((edge) => edge.ends)])];
  numbers.sort((a, b) => a - b);
  layout(numbers, links);
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.broker : null;
  const map = $("map");
  map.replaceChildren();
  const marker = draw("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 6, refY: 4, markerWidth: 4, markerHeight: 4, orient: "auto" });
  marker.append(draw("path", { d: "M0 0 L8 4 L0 8 z" }));
  map.append(marker);
  for (const edge of links) showLink(map, data, edge);
  if (state.journey) showWay(map, state.journey);
  for (const edge of links) showRate(map, data, edge);
  for (const number of numbers) showNode(map, data, number, awayFromLinks(number, links));
  if (focused) {
    const again = map.querySelector(`[data-broker="${CSS.escape(focused)}"]`);
    if (again) again.focus({ preventScroll: true });
  }
}

function showLink(map, data, edge) {
  const [a, b] = edge.ends, one = state.places.get(a), other = state.places.get(b);
  const kind = !edge.known ? "" : !edge.up ? "down" : edge.crowded ? "up crowded" : "up";
  const line = draw("line", { x1: one.x, y1: one.y, x2: other.x, y2: other.y, class: "link " + kind });
  line.style.strokeWidth = String(1.5 + Math.min(6, Math.log10(1 + edgeRate(data, edge))));
  line.append(draw("title", {}, `link ${a} and ${b}: ${kind.includes("down") ? "down" : edge.known ? "up" : "not known"}`));
  map.append(line);
}

function edgeRate(data, edge) {
  return edge.ends.reduce((sum, end, at) => {
    const broker = data.brokers.find((each) => each.number === end);
    return sum + (broker ? linkRate(broker, edge.ends[1 - at]) : 0);
  }, 0);
}

function showRate(map, data, edge) {
  if (!edge.known) return;
  const [one, other] = edge.ends.map((end) => state.places.get(end));
  const text = edge.up ? short(edgeRate(data, edge)) + "/s" : "down";
  map.append(draw("text", { x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 - 4, class: "rate" }, text));
}

// Where the words about a broker stand: above or below it, where its links leave more room beside them.
function awayFromLinks(number, links) {
  const at = state.places.get(number);
  const others = links.filter((edge) => edge.ends.includes(number)).map((edge) => state.places.get(edge.ends.find((end) => end !== number)));
  const room = (side) => Math.min(9, ...others.filter((other) => side * (other.y - at.y) > 0)
    .map((other) => Math.abs(other.x - at.x) / Math.abs(other.y - at.y)));
  return room(-1) > room(1) ? -31 : 31;
}

function showNode(map, data, number, below) {
  const at = state.places.get(number);
  const broker = data.brokers.find((each) => each.number === number);
  const condition = broker ? broker.condition : "unknown";
  const passed = state.journey && state.journey.stops.some((stop) => stop.broker === number);
  const words = broker && broker.counts ? `${count(broker.counts.sessions)} session${broker.counts.sessions === 1 ? "" : "s"}, ${short(rate(broker, (b) => b.counts.accepted))}/s in` : condition;
  const classes = ["node", condition, number === data.broker ? "me" : "", number === state.chosen ? "chosen" : "", passed ? "passed" : ""];
  const node = draw("g", { class: classes.join(" "), tabindex: 0, role: "button", "data-broker": number,
    "aria-label": `broker ${number}: ${condition}, ${words}`, "aria-pressed": String(number === state.chosen) });
  node.append(draw("circle", { cx: at.x, cy: at.y, r: 19 }), draw("text", { x: at.x, y: at.y }, String(number)));
  // A line each for sessions and messages: long lines would leave the map on a phone.
  const about = draw("text", { x: at.x, y: at.y + below, class: "about" });
  const lines = words.split(", ");
  lines.forEach((line, row) => about.append(
    draw("tspan", { x: at.x, dy: row ? "1.1em" : below < 0 ? `${-1.1 * (lines.length - 1)}em` : 0 }, line)));
  node.append(about);
  const choose = () => { state.chosen = state.chosen === number ? null : number; show(); };
  node.addEventListener("click", choose);
  node.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(); }
  });
  map.append(node);
}

function showWay(map, journey) {
  const line = (from, to, kind, words) => {
    const one = state.places.get(from), other = state.places.get(to);
    if (!one || !other) return;
    const begin = shortened(other, one, 22), end = shortened(one, other, 26);
    const way = draw("line", { x1: begin.x, y1: begin.y, x2: end.x, y2: end.y, class: "way " + kind, "marker-end": "url(#arrow)" });
    way.append(draw("title", {}, words));
    map.append(way);
  };
  for (const stop of journey.stops) if (stop.from) line(stop.from, stop.broker, "", "passed");
  for (const hop of journey.lost) line(hop.broker, hop.neighbour, "lost", "lost after this hop");
  for (const hop of journey.open || []) line(hop.broker, hop.neighbour, "open", "not known whether it came");
}

// --- figures, latency, topics --------------------------------------------------------------------------------------------

function showFigures(data) {
  const number = state.chosen === null ? data.broker : state.chosen;
  const broker = data.brokers.find((each) => each.number === number);
  $("figures-title").textContent = number === data.broker ? "This broker" : `Broker ${number}`;
  const figures = $("figures");
  figures.replaceChildren();
  $("troubles").textContent = broker && broker.troubles ? broker.troubles.join("\n") : "";
  if (!broker || !broker.counts) {
    figures.append(make("div", {}, make("dt", {}, "State"), make("dd", {}, broker ? broker.condition : "not asked")));
    return;
  }
  const counts = broker.counts;
  const shown = {
    "Messages in": short(rate(broker, (b) => b.counts.accepted)) + "/s",
    "Delivered": short(rate(broker, (b) => b.counts.delivered)) + "/s",
    "Sessions": count(counts.sessions), "Subscriptions": count(counts.subscriptions),
    "Waiting": count(counts.waiting), "Shed": count(counts.shed),
    "Memory held": (counts.held_bytes / 1048576).toFixed(1) + " MB", "Up for": uptime(broker.uptime_seconds),
  };
  for (const [name, value] of Object.entries(shown)) figures.append(make("div", {}, make("dt", {}, name), make("dd", {}, value)));
}

function uptime(seconds) {
  if (seconds < 120) return seconds.toFixed(0) + " s";
  if (seconds < 7200) return (seconds / 60).toFixed(0) + " min";
  return seconds < 172800 ? (seconds / 3600).toFixed(0) + " h" : (seconds / 86400).toFixed(0) + " d";
}

function showLatency(points) {
  const chart = $("latency");
  chart.replaceChildren();
  const known = points.filter((point) => point.messages > 0);
  if (!known.length) {
    $("latency-text").textContent = "no deliveries since somebody looks";
    return;
  }
  const last = known[known.length - 1];
  $("latency-text").textContent = `now: half ${within(last.p50)}, 90 % ${within(last.p90)}, 99 % ${within(last.p99)}`;
  const top = Math.max(...known.map((point) => point.p99), 1);
  const begin = points[0].time, wide = Math.max(1, points[points.length - 1].time - begin);
  for (const part of [0, 0.5, 1]) {
    const y = 125 - 110 * part;
    chart.append(draw("line", { x1: 46, x2: 475, y1: y, y2: y, class: "axis" }), draw("text", { x: 0, y: y + 4 }, duration(top * part)));
  }
  for (const name of ["p50", "p90", "p99"]) {
    const places = known.map((point) => `${(46 + (425 * (point.time - begin)) / wide).toFixed(1)},${(125 - (110 * point[name]) / top).toFixed(1)}`);
    if (places.length === 1) places.push(`475,${places[0].split(",")[1]}`);
    chart.append(draw("polyline", { points: places.join(" "), class: name }));
  }
  ["p50", "p90", "p99"].forEach((name, at) => {
    chart.append(draw("polyline", { points: `${50 + 70 * at},143 ${66 + 70 * at},143`, class: name }), draw("text", { x: 71 + 70 * at, y: 147 }, name));
  });
}

function showTopics(topics) {
  const list = $("topics");
  list.replaceChildren();
  for (const each of topics) list.append(make("li", {}, `${each.topic} `, make("span", { class: "small" }, `${Math.round(100 * each.share)} %`)));
  if (!topics.length) list.append(make("li", {}, "nothing was published since somebody looks"));
}

// --- tables ----------------------------------------------------------------------------------------------------------------

function row(cells, chosen) {
  const found = make("tr", chosen ? { class: "chosen" } : {});
  for (const cell of cells) {
    const number = typeof cell === "number";
    found.append(cell instanceof Node ? make("td", {}, cell) : make("td", { class: number ? "number" : "text" }, number ? count(cell) : cell));
  }
  return found;
}

function showBrokers(data) {
  const body = $("brokers").tBodies[0];
  body.replaceChildren();
  for (const broker of data.brokers) {
    const state_ = make("span", { class: "condition " + broker.condition }, broker.condition);
    const up = broker.links.filter((link) => link.up).length;
    const counts = broker.counts;
    const figures = counts ? [counts.sessions, counts.subscriptions, rate(broker, (b) => b.counts.accepted),
      rate(broker, (b) => b.counts.delivered + b.counts.relayed), counts.waiting, broker.version] : ["", "", "", "", "", ""];
    body.append(row([broker.number, state_, broker.counts ? `${up}\u00a0of\u00a0${broker.links.length}` : "", ...figures], broker.number === state.chosen));
  }
}

function showSessions(data) {
  const wanted = $("search").value.trim().toLowerCase(), waiting = $("only-waiting").checked;
  const body = $("sessions").tBodies[0];
  body.replaceChildren();
  let found = 0, all = 0;
  for (const broker of data.brokers) {
    if (state.chosen !== null && broker.number !== state.chosen) continue;
    for (const session of broker.sessions) {
      const subscriptions = session.subscriptions.length ? session.subscriptions : [null];
      for (const each of subscriptions) {
        all++;
        const text = [session.principal, session.address, session.protocol, each ? each.topic : "", each ? each.selector : ""].join(" ").toLowerCase();
        if (wanted && !text.includes(wanted)) continue;
        if (waiting && !(each && each.waiting)) continue;
        found++;
        if (found > MOST_ROWS) continue;
        const about = each ? [each.topic, each.selector, each.waiting, each.delivered, each.shed] : ["", "", "", "", ""];
        body.append(row([broker.number, session.number, session.principal, session.address, session.protocol, ...about]));
      }
    }
  }
  const left = data.brokers.reduce((sum, each) => sum + each.left_out, 0);
  $("found").textContent = `${found} of ${all}${found > MOST_ROWS ? `, the first ${MOST_ROWS} shown` : ""}` + (left ? `; ${left} more are not listed` : "");
}

// What waits longest comes first: that is what an operator looks for.
function showStored(data, table, kept, cells) {
  const wanted = $("search").value.trim().toLowerCase(), waiting = $("only-waiting").checked;
  const body = $(table).tBodies[0], found = [];
  body.replaceChildren();
  for (const broker of data.brokers) {
    if (state.chosen !== null && broker.number !== state.chosen) continue;
    for (const each of broker[kept]) {
      const texts = cells(each), text = texts.filter((cell) => typeof cell === "string").join(" ").toLowerCase();
      if ((wanted && !text.includes(wanted)) || (waiting && !each.waiting_messages_now)) continue;
      found.push({ each, cells: [broker.number, ...texts] });
    }
  }
  found.sort((one, other) => other.each.waiting_messages_now - one.each.waiting_messages_now);
  for (const one of found.slice(0, MOST_ROWS)) body.append(row(one.cells));
  $(table).hidden = !found.length;
  $("no-" + table).hidden = Boolean(found.length);
}

function showQueues(data) {
  showStored(data, "queues", "queues", (each) => [each.name, each.waiting_messages_now, each.in_flight_messages_now,
    each.delayed_messages_now, each.consumers_now, each.oldest_ms_now ? duration(each.oldest_ms_now) : "", each.dead_lettered, each.shed]);
  showStored(data, "durables", "durables", (each) => [each.client, each.name, each.topic, each.selector,
    each.stopped ? "stopped at its limit" : each.session_now === null ? "away" : `session ${each.session_now}`,
    each.waiting_messages_now, each.unacknowledged_now, each.oldest_ms_now ? duration(each.oldest_ms_now) : "", each.shed]);
}

// --- a message's way --------------------------------------------------------------------------------------------------------

const OPEN = ["recorded in part", "not recorded", "unanswered"];

function certainty(journey) {
  if (OPEN.includes(journey.verdict)) return "";
  const wrong = 1 - journey.certainty;
  return wrong > 0 ? `, wrong with probability ${wrong.toExponential(1)}` : ", certain";
}

function instant(milliseconds) {
  return new Date(milliseconds).toISOString().replace("T", " ").replace("Z", " UTC");
}

// Beyond every time that an id can have: such a gap has not ended yet.
const END_OF_TIME = 2 ** 48;

function span(gap) {
  return gap.until >= END_OF_TIME ? `since ${instant(gap.since)}` : `between ${instant(gap.since)} and ${instant(gap.until)}`;
}

function subscriptionText(one) {
  const wanted = one.selector ? ` where ${one.selector}` : "";
  return one.topic ? `subscription ${one.subscription} (${one.name ? one.name + ", " : ""}${one.topic}${wanted})` : `subscription ${one.subscription}`;
}

function showJourney(journey) {
  const place = $("journey");
  place.replaceChildren();
  $("trace-clear").hidden = !journey;
  if (!journey) return;
  place.append(make("p", {}, make("span", { class: "verdict" }, journey.verdict), certainty(journey)));
  const list = make("ul");
  const origin = journey.origin;
  // An id that nobody has on record tells what it was made of, and not that anybody published it.
  const known = journey.stops.length > 0;
  const publisher = `publisher ${origin.publisher}${known && origin.name ? ` (${origin.name})` : ""}`;
  list.append(make("li", {}, `${known ? "published by" : "the id itself names"} ${publisher} at broker ${origin.broker}, ${instant(origin.time)}`));
  for (const stop of journey.stops) {
    const item = make("li", {}, `broker ${stop.broker}${stop.from ? `, from broker ${stop.from}` : ""}${stop.recorded ? "" : " (by the records of its neighbours)"}`);
    const inner = make("ul");
    for (const one of stop.delivered) inner.append(make("li", {}, `${subscriptionText(one)}: ${one.acknowledged ? "acknowledged" : one.refused ? "refused" : "delivered"}`));
    for (const one of stop.waiting) inner.append(make("li", {}, `${subscriptionText(one)}: waits in its queue`));
    for (const drop of stop.dropped) inner.append(make("li", {}, `${drop.subscription ? `subscription ${drop.subscription}` : drop.link > 0 ? `broker ${drop.link}` : "other brokers"}: ${drop.reason}`));
    if (inner.children.length) item.append(inner);
    list.append(item);
  }
  for (const hop of journey.lost) list.append(make("li", {}, `broker ${hop.neighbour} never had it: lost after broker ${hop.broker}`));
  for (const hop of journey.open || []) list.append(make("li", {}, `handed to broker ${hop.neighbour}; whether it came is not known (${hop.reason})`));
  for (const hop of journey.pruned || []) list.append(make("li", {}, `left out: broker ${hop.neighbour} (${hop.reason})`));
  for (const gap of journey.gaps) list.append(make("li", {}, `broker ${gap.broker}: not recorded ${span(gap)} (${gap.reason})${gap.hides ? `; may hide ${gap.hides}` : ""}`));
  for (const broker of journey.silent) list.append(make("li", {}, `broker ${broker} did not answer; what it knows is missing here`));
  place.append(list);
}

async function trace(text) {
  $("journey").replaceChildren(make("p", {}, "asking the brokers"));
  try {
    let id = text;
    if (!/^[0-9a-f]{8}-[0-9a-f]{8}-[0-9a-f]{12}-[0-9a-f]{4}$/i.test(text)) {
      const found = await ask("aliases/" + encodeURIComponent(text));
      if (!found.ids.length) throw new Error(`no message has this id or alias${found.may_hide.length ? ", as far as the record goes" : ""}`);
      id = found.ids[0];
    }
    state.journey = await ask("trace/" + encodeURIComponent(id));
    showJourney(state.journey);
    show();
  } catch (error) {
    state.journey = null;
    $("journey").replaceChildren(make("p", { role: "alert" }, error.message));
    $("trace-clear").hidden = false;
  }
}

// --- the page ---------------------------------------------------------------------------------------------------------------

function show() {
  const data = state.data;
  if (!data) return;
  $("network").textContent = data.network ? `${data.network}, ${data.strategy}` : `broker ${data.broker}`;
  document.title = `Postroad ${data.network || "broker " + data.broker}`;
  showMap(data);
  showFigures(data);
  showLatency(data.latency);
  showTopics(data.topics);
  showBrokers(data);
  showTables(data);
}

function showTables(data) {
  showQueues(data);
  showSessions(data);
}

async function look() {
  try {
    const data = await ask("console/data");
    state.before = state.data;
    state.data = data;
    $("login").hidden = true;
    $("main").hidden = false;
    const well = data.brokers.filter((each) => each.condition === "ready").length;
    $("state").textContent = `${well} of ${data.brokers.length} broker${data.brokers.length === 1 ? "" : "s"} ready, seen ${new Date(data.time).toLocaleTimeString()}`;
    show();
  } catch (error) {
    if (error.token) {
      $("login").hidden = false;
      $("main").hidden = true;
      $("login-error").textContent = error.wrong ? "This token is not the right one." : "";
      $("state").textContent = "locked";
      return;
    }
    $("state").textContent = `broker does not answer (${error.message}); trying again`;
  }
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme
    ? document.documentElement.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("postroad-theme", document.documentElement.dataset.theme);
}

function clearTrace() {
  state.journey = null;
  $("trace").value = "";
  showJourney(null);
  show();
}

$("theme").addEventListener("click", toggleTheme);
$("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("postroad-token", $("token").value);
  $("token").value = "";
  look();
});
$("trace-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("trace").value.trim();
  if (text) trace(text);
});
$("trace-clear").addEventListener("click", clearTrace);
$("search").addEventListener("input", () => state.data && showTables(state.data));
$("only-waiting").addEventListener("change", () => state.data && showTables(state.data));
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    state.chosen = null;
    clearTrace();
  }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const keys = { t: () => $("trace").focus(), "/": () => $("search").focus(), d: toggleTheme };
  const action = keys[event.key.toLowerCase()];
  if (action) { event.preventDefault(); action(); }
});
const theme = localStorage.getItem("postroad-theme");
if (theme) document.documentElement.dataset.theme = theme;
look();
setInterval(() => { if (!document.hidden && $("login").hidden) look(); }, EVERY_MS);
