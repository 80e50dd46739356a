/*
 * Whose a slot is. See gpu_account_slot.h.
 *
 * The lock of a slot goes when the last process has closed the file: the one that took it, and its children that were
 * forked since and did not exec. It is the same with the memory that a process has on the device (docs/facts.md, Two
 * processes), so the lock says whether the memory is there, and the pid whether the process is.
 */
#include "shim/accounting/gpu_account_slot.h"
#include "shim/accounting/quota_slots.h"
#include "shim/base/identity.h"

enum account_slot_state account_slot_state(int fd, unsigned slot, const struct gpu_account_member *member, uint64_t now)
{
	if (!member->pid || !quota_file_is_locked(fd, 1 + slot, 1))
		return ACCOUNT_SLOT_FREE;
	return account_is_quiet(member, now) && account_has_ended(member, identity_space()) ? ACCOUNT_SLOT_ENDED
											    : ACCOUNT_SLOT_LIVES;
}
