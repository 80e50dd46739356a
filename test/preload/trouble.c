// SPDX-License-Identifier: Apache-2.0
/*
 * trouble.c: see trouble.h. What happens when follows from the seed and from how many operations there were; how far
 * the other threads are by then does not.
 */
#include "test/preload/trouble.h"
#include "test/preload/trouble_mode.h"
#include "test/slow.h"

#include <dirent.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { CLOCK = 1, STOP = 2, STALL = 4, REFUSE = 8, FILES = 16, FOLDER = 32, STACK = 64, MODE = 128 };
enum {
	THREADS_MAX = 16,
	FILES_MAX = 32,
	EVERY = 400,     /* operations from one piece of trouble to the next, at most */
	EVERY_MODE = 24, /* the same, if only the mode changes */
	SMALL_STACK = 24 << 10,
	HIGH = 700, /* descriptors of our own from here on: out of the way of what lands low */
};

FILE *trouble_errors;

static unsigned kinds;
static uint64_t random_state;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static atomic_ulong steps, next_at;

static struct {
	pthread_t id;
	bool runs;
} threads[THREADS_MAX];

/* What the program has put where descriptors were closed. */
static struct {
	int fd;
	dev_t device;
	ino_t file;
} files[FILES_MAX];
static unsigned n_files;
static bool is_refused;

static int sibling = -1; /* where orders to it are written */
static pid_t sibling_pid;
struct order {
	unsigned after_us, for_ms;
};

