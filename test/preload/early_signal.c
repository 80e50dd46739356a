// SPDX-License-Identifier: Apache-2.0
/* early_signal.c: a library of the program whose constructor sets what signals do, before preloaded ones are begun. */
#include <signal.h>
#include <stddef.h>

int early_signal_failures(void);

static int n_failures;

static void nothing(int number)
{
	(void)number;
}

__attribute__((constructor)) static void begin(void)
{
	struct sigaction action = {.sa_handler = nothing}, now;

	n_failures += sigaction(SIGUSR1, &action, NULL) != 0;
	n_failures += sigaction(SIGUSR1, NULL, &now) != 0 || now.sa_handler != nothing;
	n_failures += signal(SIGUSR2, nothing) != SIG_DFL;
}

int early_signal_failures(void)
{
	return n_failures;
}
