// SPDX-License-Identifier: Apache-2.0
/* The accounts of all GPUs of a machine (gpu_account.h), as a job that uses several of them looks at them. */
#include "shim/accounting/gpu_account.h"
#include "test/test.h"
#include "test/unit/quota_help.h"

/*
 * A machine has up to 64 GPUs. Files of GPUs that no process uses, as of processes that were killed, take nobody's
 * place, whatever their number.
 */
TEST(all_gpus_of_a_machine_are_looked_at)
{
	enum { GPUS = 64, STALE = 100 };
	static const struct gpu_account_member mine = {.pid = 1, .job = {.process = 1}};
	static struct gpu_account accounts[GPUS], stale;
	static struct gpu_account_view scratch;
	static struct gpu_job_view view;
	unsigned char number[16] = {0};

	for (unsigned i = 0; i < GPUS + STALE; i++) {
		struct gpu_account *one = i % 2 || i >= 2 * GPUS ? &stale : &accounts[i / 2];

		number[0] = (unsigned char)i;
		stale.file.open = false;
		assert_true(gpu_account_join(one, number, ROOM, &mine));
		if (one == &stale)
			close(stale.file.fd);
	}
	for (unsigned i = 0; i < GPUS; i++) {
		assert_true(gpu_account_all(&accounts[i], 1, &scratch, &view));
		assert_int_equal(view.n, GPUS);
		assert_int_equal(view.self, i);
		assert_int_equal(view.seats[i].device, i);
	}
	for (unsigned i = 0; i < GPUS + STALE; i++) {
		char name[200];

		snprintf(name, sizeof(name), "%s/spillway/gpu-%02x%030d.account", folder, i, 0);
		assert_int_equal(unlink(name), 0);
		if (i < GPUS)
			close(accounts[i].file.fd);
	}
}

EACH_TEST(make_folder, drop_folder)
