// SPDX-License-Identifier: Apache-2.0
/* spank.h: of Slurm's header of this name, what the plugin uses; for spank_test.c, where Slurm need not be. */
#ifndef SLURM_STUB_SPANK_H
#define SLURM_STUB_SPANK_H

typedef struct spank_handle *spank_t;
typedef enum { ESPANK_SUCCESS, ESPANK_ERROR, ESPANK_BAD_ARG } spank_err_t;
typedef enum { S_CTX_LOCAL, S_CTX_REMOTE, S_CTX_ALLOCATOR } spank_context_t;
typedef enum {
	S_JOB_UID,
	S_JOB_GID,
	S_JOB_LOCAL_TASK_COUNT,
	S_TASK_EXIT_STATUS,
	S_TASK_PID,
	S_STEP_ALLOC_MEM,
	S_JOB_ALLOC_MEM,
} spank_item_t;

struct spank_option {
	char *name, *arginfo, *usage;
	int has_arg, val;
	int (*cb)(int value, const char *text, int remote);
};
#define SPANK_OPTIONS_TABLE_END                                                                                        \
	{                                                                                                              \
		0                                                                                                      \
	}
#define SPANK_PLUGIN(name, version)

int slurm_spank_init(spank_t spank, int n, char **arguments);
int slurm_spank_task_init(spank_t spank, int n, char **arguments);
int slurm_spank_task_exit(spank_t spank, int n, char **arguments);

spank_err_t spank_option_register(spank_t spank, struct spank_option *option);
spank_context_t spank_context(void);
spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int bytes);
spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite);
spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...);
void slurm_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void slurm_spank_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
