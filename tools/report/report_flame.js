// SPDX-License-Identifier: Apache-2.0
/*
 * A flame graph: each box is as wide as its part of the whole, and stands on the box that it is part of. Boxes are elements,
 * so that their texts can be found and read aloud.
 */
const flame = (() => {
	const LEAST = 1 / 400; /* of the width; smaller boxes are drawn as one */

	/*
	 * The levels of a place in the program whose callers are not known, as call_site.h names it, from the outside in: file,
	 * function, line; or library, symbol, offset. "in gemm [libcublas.so]": the library called the driver.
	 * "in forward [backward]": the backward pass made it.
	 */
	function levels(site) {
		const by = /^(.*) (\[[^\]]*\])$/.exec(site), name = by ? by[1] : site, last = by ? [by[2]] : [];
		const line = /^(.+?)(?::(\d+))? in (.+)$/.exec(name);
		if (line)
			return [line[1], line[3], ...line[2] ? ["line " + line[2]] : [], ...last];
		const symbol = /^(.+?)(?::(.+?))?(\+0x[0-9a-f]+)$/.exec(name);
		if (symbol)
			return [symbol[1], ...symbol[2] ? [symbol[2]] : [], symbol[3], ...last];
		return [name, ...last];
	}

	/* The levels of a place with the callers that are known: of lines, from the outside in. */
	function chain(site, callers) {
		if (!callers)
			return levels(site);
		return [...callers].reverse().map(name => name === "..." ? "(further callers)" : name).concat(site);
	}

	/* A tree of [levels, value], its branches by value, the largest first. */
	function tree(name, rows) {
		const root = {name, value: 0, branches: new Map()};
		for (const [path, value] of rows) {
			let node = root;
			root.value += value;
			for (const level of path) {
				if (!node.branches.has(level))
					node.branches.set(level, {name: level, value: 0, branches: new Map()});
				node = node.branches.get(level);
				node.value += value;
			}
		}
		return root;
	}

	const sorted = node => [...node.branches.values()].sort((a, b) => b.value - a.value);

	/*
	 * Draws the tree into place. format: a value as text; share: of two values; colour: name of a colour; choose(node): a box
	 * was clicked.
	 */
	function draw(place, root, colour, format, share, choose) {
		const rows = [];
		function box(node, depth, left, width, path) {
			const element = document.createElement("button"), text = path.join(" › ") + ": " + format(node.value) + ", " + share(node.value, root.value);
			element.type = "button";
			element.className = "box" + (node.name.startsWith("(") ? " unknown" : "");
			element.style.left = left * 100 + "%";
			element.style.width = width * 100 + "%";
			element.style.setProperty("--colour", "var(--" + colour + ")");
			element.style.setProperty("--strength", Math.max(68 - depth * 13, 26) + "%");
			element.title = text;
			element.setAttribute("aria-label", text);
			element.textContent = node.name + "  " + format(node.value) + " · " + share(node.value, root.value);
			element.addEventListener("click", () => choose(node));
			rows[depth] ||= document.createElement("div");
			rows[depth].className = "row";
			rows[depth].append(element);
			let at = left, small = 0, n = 0;
			for (const branch of sorted(node)) {
				const part = branch.value / root.value;
				if (part < LEAST) {
					small += branch.value;
					n++;
					continue;
				}
				box(branch, depth + 1, at, part, [...path, branch.name]);
				at += part;
			}
			if (small / root.value >= LEAST)
				box({name: "(" + n + " more)", value: small, branches: new Map()}, depth + 1, at, small / root.value, [...path, n + " more"]);
		}
		if (root.value > 0)
			box(root, 0, 0, 1, [root.name]);
		place.replaceChildren(...rows);
	}

	return {levels, chain, tree, draw};
})();
