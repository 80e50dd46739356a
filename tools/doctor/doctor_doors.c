// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the library's log of lookups of driver functions (shim/driver/real.h).
 */
#include "tools/doctor/doctor_doors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/grow.h"

enum { PROCESSES_MOST = 1000, OBJECTS_MOST = 4000, FIELDS_MOST = 10 };

/* Each returns NULL if there are too many, or no memory. */

static struct door_process *add_process(struct doors *doors, int pid, const char *executable)
{
	if (doors->n == PROCESSES_MOST || !grow(&doors->processes, doors->n, &doors->room, sizeof(*doors->processes)))
		return NULL;
	struct door_process *process = &doors->processes[doors->n];
	*process = (struct door_process){.pid = pid, .executable = strdup(executable)};
	doors->n += process->executable != NULL;
	return process->executable ? process : NULL;
}

/*
 * A process that executes another program appears again with the same id. A child made by fork() writes no start line.
 */
static struct door_process *process_of(struct doors *doors, int pid)
{
	for (size_t i = doors->n; i-- > 0;)
		if (doors->processes[i].pid == pid)
			return &doors->processes[i];
	return add_process(doors, pid, "a child by fork");
}

static struct door_object *object_of(struct door_process *process, const char *path)
{
	for (size_t i = 0; i < process->n_objects; i++)
		if (strcmp(process->objects[i].path, path) == 0)
			return &process->objects[i];
	if (process->n_objects == OBJECTS_MOST ||
	    !grow(&process->objects, process->n_objects, &process->room, sizeof(*process->objects)))
		return NULL;
	struct door_object *object = &process->objects[process->n_objects];
	*object = (struct door_object){.path = strdup(path)};
	process->n_objects += object->path != NULL;
	return object->path ? object : NULL;
}

/* OURS PAST UNBOUND ELSEWHERE DLSYM RUNTIME OBJECT */
static void take_object(struct door_object *object, char **field)
{
	unsigned n[4];

	for (int i = 0; i < 4; i++)
		n[i] = (unsigned)strtoul(field[i], NULL, 10);
	object->apart = false; /* the library was still being added to the list when the maps were read */
	object->linked = (struct door_count){.through = n[0], .past = n[1] + n[3], .unbound = n[2]};
	object->dlsym_past = strcmp(field[4], "past") == 0;
}

/* Returns false if there is no room. Lines of another format are skipped. */
static bool take_line(struct doors *doors, char *line)
{
	char *field[FIELDS_MOST] = {0}, *rest = line;
	size_t n = 0;

	while (n < FIELDS_MOST && (field[n] = strsep(&rest, "\t")))
		n++;
	int pid = n >= 2 ? atoi(field[0]) : 0;
	if (pid <= 0)
		return true;
	if (n == 3 && strcmp(field[1], "start") == 0)
		return add_process(doors, pid, field[2]) != NULL;
	struct door_process *process = process_of(doors, pid);
	if (!process)
		return false;
	process->ended |= n == 2 && strcmp(field[1], "end") == 0;
	bool is_look = n == 6 && strcmp(field[1], "look") == 0, is_object = n == 9 && strcmp(field[1], "object") == 0;
	bool is_mapped = n == 3 && strcmp(field[1], "mapped") == 0;
	if (!is_look && !is_object && !is_mapped)
		return true;
	struct door_object *object = object_of(process, field[n - 1]);
	if (object && is_look) {
		object->looked.through += strcmp(field[3], "ours") == 0 || strcmp(field[3], "driver") == 0;
		object->looked.past += strcmp(field[3], "copy") == 0 || strcmp(field[3], "other") == 0;
	}
	if (object && is_object)
		take_object(object, field + 2);
	if (object && is_mapped)
		object->apart = true;
	return object != NULL;
}

bool doors_read(int fd, struct doors *ret_doors)
{
	int copy = dup(fd);
	FILE *file = copy >= 0 ? fdopen(copy, "r") : NULL;
	char *line = NULL;
	size_t room = 0;

	if (!file && copy >= 0)
		close(copy);
	if (!file)
		return false;
	rewind(file);
	while (getline(&line, &room, file) > 0) {
		line[strcspn(line, "\n")] = '\0';
		/* Names are printed on a terminal. Tabs separate the fields. */
		for (char *at = line; *at; at++)
			if (((unsigned char)*at < ' ' && *at != '\t') || *at == 0x7f)
				*at = '?';
		ret_doors->cut |= !take_line(ret_doors, line);
	}
	free(line);
	fclose(file);
	return true;
}

void doors_free(struct doors *doors)
{
	for (size_t i = 0; i < doors->n; i++) {
		for (size_t j = 0; j < doors->processes[i].n_objects; j++)
			free(doors->processes[i].objects[j].path);
		FREE_ALL(doors->processes[i].objects, doors->processes[i].executable);
	}
	free(doors->processes);
	*doors = (struct doors){0};
}
