// SPDX-License-Identifier: Apache-2.0
/* Names of trace files: what is put into a pattern, and what happens where a name is taken. */
#include "shim/base/rank.h"
#include "shim/trace/trace_internal.h"
#include "test/test.h"

#include <sys/stat.h>

static char folder[] = "/tmp/trace_name_test.XXXXXX";

/* "NAME=value" sets a variable, "NAME" removes it; several, with spaces between them. */
static void set(const char *variables)
{
	char text[256], *rest;

	snprintf(text, sizeof(text), "%s", variables);
	for (char *at = strtok_r(text, " ", &rest); at; at = strtok_r(NULL, " ", &rest)) {
		char *value = strchr(at, '=');

		if (value)
			*value = 0;
		assert_int_equal(value ? setenv(at, value + 1, 1) : unsetenv(at), 0);
	}
}

static void forget_ranks(void)
{
	set("RANK LOCAL_RANK SLURM_PROCID OMPI_COMM_WORLD_RANK PMIX_RANK PMI_RANK");
}

static const char *expanded(const char *pattern)
{
	static char name[512];
	bool unique;

	assert_true(file_expand(pattern, name, sizeof(name), &unique));
	assert_int_equal(unique, strstr(pattern, "%p") != NULL);
	return name;
}

TEST(a_pattern_becomes_a_name)
{
	char want[512], host[256];

	forget_ranks();
	gethostname(host, sizeof(host));
	snprintf(want, sizeof(want), "/a/%d-%s-%s-0%%x%%y%%", getpid(), host, program_invocation_short_name);
	assert_string_equal(expanded("/a/%p-%h-%e-%r%%x%y%"), want);
}

TEST(the_rank_is_the_first_that_is_a_number)
{
	static const struct {
		const char *set, *rank;
		int64_t number;
	} rows[] = {
	    {"LOCAL_RANK=6", "6", 6},
	    {"SLURM_PROCID=5", "5", 5},
	    {"PMI_RANK=4", "4", 4},
	    {"OMPI_COMM_WORLD_RANK=3", "3", 3},
	    {"RANK=../2", "3", 3},
	    {"RANK=1", "1", 1},
	    {"RANK=99999999999", "99999999999", 99999999999},
	    {"RANK=", "3", 3},
	};

	forget_ranks();
	assert_null(rank_text());
	assert_int_equal(rank_number(), -1);
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		set(rows[i].set);
		assert_string_equal(expanded("%r"), rows[i].rank);
		assert_int_equal(rank_number(), rows[i].number);
	}
	forget_ranks();
}

TEST(a_job_has_the_name_that_its_launcher_gives)
{
	static const char *const rows[][2] = {
	    {"SPILLWAY_JOB SLURM_JOB_ID PMIX_NAMESPACE RAY_JOB_ID TORCHELASTIC_RUN_ID", ""},
	    {"RAY_JOB_ID=01000000", "01000000"},
	    {"TORCHELASTIC_RUN_ID=none", "01000000"},
	    {"TORCHELASTIC_RUN_ID=run-7", "run-7"},
	    {"SLURM_JOB_ID=4711", "4711"},
	    {"SPILLWAY_JOB=mine", "mine"},
	};
	char job[RANK_JOB_BYTES], large[200];

	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		set(rows[i][0]);
		assert_string_equal(rank_job(job), rows[i][1]);
	}
	memset(large, 'a', sizeof(large));
	large[RANK_JOB_BYTES] = 0;
	setenv("SPILLWAY_JOB", large, 1);
	assert_string_equal(rank_job(job), "4711");
	setenv("SPILLWAY_JOB", "two words", 1);
	assert_string_equal(rank_job(job), "4711");
	set("WORLD_SIZE=8 LOCAL_RANK=2");
	assert_string_equal(rank_world(), "8");
	assert_string_equal(rank_local(), "2");
	forget_ranks();
}