static uint32_t below(uint32_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

static void pause_ns(long ns)
{
	struct timespec time = {ns / 1000000000, ns % 1000000000};

	while (nanosleep(&time, &time) && errno == EINTR)
		;
}

bool trouble_read(const char *list)
{
	static const struct {
		const char *name;
		unsigned kind;
	} names[] = {{"clock", CLOCK}, {"stop", STOP},     {"stall", STALL}, {"refuse", REFUSE},
		     {"files", FILES}, {"folder", FOLDER}, {"stack", STACK}, {"mode", MODE}};

	while (*list) {
		size_t length = strcspn(list, ","), i = 0, n = sizeof(names) / sizeof(names[0]);

		while (i < n && (strlen(names[i].name) != length || strncmp(list, names[i].name, length) != 0))
			i++;
		if (i == n)
			return false;
		kinds |= names[i].kind;
		list += length;
		list += *list == ',';
	}
	return true;
}

/* ---- the process beside us ---- */

/* It never uses CUDA, and ends with us: the pipe's other end is closed then. */
static void stop_and_go_on(int orders, pid_t parent)
{
	struct order order;

	signal(SIGALRM, SIG_DFL);
	while (read(orders, &order, sizeof(order)) == sizeof(order)) {
		pause_ns(order.after_us * 1000l);
		if (getppid() != parent || kill(parent, SIGSTOP))
			break;
		pause_ns(order.for_ms * 1000000l);
		kill(parent, SIGCONT);
	}
	_exit(0);
}

static void open_sibling(void)
{
	pid_t parent = getpid();
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return;
	sibling_pid = fork();
	if (!sibling_pid) {
		close(ends[1]);
		stop_and_go_on(ends[0], parent);
	}
	close(ends[0]);
	sibling = fcntl(ends[1], F_DUPFD_CLOEXEC, HIGH);
	close(ends[1]);
}

static void stop(void)
{
	/* Mostly short, at times longer than whatever anybody waits for. */
	struct order order = {below(5000), below(40) ? 10 + below(200) : 1000 + below(2000)};

	if (write(sibling, &order, sizeof(order)) != sizeof(order))
		sibling = -1;
}

/* ---- one thread ---- */

static _Atomic unsigned stall_ms;

static void stand_still(int signal)
{
	int saved = errno;

	pause_ns(stall_ms * 1000000l);
	errno = saved;
}

static void stall(void)
{
	unsigned which = below(THREADS_MAX), ms = 5 + below(250);

	for (unsigned i = 0; i < THREADS_MAX; i++, which++) {
		if (!threads[which % THREADS_MAX].runs)
			continue;
		atomic_store(&stall_ms, ms);
		pthread_kill(threads[which % THREADS_MAX].id, SIGUSR2);
		return;
	}
}

/* ---- system calls ---- */

#define REFUSE(name, error)                                                                                            \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error))

/* Those that seccomp profiles of container runtimes and emulators refuse. memfd_create is not among them: the simulated
 * driver keeps its memory in such files. */
static void refuse(void)
{
	const unsigned error = below(2) ? EPERM : ENOSYS;
	struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    REFUSE(process_vm_readv, error),
	    REFUSE(process_vm_writev, error),
	    REFUSE(membarrier, error),
	    REFUSE(mbind, error),
	    REFUSE(set_mempolicy, error),
	    REFUSE(get_mempolicy, error),
	    REFUSE(move_pages, error),
	    REFUSE(setpriority, error),
	    REFUSE(userfaultfd, error),
	    REFUSE(perf_event_open, error),
	    REFUSE(statx, error),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	if (is_refused)
		return;
	is_refused = true;
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

/* ---- descriptors ---- */

static const char contents[] = "data of the program's own\n";

/* A file of ours, by whatever number is free. Nobody needs its name. */
static void open_file(void)
{
	char path[PATH_MAX];
	struct stat status;

	if (n_files == FILES_MAX)
		return;
	snprintf(path, sizeof(path), "%s/trouble.XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	int fd = mkstemp(path);
	if (fd < 0)
		return;
	unlink(path);
	if (write(fd, contents, sizeof(contents) - 1) != sizeof(contents) - 1 || fstat(fd, &status)) {
		close(fd);
		return;
	}
	files[n_files].fd = fd;
	files[n_files].device = status.st_dev;
	files[n_files++].file = status.st_ino;
}

static bool is_of_files(int fd)
{
	for (unsigned i = 0; i < n_files; i++)
		if (files[i].fd == fd)
			return true;
	return false;
}

/* The standard error, and what leads to Spillway's files or to a socket. What the driver has open is not closed. */
static bool is_to_be_closed(int fd)
{
	char path[64], to[PATH_MAX];

	if (fd >= HIGH || is_of_files(fd))
		return false;
	if (fd == STDERR_FILENO)
		return true;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	ssize_t n = readlink(path, to, sizeof(to) - 1);
	if (n < 0)
		return false;
	to[n] = 0;
	return fd > STDERR_FILENO && (strstr(to, "/spillway") || !strncmp(to, "socket:", 7));
}

#ifdef __SANITIZE_THREAD__
/* That a program closes a file that a thread of the library looks at is what this trouble is. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
	return "race:close_files\n";
}
#endif

static void close_files(void)
{
	/* The standard error at first alone; or what the program writes there goes to a file from now on. */
	if (!is_of_files(STDERR_FILENO) && below(2)) {
		unsigned before = n_files;

		open_file();
		if (n_files > before) {
			dup2(files[before].fd, STDERR_FILENO);
			close(files[before].fd);
			files[before].fd = STDERR_FILENO;
		}
		return;
	}
	for (int fd = 0; fd < HIGH; fd++)
		if (is_to_be_closed(fd) && (fd == STDERR_FILENO || below(2))) {
			close(fd);
			open_file();
		}
	open_file();
}

static const char *check_files(void)
{
	static char text[200];
	char there[sizeof(contents) + 64];
	struct stat status;

	for (unsigned i = 0; i < n_files; i++) {
		if (fstat(files[i].fd, &status) || status.st_dev != files[i].device || status.st_ino != files[i].file) {
			snprintf(text, sizeof(text), "descriptor %d is not the program's file any more", files[i].fd);
			return text;
		}
		ssize_t n = pread(files[i].fd, there, sizeof(there) - 1, 0);
		if (n != sizeof(contents) - 1 || memcmp(there, contents, sizeof(contents) - 1) != 0) {
			there[n > 0 ? n : 0] = 0;
			snprintf(text, sizeof(text), "the program's file at descriptor %d holds: %.120s", files[i].fd,
				 there);
			return text;
		}
	}
	return NULL;
}

/* ---- the run folder ---- */

static void remove_folder(void)
{
	const char *above = getenv("XDG_RUNTIME_DIR");
	char path[PATH_MAX];

	if (!above)
		return;
	snprintf(path, sizeof(path), "%s/spillway", above);
	DIR *dir = opendir(path);
	for (struct dirent *entry; dir && (entry = readdir(dir));)
		unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir)
		closedir(dir);
	rmdir(path);
	/* The folder above it goes with the last session, and comes with the next. */
	if (rmdir(above))
		return;
	if (below(2))
		mkdir(above, 0700);
}

/* ---- the whole ---- */

static void happen(void)
{
	unsigned kind;

	/* What follows from a seed without this kind stays what it was. */
	do
		kind = kinds & MODE && below(2) ? MODE : 1u << below(6);
	while (!(kinds & kind));
	if (kind == CLOCK)
		trouble_set_clock(((int64_t)below(60000) - 30000) * 1000000);
	else if (kind == STOP)
		stop();
	else if (kind == STALL)
		stall();
	else if (kind == REFUSE)
		refuse();
	else if (kind == FILES)
		close_files();
	else if (kind == MODE)
		trouble_mode_change(below(3000));
	else
		remove_folder();
}

static unsigned long operations_to_next(void)
{
	return 1 + below(kinds == MODE ? EVERY_MODE : EVERY);
}

void trouble_begin(uint64_t seed)
{
	trouble_errors = stderr;
	if (!kinds)
		return;
	random_state = seed * 0x9e3779b97f4a7c15u + 0x7f4a7c15u;
	int fd = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, HIGH);
	if (fd >= 0) {
		trouble_errors = fdopen(fd, "w");
		setvbuf(trouble_errors, NULL, _IOLBF, 0);
	}
	if (kinds & STALL)
		sigaction(SIGUSR2, &(struct sigaction){.sa_handler = stand_still, .sa_flags = SA_RESTART}, NULL);
	if (kinds & STOP)
		open_sibling();
	atomic_store(&next_at, operations_to_next());
}

