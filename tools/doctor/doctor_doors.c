/*
 * Reads the library's log of lookups of driver functions (shim/driver/door_log.h).
 */
#include "tools/doctor/doctor_doors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PROCESSES_MOST = 1000, OBJECTS_MOST = 4000, FIELDS_MOST = 10 };

/* A process that executes another program appears again with the same id. */
static struct door_process *process_of(struct doors *doors, int pid)
{
	for (size_t i = doors->n; i-- > 0;)
		if (doors->processes[i].pid == pid)
			return &doors->processes[i];
	return NULL;
}

static struct door_process *add_process(struct doors *doors, int pid, const char *executable)
{
	struct door_process *more;

	if (doors->n == PROCESSES_MOST) {
		doors->cut = true;
		return NULL;
	}
	more = realloc(doors->processes, (doors->n + 1) * sizeof(*more));
	if (!more)
		return NULL;
	doors->processes = more;
	more[doors->n] = (struct door_process){.pid = pid, .executable = strdup(executable)};
	if (!more[doors->n].executable)
		return NULL;
	return &more[doors->n++];
}

static struct door_object *object_of(struct doors *doors, struct door_process *process, const char *path)
{
	struct door_object *more;

	for (size_t i = 0; i < process->n_objects; i++)
		if (strcmp(process->objects[i].path, path) == 0)
			return &process->objects[i];
	if (process->n_objects == OBJECTS_MOST) {
		doors->cut = true;
		return NULL;
	}
	more = realloc(process->objects, (process->n_objects + 1) * sizeof(*more));
	if (!more)
		return NULL;
	process->objects = more;
	more[process->n_objects] = (struct door_object){.path = strdup(path)};
	if (!more[process->n_objects].path)
		return NULL;
	return &more[process->n_objects++];
}

/* DOOR RESULT NAME OBJECT */
static void take_look(struct door_process *process, struct door_object *object, char **field)
{
	int door = strcmp(field[0], "dlsym") == 0 ? DOOR_BY_DLSYM : DOOR_BY_PROC;
	struct door_looked *looked = &object->looked[door];

	process->looked = true;
	looked->ours += strcmp(field[1], "ours") == 0;
	looked->driver += strcmp(field[1], "driver") == 0;
	looked->copy += strcmp(field[1], "copy") == 0;
	looked->none += strcmp(field[1], "none") == 0;
	looked->other += strcmp(field[1], "other") == 0;
	if (door == DOOR_BY_DLSYM && strncmp(field[2], "cuGetProcAddress", 16) == 0)
		object->asked_resolver = true;
	if (door == DOOR_BY_PROC && !*field[2])
		object->asked_empty = true;
}

/* OURS PAST UNBOUND ELSEWHERE DLSYM RUNTIME OBJECT */
static void take_object(struct door_object *object, char **field)
{
	object->apart = false; /* the library was still being added to the list when the maps were read */
	object->linked_ours = (unsigned)strtoul(field[0], NULL, 10);
	object->linked_past = (unsigned)strtoul(field[1], NULL, 10);
	object->linked_unbound = (unsigned)strtoul(field[2], NULL, 10);
	object->linked_elsewhere = (unsigned)strtoul(field[3], NULL, 10);
	object->dlsym_past = strcmp(field[4], "past") == 0;
	if (strcmp(field[5], "-") != 0)
		snprintf(object->runtime, sizeof(object->runtime), "%s", field[5]);
}

/* Returns false if memory runs out. Lines of another format are skipped. */
static bool take_line(struct doors *doors, char *line)
{
	char *field[FIELDS_MOST] = {0}, *rest = line;
	struct door_process *process;
	struct door_object *object;
	size_t n = 0;

	while (n < FIELDS_MOST && (field[n] = strsep(&rest, "\t")))
		n++;
	int pid = n >= 2 ? atoi(field[0]) : 0;
	if (pid <= 0)
		return true;
	if (n == 3 && strcmp(field[1], "start") == 0)
		return add_process(doors, pid, field[2]) != NULL || doors->cut;
	process = process_of(doors, pid);
	/* A child made by fork() writes no start line. */
	if (!process && !(process = add_process(doors, pid, "a child by fork")))
		return doors->cut;
	if (n == 2 && strcmp(field[1], "end") == 0) {
		process->ended = true;
		return true;
	}
	bool is_look = n == 6 && strcmp(field[1], "look") == 0, is_object = n == 9 && strcmp(field[1], "object") == 0;
	bool is_mapped = n == 3 && strcmp(field[1], "mapped") == 0;
	if (!is_look && !is_object && !is_mapped)
		return true;
	object = object_of(doors, process, field[n - 1]);
	if (!object)
		return doors->cut;
	if (is_look)
		take_look(process, object, field + 2);
	else if (is_object)
		take_object(object, field + 2);
	else
		object->apart = true;
	return true;
}

/* Names are printed on a terminal. Tabs separate the fields. */
static void make_printable(char *line)
{
	for (; *line; line++)
		if (((unsigned char)*line < ' ' && *line != '\t') || *line == 0x7f)
			*line = '?';
}

bool doors_read(int fd, struct doors *ret_doors)
{
	int copy = dup(fd);
	FILE *file = copy >= 0 ? fdopen(copy, "r") : NULL;
	char *line = NULL;
	size_t room = 0;
	bool good = file != NULL;
	ssize_t n;

	if (!file && copy >= 0)
		close(copy);
	if (file)
		rewind(file);
	while (good && (n = getline(&line, &room, file)) > 0) {
		line[strcspn(line, "\n")] = '\0';
		make_printable(line);
		good = take_line(ret_doors, line);
	}
	free(line);
	if (file)
		fclose(file);
	return good;
}

void doors_free(struct doors *doors)
{
	for (size_t i = 0; i < doors->n; i++) {
		for (size_t j = 0; j < doors->processes[i].n_objects; j++)
			free(doors->processes[i].objects[j].path);
		free(doors->processes[i].objects);
		free(doors->processes[i].executable);
	}
	free(doors->processes);
	*doors = (struct doors){0};
}
