// SPDX-License-Identifier: Apache-2.0
#include "test/preload/made_up.h"

#include "test/preload/trouble.h"
#include "test/sim/sim.h"

#include <getopt.h>
#include <stdarg.h>

enum { OPTIONS_MOST = 16 };

static pthread_t threads[MADE_UP_THREADS_MAX];
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER; /* for good: by the one thread that ends the process */

void made_up_fail(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(trouble_errors, "%s: seed %lu: ", made_up.name, (unsigned long)made_up.seed);
	vfprintf(trouble_errors, format, list);
	fprintf(trouble_errors, "\n");
	va_end(list);
	_exit(1);
}

void made_up_must(CUresult result, const char *call, const char *file, int line)
{
	if (result == CUDA_SUCCESS)
		return;
	if (result != CUDA_ERROR_ILLEGAL_ADDRESS)
		made_up_fail("%s:%d: %s: CUDA error %d", file, line, call, result);
	fprintf(trouble_errors, "%s: seed %lu: %s:%d: %s: illegal address\n", made_up.name, (unsigned long)made_up.seed,
		file, line, call);
	fflush(NULL);
	if (made_up.leave) /* exit() waits for this thread */
		_exit(3);
	/* What the library has to say of it may come at the end; a second thread in exit() would cut it short. */
	pthread_mutex_lock(&ending);
	exit(3);
}

CUfunction made_up_kernel(const void *module, const char *name)
{
	CUmodule loaded;
	CUfunction function;

	GO(cuModuleLoadData(&loaded, module));
	GO(cuModuleGetFunction(&function, loaded, name));
	return function;
}

static bool read_own(const struct made_up_option *option, char *argument)
{
	if (option->flag)
		*option->flag = true;
	else if (option->number)
		*option->number = (unsigned)strtoul(argument, NULL, 0);
	else
		return option->read(argument);
	return true;
}

static bool read_options(int argc, char **argv, const struct made_up_option *own)
{
	struct option all[OPTIONS_MOST] = {{"seed", 1, NULL, 's'},       {"operations", 1, NULL, 'n'},
					   {"threads", 1, NULL, 't'},    {"bytes", 1, NULL, 'b'},
					   {"deadline", 1, NULL, 'd'},   {"trouble", 1, NULL, 'w'},
					   {"submissions", 1, NULL, 'n'}};
	int which;

	for (int n = 7, i = 0; own[i].name; i++, n++)
		all[n] = (struct option){own[i].name, !own[i].flag, NULL, 1000 + i};
	while ((which = getopt_long(argc, argv, "", all, NULL)) != -1) {
		unsigned long value = optarg ? strtoul(optarg, NULL, 0) : 0;

		if (which == 's')
			made_up.seed = value;
		else if (which == 'n')
			made_up.operations = value;
		else if (which == 't')
			made_up.threads = (unsigned)value;
		else if (which == 'b')
			made_up.bytes = value * MIB;
		else if (which == 'd')
			made_up.deadline = (unsigned)value;
		else if (which == '?' || !(which == 'w' ? trouble_read(optarg) : read_own(&own[which - 1000], optarg)))
			return false;
	}
	if (getenv("TEST_SEED"))
		made_up.seed = strtoul(getenv("TEST_SEED"), NULL, 0);
	return optind == argc;
}

void made_up_begin(int argc, char **argv, const struct made_up_option *own, unsigned threads_most, size_t least)
{
	if (!read_options(argc, argv, own) || !made_up.operations || !made_up.threads ||
	    made_up.threads > threads_most || made_up.bytes / made_up.threads < least) {
		fprintf(stderr, "usage: see made_up.h, and the head of %s.c\n", made_up.name);
		exit(2);
	}
	trouble_begin(made_up.seed);
	/* What hangs is told apart from what is slow by SIGALRM, 142 in a shell. */
	alarm(made_up.deadline);
}

void made_up_start(void *(*run)(void *worker), void *workers, size_t worker_bytes)
{
	for (unsigned i = 0; i < made_up.threads; i++)
		if (trouble_thread(&threads[i], run, (char *)workers + i * worker_bytes))
			made_up_fail("no thread");
}

void made_up_join(void)
{
	for (unsigned i = 0; i < made_up.threads; i++)
		pthread_join(threads[i], NULL);
}

void made_up_check(void)
{
	const char *wrong = trouble_end();

	if (wrong)
		made_up_fail("%s", wrong);
	if (sim_broken_rules())
		made_up_fail("%lu rules of the model were broken", sim_broken_rules());
}