/* Returns rank_together() of a process in a container with a network of its own; 0: there can be none. */
static uint64_t together_in_container(void)
{
	uint64_t number = 0;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	if (fork() == 0) {
		if (unshare((geteuid() ? CLONE_NEWUSER : 0) | CLONE_NEWNET) == 0)
			number = rank_together();
		_exit(write(ends[1], &number, sizeof(number)) == sizeof(number) ? 0 : 1);
	}
	assert_int_equal(read(ends[0], &number, sizeof(number)), sizeof(number));
	close(ends[0]);
	close(ends[1]);
	assert_true(wait(NULL) > 0);
	return number;
}

/* Ranks that were started together have one number, and no others have it. */
TEST(ranks_that_were_started_together_are_known)
{
	static const char all[] = "WORLD_SIZE OMPI_COMM_WORLD_SIZE PMI_SIZE SLURM_NTASKS SLURM_JOB_ID SLURM_STEP_ID "
				  "PMIX_NAMESPACE TORCHELASTIC_RUN_ID MASTER_ADDR MASTER_PORT";

	forget_ranks();
	set(all);
	assert_int_equal(rank_together(), 0);
	/* A batch script of Slurm starts programs that have nothing to do with each other. */
	set("SLURM_JOB_ID=4711 SLURM_PROCID=0 SLURM_NTASKS=2");
	assert_int_equal(rank_together(), 0);
	setenv("SLURM_STEP_ID", "0", 1);
	uint64_t step = rank_together();
	assert_true(step);
	setenv("SLURM_PROCID", "1", 1);
	assert_true(rank_together() == step);
	setenv("SLURM_STEP_ID", "1", 1);
	assert_true(rank_together() && rank_together() != step);
	setenv("SLURM_NTASKS", "1", 1);
	assert_int_equal(rank_together(), 0);
	forget_ranks();
	unsetenv("SLURM_STEP_ID");
	/* torchrun: by its id, or by where its ranks meet. */
	set("RANK=3 WORLD_SIZE=4 TORCHELASTIC_RUN_ID=none");
	assert_int_equal(rank_together(), 0);
	set("MASTER_ADDR=localhost MASTER_PORT=29500");
	uint64_t meets = rank_together();
	assert_true(meets);
	setenv("RANK", "0", 1);
	assert_true(rank_together() == meets);
	setenv("MASTER_PORT", "29501", 1);
	assert_true(rank_together() != meets);
	set("MASTER_PORT TORCHELASTIC_RUN_ID=mine");
	assert_true(rank_together() && rank_together() != meets);
	unsetenv("RANK");
	assert_int_equal(rank_together(), 0);
	/* MPI. */
	set("OMPI_COMM_WORLD_RANK=0 TORCHELASTIC_RUN_ID PMIX_NAMESPACE=prterun-1@1");
	assert_true(rank_together() && rank_together() != meets);
	set(all);
	forget_ranks();
	/* Over several machines. */
	assert_false(rank_is_spread());
	set("WORLD_SIZE=8 LOCAL_WORLD_SIZE=8");
	assert_false(rank_is_spread());
	setenv("LOCAL_WORLD_SIZE", "4", 1);
	assert_true(rank_is_spread());
	set("LOCAL_WORLD_SIZE SLURM_PROCID=1 SLURM_STEP_ID=1 SLURM_STEP_NUM_NODES=1");
	assert_false(rank_is_spread());
	setenv("SLURM_STEP_NUM_NODES", "2", 1);
	assert_true(rank_is_spread());
	set("SLURM_STEP_NUM_NODES SLURM_STEP_ID WORLD_SIZE");
	forget_ranks();
	/* Texts one after the other are not the same as others that read alike. */
	assert_true(rank_hash(rank_hash(0, "ab"), "c") != rank_hash(rank_hash(0, "a"), "bc"));
}

