# SPDX-License-Identifier: Apache-2.0
# The table of spillway-api(7): awk -f driver_names.awk hooks.def | awk -f api_page.awk api.txt -. Sections are those of
# the list, named by their comments; a family is all spellings of a name. Exit status 1, with a line for each, when a family that must be
# described is not, or one is described that does not exist.
FNR == 1 { file++ }

function family(name) {
	sub(/_pt[sd][sz]$/, "", name)
	sub(/_v[0-9]+$/, "", name)
	return name
}

# Names in lines of at most 100 characters; mdoc joins them.
function names(list, count, i, line, out) {
	for (i = 1; i <= count; i++) {
		if (line != "" && length(line) + length(list[i]) > 100) {
			out = out ".Ic " line "\n"
			line = ""
		}
		line = line (line == "" ? "" : " ") list[i]
	}
	return line == "" ? out : out ".Ic " line "\n"
}

function rest(title, kind, i, n, list) {
	n = 0
	for (i = 1; i <= n_rows; i++)
		if (kinds[i] == kind && !(family(row[i]) in text))
			list[++n] = row[i]
	if (!n)
		return
	printf "%s%s\n%s", opened ? ".Pp\n" : "", title, names(list, n) # a heading begins a paragraph by itself
	opened = 1
}

function section_end(i, j, f, all, done) {
	if (!n_rows)
		return
	printf ".Ss %s\n", title
	opened = 0
	for (i = 1; i <= n_rows; i++) {
		f = family(row[i])
		if (!(f in text) || f in done)
			continue
		done[f] = 1
		all = ""
		for (j = i; j <= n_rows; j++)
			if (family(row[j]) == f)
				all = all " " row[j]
		if (!opened++)
			print ".Bl -tag -width Ds"
		printf ".It Ic%s\n%s\n", all, text[f]
	}
	if (opened)
		print ".El"
	rest("Submitted as they are; where memory moves, what they name is brought in and held until they are done:", "SUBMIT")
	rest("The same, and synchronous where SYNC_MEMOPS was set on heap memory:", "SUBMIT_SYNC")
	rest("The same as either, and between GPUs: what a device has no access to is copied in another way:", "COPY")
	rest("The same; where the driver has no memory for it the heap makes room, and it is submitted again:", "LAUNCH")
	rest("The same for one kernel; while memory that is taken on use is missing, its parameters are looked at:", "LAUNCH_KERNEL")
	rest("The same; besides, kernels that may overlap no longer do once something has spilled (submit.pdl):", "LAUNCH_EX")
	rest("Counted and passed on; where the driver has no memory for it the heap makes room, and it is called again:", "OOM_RETRY")
	rest("Counted and passed on; where work has ended in an illegal access, and that may be of memory that is taken on use, it is said:", "WAIT")
	rest("Counted and passed on:", "FORWARD")
	rest("Used by Spillway itself, the program's calls are not seen:", "USE")
	for (i in row)
		delete row[i]
	n_rows = 0
}

file == 1 && /^cu/ {
	name = $0
	sub(/:.*/, "", name)
	sub(/^[^:]*: */, "")
	gsub(/\. /, ".\n") # a sentence a line, as mdoc wants it
	text[name] = $0
	next
}

file > 1 && /^\/\* [A-Z]/ && /\*\/$/ && !/clang-format/ {
	section_end()
	title = $0
	sub(/^\/\* /, "", title)
	sub(/\.? *\*\/$/, "", title)
}

file == 2 && /^HOOK_[A-Z_]*\(/ {
	kind = $0
	sub(/\(.*/, "", kind)
	sub(/^HOOK_/, "", kind)
	sub(/^COPY_SYNC$/, "COPY", kind)
	name = $0
	sub(/^[^(]*\(/, "", name)
	sub(/,.*/, "", name)
	seen[family(name)] = 1
	if (kind ~ /^(SERVE|START|ALLOC|FREE|OWN|CAPTURE|CREATE|PIN|HINT)$/ && !(family(name) in text)) {
		print name " is served and not described in api.txt" > "/dev/stderr"
		bad = 1
	}
	row[++n_rows] = name
	kinds[n_rows] = kind
}

file == 2 && /^EXEMPT\(/ {
	if (!exempt++)
		print ".Ss Not hooked, with the reason"
	name = $0
	sub(/^EXEMPT\(/, "", name)
	reason = name
	sub(/,.*/, "", name)
	sub(/^[^,]*, */, "", reason)
	sub(/\).*/, "", reason)
	if (reason != last) {
		if (last != "")
			printf "%s", names(excused, n_excused)
		n_excused = 0
		printf "%s%s\n", last == "" ? "" : ".Pp\n", title
		last = reason
	}
	excused[++n_excused] = name
}

END {
	section_end()
	printf "%s", names(excused, n_excused)
	for (name in text)
		if (!(name in seen)) {
			print name " is described in api.txt and has no row" > "/dev/stderr"
			bad = 1
		}
	exit bad
}
