// SPDX-License-Identifier: Apache-2.0
/*
 * check.c: checked launches (check.h), on the threads of the program: which launches are checked, and the list.
 *
 * The list only grows, by one write for each line, so that processes may share it. Fields of a line, with tabs between:
 *
 *   n  HASH  LIBRARY  NAME      a function that a process launches for the first time. HASH stands for it
 *   ?  HASH                     before a launch that is checked;
 *   -  HASH                     no fault was seen: the kernel has ended well, or its check was given up;
 *   !  HASH                     the kernel has faulted. A function with a '!' is not checked again, nor one with a '?'
 *                               and nothing after it, because the process did not live to say more
 *   =  HASH  LAUNCHES  CHECKED  at the end of a process
 *   +  REASON  LAUNCHES         the same: launches that were not checked (LEFT_REASONS)
 */
#include "shim/base/call_site.h"
#include "shim/base/log.h"
#include "shim/base/rank.h"
#include "shim/submit/types.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of each function the first launches are checked, or as many later ones if these cannot be; and one of so many. */
#define FIRST   3u
#define TRIES   30u
#define EACH    1000u
#define LINES   (1u << 24) /* of the list that are read at most */
#define ASK_NS  1000000000 /* the mover may be carrying out an order */
#define LOOK_NS 20000

struct check_function {
	_Atomic uint64_t hash; /* 0: the entry is free */
	_Atomic char state;    /* in the list, when the process began; '!' also from then on */
	_Atomic uint64_t launches, tried, checked;
};

#define FUNCTIONS 16384u
struct check_list {
	char path[PATH_MAX];
	struct check_function functions[FUNCTIONS]; /* only added */
	_Atomic uint64_t left[LEFT_COUNT];
};

/* Returns the function of this hash, a new one if there is none; NULL: there are too many. */
static struct check_function *find_function(uint64_t hash)
{
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		struct check_function *function = &submit_state.check->functions[(hash + i) % FUNCTIONS];
		uint64_t is = 0;

		if (atomic_compare_exchange_strong(&function->hash, &is, hash) || is == hash)
			return function;
	}
	return NULL;
}

/* ---- the list ---- */

/* Opened for each line, because a program may close descriptors that it does not know. */
static int open_list(const char *path)
{
	int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0600);
	struct stat status;

	if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_uid == geteuid())
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

__attribute__((format(printf, 1, 2))) static bool write_line(const char *format, ...)
{
	char line[400];
	int fd = open_list(submit_state.check->path);
	va_list list;

	va_start(list, format);
	int n = vsnprintf(line, sizeof(line), format, list);
	va_end(list);
	bool written = fd >= 0 && write(fd, line, (size_t)n) == n;
	if (fd >= 0)
		close(fd);
	return written;
}

static bool write_state(char state, const struct check_function *function)
{
	return write_line("%c\t%016" PRIx64 "\n", state, function->hash);
}

static void read_list(FILE *file)
{
	char line[400];

	for (unsigned n = 0; n < LINES && fgets(line, sizeof(line), file); n++) {
		uint64_t hash = *line && strchr("?-!", *line) ? strtoull(line + 1, NULL, 16) : 0;
		struct check_function *function = hash ? find_function(hash) : NULL;

		if (function && function->state != '!')
			function->state = *line;
	}
}

void check_start(void)
{
	const char *name = secure_getenv("SPILLWAY_CHECK");
	struct check_list *check = name && *name ? calloc(1, sizeof(*check)) : NULL;
	int fd = check ? open_list(name) : -1;
	FILE *file = fd >= 0 ? fdopen(fd, "r") : NULL;

	/* The program may change its folder and its environment. */
	if (file && realpath(name, check->path)) {
		submit_state.check = check;
		read_list(file);
	} else if (check) {
		log_line("SPILLWAY_CHECK: no launch is checked: %s is no file that this user can read and write", name);
		free(check);
	}
	if (file)
		fclose(file);
	else if (fd >= 0)
		close(fd);
}

void check_end(void)
{
	static const char *const reasons[] = {LEFT_REASONS(LEFT_TEXT)};
	struct check_list *check = submit_state.check;

	for (unsigned i = 0; check && i < FUNCTIONS; i++) {
		const struct check_function *function = &check->functions[i];

		if (function->launches)
			write_line("=\t%016" PRIx64 "\t%" PRIu64 "\t%" PRIu64 "\n", function->hash, function->launches,
				   function->checked);
	}
	for (unsigned i = 0; check && i < LEFT_COUNT; i++)
		if (check->left[i])
			write_line("+\t%s\t%" PRIu64 "\n", reasons[i], check->left[i]);
}

bool check_is_on(void)
{
	return submit_state.check != NULL;
}

/* ---- which launches ---- */

/* Returns the function that is launched, and tells the list of it at first; NULL: there are too many. */
static struct check_function *function_of(const struct submission *submission)
{
	const char *name = kernel_params_full_name((CUfunction)(uintptr_t)submission->function) ?: "?";
	const char *path = call_site_launcher() ?: "?", *slash = strrchr(path, '/');
	const char *library = slash ? slash + 1 : path;
	struct check_function *function = find_function(rank_hash(rank_hash(0, library), name));

	if (function && !atomic_fetch_add(&function->launches, 1))
		write_line("n\t%016" PRIx64 "\t%.100s\t%.200s\n", function->hash, library, name);
	return function;
}

