/*
 * When to foresee where tensors will lie (tensor_future.h), and whether to go by it. A walk is made when the program
 * has come to another place in its past, when tensors are born elsewhere than foreseen, and after EACH submissions, or
 * half of what the walk before foresees, if that is less. Near its end a walk is not gone by, for behind it nothing is
 * foretold.
 *
 * `credit` limits the cost: each thing that a walk looks at takes one, each submission adds some. If births are not as
 * foreseen, because the program's allocator has another rule, walks become rare.
 */
#include "shim/plan/plan_internal.h"

#define TRUST_ON  600 /* a score of this much (of TENSOR_FUTURE_SCORE) is enough to begin to go by walks ... */
#define TRUST_OFF 400 /* ... and of this much to go on */
/*
 * Submissions between walks if a birth was not as foreseen, and if all were.
 *
 * In the replay model (GPT with another length in each step, 1.5, ms a step in `fast` and `exact`): SOON 8 117 and 221,
 * 16 115 and 217, 32 111 and 200, 64 112 and 205, 128 113 and 208; EACH 128 119 and 231, 1024 111 and 200 (walks of
 * more than twice EACH).
 */
#define SOON   32
#define EACH   512
#define RARELY 256  /* at most, if births are hardly ever as foreseen */
#define AGAIN  4096 /* after a walk that could not be made, at the same place */
#define NEAR   16   /* so many before it, or a quarter of a walk if that is less, its end is near */
/*
 * Things that may be looked at, 12 ns each: what each submission adds, what a walk requires, and what can be saved up,
 * which is also the most that one walk looks at. In that model CREDIT_EACH 256 takes 121 and 211 ms, 384 to 1024 111
 * and 200.
 */
#define CREDIT_EACH  384
#define CREDIT_LEAST 16384
#define CREDIT_MOST  131072

void plan_tensors_jump(struct plan *plan)
{
	tensor_future_drop(&plan->tensors.future);
	plan->tensors.trusted_walk = false;
	plan->tensors.jumped = true;
}

void plan_tensors_charge(struct plan *plan, uint64_t things)
{
	plan->tensors.credit -= (int64_t)things;
}

/* Returns whether there is a walk, and its end is not near. */
static bool goes_far(const struct plan *plan)
{
	const struct plan_tensors *tensors = &plan->tensors;

	return tensors->future.until > plan->at + (tensors->reach / 4 < NEAR ? tensors->reach / 4 : NEAR);
}

static bool is_due(const struct plan *plan)
{
	const struct plan_tensors *tensors = &plan->tensors;
	uint64_t since = plan->pieces.now - tensors->walked;

	if (tensors->jumped && (tensors->trusted || tensors->patience <= SOON))
		return true;
	if (tensors->jumped || tensors->future.n_wrong != tensors->n_wrong)
		return since >= tensors->patience;
	if (!tensors->future.compared) /* the latest walk could not be made */
		return since >= AGAIN;
	return tensors->future.until &&
	       (since >= (tensors->reach / 2 < EACH ? tensors->reach / 2 : EACH) || !goes_far(plan));
}

static void plan_tensors_walk(struct plan *plan)
{
	struct plan_tensors *tensors = &plan->tensors;
	uint64_t steps;
	enum tensor_future_result result =
	    tensor_future_make(&tensors->future, &plan->pieces, plan->at, plan->pieces.now, CREDIT_MOST, &steps);

	plan_tensors_charge(plan, steps);
	tensors->jumped = false;
	tensors->walked = plan->pieces.now;
	tensors->reach = tensors->future.until ? tensors->future.until - plan->at : 0;
	tensors->n_wrong = tensors->future.n_wrong;
	if (tensors->trusted || result == TENSOR_FUTURE_NOT_NEEDED || !tensors->patience)
		tensors->patience = SOON;
	else
		tensors->patience = tensors->patience < RARELY ? 2 * tensors->patience : RARELY;
}

bool plan_tensors_follow(struct plan *plan)
{
	struct plan_tensors *tensors = &plan->tensors;
	bool went_by_it = tensors->trusted_walk, walks;

	tensors->credit += tensors->credit < CREDIT_MOST ? CREDIT_EACH : 0;
	if (plan->at == PREDICT_NONE)
		return false;
	walks = tensors->credit >= CREDIT_LEAST && is_due(plan);
	if (walks || tensors->credit >= 0) /* a change of this costs as much as a walk */
		tensors->trusted = tensors->future.score >= (tensors->trusted ? TRUST_OFF : TRUST_ON);
	if (walks)
		plan_tensors_walk(plan);
	tensors->trusted_walk = tensors->trusted && goes_far(plan);
	return (walks && tensors->trusted_walk) || tensors->trusted_walk != went_by_it;
}

/* ---- what the program's allocator does ---- */

void plan_set_pieces(struct plan *plan, plan_piece_function *piece_at, void *argument)
{
	plan->tensors.future.piece_at = piece_at;
	plan->tensors.future.argument = argument;
}

void plan_set_whole(struct plan *plan, uint32_t units)
{
	plan->tensors.future.whole_units = units;
}

void plan_report(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_future_report(&plan->tensors.future, begin, end);
}

void plan_forget(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_future_forget(&plan->tensors.future, begin, end);
}

void plan_birth(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_future_birth(&plan->tensors.future, plan->pieces.now, begin, end);
}

void plan_death(struct plan *plan, uint64_t begin, uint64_t end)
{
	tensor_future_death(&plan->tensors.future, plan->pieces.now, begin, end);
}

void plan_name(struct plan *plan, const uint64_t *addresses, unsigned n)
{
	tensor_log_name(&plan->tensors.future.log, plan->pieces.now + 1, addresses, n);
}