/* Programs that meet at localhost:29500 in two containers are two jobs; those that meet at another machine are one. */
TEST(the_same_port_in_two_containers_is_two_jobs)
{
	static const char *const here[] = {"localhost", "127.0.0.1", "::1"};

	forget_ranks();
	set("RANK=0 WORLD_SIZE=2 MASTER_PORT=29500 MASTER_ADDR=10.1.2.3");
	uint64_t other = together_in_container();
	if (!other)
		print_message(
		    "this system lets nobody make a network namespace: only what is common to all is tested\n");
	assert_true(!other || other == rank_together());
	for (size_t i = 0; i < sizeof(here) / sizeof(*here); i++) {
		setenv("MASTER_ADDR", here[i], 1);
		assert_true(rank_together() && rank_together() == rank_together());
		assert_true(!other || (together_in_container() && together_in_container() != rank_together()));
	}
	set("MASTER_ADDR MASTER_PORT WORLD_SIZE");
	forget_ranks();
}

TEST(a_name_that_is_too_long_is_refused)
{
	char name[8];
	bool unique;

	assert_true(file_expand("1234567", name, sizeof(name), &unique));
	assert_false(file_expand("12345678", name, sizeof(name), &unique));
	assert_false(file_expand("123456%%%%", name, sizeof(name), &unique));
	assert_false(file_expand("", name, sizeof(name), &unique));
}

static void make(const char *pattern, const char *want)
{
	struct trace_file file;
	struct stat status;
	char path[300], name[300];
	bool unique;

	snprintf(path, sizeof(path), "%s/%s", folder, pattern);
	assert_int_equal(file_make(&file, path), 0);
	snprintf(path, sizeof(path), "%s/%s", folder, want);
	assert_true(file_expand(path, name, sizeof(name), &unique));
	assert_string_equal(file.name, name);
	assert_int_equal(fstat(file.fd, &status), 0);
	assert_int_equal(status.st_mode & 07777, 0600);
	file_close(&file);
}

TEST(a_name_that_is_taken_is_never_written_over)
{
	struct trace_file file;
	char path[300];

	umask(0);
	make("t", "t");
	make("t", "t.%p");
	make("t", "t.%p.1");
	make("u%p", "u%p");
	make("u%p", "u%p.1");
	/* A link is a name that is taken, wherever it leads. */
	snprintf(path, sizeof(path), "%s/link", folder);
	assert_int_equal(symlink("/nowhere/at/all", path), 0);
	make("link", "link.%p");
	assert_int_equal(file_make(&file, "/nowhere/at/all"), ENOENT);
}

/* A daemon closes its standard output; what it prints by mistake afterwards must not be in the trace. */
TEST(the_first_three_descriptors_are_the_programs)
{
	struct trace_file file;
	char path[300];
	int kept = dup(STDIN_FILENO);

	snprintf(path, sizeof(path), "%s/low", folder);
	close(STDIN_FILENO);
	int error = file_make(&file, path), low = fcntl(STDIN_FILENO, F_GETFD);
	if (kept >= 0) {
		dup2(kept, STDIN_FILENO);
		close(kept);
	}
	assert_int_equal(error, 0);
	assert_int_equal(low, -1);
	assert_true(file.fd > STDERR_FILENO && fcntl(file.fd, F_GETFD) == FD_CLOEXEC);
	file_close(&file);
}

/* The program closes everything and opens a file of its own: that one is left alone. */
TEST(a_descriptor_that_is_another_files_is_not_written_to)
{
	struct trace_file file;
	char path[300];

	snprintf(path, sizeof(path), "%s/closed", folder);
	assert_int_equal(file_make(&file, path), 0);
	assert_int_equal(file_write(&file, "abc", 3), 0);
	FILE *other = tmpfile();
	assert_non_null(other);
	assert_int_equal(dup2(fileno(other), file.fd), file.fd);
	assert_int_equal(file_write(&file, "abc", 3), EBADF);
	assert_int_equal(lseek(fileno(other), 0, SEEK_END), 0);
	close(file.fd);
	assert_int_equal(file_write(&file, "abc", 3), EBADF);
	file_close(&file);
	fclose(other);
}

int main(void)
{
	char command[64];

	if (!mkdtemp(folder))
		return 1;
	int failed = test_run();
	snprintf(command, sizeof(command), "rm -rf %s", folder);
	return system(command) ? 1 : failed;
}