/* Returns why the launch is not checked, LEFT_COUNT if it is not its turn; or claims the check for it. */
static enum check_left claim(struct submission *submission)
{
	enum check_stage idle = CHECK_IDLE;

	if (submission_is_graph(submission))
		return LEFT_GRAPH;
	if (submission_is_no_kernel(submission->function))
		return LEFT_COUNT;
	/* A captured launch runs nothing, and nobody may wait for the GPU meanwhile. */
	if (capture_is_open())
		return LEFT_CAPTURE;
	struct check_function *function = function_of(submission);
	if (!function)
		return LEFT_FILE;
	if (function->launches % EACH && (function->checked >= FIRST || function->tried >= TRIES))
		return LEFT_COUNT;
	if (function->state == '!' || function->state == '?')
		return LEFT_LISTED;
	if (submission->reach == REACH_ALL || submission->stream == COMPLETION_ANY_STREAM)
		return LEFT_UNKNOWN;
	/* Of the device whose memory it names first. */
	struct channel *channel =
	    submit_state.submission.arenas[submission->n_held ? submission->held[0].arena : 0].channel;
	if (!(submission->state & SUBMISSION_TRACKING) || !submission->n_arenas || atomic_load(&channel->dead))
		return LEFT_STILL;
	if (!atomic_compare_exchange_strong(&channel->check.stage, &idle, CHECK_CLAIMED))
		return LEFT_BUSY;
	function->tried++;
	channel->check.function = function;
	channel->check.submission = submission;
	submission->checked = channel;
	return LEFT_COUNT;
}

static void leave(enum check_left why)
{
	if (why != LEFT_COUNT)
		atomic_fetch_add(&submit_state.check->left[why], 1);
}

/* ---- one check ---- */

static bool pass(struct check *check, enum check_stage from, enum check_stage to)
{
	return atomic_compare_exchange_strong(&check->stage, &from, to);
}

/* Ends the check, unless the mover has, and waits until all is mapped again. why: LEFT_COUNT if it was a check. */
static void end(struct submission *submission, enum check_stage how, enum check_left why)
{
	struct check *check = &submission->checked->check;
	int cancel = check->cancel;

	leave(why);
	submission->checked = NULL;
	if (!pass(check, CHECK_OPEN, how))
		atomic_store(&check->stage, CHECK_IDLE);
	while (atomic_load(&check->stage) == how)
		clock_sleep(LOOK_NS);
	pthread_setcancelstate(cancel, NULL);
}

bool check_is_open(const struct submission *submission)
{
	return atomic_load(&submission->checked->check.stage) == CHECK_OPEN;
}

void check_drop(struct submission *submission, bool late)
{
	int saved = errno;

	write_state('-', submission->checked->check.function);
	end(submission, CHECK_DONE, late ? LEFT_LATE : LEFT_CUT);
	errno = saved;
}

/* Waits until the launch is alone, or is not to be checked after all. */
static void ask(struct submission *submission)
{
	struct check *check = &submission->checked->check;
	uint64_t until = clock_now() + ASK_NS;

	completion_flush();
	check->why = LEFT_BUSY;
	atomic_store(&check->stage, CHECK_ASKED);
	channel_wake(submission->checked);
	/* Once the mover has taken it, it answers. */
	while (check->stage == CHECK_ASKED || check->stage == CHECK_TAKEN) {
		clock_sleep(LOOK_NS);
		if (clock_now() > until)
			pass(check, CHECK_ASKED, CHECK_REFUSED);
	}
	if (check->stage == CHECK_REFUSED)
		end(submission, CHECK_DONE, check->why);
	else if (!write_state('?', check->function))
		end(submission, CHECK_DONE, LEFT_FILE);
}

void check_begin(struct submission *submission)
{
	int saved = errno, cancel;

	/* Until the check ends. */
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	leave(claim(submission));
	if (submission->checked) {
		submission->checked->check.cancel = cancel;
		ask(submission);
	} else {
		pthread_setcancelstate(cancel, NULL);
	}
	errno = saved;
}

bool check_names(const struct check *check, const struct block_state *block)
{
	for (unsigned i = 0; i < check->submission->n_held; i++)
		if (check->submission->held[i].block == block)
			return true;
	return false;
}

void check_finish(struct submission *submission)
{
	struct check_function *function = submission->checked->check.function;
	CUresult result = CUDA_ERROR_NOT_READY;
	int saved = errno;

	/*
	 * Not a wait in the driver, which would go on when the check is cut. Nor a query during a capture of another
	 * thread, which one of the default stream would end.
	 */
	while (result == CUDA_ERROR_NOT_READY && check_is_open(submission) && capture_pause()) {
		result = (submission->per_thread ? REAL(cuStreamQuery_ptsz) : REAL(cuStreamQuery))(submission->stream);
		capture_resume();
		clock_sleep(LOOK_NS);
	}
	bool faulted = result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED;
	bool cut = !check_is_open(submission) || (result != CUDA_SUCCESS && !faulted);
	if (faulted)
		function->state = '!';
	/* If that cannot be written, the function stays listed. */
	write_state(faulted ? '!' : '-', function);
	function->checked += !cut;
	end(submission, faulted ? CHECK_FAULTED : CHECK_DONE, cut ? LEFT_CUT : LEFT_COUNT);
	errno = saved;
}
