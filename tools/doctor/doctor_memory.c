/*
 * doctor_memory.c: checks how much host memory is available for spilled memory, and which limits apply.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "shim/base/hostmem.h"
#include "tools/doctor/doctor.h"
#include "tools/doctor/doctor_container.h"
#include "tools/common/units.h"

#define GIB ((uint64_t)1 << 30)
/* Most jobs that need Spillway lack more memory than this. */
#define HOST_LEAST GIB
/* PyTorch's data loaders and NCCL fill the default size in containers (64 MiB). */
#define SHM_LEAST GIB

static void memory_host(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	struct hostmem memory = hostmem_read(doctor->root);
	uint64_t budget = hostmem_default_budget(&memory);
	char total[UNITS_TEXT], available[UNITS_TEXT], most[UNITS_TEXT];

	(void)device;
	if (!memory.total) {
		doctor_is(finding, DOCTOR_UNKNOWN, "/proc/meminfo cannot be read");
		return;
	}
	doctor_is(finding, budget < HOST_LEAST ? DOCTOR_NOTE : DOCTOR_OK,
		  "%s, %s available; host.budget is %s unless set", units_bytes(memory.total, total),
		  units_bytes(memory.available, available), units_bytes(budget, most));
	if (budget >= HOST_LEAST)
		return;
	doctor_so(finding, "no more than that can be spilled; what is over is out of memory");
	doctor_fix(finding, "free host memory, or raise the limit of the cgroup");
}

/*
 * Processes share a host budget through a file in a folder (shim/accounting/quota.h). Containers usually have a
 * /dev/shm of their own: each then takes half of the machine's memory, and nothing inside a container shows that
 * another exists. A limit makes that harmless.
 */
static void say_unlimited_container(const struct doctor *doctor, struct doctor_finding *finding)
{
	if (!doctor_is_container(doctor))
		return;
	finding->status = DOCTOR_NOTE;
	doctor_so(finding,
		  "a container without a limit of its own: host.total is handed out again in each container that does "
		  "not see the same /dev/shm");
	doctor_fix(finding,
		   "docker run --memory ...   # Kubernetes: resources.limits.memory; or share the folder: --ipc=host, "
		   "-v /dev/shm:/dev/shm, a hostPath volume; or set host.total in the policy");
}

static void memory_cgroup(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	struct hostmem memory = hostmem_read(doctor->root);
	char left[UNITS_TEXT];

	(void)device;
	if (memory.cgroup_headroom == UINT64_MAX) {
		doctor_is(finding, DOCTOR_OK, "no limit");
		say_unlimited_container(doctor, finding);
		return;
	}
	doctor_is(finding, DOCTOR_OK, "%s left below its limit", units_bytes(memory.cgroup_headroom, left));
	if (!memory.total || memory.cgroup_headroom >= memory.available)
		return;
	finding->status = DOCTOR_NOTE;
	doctor_so(finding,
		  "that is less than the machine has; host.budget keeps below it unless it is set, and a job that "
		  "exceeds it is killed");
	doctor_fix(finding, "docker run --memory ..., systemd MemoryMax= or Slurm --mem: ask for what the job spills");
}

/* Reads a soft limit in /proc/self/limits; UINT64_MAX: unlimited. Returns false if it is not found. */
static bool limit_of(const struct doctor *doctor, const char *name, uint64_t *ret_limit)
{
	char text[4096], *line, *end;

	if (!doctor_read(doctor, "/proc/self/limits", text, sizeof(text)) || !(line = strstr(text, name)))
		return false;
	line += strlen(name);
	line += strspn(line, " ");
	if (strncmp(line, "unlimited", 9) == 0) {
		*ret_limit = UINT64_MAX;
		return true;
	}
	*ret_limit = strtoull(line, &end, 10);
	return end != line;
}

static void memory_locked(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	uint64_t limit;
	char text[UNITS_TEXT];

	(void)device;
	if (!limit_of(doctor, "Max locked memory", &limit)) {
		doctor_is(finding, DOCTOR_UNKNOWN, "/proc/self/limits cannot be read");
	} else if (limit == UINT64_MAX) {
		doctor_is(finding, DOCTOR_OK, "unlimited");
	} else {
		doctor_is(finding, limit < GIB ? DOCTOR_NOTE : DOCTOR_OK, "%s", units_bytes(limit, text));
		if (limit >= GIB)
			return;
		doctor_so(finding,
			  "memory registered for RDMA (NCCL over InfiniBand) or locked by mlock is limited to it; what "
			  "the driver pins for Spillway is not, as far as is known");
		doctor_fix(finding, "ulimit -l unlimited   # docker run --ulimit memlock=-1");
	}
}

