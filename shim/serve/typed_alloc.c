/*
 * typed_alloc.c: asks the policy's rules about memory whose kind the program has chosen; serves cuMemAllocManaged.
 * See typed_alloc.h.
 */
#include "shim/serve/typed_alloc.h"
#include "shim/serve/alloc_decide.h"
#include "shim/context/context.h"
#include "shim/process/process.h"
#include "shim/faults/faults.h"
#include "shim/device/pool.h"
#include "shim/driver/real.h"
#include "shim/serve/make_room.h"
#include "shim/serve/account.h"
#include "shim/trace/trace.h"

static struct policy_decision typed_alloc_decide(enum policy_api api, struct device *device, size_t bytes, void *caller,
						 const struct call_site *site)
{
	struct backend_request question = {.api = api, .bytes = bytes, .caller = caller, .site = site};

	return alloc_decide(device, &question);
}

bool typed_alloc_claim(enum policy_api api, struct device *device, size_t bytes, void *caller,
		       struct account_claim *ret_claim)
{
	bool decides = policy_decides(process_policy(), api);

	*ret_claim = (struct account_claim){.rule = -1, .spill = policy_vmm_spill(process_policy())};
	/* Pinned memory counts for no site. */
	if (decides || api != POLICY_API_HOST)
		ret_claim->site = call_site_find(caller);
	if (!decides)
		return true;
	if (!device)
		device = device_current(NULL);
	if (!device)
		return true; /* the driver has an error of its own for that */
	struct policy_decision decision = typed_alloc_decide(api, device, bytes, caller, ret_claim->site);
	ret_claim->rule = decision.rule;
	ret_claim->spill = decision.vmm_spill;
	/* Only the driver can make it (parse.c ensures that): behind a full cap only deny is left. */
	if (decision.use == POLICY_USE_DRIVER && alloc_decide_take(&decision, bytes, &ret_claim->cap))
		return true;
	account_refused(device, bytes, decision.rule, ret_claim->site);
	return false;
}

/* ---- managed memory ---- */

static CUresult ask_driver(CUdeviceptr *ret_address, size_t bytes, unsigned flags, int rule, struct budget *cap,
			   const struct call_site *site)
{
	CUresult result;
	struct room room = {0};

	/* It is not known where the memory will lie, and so how much of the device it needs. */
	do
		result = REAL(cuMemAllocManaged)(ret_address, bytes, flags);
	while (result == CUDA_ERROR_OUT_OF_MEMORY && make_room_for_driver(&room, -1, 0));
	make_room_end(&room, result);
	if (result == CUDA_SUCCESS)
		faults_start();
	if (result == CUDA_SUCCESS)
		account_note_claimed(LEDGER_MANAGED, *ret_address, bytes, -1,
				     &(struct account_claim){.rule = rule, .cap = cap, .site = site});
	else if (cap)
		budget_give(cap, bytes);
	return result;
}

/* Tries pages of the system, which both sides reach at one address, as they do managed memory. */
static enum sw_status ask_system(struct device *device, size_t bytes, const struct policy_decision *decision,
				 struct budget *cap, const struct call_site *site, CUdeviceptr *ret_address)
{
	struct backend_system_settings system = alloc_decide_system(decision, device);
	struct backend_request request = {
	    .bytes = bytes, .api = POLICY_API_MANAGED, .decision = decision, .system = &system};
	struct ledger_row *row = ledger_row_new(LEDGER_SYSTEM);
	enum sw_status status = SW_NO_HOST_MEMORY;

	if (row) {
		row->device = device->ordinal;
		row->bytes = bytes;
		row->context = context_of_memory();
		row->rule = decision->rule;
		row->system.asked_managed = true;
		status = backend_system.alloc(device, &request, row, NULL);
	}
	if (status != SW_OK) {
		if (cap)
			budget_give(cap, bytes);
		ledger_row_free(row);
		return status;
	}
	row->cap = cap;
	*ret_address = row->key;
	account_commit(row, POLICY_API_MANAGED, site);
	return SW_OK;
}

/* Tries the uses in their order, as in serve.c. */
static CUresult ask_in_turn(struct device *device, const struct policy_decision *decision, size_t bytes, unsigned flags,
			    const struct call_site *site, CUdeviceptr *ret_address)
{
	CUresult result = CUDA_ERROR_NOT_SUPPORTED;

	for (unsigned i = 0; i < decision->n_uses; i++) {
		struct budget *cap = NULL;

		if (decision->uses[i] == POLICY_USE_DENY || (i == 0 && !alloc_decide_take(decision, bytes, &cap)))
			result = CUDA_ERROR_OUT_OF_MEMORY;
		else if (decision->uses[i] == POLICY_USE_SYSTEM)
			result = status_result(ask_system(device, bytes, decision, cap, site, ret_address));
		else
			result = ask_driver(ret_address, bytes, flags, decision->rule, cap, site);
		if (result != CUDA_ERROR_OUT_OF_MEMORY && result != CUDA_ERROR_NOT_SUPPORTED)
			return result;
	}
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		account_refused(device, bytes, decision->rule, site);
	return result == CUDA_ERROR_NOT_SUPPORTED ? ask_driver(ret_address, bytes, flags, decision->rule, NULL, site)
						  : result;
}

CUresult typed_alloc_managed(CUdeviceptr *ret_address, size_t bytes, unsigned flags, void *caller)
{
	bool is_right = ret_address && bytes && (flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST);
	bool decides = policy_decides(process_policy(), POLICY_API_MANAGED);
	struct backend_request question = {.api = POLICY_API_MANAGED, .bytes = bytes, .caller = caller};
	/* Invalid arguments are left to the driver to refuse. */
	struct device *device = is_right && (decides || trace_is_on()) ? device_current(NULL) : NULL;
	struct policy_decision decision = {.rule = -1};
	CUresult result;

	if (is_right)
		question.site = call_site_find(caller);
	if (device)
		trace_ask(device, &question);
	if (device && decides) {
		decision = alloc_decide(device, &question);
		result = ask_in_turn(device, &decision, bytes, flags, question.site, ret_address);
	} else {
		result = ask_driver(ret_address, bytes, flags, -1, NULL, question.site);
	}
	if (device && result != CUDA_SUCCESS)
		trace_refused(device, &question, decision.rule, result);
	return result;
}