void trouble_step(void)
{
	if (!(kinds & ~STACK))
		return;
	unsigned long now = atomic_fetch_add(&steps, 1);
	if (now < atomic_load(&next_at) || pthread_mutex_trylock(&lock))
		return;
	if (now >= atomic_load(&next_at)) {
		happen();
		atomic_store(&next_at, now + operations_to_next());
	}
	pthread_mutex_unlock(&lock);
}

struct begun {
	void *(*run)(void *);
	void *argument;
	unsigned place;
};

static void *run_thread(void *argument)
{
	struct begun begun = *(struct begun *)argument;

	free(argument);
	pthread_mutex_lock(&lock);
	threads[begun.place].id = pthread_self();
	threads[begun.place].runs = true;
	pthread_mutex_unlock(&lock);
	void *result = begun.run(begun.argument);
	pthread_mutex_lock(&lock);
	threads[begun.place].runs = false;
	pthread_mutex_unlock(&lock);
	return result;
}

int trouble_thread(pthread_t *ret_thread, void *(*run)(void *), void *argument)
{
	static unsigned n;
	struct begun *begun = malloc(sizeof(*begun));
	long least = sysconf(_SC_THREAD_STACK_MIN);
	pthread_attr_t attributes;

	*begun = (struct begun){run, argument, n++ % THREADS_MAX};
	pthread_attr_init(&attributes);
	if (kinds & STACK && TEST_SLOWNESS == 1) /* a sanitizer's frames are larger */
		pthread_attr_setstacksize(&attributes, least > SMALL_STACK ? (size_t)least : SMALL_STACK);
	int result = pthread_create(ret_thread, &attributes, run_thread, begun);
	pthread_attr_destroy(&attributes);
	return result;
}

const char *trouble_end(void)
{
	if (sibling >= 0)
		close(sibling);
	if (sibling_pid > 0)
		waitpid(sibling_pid, NULL, 0);
	const char *wrong = trouble_mode_end();
	return wrong ? wrong : check_files();
}