static void address_space(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	uint64_t limit;
	char text[UNITS_TEXT];

	(void)device;
	if (!limit_of(doctor, "Max address space", &limit))
		return;
	if (limit == UINT64_MAX) {
		doctor_is(finding, DOCTOR_OK, "unlimited");
		return;
	}
	doctor_is(finding, DOCTOR_PROBLEM, "limited to %s", units_bytes(limit, text));
	doctor_so(finding,
		  "CUDA reserves far more addresses than there is memory, and does not start under such a limit");
	doctor_fix(finding, "ulimit -v unlimited");
}

/* ---- /dev/shm ---- */

static uint64_t size_option(const char *options)
{
	const char *at = strstr(options, "size=");
	char *unit;

	if (!at)
		return 0;
	uint64_t size = strtoull(at + 5, &unit, 10);
	return *unit == 'k' ? size << 10 : *unit == 'm' ? size << 20 : *unit == 'g' ? size << 30 : size;
}

/* Each line is "device place type options ..."; the last mount at the place counts. */
static bool mount_options(const struct doctor *doctor, const char *place, char *ret_options, size_t room)
{
	static char text[1 << 16];
	bool found = false;

	if (!doctor_read(doctor, "/proc/self/mounts", text, sizeof(text)))
		return false;
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char where[256], options[512];

		if (sscanf(line, "%*s %255s %*s %511s", where, options) != 2 || strcmp(where, place) != 0)
			continue;
		snprintf(ret_options, room, "%s", options);
		found = true;
	}
	return found;
}

static bool has_option(const char *options, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = options; at; at = strchr(at, ',')) {
		at += *at == ',';
		if (strncmp(at, word, length) == 0 && (!at[length] || at[length] == ','))
			return true;
	}
	return false;
}

static void memory_shm(const struct doctor *doctor, int device, struct doctor_finding *finding)
{
	char options[512], size_text[UNITS_TEXT], free_text[UNITS_TEXT], free_part[64] = "";
	struct statvfs volume;
	uint64_t size;

	(void)device;
	if (!mount_options(doctor, "/dev/shm", options, sizeof(options))) {
		doctor_is(finding, DOCTOR_NOTE, "nothing is mounted at /dev/shm");
		doctor_so(finding, "programs that share memory (loaders of PyTorch, NCCL) fail or are slow");
		doctor_fix(finding, "mount -t tmpfs -o size=8g tmpfs /dev/shm   # docker run --shm-size=8g");
		return;
	}
	size = size_option(options);
	if (!*doctor->root && statvfs("/dev/shm", &volume) == 0) {
		size = (uint64_t)volume.f_blocks * volume.f_frsize;
		snprintf(free_part, sizeof(free_part), ", %s free",
			 units_bytes((uint64_t)volume.f_bavail * volume.f_frsize, free_text));
	}
	doctor_is(finding, DOCTOR_OK, "%s%s%s", size ? units_bytes(size, size_text) : "of the default size", free_part,
		  has_option(options, "noexec") ? ", noexec" : "");
	if (has_option(options, "ro")) {
		finding->status = DOCTOR_NOTE;
		doctor_so(finding, "it is read-only: programs that share memory fail");
		doctor_fix(finding, "mount -o remount,rw /dev/shm");
	} else if (size && size < SHM_LEAST) {
		finding->status = DOCTOR_NOTE;
		doctor_so(finding,
			  "loaders of PyTorch and NCCL fail with a bus error or \"no space left\" when it is full");
		doctor_fix(finding, "docker run --shm-size=8g ...   # or mount -o remount,size=8g /dev/shm");
	} else if (has_option(options, "noexec")) {
		finding->status = DOCTOR_NOTE;
		doctor_so(finding, "programs that put code they compile there fail; Spillway does not");
		doctor_fix(finding, "mount -o remount,exec /dev/shm   # as root, if a program asks for it");
	}
}

static const struct doctor_check checks[] = {
    {"memory.host", "host memory", memory_host},
    {"memory.cgroup", "cgroup", memory_cgroup},
    {"memory.locked", "locked memory", memory_locked},
    {"memory.addresses", "address space", address_space},
    {"memory.shm", "/dev/shm", memory_shm},
};
const struct doctor_subject doctor_memory = {"memory", false, checks, sizeof(checks) / sizeof(*checks)};
