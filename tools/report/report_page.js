// SPDX-License-Identifier: Apache-2.0
/*
 * The page: reads the report's JSON (spillway-report(1)) of one run or of two, and fills a copy of the template of
 * report_page.html with each.
 */
(() => {
	const PLACES = [["on_device", "on the device", "device"], ["driver", "driver", "driver"], ["managed", "managed", "managed"],
		["system", "system", "system"], ["on_peers", "on other GPUs", "peers"], ["alone", "on the host", "host"]];

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

	function share(part, whole) {
		if (!(whole > 0))
			return "n/a";
		const percent = part / whole * 100;
		return percent > 0 && percent < .1 ? "<0.1 %" : percent.toFixed(percent > 0 && percent < 9.95 ? 1 : 0) + " %";
	}

	/* A dot of a colour, or of two in stripes. */
	function dot(colour, other) {
		const element = make("span", "dot");
		element.style.background = other ? `repeating-linear-gradient(45deg, var(--${colour}) 0 3px, var(--${other}) 3px 6px)` : "var(--" + colour + ")";
		return element;
	}

	const redraw = [];

	/* runs: all that are on the page, in the order in which they are shown. */
	function showRun(data, root, runs) {
		const $ = part => root.querySelector('[data-part="' + part + '"]');
		const charts = makeCharts();

		const AWAY = data.devices.some(device => device.most.on_peers) ? "on the host or other GPUs" : "on the host";

		/* For the axis: "1:30" from two minutes on, whatever the run's length. */
		function clock(ns) {
			const longest = Math.max(...runs.map(run => run.run_ns)), s = ns / 1e9, two = n => String(Math.floor(n)).padStart(2, "0");
			if (longest < 120e9)
				return longest < 2e9 ? +(ns / 1e6).toPrecision(4) + " ms" : +s.toPrecision(4) + " s";
			return (s >= 3600 ? Math.floor(s / 3600) + ":" + two(s / 60 % 60) : Math.floor(s / 60)) + ":" + two(s % 60);
		}

		/* ---- the answer ---- */

		function fillHead() {
			const process = data.process, parts = [];
			$("title").textContent = (runs.length > 1 ? data.file.path + ": " : "") + (process.command || data.file.path);
			if (process.pid)
				parts.push("process " + process.pid + (process.host ? " on " + process.host : ""));
			parts.push(process.start, time(data.run_ns) + " recorded", data.file.ended ? "ended by itself" : "did not end by itself, or still ran");
			if (process.rank)
				parts.push("rank " + process.rank);
			$("subtitle").textContent = parts.join(" · ");
			const alert = text => $("alerts").append(make("p", "alert", text));
			if (data.file.lost_events)
				alert("Not complete: " + count(data.file.lost_events) + " events had no room and are missing.");
			if (data.file.cut)
				alert("Not complete: the end of the file is cut off, as a killed process leaves it.");
			if (data.file.damaged)
				alert("Not complete: the file is damaged, and what comes behind is not shown. " + data.file.problem);
		}

		/* How the run's time was spent: parts that do not overlap and together are the run. */
		function fillSplit() {
			const t = data.time, both = t.both_ns, either = t.waiting_ns + t.gaps_ns - both;
			const parts = [["going on", Math.max(data.run_ns - data.lost_ns, 0), "device"], ["waiting for memory", t.waiting_ns - both, "bad"],
				["waiting, GPU stopped", both, "bad", "gap"], ["GPU stopped", t.gaps_ns - both, "gap"],
				["only suspended", Math.max(data.lost_ns - either, 0), "driver"]];
			if (!data.lost_ns)
				return;
			const bar = make("div", "split"), key = make("div", "key");
			for (const [name, ns, colour, other] of parts) {
				if (!ns)
					continue;
				const piece = make("span"), item = make("span");
				piece.style.flex = ns / data.run_ns + " 1 0";
				piece.style.background = other ? `repeating-linear-gradient(45deg, var(--${colour}) 0 6px, var(--${other}) 6px 12px)` : "var(--" + colour + ")";
				piece.title = name + ": " + time(ns);
				piece.dataset.ns = ns;
				bar.append(piece);
				item.append(dot(colour, other), name + " ", make("b", "", time(ns)), " " + share(ns, data.run_ns));
				key.append(item);
			}
			$("split").append(bar, key);
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

		/* ---- what costs most, by line ---- */

		/* Sums of the devices, as the charts show them. */
		const ofDevices = key => data.devices.reduce((sum, device) => sum + device[key], 0);

		/* [name, what it is, colour, format, of a site, of all, of no allocation] */
		const MEASURES = [
			["Waited", "Time that submissions waited for memory, summed over threads", "bad", time, site => site.wait_ns, () => ofDevices("wait_ns"), rest => rest.wait_ns],
			["Moved", "Bytes that went to the device and from it", "device", bytes, site => site.bytes_in + site.bytes_out,
				() => ofDevices("bytes_in") + ofDevices("bytes_out"), rest => rest.bytes_in + rest.bytes_out],
			["Spilled", "Bytes that were placed " + AWAY + " when they were allocated, and bytes that left the device later, each time", "host", bytes,
				site => site.on_host + site.bytes_out, () => data.total.on_host + ofDevices("bytes_out"), rest => rest.bytes_out],
			["Allocated", "Bytes alive at their most, of each line by itself", "managed", bytes, site => site.peak, null, null],
			["Brought back", "Bytes of managed memory that the CPU brought back after a GPU had used them", "system", bytes, site => site.managed_back, null, null],
		];

		function fillFlame() {
			const seen = MEASURES.filter(([, , , , of, all]) => data.calls.some(of) || (all && all()));
			if (!seen.length) {
				$("lines").hidden = true;
				return;
			}
			tabs($("measures"), seen.map(([name]) => name), i => {
				const [name, what, colour, format, of, all, rest] = seen[i];
				const rows = data.calls.map(site => [flame.chain(site.name, site.callers), of(site)]);
				const listed = rows.reduce((sum, [, value]) => sum + value, 0), none = rest ? rest(data.rest) : 0;
				if (none)
					rows.push([["(of no allocation)"], none]);
				if (all && all() - listed - none > 0)
					rows.push([["(other lines)"], all() - listed - none]);
				const root = flame.tree(name + ": all", rows.filter(([, value]) => value > 0));
				const paint = node => {
					flame.draw($("flame"), node, colour, format, share, other => paint(other === node ? root : other));
					$("flame-whole").hidden = node === root;
				};
				const known = data.calls.some(site => site.callers && of(site)), unknown = data.calls.some(site => !site.callers && of(site));
				$("flame-text").textContent = what + ", by " + [...known ? ["the lines of the program that asked for the memory, on those that called them"] : [],
					...unknown ? [known ? "by file and function where callers are not known" : "the file, function and line that asked for the memory (its callers are not known)"] : []].join("; ") +
					". Click on a box to look closer.";
				$("flame").dataset.total = root.value;
				$("flame-whole").onclick = () => paint(root);
				paint(root);
			}, Math.max(seen.findIndex(([, , , , of]) => data.calls.some(of)), 0));
		}

		/* ---- charts over time ---- */

		/*
		 * A title and a legend whose values follow the pointer. items: [name, colour ("bad+gap": stripes of two) or null for a
		 * dashed line, value of the whole run while nobody points]
		 */
		function chartBox(title, items) {
			const box = make("div", "chart"), legend = make("span", "legend"), canvas = make("canvas");
			canvas.tabIndex = 0;
			canvas.setAttribute("role", "img");
			canvas.setAttribute("aria-label", title + " over time");
			const values = items.map(([name, colour]) => {
				const item = make("span"), mark = colour ? dot(...colour.split("+")) : make("span", "dash"), value = make("b");
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

		/* Most of a value(series, i) over the bins that are seen; of two runs, over all bins of both, so that their axes are the same. */
		function mostOf(frame, device, value) {
			let most = 0;
			if (runs.length === 1)
				for (const [i] of bins(frame, device.series))
					most = Math.max(most, value(device.series, i));
			for (const run of runs.length > 1 ? runs : [])
				for (const {device: number, series} of run.devices)
					for (let i = 0; number === device.device && i < series.on_device.length; i++)
						most = Math.max(most, value(series, i));
			frame.context.canvas.dataset.most = most;
			return most * 1.03;
		}

		/* Stripes of two colours, to fill with. */
		function stripes(c, one, other) {
			const tile = make("canvas"), size = 6;
			tile.width = tile.height = size;
			const t = tile.getContext("2d");
			t.fillStyle = charts.colour(one);
			t.fillRect(0, 0, size, size);
			t.strokeStyle = charts.colour(other);
			t.lineWidth = 2.2;
			t.beginPath();
			for (const at of [-size, 0, size]) {
				t.moveTo(at, size);
				t.lineTo(at + size, 0);
			}
			t.stroke();
			return c.createPattern(tile, "repeat");
		}

		function bars(frame, series, colour, low, high) {
			const c = frame.context;
			const [one, other] = colour.split("+");
			c.fillStyle = other ? stripes(c, one, other) : charts.colour(one);
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
			const needs = (of, i) => PLACES.reduce((sum, [key]) => sum + of[key][i], 0);
			/* Samples show more than the allocations have: pieces on their way are at both ends. */
			if (used.length && series.on_device.some((_, i) => needs(series, i) > device.most.together * 1.02))
				$("charts").append(make("p", "dim hint", "Pieces on their way count at both ends, and so does memory that is kept ready, " +
					"so that the sum may be more than the " + bytes(device.most.together) + " that were alive at once."));
			charts.add({
				canvas: box.canvas, height: 246, showTime: true, formatTime: clock,
				draw(frame) {
					const most = mostOf(frame, device, (of, i) => Math.max(needs(of, i), of.budget[i]));
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
						c.strokeStyle = charts.colour("card");
						c.textAlign = "right";
						c.textBaseline = "bottom";
						c.lineWidth = 4;
						c.strokeText("memory of the device", frame.right - 4, y(device.memory) - 3);
						c.fillText("memory of the device", frame.right - 4, y(device.memory) - 3);
						c.strokeStyle = charts.colour("ink");
						c.lineWidth = 1.5;
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
		function addAlive(device) {
			const series = device.series, keys = ["cache_alive", "cache_dead", "cache"];
			const box = chartBox("Kept by the program's allocator", [["alive", "device", "≤ " + bytes(device.most.cache_alive)],
				["dead: moves without a copy", "empty", "≤ " + bytes(device.most.cache_dead)], ["kept", "driver", "≤ " + bytes(device.most.cache)]]);
			charts.add({
				canvas: box.canvas, height: 130, showTime: true, formatTime: clock,
				draw(frame) {
					const y = charts.axis(frame, mostOf(frame, device, (of, i) => of.cache[i]) || 1, axisBytes, true);
					bars(frame, series, "driver", () => y(0), i => y(series.cache[i]));
					bars(frame, series, "empty", () => y(0), i => y(series.cache_alive[i] + series.cache_dead[i]));
					bars(frame, series, "device", () => y(0), i => y(series.cache_alive[i]));
				},
				say(t) {
					const i = t === null ? -1 : binAt(series, t);
					box.say(i < 0 ? null : keys.map(key => bytes(series[key][i])));
				},
			});
		}

		/* Two figures, one up and one down from the middle. */
		function addMoves(device) {
			const series = device.series, rate = (n, of = series) => n * 1e9 / of.bin_ns, text = n => (rate(n) / 1e9).toFixed(1) + " GB/s";
			const peers = device.peer_bytes_in || device.peer_bytes_out;
			const box = chartBox("Moved", [["to the device", "device", bytes(device.bytes_in)],
				[peers ? "from it" : "to the host", "host", bytes(device.bytes_out)],
				...peers ? [["of these from other GPUs", "peers", bytes(device.peer_bytes_in)], ["to other GPUs", "peers", bytes(device.peer_bytes_out)]] : []]);
			charts.add({
				canvas: box.canvas, height: 160, showTime: true, formatTime: clock,
				draw(frame) {
					const most = mostOf(frame, device, (of, i) => Math.max(rate(of.bytes_in[i], of), rate(of.bytes_out[i], of))) || 1e9;
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

		/* Waiting alone, waiting while the GPU was stopped, and stopped alone: they stand on each other and do not overlap. */
		function addLost(device) {
			const series = device.series, part = (ns, of = series) => Math.min(ns / of.bin_ns, 1);
			const gap = i => Math.min(series.gap_ns[i], series.lost_ns[i]), alone = i => series.lost_ns[i] - gap(i);
			const both = i => Math.max(series.waiting_ns[i] + gap(i) - series.lost_ns[i], 0);
			const all = device.waiting_ns + device.gap_ns - device.lost_ns;
			const box = chartBox("Lost", [["waiting for memory", "bad", time(device.waiting_ns - all)], ["waiting, GPU stopped", "bad+gap", time(all)],
				["GPU stopped", "gap", time(device.gap_ns - all)]]);
			charts.add({
				canvas: box.canvas, height: 108, showTime: true, formatTime: clock,
				draw(frame) {
					const most = Math.min(mostOf(frame, device, (of, i) => part(of.lost_ns[i], of)) || 1, 1);
					const y = charts.axis(frame, most, v => +(v * 100).toPrecision(3) + " %", false);
					bars(frame, series, "bad", () => y(0), i => y(part(alone(i))));
					bars(frame, series, "bad+gap", i => y(part(alone(i))), i => y(part(alone(i) + both(i))));
					bars(frame, series, "gap", i => y(part(alone(i) + both(i))), i => y(part(series.lost_ns[i])));
				},
				say(t) {
					const i = t === null ? -1 : binAt(series, t);
					box.say(i < 0 ? null : [alone(i), both(i), gap(i) - both(i)].map(ns => share(part(ns), 1)));
				},
			});
		}

		function addFaults(device) {
			const series = device.series, rate = (n, of = series) => n * 1e9 / of.bin_ns;
			if (!device.faults) {
				const box = make("div", "chart");
				box.append(make("h3", "", "Page faults"), make("span", "dim", "n/a: the trace has no figures of them"));
				$("charts").append(box);
				return;
			}
			const box = chartBox("Page faults", [["by the GPU", "system", count(device.faults.gpu)], ["by the CPU", "driver", count(device.faults.cpu)]]);
			charts.add({
				canvas: box.canvas, height: 108, showTime: true, formatTime: clock,
				draw(frame) {
					const most = mostOf(frame, device, (of, i) => rate(of.faults_gpu[i] + of.faults_cpu[i], of)) || 1;
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
			const stepsOf = run => run.steps.filter(step => step.device === device.device && step.ns !== null), steps = stepsOf(data);
			if (steps.length < 3)
				return;
			/* A few long ones must not press all others to the ground: they are drawn at the upper edge, hollow. */
			const most = Math.max(...runs.map(run => {
				const sorted = stepsOf(run).map(step => step.ns).sort((a, b) => a - b);
				return sorted.length < 3 ? 0 : Math.min(sorted[sorted.length - 1], sorted[Math.floor(sorted.length * .97)] * 1.4) * 1.05;
			}));
			const n = steps.filter(step => step.ns > most).length;
			const box = chartBox("Time of a step", [["step", "managed", time(device.step_time.median_ns) + " (" + time(device.step_time.least_ns) +
				" to " + time(device.step_time.most_ns) + ")" + (n ? "; hollow: " + n + " longer than the axis" : "")]]);
			charts.add({
				canvas: box.canvas, height: 126, showTime: true, formatTime: clock,
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

		function showDevice(device) {
			$("charts").replaceChildren();
			charts.start(Math.max(...runs.map(run => run.run_ns)) || 1, zoomed => { $("whole").hidden = !zoomed; });
			$("whole").hidden = true;
			addPlaces(device);
			if (device.most.cache)
				addAlive(device);
			if (device.moves_in || device.moves_out)
				addMoves(device);
			if (device.waits || device.gaps)
				addLost(device);
			addFaults(device);
			addSteps(device);
			charts.paintAll();
		}

		/* Buttons of which one is chosen. */
		function tabs(place, names, choose, first = 0) {
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
				pick(first);
		}

		/* ---- tables ---- */

		/* What costs most stands first, where a narrow window shows it. */
		const GROUP = [["name", "", null], ["wait_ns", "waited", time], ["bytes_in", "moved in", bytes], ["bytes_out", "moved out", bytes],
			["refused", "refused", count], ["peak", "at most", bytes], ["on_host", "made " + AWAY, bytes], ["allocations", "number", count],
			["moves_in", "times in", count], ["refetches", "back within 10 s", count], ["submits", "submits", count]];
		const BLOCK = [["name", "allocation", null], ["wait_ns", "waited", time], ["bytes_in", "moved in", bytes], ["bytes_out", "moved out", bytes],
			["bytes", "size", bytes], ["made_ns", "made at", clock], ["freed_ns", "freed at", clock], ["submits", "submissions", count]];
		const gigabytes = n => n.toFixed(1) + " GB/s";
		const LINK = [["name", "link", null], ["bytes_in", "moved in", bytes], ["rate_in", "at", gigabytes], ["bytes_out", "moved out", bytes],
			["rate_out", "at", gigabytes], ["moves_in", "times in", count], ["moves_out", "times out", count]];
		const FUNCTION = [["name", "function", null], ["wait_ns", "waited", time], ["waits", "waits", count], ["submits", "submissions", count]];
		/* Columns whose sums over all groups are known; the other figures are of one group alone. */
		const SUMS = ["wait_ns", "bytes_in", "bytes_out", "allocations", "refused", "on_host", "moves_in", "refetches", "submits"];

		const blocks = () => data.largest.map(block => ({...block,
			name: "#" + block.id + " · " + block.rule + " · " + block.site + (block.backend === "heap" ? "" : " · " + block.backend)}));

		const links = () => data.links.map(link => ({...link, rate_in: link.in_ns ? link.bytes_in / link.in_ns : null,
			rate_out: link.out_ns ? link.bytes_out / link.out_ns : null,
			name: "device " + link.device + " and " + (link.lender === null ? "the host" : "device " + link.lender)}));

		const TABLES = [["Rule", GROUP, () => data.rules], ["Site", GROUP, () => data.sites],
			["Costliest", BLOCK, blocks], ["Kernels", FUNCTION, () => data.functions], ["Links", LINK, links]].filter(([, , rows]) => rows().length);
		let shown = {table: 0, key: null, down: true};

		/* The last lines of a table of groups: what no allocation has, and all, as the charts show it. */
		function foot(seen) {
			const lines = [], rest = {name: "(of no allocation)", ...data.rest}, all = {...data.total, name: "together"};
			for (const key of ["wait_ns", "bytes_in", "bytes_out"])
				all[key] += rest[key];
			if (data.rest.wait_ns || data.rest.bytes_in || data.rest.bytes_out)
				lines.push(rest);
			lines.push(all);
			const tfoot = make("tfoot");
			for (const line of lines) {
				const tr = make("tr");
				for (const column of seen) {
					const known = column[0] === "name" || (SUMS.includes(column[0]) && line[column[0]] !== undefined);
					const td = known ? cell(line, column) : make("td", "zero", line === all && column[0] === "peak" ? bytes(line.peak) : "");
					td.dataset.key = column[0];
					if (known && column[0] !== "name")
						td.dataset.value = line[column[0]];
					tr.append(td);
				}
				tfoot.append(tr);
			}
			return tfoot;
		}

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
			const seen = columns.filter(([key]) => key === "name" || rowsOf().some(row => row[key]) || (columns === GROUP && data.rest[key]));
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
				th.dataset.key = key;
				th.append(button);
				head.append(th);
			}
			const most = Object.fromEntries(seen.map(([key]) => [key, Math.max(0, ...rows.map(row => +row[key] || 0))]));
			for (const row of rows) {
				const tr = make("tr");
				for (const column of seen) {
					const td = cell(row, column, most[column[0]]);
					td.dataset.key = column[0];
					tr.append(td);
				}
				body.append(tr);
			}
			const thead = make("thead");
			thead.append(head);
			table.append(thead, body);
			if (columns === GROUP && !text)
				table.append(foot(seen));
			$("table").replaceChildren(table);
			if (!rows.length)
				$("table").append(make("p", "dim", "None."));
			if (seen.some(([key]) => key === "moves_in" || key === "refetches"))
				$("table").append(make("p", "dim hint narrow", "A wider window also shows how many times they moved."));
		}

		/* What the costs name: rules, or lines if there is no rule. */
		function opened() {
			const known = data.rules.length && data.rules[0].name !== "(no rule)";
			return Math.max(TABLES.findIndex(table => table[0] === (known ? "Rule" : "Site")), 0);
		}

		function fillTables() {
			tabs($("tables"), TABLES.map(([name]) => name), i => {
				shown = {table: i, key: null, down: true};
				fillTable();
			}, opened());
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

		function drawCurve(canvas, points, marks, unit) {
			const frame = charts.frameOf(canvas, 290, true), c = frame.context, all = [...points, ...marks];
			const most = Math.max(...all.map(p => p.value)), least = Math.min(...all.map(p => p.percent));
			frame.top += 18;
			frame.bottom -= 18;
			canvas.dataset.most = most;
			const y = charts.axis(frame, most * 1.05 || 1, axisBytes, true);
			const x = percent => frame.left + (100 - percent) / (100 - least) * (frame.right - frame.left);
			c.fillStyle = charts.colour("dim");
			c.textAlign = "left";
			c.textBaseline = "top";
			c.fillText("bytes to the device" + unit, 4, 2);
			c.textAlign = "center";
			c.fillText("device memory, and its part of what was alive at once", (frame.left + frame.right) / 2, frame.bottom + 24);
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
			for (const run of marks) {
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
			const device = data.devices.find(d => d.budget && d.bytes_in), marks = [];
			const percent = device ? device.budget / curve.peak * 100 : 0;
			if (data.devices.length === 1 && percent > 0 && percent <= 100 && (steps || !curve.steps))
				marks.push({percent, value: device.bytes_in / (curve.steps ? steps : 1)});
			canvas.setAttribute("role", "img");
			canvas.setAttribute("aria-label", points.map(p => p.percent + " %: " + bytes(p.value) + unit).join(", "));
			$("curve").append(canvas);
			const draw = () => drawCurve(canvas, points, marks, unit);
			requestAnimationFrame(draw);
			/* In a frame of its own: drawing sets the height, which the observer would be told of again. */
			new ResizeObserver(() => requestAnimationFrame(draw)).observe(canvas);
			redraw.push(draw);
		}
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

		redraw.push(charts.paintAll);
		fillHead();
		fillAnswer();
		fillFlame();
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
	}

	/* ---- two runs ---- */

	const most = (run, key) => Math.max(0, ...run.devices.map(device => device[key] || 0)) || null;
	const sum = (run, of) => run.devices.reduce((all, device) => all + of(device), 0);
	const step = run => Math.max(0, ...run.devices.map(device => device.step_time ? device.step_time.median_ns : 0)) || null;
	/* The same figures as in the text of `spillway report A B`. */
	const COMPARED = [["recorded", time, run => run.run_ns], ["waited or stopped", time, run => run.lost_ns], ["step, in the middle", time, step],
		["waiting for memory", time, run => run.time.waiting_ns], ["GPU stopped", time, run => run.time.gaps_ns],
		["of both: waiting, GPU stopped", time, run => run.time.both_ns], ["suspended", time, run => run.time.suspended_ns],
		["making allocations", time, run => run.time.allocating_ns], ["link busy", time, run => run.time.link_ns],
		["device budget", bytes, run => most(run, "budget")], ["needed at most", bytes, run => sum(run, device => device.most.together)],
		["on the host at most", bytes, run => sum(run, device => device.most.on_host_alone ?? device.most.on_host)],
		["moved in", bytes, run => sum(run, device => device.bytes_in)], ["moved out", bytes, run => sum(run, device => device.bytes_out)],
		["refused", count, run => run.total.refused]];

	function change(a, b) {
		if (a === null || b === null)
			return "";
		if (a === b)
			return "=";
		if (!a)
			return "";
		return b / a < 10 ? (b > a ? "+" : "") + ((b / a - 1) * 100).toFixed(1) + " %" : "× " + (b / a).toFixed(1);
	}

	function fillCompared(runs) {
		const table = make("table"), head = make("tr"), body = make("tbody"), thead = make("thead");
		for (const title of ["", ...runs.map((run, i) => i + 1 + ": " + run.file.path.replace(/.*\//, "")), "change"])
			head.append(make("th", "plain", title));
		for (const [name, format, of] of COMPARED) {
			const values = runs.map(of), tr = make("tr");
			if (values.every(value => !value))
				continue;
			tr.append(make("td", "", name), ...values.map(value => make("td", value ? "" : "zero", value === null ? "n/a" : format(value))),
				make("td", "", change(...values)));
			body.append(tr);
		}
		thead.append(head);
		table.append(thead, body);
		const scroll = make("div", "scroll");
		scroll.append(table);
		document.getElementById("compared").append(make("h2", "", "Beside each other"), scroll);
		document.getElementById("compared").hidden = false;
	}

	/* ---- the page ---- */

	function listenTheme() {
		const names = ["system", "light", "dark"], button = document.getElementById("theme");
		let now = 0;
		button.addEventListener("click", () => {
			now = (now + 1) % names.length;
			button.textContent = "Theme: " + names[now];
			if (now)
				document.documentElement.dataset.theme = names[now];
			else
				delete document.documentElement.dataset.theme;
			redraw.forEach(draw => draw());
		});
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => redraw.forEach(draw => draw()));
	}

	/* What is on other GPUs is in on_host, too. Older traces do not tell. */
	function prepare(run) {
		for (const {series, most} of run.devices) {
			const none = series.on_host.map(() => 0);
			series.on_peers ||= none;
			series.peer_bytes_in ||= none;
			series.peer_bytes_out ||= none;
			series.alone = series.on_host.map((n, i) => n - series.on_peers[i]);
			most.alone = most.on_host_alone ?? most.on_host;
		}
		return run;
	}

	const read = JSON.parse(document.getElementById("data").textContent), runs = (Array.isArray(read) ? read : [read]).map(prepare);
	document.title = "Spillway report: " + runs.map(run => run.process.command || run.file.path).join(" and ");
	if (runs.length > 1)
		fillCompared(runs);
	for (const run of runs) {
		const place = make("div", "run");
		place.append(document.getElementById("run").content.cloneNode(true));
		document.getElementById("runs").append(place);
		showRun(run, place, runs);
	}
	document.body.classList.toggle("two", runs.length > 1);
	listenTheme();
	/* Two frames on, everything has been drawn once. */
	requestAnimationFrame(() => requestAnimationFrame(() => { performance.mark("report-ready"); }));
})();
