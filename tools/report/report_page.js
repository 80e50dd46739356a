/* The page: reads the report's JSON (spillway-report(1)) and fills the places that report_page.html has for it. */
(() => {
	const data = JSON.parse(document.getElementById("data").textContent);
	const $ = id => document.getElementById(id);
	const PLACES = [["on_device", "on the device", "device"], ["driver", "driver", "driver"], ["managed", "managed", "managed"],
		["system", "system", "system"], ["on_peers", "on other GPUs", "peers"], ["alone", "on the host", "host"]];

	/* What is on other GPUs is in on_host, too. Older traces do not tell. */
	for (const {series, most} of data.devices) {
		const none = series.on_host.map(() => 0);
		series.on_peers ||= none;
		series.peer_bytes_in ||= none;
		series.peer_bytes_out ||= none;
		series.alone = series.on_host.map((n, i) => n - series.on_peers[i]);
		most.alone = most.on_host_alone ?? most.on_host;
	}
	const AWAY = data.devices.some(device => device.most.on_peers) ? "on the host or other GPUs" : "on the host";

	/* ---- text ---- */

	/* An element; text goes in as text and never as HTML. */
	function make(tag, className, text) {
		const element = document.createElement(tag);
		if (className)
			element.className = className;
		if (text !== undefined)
			element.textContent = text;
		return element;
	}

	function bytes(n) {
		const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
		let unit = 0;
		for (; n >= 1023.95 && unit < units.length - 1; unit++)
			n /= 1024;
		return (unit ? n.toFixed(n < 99.95 ? 1 : 0) : Math.round(n)) + " " + units[unit];
	}

	/* For axes: "8 GiB", not "8.0 GiB". */
	const axisBytes = n => bytes(n).replace(".0 ", " ");
	const count = n => Math.round(n).toLocaleString("en-US");

	function time(ns) {
		if (ns === 0)
			return "0 s";
		const s = ns / 1e9;
		if (s < 1e-3)
			return (s * 1e6).toFixed(1) + " µs";
		if (s < 1)
			return (s * 1e3).toFixed(s < .1 ? 1 : 0) + " ms";
		if (s < 120)
			return s.toFixed(s < 10 ? 2 : 1) + " s";
		const two = n => String(Math.floor(n)).padStart(2, "0");
		return s < 7200 ? Math.floor(s / 60) + " min " + two(s % 60) + " s" : Math.floor(s / 3600) + " h " + two(s / 60 % 60) + " min";
	}

	/* For the axis: "1:30" from two minutes on, whatever the run's length. */
	function clock(ns) {
		const s = ns / 1e9, two = n => String(Math.floor(n)).padStart(2, "0");
		if (data.run_ns < 120e9)
			return data.run_ns < 2e9 ? +(ns / 1e6).toPrecision(4) + " ms" : +s.toPrecision(4) + " s";
		return (s >= 3600 ? Math.floor(s / 3600) + ":" + two(s / 60 % 60) : Math.floor(s / 60)) + ":" + two(s % 60);
	}

	function share(part, whole) {
		if (!(whole > 0))
			return "n/a";
		const percent = part / whole * 100;
		return percent > 0 && percent < .1 ? "<0.1 %" : percent.toFixed(percent > 0 && percent < 9.95 ? 1 : 0) + " %";
	}

	/* ---- the answer ---- */

	function fillHead() {
		const process = data.process, parts = [];
		$("title").textContent = process.command || data.file.path;
		if (process.pid)
			parts.push("process " + process.pid + (process.host ? " on " + process.host : ""));
		parts.push(process.start, time(data.run_ns) + " recorded", data.file.ended ? "ended by itself" : "did not end by itself, or still ran");
		if (process.rank)
			parts.push("rank " + process.rank);
		$("subtitle").textContent = parts.join(" · ");
		document.title = "Spillway report: " + (process.command || data.file.path);
		const alert = text => $("alerts").append(make("p", "alert", text));
		if (data.file.lost_events)
			alert("Not complete: " + count(data.file.lost_events) + " events had no room and are missing.");
		if (data.file.cut)
			alert("Not complete: the end of the file is cut off, as a killed process leaves it.");
		if (data.file.damaged)
			alert("Not complete: the file is damaged, and what comes behind is not shown. " + data.file.problem);
	}

	/* How the run's time was spent: one bar. */
	function fillSplit() {
		const t = data.time, rest = Math.max(data.run_ns - data.lost_ns, 0);
		const known = t.waiting_ns + t.gaps_ns + t.suspended_ns;
		const scale = known > 0 ? data.lost_ns / known : 0; /* they overlap: the bar shows each in proportion */
		const parts = [["going on", rest, "device", rest], ["waiting for memory", t.waiting_ns * scale, "bad", t.waiting_ns],
			["GPU stopped", t.gaps_ns * scale, "gap", t.gaps_ns], ["suspended", t.suspended_ns * scale, "driver", t.suspended_ns]];
		if (!data.lost_ns)
			return;
		const bar = make("div", "split"), key = make("div", "key");
		for (const [name, width, colour, ns] of parts) {
			if (!ns)
				continue;
			const piece = make("span");
			piece.style.flex = width / data.run_ns + " 1 0";
			piece.style.background = "var(--" + colour + ")";
			piece.title = name + ": " + time(ns);
			bar.append(piece);
			const item = make("span"), dot = make("span", "dot");
			dot.style.background = "var(--" + colour + ")";
			item.append(dot, name + " ", make("b", "", time(ns)), " " + share(ns, data.run_ns));
			key.append(item);
		}
		$("budgetbar").append(bar, key);
	}

	function fillAnswer() {
		$("verdict").textContent = data.verdict;
		fillSplit();
		for (const cost of data.costs) {
			const card = make("div", "card"), big = make("div", "big", cost.ns === null ? "n/a" : time(cost.ns));
			if (cost.ns !== null)
				big.append(make("span", "share", share(cost.ns, data.run_ns) + " of the run"));
			card.append(big, make("div", "kind", cost.kind), make("div", "evidence", cost.evidence));
			if (cost.ns !== null) {
				const meter = make("div", "meter"), fill = make("span");
				fill.style.width = Math.min(cost.ns / (data.run_ns || 1), 1) * 100 + "%";
				meter.append(fill);
				card.append(meter);
			}
			$("costs").append(card);
		}
		data.advice.forEach((text, i) => {
			const line = make("p", "advice");
			line.append(make("b", "", i ? "Also: " : "Advice: "), text);
			$("advice").append(line);
		});
	}

	/* ---- charts over time ---- */

	/*
	 * A title and a legend whose values follow the pointer. items: [name, colour or null for a dashed line, value of the whole
	 * run while nobody points]
	 */
	function chartBox(title, items) {
		const box = make("div", "chart"), legend = make("span", "legend"), canvas = make("canvas");
		canvas.tabIndex = 0;
		canvas.setAttribute("role", "img");
		canvas.setAttribute("aria-label", title + " over time");
		const values = items.map(([name, colour]) => {
			const item = make("span"), mark = make("span", colour ? "dot" : "dash"), value = make("b");
			if (colour)
				mark.style.background = "var(--" + colour + ")";
			item.append(mark, name + " ", value);
			legend.append(item);
			return value;
		});
		box.append(make("h3", "", title), legend, canvas);
		$("charts").append(box);
		const whole = items.map(item => item[2] || "");
		return {canvas, say: list => values.forEach((value, i) => { value.textContent = (list || whole)[i]; })};
	}

	const binAt = (series, t) => Math.min(Math.floor(t / series.bin_ns), series.on_device.length - 1);

	/* Each bin from..to that is seen, as [index, left, right]. */
	function* bins(frame, series) {
		const last = Math.min(binAt(series, frame.to), series.on_device.length - 1);
		for (let i = Math.max(Math.floor(frame.from / series.bin_ns), 0); i <= last; i++)
			yield [i, Math.max(frame.x(i * series.bin_ns), frame.left), Math.min(frame.x((i + 1) * series.bin_ns), frame.right)];
	}

	/* Most of a value over the bins that are seen. */
	function mostOf(frame, series, value) {
		let most = 0;
		for (const [i] of bins(frame, series))
			most = Math.max(most, value(i));
		return most;
	}

	function bars(frame, series, colour, low, high) {
		const c = frame.context;
		c.fillStyle = charts.colour(colour);
		c.beginPath();
		for (const [i, left, right] of bins(frame, series)) {
			const a = low(i), b = high(i);
			if (a !== b)
				c.rect(left, Math.min(a, b), Math.max(right - left, .7) + .3, Math.abs(a - b));
		}
		c.fill();
	}

	function addPlaces(device) {
		const series = device.series, used = PLACES.filter(([key]) => series[key].some(v => v));
		const box = chartBox("Bytes by place", [...used.map(([key, name, colour]) =>
			[name, colour, "≤ " + bytes(device.most[key])]), ["device budget", null, device.budget ? bytes(device.budget) : "n/a"]]);
		const needs = i => used.reduce((sum, [key]) => sum + series[key][i], 0);
		charts.add({
			canvas: box.canvas, height: 230,
			draw(frame) {
				const most = Math.max(mostOf(frame, series, needs), mostOf(frame, series, i => series.budget[i])) * 1.06;
				const y = charts.axis(frame, most, axisBytes, true), c = frame.context;
				const below = new Float64Array(series.on_device.length);
				for (const [key, , colour] of used) {
					bars(frame, series, colour, i => y(below[i]), i => y(below[i] + series[key][i]));
					for (const [i] of bins(frame, series))
						below[i] += series[key][i];
				}
				c.strokeStyle = charts.colour("ink");
				c.lineWidth = 1.5;
				if (device.memory && device.memory <= most) {
					c.beginPath();
					c.moveTo(frame.left, y(device.memory));
					c.lineTo(frame.right, y(device.memory));
					c.stroke();
					c.fillStyle = charts.colour("ink");
					c.textAlign = "right";
					c.textBaseline = "bottom";
					c.fillText("memory of the device", frame.right - 4, y(device.memory) - 2);
				}
				c.setLineDash([6, 4]);
				c.beginPath();
				let before = 0;
				for (const [i, left, right] of bins(frame, series)) {
					const at = y(series.budget[i]);
					if (series.budget[i]) {
						if (before)
							c.lineTo(left, at);
						else
							c.moveTo(left, at);
						c.lineTo(right, at);
					}
					before = series.budget[i];
				}
				c.stroke();
				c.setLineDash([]);
			},
			say(t) {
				const i = t === null ? -1 : binAt(series, t);
				box.say(i < 0 ? null : [...used.map(([key]) => bytes(series[key][i])), series.budget[i] ? bytes(series.budget[i]) : "n/a"]);
			},
		});
	}

	/* What the program's allocator keeps. */
	function addAlive(device)
	{
		const series = device.series;
		const box = chartBox("Kept by the program's allocator", [
			[ "alive", "device", "≤ " + bytes(device.most.cache_alive) ],
			[ "dead: moves without a copy", "empty", "≤ " + bytes(device.most.cache_dead) ],
			[ "kept", null, "≤ " + bytes(device.most.cache) ]
		]);
		charts.add({
			canvas : box.canvas,
			height : 130,
			draw(frame) {
				const y = charts.axis(frame, mostOf(frame, series, i => series.cache[i]) * 1.06 || 1,
						      axisBytes, true);
				bars(frame, series, "driver", () => y(0), i => y(series.cache[i]));
				bars(frame, series, "empty", () => y(0),
				     i => y(series.cache_alive[i] + series.cache_dead[i]));
				bars(frame, series, "device", () => y(0), i => y(series.cache_alive[i]));
			},
			say(t) {
				const i = t === null ? -1 : binAt(series, t);
				box.say(
				    i < 0 ? null
					  : [ "cache_alive", "cache_dead", "cache" ].map(key => bytes(series[key][i])));
			},
		});
	}

	/* Two figures, one up and one down from the middle. */
	function addMoves(device) {
		const series = device.series, rate = n => n * 1e9 / series.bin_ns, text = n => (rate(n) / 1e9).toFixed(1) + " GB/s";
		const peers = device.peer_bytes_in || device.peer_bytes_out;
		const box = chartBox("Moved", [["to the device", "device", bytes(device.bytes_in)],
			[peers ? "from it" : "to the host", "host", bytes(device.bytes_out)],
			...peers ? [["of these from other GPUs", "peers", bytes(device.peer_bytes_in)], ["to other GPUs", "peers", bytes(device.peer_bytes_out)]] : []]);
		charts.add({
			canvas: box.canvas, height: 130,
			draw(frame) {
				const most = mostOf(frame, series, i => Math.max(rate(series.bytes_in[i]), rate(series.bytes_out[i]))) * 1.08 || 1e9;
				const y = charts.axis(frame, most, v => +(v / 1e9).toPrecision(3) + " GB/s", false, -most);
				bars(frame, series, "device", () => y(0), i => y(rate(series.bytes_in[i])));
				bars(frame, series, "host", () => y(0), i => y(-rate(series.bytes_out[i])));
				bars(frame, series, "peers", () => y(0), i => y(rate(series.peer_bytes_in[i])));
				bars(frame, series, "peers", () => y(0), i => y(-rate(series.peer_bytes_out[i])));
			},
			say(t) {
				const i = t === null ? -1 : binAt(series, t);
				const keys = ["bytes_in", "bytes_out", ...peers ? ["peer_bytes_in", "peer_bytes_out"] : []];
				box.say(i < 0 ? null : keys.map(key => text(series[key][i])));
			},
		});
	}

	function addLost(device) {
		const series = device.series, of = (row, i) => Math.min(row[i] / series.bin_ns, 1);
		const box = chartBox("Lost", [["waiting for memory", "bad", time(device.waiting_ns)], ["GPU stopped", "gap", time(device.gap_ns)]]);
		charts.add({
			canvas: box.canvas, height: 92,
			draw(frame) {
				const y = charts.axis(frame, 1, v => Math.round(v * 100) + " %", false);
				bars(frame, series, "bad", () => y(0), i => y(of(series.waiting_ns, i)));
				bars(frame, series, "gap", i => y(of(series.waiting_ns, i)), i => y(Math.min(of(series.waiting_ns, i) + of(series.gap_ns, i), 1)));
			},
			say(t) {
				const i = t === null ? -1 : binAt(series, t);
				box.say(i < 0 ? null : [share(of(series.waiting_ns, i), 1), share(of(series.gap_ns, i), 1)]);
			},
		});
	}

	function addFaults(device) {
		const series = device.series, rate = n => n * 1e9 / series.bin_ns;
		if (!device.faults) {
			const box = make("div", "chart");
			box.append(make("h3", "", "Page faults"), make("span", "dim", "n/a: the trace has no figures of them"));
			$("charts").append(box);
			return;
		}
		const box = chartBox("Page faults", [["by the GPU", "system", count(device.faults.gpu)], ["by the CPU", "driver", count(device.faults.cpu)]]);
		charts.add({
			canvas: box.canvas, height: 92,
			draw(frame) {
				const most = mostOf(frame, series, i => rate(series.faults_gpu[i] + series.faults_cpu[i])) * 1.08 || 1;
				const y = charts.axis(frame, most, v => (v >= 1000 ? +(v / 1000).toPrecision(3) + "k" : +v.toPrecision(3)) + "/s", false);
				bars(frame, series, "system", () => y(0), i => y(rate(series.faults_gpu[i])));
				bars(frame, series, "driver", i => y(rate(series.faults_gpu[i])), i => y(rate(series.faults_gpu[i] + series.faults_cpu[i])));
			},
			say(t) {
				const i = t === null ? -1 : binAt(series, t);
				box.say(i < 0 ? null : [count(rate(series.faults_gpu[i])) + "/s", count(rate(series.faults_cpu[i])) + "/s"]);
			},
		});
	}

	function addSteps(device) {
		const steps = data.steps.filter(step => step.device === device.device && step.ns !== null);
		if (steps.length < 3)
			return;
		const sorted = steps.map(step => step.ns).sort((a, b) => a - b);
		/* A few long ones must not press all others to the ground: they are drawn at the upper edge, hollow. */
		const most = Math.min(sorted[sorted.length - 1], sorted[Math.floor(sorted.length * .97)] * 1.4) * 1.05;
		const box = chartBox("Time of a step", [["step", "managed", time(device.step_time.median_ns) + " (" + time(device.step_time.least_ns) +
			" to " + time(device.step_time.most_ns) + ")"]]);
		charts.add({
			canvas: box.canvas, height: 110,
			draw(frame) {
				const y = charts.axis(frame, most, time, false), c = frame.context;
				c.fillStyle = c.strokeStyle = charts.colour("managed");
				c.lineWidth = 1;
				for (const step of steps) {
					if (step.time_ns < frame.from || step.time_ns > frame.to)
						continue;
					c.beginPath();
					c.arc(frame.x(step.time_ns), Math.max(y(step.ns), frame.top + 3), 2, 0, 7);
					if (step.ns > most)
						c.stroke();
					else
						c.fill();
				}
			},
			say(t) {
				const step = t === null ? null : steps.filter(s => s.time_ns <= t).pop();
				box.say(step ? [time(step.ns) + (t > step.time_ns + step.ns ? " (the last before)" : "")] : null);
			},
		});
	}

	/* ---- the map ---- */

	const cells = hex => Uint8Array.from({length: hex.length / 2}, (_, i) => parseInt(hex.substr(2 * i, 2), 16));

	function rgb(name) {
		const hex = charts.colour(name);
		return [1, 3, 5].map(i => parseInt(hex.substr(i, 2), 16));
	}

	function drawMap(map, used, host) {
		const image = make("canvas"), colours = {};
		image.width = map.columns;
		image.height = map.rows;
		const context = image.getContext("2d"), pixels = context.createImageData(map.columns, map.rows);
		for (const name of ["empty", "device", "host", "managed", "system", "driver"])
			colours[name] = rgb(name);
		for (let row = 0; row < map.rows; row++) {
			const at = map.backends[row], here = colours[at === "heap" || !colours[at] ? "device" : at];
			for (let column = 0; column < map.columns; column++) {
				const cell = row * map.columns + column, there = host[cell] / 255;
				const pixel = (map.rows - 1 - row) * map.columns + column; /* low addresses are below */
				/* A little that is allocated must be seen beside nothing. */
				const full = used[cell] ? .25 + .75 * used[cell] / 255 : 0;
				for (let i = 0; i < 3; i++) {
					const mixed = here[i] * (1 - there) + colours.host[i] * there;
					pixels.data[pixel * 4 + i] = colours.empty[i] * (1 - full) + mixed * full;
				}
				pixels.data[pixel * 4 + 3] = 255;
			}
		}
		context.putImageData(pixels, 0, 0);
		return image;
	}

	function addMap(device) {
		const map = device.map;
		if (!map)
			return;
		const used = cells(map.used), host = cells(map.host), height = Math.max(120, Math.min(map.rows * 3, 290)) + 30;
		const whole = map.rows * map.row_bytes, span = map.columns * map.column_ns;
		const box = chartBox("Where blocks were, by address", [["on the device", "device"], [AWAY, "host"],
			...["managed", "system", "driver"].filter(place => map.backends.includes(place)).map(place => [place, place]), ["not allocated", "empty"]]);
		let image, imageTheme;
		const note = make("span", "dim");
		box.canvas.before(note);
		charts.add({
			canvas: box.canvas, height, showTime: true, formatTime: clock,
			draw(frame) {
				const theme = charts.colour("page"), c = frame.context;
				if (imageTheme !== theme) {
					image = drawMap(map, used, host);
					imageTheme = theme;
				}
				charts.axis(frame, whole, axisBytes, true);
				c.imageSmoothingEnabled = false;
				const from = frame.from / span * map.columns, to = Math.min(frame.to / span, 1) * map.columns;
				c.drawImage(image, from, 0, Math.max(to - from, .001), map.rows, frame.left, frame.top,
					Math.min(frame.x(span), frame.right) - frame.left, frame.bottom - frame.top);
				this.place = y => Math.floor((frame.bottom - y) / (frame.bottom - frame.top) * map.rows);
			},
			say(t, y) {
				const row = t === null || y === null || !this.place ? -1 : this.place(y);
				note.textContent = "";
				if (row < 0 || row >= map.rows)
					return;
				const cell = row * map.columns + Math.min(Math.floor(t / map.column_ns), map.columns - 1);
				note.textContent = " at " + map.addresses[row] + " (" + map.backends[row] + "): " + (used[cell]
					? share(used[cell], 255) + " allocated, of it " + share(host[cell], 255) + " " + AWAY : "not allocated");
			},
		});
	}

	function showDevice(device) {
		$("charts").replaceChildren();
		charts.start(data.run_ns || 1, zoomed => { $("whole").hidden = !zoomed; });
		$("whole").hidden = true;
		addPlaces(device);
		if (device.series.cache)
			addAlive(device);
		if (device.moves_in || device.moves_out)
			addMoves(device);
		if (device.waits || device.gaps)
			addLost(device);
		addFaults(device);
		addSteps(device);
		addMap(device);
		if (!device.map)
			$("charts").append(make("p", "dim", "No block has a known address, so there is no map of where they were."));
		charts.paintAll();
	}

	/* Buttons of which one is chosen. */
	function tabs(place, names, choose) {
		const buttons = names.map((name, i) => {
			const button = make("button", "", name);
			button.type = "button";
			button.setAttribute("role", "tab");
			button.addEventListener("click", () => pick(i));
			place.append(button);
			return button;
		});
		const pick = i => {
			buttons.forEach((button, k) => button.setAttribute("aria-selected", String(k === i)));
			choose(i);
		};
		if (names.length)
			pick(0);
	}

	/* ---- tables ---- */

	const GROUP = [["name", "", null], ["allocations", "number", count], ["peak", "at most", bytes], ["on_host", "made " + AWAY, bytes],
		["bytes_in", "moved in", bytes], ["bytes_out", "moved out", bytes], ["moves_in", "times in", count], ["refetches", "back within 10 s", count],
		["submits", "submissions", count], ["refused", "refused", count], ["wait_ns", "waited", time]];
	const BLOCK = [["name", "allocation", null], ["bytes", "size", bytes], ["made_ns", "made at", clock], ["freed_ns", "freed at", clock],
		["bytes_in", "moved in", bytes], ["bytes_out", "moved out", bytes], ["submits", "submissions", count], ["wait_ns", "waited", time]];
	const gigabytes = n => n.toFixed(1) + " GB/s";
	const LINK = [["name", "link", null], ["bytes_in", "moved in", bytes], ["rate_in", "at", gigabytes], ["bytes_out", "moved out", bytes],
		["rate_out", "at", gigabytes], ["moves_in", "times in", count], ["moves_out", "times out", count]];
	const FUNCTION = [["name", "function", null], ["submits", "submissions", count], ["waits", "waits", count], ["wait_ns", "waited", time]];

	const blocks = () => data.largest.map(block => ({...block,
		name: "#" + block.id + " · " + block.rule + " · " + block.site + (block.backend === "heap" ? "" : " · " + block.backend)}));

	const links = () => data.links.map(link => ({...link, rate_in: link.in_ns ? link.bytes_in / link.in_ns : null,
		rate_out: link.out_ns ? link.bytes_out / link.out_ns : null,
		name: "device " + link.device + " and " + (link.lender === null ? "the host" : "device " + link.lender)}));

	const TABLES = [["Rule", GROUP, () => data.rules], ["Site", GROUP, () => data.sites], ["Size", GROUP, () => data.sizes],
		["Life", GROUP, () => data.lives], ["Moves", GROUP, () => data.move_counts], ["Costliest", BLOCK, blocks],
		["Kernels", FUNCTION, () => data.functions], ["Links", LINK, links]].filter(([, , rows]) => rows().length);
	let shown = {table: 0, key: null, down: true};

	function cell(row, [key, , format], most) {
		const value = row[key], td = make("td", value ? "" : "zero", format ? (value === null ? "–" : format(value)) : value);
		if (value && most && (key === "wait_ns" || key === "bytes_in" || key === "peak" || key === "bytes")) {
			td.classList.add("bar");
			const colour = key === "wait_ns" ? "bad" : key === "bytes_in" ? "device" : "driver";
			td.style.backgroundImage = `linear-gradient(var(--${colour}), var(--${colour}))`;
			td.style.backgroundSize = `calc(${value / most} * (100% - 20px)) 2px`;
		}
		return td;
	}

	function fillTable() {
		const [name, columns, rowsOf] = TABLES[shown.table], text = $("filter").value.toLowerCase();
		const table = make("table"), head = make("tr"), body = make("tbody");
		const rows = rowsOf().filter(row => row.name.toLowerCase().includes(text));
		const seen = columns.filter(([key]) => key === "name" || rowsOf().some(row => row[key]));
		if (shown.key)
			rows.sort((a, b) => (a[shown.key] > b[shown.key] ? 1 : a[shown.key] < b[shown.key] ? -1 : 0) * (shown.down ? -1 : 1));
		for (const [key, title] of seen) {
			const th = make("th"), button = make("button", "", (title || name) + (shown.key === key ? shown.down ? " ↓" : " ↑" : ""));
			button.type = "button";
			button.addEventListener("click", () => {
				shown.down = shown.key === key ? !shown.down : key !== "name";
				shown.key = key;
				fillTable();
			});
			if (shown.key === key)
				th.setAttribute("aria-sort", shown.down ? "descending" : "ascending");
			th.append(button);
			head.append(th);
		}
		const most = Object.fromEntries(seen.map(([key]) => [key, Math.max(0, ...rows.map(row => +row[key] || 0))]));
		for (const row of rows) {
			const tr = make("tr");
			seen.forEach(column => tr.append(cell(row, column, most[column[0]])));
			body.append(tr);
		}
		const thead = make("thead");
		thead.append(head);
		table.append(thead, body);
		$("table").replaceChildren(table);
		if (!rows.length)
			$("table").append(make("p", "dim", "None."));
	}

	function fillTables() {
		tabs($("tables"), TABLES.map(([name]) => name), i => {
			shown = {table: i, key: null, down: true};
			fillTable();
		});
		if (!TABLES.length)
			$("table").append(make("p", "dim", "The trace has no allocation."));
		$("filter").addEventListener("input", () => TABLES.length && fillTable());
		if (!data.idle_rules.length)
			return;
		const idle = make("div", "idle");
		idle.append(make("b", "", "Rules that never matched "));
		data.idle_rules.forEach(name => idle.append(make("span", "chip", name)));
		$("idle").append(idle);
	}

	/* ---- what if ---- */

	function drawCurve(canvas, points, runs, unit) {
		const frame = charts.frameOf(canvas, 250, true), c = frame.context;
		const most = Math.max(...points.map(p => p.value), ...runs.map(p => p.value)) * 1.1 || 1;
		const y = charts.axis(frame, most, axisBytes, true);
		const x = percent => frame.left + (100 - percent) / 60 * (frame.right - frame.left);
		c.strokeStyle = c.fillStyle = charts.colour("device");
		c.lineWidth = 2;
		c.beginPath();
		points.forEach((p, i) => i ? c.lineTo(x(p.percent), y(p.value)) : c.moveTo(x(p.percent), y(p.value)));
		c.stroke();
		points.forEach(p => { c.beginPath(); c.arc(x(p.percent), y(p.value), 3, 0, 7); c.fill(); });
		c.fillStyle = charts.colour("dim");
		c.textBaseline = "top";
		const every = [2, 4, 6, 12].find(n => (frame.right - frame.left) / (points.length / n) > 110) || 12;
		points.forEach((p, i) => {
			c.textAlign = i === 0 ? "left" : i === points.length - 1 ? "right" : "center";
			if (i % every === 0)
				c.fillText(p.percent + " % · " + axisBytes(p.budget), x(p.percent), frame.bottom + 7);
		});
		for (const run of runs) {
			const right = x(run.percent) > (frame.left + frame.right) / 2;
			c.fillStyle = charts.colour("bad");
			c.beginPath();
			c.arc(x(run.percent), y(run.value), 5, 0, 7);
			c.fill();
			c.textAlign = right ? "right" : "left";
			c.textBaseline = "middle";
			c.fillText("this run: " + bytes(run.value) + unit, x(run.percent) + (right ? -10 : 10), y(run.value));
		}
	}

	function fillCurve() {
		const curve = data.what_if;
		if (!curve)
			return;
		$("what-if").hidden = false;
		const each = curve.steps || 1, unit = curve.steps ? " a step" : "", canvas = make("canvas");
		$("what-if-text").textContent = "The least that has to come in" + unit + ", in bytes, if the device had less room: Belady's rule on whole allocations, over " +
			count(curve.submits) + " submissions. 100 % is " + bytes(curve.peak) + ", the most that was alive at once, as asked for.";
		const points = curve.points.map(p => ({percent: p.percent, budget: p.budget, value: p.bytes_in / each}));
		const steps = Math.max(0, ...data.devices.map(d => d.step_time ? d.step_time.n : 0));
		const device = data.devices.find(d => d.budget && d.bytes_in), runs = [];
		const percent = device ? device.budget / curve.peak * 100 : 0;
		if (data.devices.length === 1 && percent >= 40 && percent <= 100 && (steps || !curve.steps))
			runs.push({percent, value: device.bytes_in / (curve.steps ? steps : 1)});
		canvas.setAttribute("role", "img");
		canvas.setAttribute("aria-label", points.map(p => p.percent + " %: " + bytes(p.value) + unit).join(", "));
		$("curve").append(canvas);
		const draw = () => drawCurve(canvas, points, runs, unit);
		new ResizeObserver(draw).observe(canvas);
		redraw.push(draw);
	}
	const redraw = [];

	/* ---- the rest ---- */

	function fillMachine() {
		const process = data.process, file = data.file;
		const lines = [["command", process.command], ["process", process.pid], ["host", process.host], ["rank", process.rank],
			...data.devices.map(d => ["device " + d.device, [d.name, d.memory ? bytes(d.memory) + " of memory" : null].filter(Boolean).join(", ") || null]),
			["Spillway", process.spillway], ["policy", process.policy && process.policy + (process.policy_hash ? " (" + process.policy_hash + ")" : "")],
			["spill.mode", process.mode], ["began", process.start], ["trace", file.path + ", " + bytes(file.bytes) + ", " + count(file.events) + " events"]];
		for (const [name, value] of lines)
			$("machine").append(make("dt", "", name), make("dd", "", value || "n/a"));
	}

	function listenTheme() {
		const names = ["system", "light", "dark"];
		let now = 0;
		$("theme").addEventListener("click", () => {
			now = (now + 1) % names.length;
			$("theme").textContent = "Theme: " + names[now];
			if (now)
				document.documentElement.dataset.theme = names[now];
			else
				delete document.documentElement.dataset.theme;
			charts.paintAll();
			redraw.forEach(draw => draw());
		});
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw.forEach(draw => draw()));
	}

	fillHead();
	fillAnswer();
	if (data.devices.length > 1)
		tabs($("devices"), data.devices.map(d => "Device " + d.device), i => showDevice(data.devices[i]));
	else if (data.devices.length)
		showDevice(data.devices[0]);
	else
		$("over-time").hidden = true;
	$("whole").addEventListener("click", charts.whole);
	fillTables();
	fillCurve();
	fillMachine();
	listenTheme();
	/* Two frames on, everything has been drawn once. */
	requestAnimationFrame(() => requestAnimationFrame(() => { performance.mark("report-ready"); }));
})();
