// SPDX-License-Identifier: Apache-2.0
"use strict";
/*
 * makeCharts() makes a set of charts on canvases that share one axis of time. Knows nothing of what a report is: a chart is
 * given a function that draws into a frame, and one that says what there is at a moment.
 */
const makeCharts = () => {
	const LEFT = 78, RIGHT = 14, TOP = 8, BOTTOM = 22, STEP = 1 / 200;
	const all = [];
	let view = null; /* {from, to, whole, cursor} in ns */

	const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

	/* About n round numbers from 0 up to most, and at least two above 0; bytes go by 1024. */
	function ticks(most, n, bytes) {
		if (!(most > 0))
			return [0];
		const base = bytes ? 1024 : 1000;
		const power = Math.floor(Math.log(most / n) / Math.log(base));
		const unit = Math.pow(base, power);
		const steps = bytes ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
				    : [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
		let at = steps.findIndex(s => s * unit >= most / n), step = unit * steps[at];
		for (; step * 2 > most; at--)
			step = at > 0 ? unit * steps[at - 1] : step / 2;
		const list = [];
		if (bytes)
			step = Math.max(step, 1);
		for (let value = 0; value <= most * 1.0001; value += step)
			list.push(value);
		return list;
	}

	/* Steps of time that people count in. */
	function timeTicks(from, to, n) {
		const steps = [];
		for (let unit = 1; unit < 1e9; unit *= 10)
			steps.push(unit, 2 * unit, 5 * unit);
		for (const s of [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400])
			steps.push(s * 1e9);
		const step = steps.find(s => s >= (to - from) / n) || (to - from) / n || 1;
		const list = [];
		for (let t = Math.ceil(from / step) * step; t <= to; t += step)
			list.push(t);
		return list;
	}

	function frameOf(canvas, height, axis) {
		const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth || 600;
		canvas.style.height = height + "px";
		if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
			canvas.width = Math.round(width * ratio);
			canvas.height = Math.round(height * ratio);
		}
		const context = canvas.getContext("2d");
		context.setTransform(ratio, 0, 0, ratio, 0, 0);
		context.clearRect(0, 0, width, height);
		context.font = "12px system-ui, sans-serif";
		context.lineJoin = "round";
		return {context, left: LEFT, right: width - RIGHT, top: TOP, bottom: height - (axis ? BOTTOM : 6)};
	}

	/* Lines and numbers of the vertical axis; returns where a value lies. low < 0: it goes down as well. */
	function axis(frame, most, format, bytes, low = 0) {
		const {context: c, left, right, top, bottom} = frame;
		const y = value => bottom - (value - low) / (most - low || 1) * (bottom - top);
		c.strokeStyle = colour("grid");
		c.fillStyle = colour("dim");
		c.textAlign = "right";
		c.textBaseline = "middle";
		c.lineWidth = 1;
		/* Read by the test of the page: where the axis ends. */
		c.canvas.dataset.axis = most;
		for (const tick of ticks(most, Math.max(2, (bottom - top) / (low < 0 ? 60 : 34)), bytes))
			for (const value of low < 0 && tick ? [tick, -tick] : [tick]) {
				if (value < low)
					continue;
				const at = Math.round(y(value)) + .5;
				c.beginPath();
				c.moveTo(left, at);
				c.lineTo(right, at);
				c.stroke();
				c.fillText(format(Math.abs(value)), left - 8, Math.min(Math.max(at, top + 4), bottom - 3));
			}
		return y;
	}

	function drawTime(frame, format) {
		const {context: c, left, right, bottom} = frame;
		c.fillStyle = colour("dim");
		c.strokeStyle = colour("line");
		c.textBaseline = "top";
		for (const t of timeTicks(view.from, view.to, (right - left) / 90)) {
			const x = frame.x(t);
			c.textAlign = x > right - 20 ? "right" : x < left + 20 ? "left" : "center";
			c.beginPath();
			c.moveTo(x, bottom);
			c.lineTo(x, bottom + 4);
			c.stroke();
			c.fillText(format(t), x, bottom + 7);
		}
	}

	function drawPointer(chart, frame) {
		const {context: c, left, right, top, bottom} = frame;
		if (chart.drag && chart.drag.from !== chart.drag.to) {
			const a = frame.x(chart.drag.from), b = frame.x(chart.drag.to);
			c.fillStyle = colour("accent");
			c.globalAlpha = .18;
			c.fillRect(Math.min(a, b), top, Math.abs(b - a), bottom - top);
			c.globalAlpha = 1;
		}
		if (view.cursor === null || view.cursor < view.from || view.cursor > view.to)
			return;
		const x = Math.round(Math.min(Math.max(frame.x(view.cursor), left), right)) + .5;
		c.strokeStyle = colour("ink");
		c.globalAlpha = .55;
		c.beginPath();
		c.moveTo(x, top);
		c.lineTo(x, bottom);
		c.stroke();
		c.globalAlpha = 1;
	}

	function paint(chart) {
		const frame = frameOf(chart.canvas, chart.height, chart.showTime);
		frame.x = t => frame.left + (t - view.from) / (view.to - view.from || 1) * (frame.right - frame.left);
		frame.from = view.from;
		frame.to = view.to;
		chart.frame = frame;
		chart.draw(frame);
		if (chart.showTime)
			drawTime(frame, chart.formatTime);
		drawPointer(chart, frame);
		chart.say(view.cursor);
	}

	let asked = false;
	function paintAll() {
		if (asked)
			return;
		asked = true;
		requestAnimationFrame(() => {
			asked = false;
			all.forEach(paint);
		});
	}

	function timeAt(chart, event) {
		const {left, right} = chart.frame, x = event.clientX - chart.canvas.getBoundingClientRect().left;
		return view.from + Math.min(Math.max((x - left) / (right - left), 0), 1) * (view.to - view.from);
	}

	function zoom(from, to) {
		view.from = from;
		view.to = to;
		if (view.changed)
			view.changed(from > 0 || to < view.whole);
		paintAll();
	}

	function listen(chart) {
		const canvas = chart.canvas;
		canvas.addEventListener("pointerdown", event => {
			chart.drag = {from: timeAt(chart, event), to: timeAt(chart, event)};
			canvas.setPointerCapture(event.pointerId);
		});
		canvas.addEventListener("pointermove", event => {
			view.cursor = timeAt(chart, event);
			if (chart.drag)
				chart.drag.to = view.cursor;
			paintAll();
		});
		canvas.addEventListener("pointerup", () => {
			const drag = chart.drag;
			chart.drag = null;
			if (drag && Math.abs(drag.to - drag.from) > (view.to - view.from) / 100)
				zoom(Math.min(drag.from, drag.to), Math.max(drag.from, drag.to));
			else
				paintAll();
		});
		canvas.addEventListener("pointerleave", () => {
			if (chart.drag)
				return;
			view.cursor = null;
			paintAll();
		});
		canvas.addEventListener("dblclick", () => zoom(0, view.whole));
		canvas.addEventListener("keydown", event => {
			const way = {ArrowLeft: -1, ArrowRight: 1}[event.key];
			if (event.key === "Escape")
				zoom(0, view.whole);
			if (!way)
				return;
			const at = view.cursor === null ? view.from : view.cursor + way * (view.to - view.from) * STEP;
			view.cursor = Math.min(Math.max(at, view.from), view.to);
			event.preventDefault();
			paintAll();
		});
	}

	new ResizeObserver(paintAll).observe(document.documentElement);
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paintAll);

	return {
		colour, axis, frameOf, paintAll,
		start(whole, changed) {
			view = {from: 0, to: whole, whole, cursor: null, changed};
			all.length = 0;
		},
		whole: () => zoom(0, view.whole),
		/* chart: {canvas, height, showTime, formatTime, draw(frame), say(time or null)} */
		add(chart) {
			chart.drag = null;
			all.push(chart);
			listen(chart);
		},
	};
};
