// SPDX-License-Identifier: Apache-2.0
/*
 * report_cases FOLDER: the traces that report_test.sh shows, and some for replay_tool_test.sh, made by hand. Times are
 * round, so that every figure can be worked out on paper.
 */
#include "test/unit/trace_file.h"

#define S  UINT64_C(1000000000)
#define AT UINT64_C(0x7f0000000000)
#define HEAD                                                                                                           \
	"version=1\nstart=1795291697000000000\nclock=100000000000\npid=4711\nhost=node17\ncommand=python train.py\n"   \
	"policy=job.yaml\npolicy_hash=9f3a\nmode=exact\nspillway=0.1.0\ndevices=0:1073741824 \ngpu0=Some GPU\n"
#define T0 (100 * S)

static char path[4096];
static const char *folder;

static void save(struct trace_file *file, const char *name)
{
	snprintf(path, sizeof(path), "%s/%s.trace", folder, name);
	file_save(file, path);
	file_free(file);
}

static void name(struct trace_file *file, uint64_t list, uint64_t number, const char *text)
{
	struct trace_event event = {
	    .kind = TRACE_name, .time = T0, .field = {list, number}, .text = text, .text_bytes = strlen(text)};

	trace_frame_add(file->writer, &event);
}

static void submit(struct trace_file *file, uint64_t time, uint64_t function, uint64_t a, uint64_t b)
{
	const struct trace_named named[2] = {{.address = a}, {.address = b}};

	file_submit(file, time, function, named, b ? 2 : 1);
}

static void names(struct trace_file *file)
{
	name(file, TRACE_RULES, 1, "weights");
	name(file, TRACE_RULES, 2, "optim");
	name(file, TRACE_RULES, 3, "never");
	name(file, TRACE_SITES, 1, "libtorch_cuda.so+0x10");
	name(file, TRACE_CALLERS, 1, "train.py:80 in step < train.py:97 in main < ...");
	name(file, TRACE_FUNCTIONS, 0, "gemm");
	name(file, TRACE_FUNCTIONS, 1, "adam");
	name(file, TRACE_THREADS, 1, "python");
}

static void move_halves(struct trace_file *file, uint64_t i, uint64_t begin)
{
	uint64_t one = AT + 256 * MIB, other = AT + 512 * MIB;

	FILE_ADD(file, wait, begin, 0, 500 * MS, 1);
	FILE_ADD(file, move, begin, 2 * i, 0, i % 2 ? other : one, 256 * MIB, 1, TRACE_WHY_ROOM);
	FILE_ADD(file, moved, begin + 200 * MS, 2 * i, 0);
	FILE_ADD(file, move, begin + 200 * MS, 2 * i + 1, 0, i % 2 ? one : other, 256 * MIB, 0, TRACE_WHY_WAITED);
	FILE_ADD(file, moved, begin + 400 * MS, 2 * i + 1, 0);
	FILE_ADD(file, gap, begin + 400 * MS, 0, 200 * MS, 256 * MIB, 256 * MIB, 0);
}

/*
 * Ten seconds, four steps of two. 256 MiB of weights and 512 MiB of optimizer state, which does not fit into 512 MiB:
 * in each step one half of the optimizer's comes in, the other goes out, and the submission waits for 500 ms. Not
 * moving: the second half stays on the host.
 */
static void spilling(const char *as, const char *head, bool moving)
{
	struct trace_file file = file_new(head);

	file_frame(&file, 1, T0);
	names(&file);
	FILE_ADD(&file, ask, T0, 256 * MIB, 0, 0, 1);
	FILE_ADD(&file, made, T0 + 10 * MS, 1, AT, 256 * MIB, 0, 0, 0, 1, 1, 0);
	FILE_ADD(&file, ask, T0 + 20 * MS, 512 * MIB, 0, 0, 1);
	FILE_ADD(&file, made, T0 + 120 * MS, 2, AT + 256 * MIB, 512 * MIB, 0, 0, 0, 2, 1, 256 * MIB);
	FILE_ADD(&file, refused, T0 + 200 * MS, 4096 * MIB, 0, 0, 1, 1, 2);
	FILE_ADD(&file, bytes, T0 + 500 * MS, 0, 512 * MIB, 256 * MIB, 0, 0, 0, 512 * MIB);
	FILE_ADD(&file, push, T0 + 600 * MS, 0);
	for (uint64_t i = 0; i < 5; i++) {
		uint64_t begin = T0 + (1 + 2 * i) * S;

		FILE_ADD(&file, step, begin, 0, 2);
		if (i == 4)
			break;
		submit(&file, begin, 0, AT, 0);
		if (moving)
			move_halves(&file, i, begin + S);
		submit(&file, begin + 1500 * MS, 1, AT, AT + 256 * MIB);
	}
	FILE_ADD(&file, pop, T0 + 9 * S, 0);
	FILE_ADD(&file, freed, T0 + 10 * S, 2);
	FILE_ADD(&file, end, T0 + 10 * S, 0);
	save(&file, as);
}

/*
 * Two seconds on two devices. What device 0 cannot hold, 256 MiB, goes to device 1 at 0.5 GB/s and to the host at 0.25,
 * comes back twice as fast, and leaves device 1 for the host when that lends no more.
 */
static void peers(void)
{
	struct trace_file file = file_new("version=1\nstart=1795291697000000000\nclock=100000000000\nmode=exact\n"
					  "devices=0:1073741824 1:1073741824 \n");
	const uint64_t one = AT + 256 * MIB, other = AT + 384 * MIB, piece = 125 * 1000 * 1000;

	file_frame(&file, 1, T0);
	FILE_ADD(&file, made, T0, 1, AT, 256 * MIB, 0, 0, 0, 0, 0, 0);
	FILE_ADD(&file, made, T0 + 10 * MS, 2, one, 256 * MIB, 0, 0, 0, 0, 0, 192 * MIB);
	FILE_ADD(&file, lent, T0 + 10 * MS, 2, 1, 128 * MIB);
	FILE_ADD(&file, bytes, T0 + 20 * MS, 0, 320 * MIB, 192 * MIB, 0, 0, 0, 320 * MIB, 128 * MIB, 0);
	FILE_ADD(&file, bytes, T0 + 20 * MS, 1, 64 * MIB, 0, 0, 0, 0, 512 * MIB, 0, 128 * MIB);
	FILE_ADD(&file, move, T0 + 100 * MS, 1, 0, one, piece, 1, TRACE_WHY_ROOM, 2, 0);
	FILE_ADD(&file, move, T0 + 100 * MS, 2, 0, other, piece, 1, TRACE_WHY_ROOM, 0, 0);
	FILE_ADD(&file, moved, T0 + 350 * MS, 1, 0);
	FILE_ADD(&file, moved, T0 + 600 * MS, 2, 0);
	FILE_ADD(&file, bytes, T0 + 600 * MS, 0, 320 * MIB, 192 * MIB, 0, 0, 0, 320 * MIB, 96 * MIB, 0);
	FILE_ADD(&file, move, T0 + 700 * MS, 3, 0, one, piece, 0, TRACE_WHY_WAITED, 2, 0);
	FILE_ADD(&file, move, T0 + 700 * MS, 4, 0, other, piece, 0, TRACE_WHY_WAITED, 0, 0);
	FILE_ADD(&file, wait, T0 + 700 * MS, 0, 250 * MS, 0);
	FILE_ADD(&file, moved, T0 + 825 * MS, 3, 0);
	FILE_ADD(&file, moved, T0 + 950 * MS, 4, 0);
	FILE_ADD(&file, move, T0 + 1000 * MS, 5, 0, one, piece, 1, TRACE_WHY_ROOM, 2, 0);
	FILE_ADD(&file, moved, T0 + 1250 * MS, 5, 0);
	FILE_ADD(&file, move, T0 + 1500 * MS, 6, 0, one, piece, 1, TRACE_WHY_SUSPEND, 0, 2);
	FILE_ADD(&file, moved, T0 + 2000 * MS, 6, 0);
	FILE_ADD(&file, bytes, T0 + 2000 * MS, 1, 64 * MIB, 0, 0, 0, 0, 512 * MIB, 0, 0);
	FILE_ADD(&file, end, T0 + 2 * S, 0);
	save(&file, "peers");
}

/*
 * An allocator keeps 64 MiB, of which 8 MiB hold nothing yet. 40 MiB live for half of the time, 16 MiB all the time; in
 * the middle a piece leaves in which nothing is alive, and comes back for a birth. At the end all of it is freed.
 */
static void tensors(void)
{
	struct trace_file file = file_new(HEAD);

	file_frame(&file, 1, T0);
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 0, 0, 0, 0);
	FILE_ADD(&file, kept, T0, 0, AT, 64 * MIB);
	FILE_ADD(&file, born, T0, 0, AT, 40 * MIB);
	FILE_ADD(&file, born, T0, 0, AT + 40 * MIB, 16 * MIB);
	/* Of nobody, and of a device that is not there. */
	FILE_ADD(&file, born, T0, 0, AT + 1024 * MIB, 16 * MIB);
	FILE_ADD(&file, born, T0, 3, AT, UINT64_MAX);
	FILE_ADD(&file, died, T0 + S, 0, AT, 40 * MIB);
	FILE_ADD(&file, move, T0 + S, 1, 0, AT, 32 * MIB, 1, TRACE_WHY_ROOM, 0, 0);
	FILE_ADD(&file, moved, T0 + S + MS, 1, 0, 32 * MIB);
	FILE_ADD(&file, born, T0 + 2 * S, 0, AT, 40 * MIB);
	FILE_ADD(&file, move, T0 + 2 * S, 2, 0, AT, 32 * MIB, 0, TRACE_WHY_WAITED, 0, 0);
	FILE_ADD(&file, moved, T0 + 2 * S + MS, 2, 0, 8 * MIB);
	FILE_ADD(&file, died, T0 + 3 * S, 0, AT, 40 * MIB);
	FILE_ADD(&file, freed, T0 + 4 * S, 1);
	FILE_ADD(&file, end, T0 + 4 * S, 0);
	save(&file, "tensors");
}

/* As files were before devices lent to each other: a move of six numbers, and no kind of its own for what is lent. */
static void older(void)
{
	static const char text[] = "version=1\nclock=0\nmode=exact\nfields=4,9,6,1,2,3,1,6,2,5,3,2,1,1,1,7,5,6,2,1,1\n";
	static const uint8_t events[] = {TRACE_move, 2, 1, 0, 8, 16, 1, 2, TRACE_moved, 2, 1, 0, TRACE_end, 2, 3};
	const uint8_t bytes[4] = {sizeof(text) - 1};
	uint8_t frame[24] = {'F', 'R', 'A', 'M', sizeof(events)};
	struct trace_file file = file_new("");
	uint32_t sum = trace_check(events, sizeof(events));

	for (int i = 0; i < 4; i++)
		frame[8 + i] = (uint8_t)(sum >> 8 * i);
	file.n = 0;
	file_put(&file, TRACE_MAGIC, 8);
	file_put(&file, bytes, sizeof(bytes));
	file_put(&file, text, sizeof(text) - 1);
	file_put(&file, frame, sizeof(frame));
	file_put(&file, events, sizeof(events));
	save(&file, "older");
}

static void fitting(void)
{
	struct trace_file file = file_new(HEAD);

	file_frame(&file, 1, T0);
	FILE_ADD(&file, made, T0, 1, AT, 64 * MIB, 0, 0, 3, 0, 0, 0);
	FILE_ADD(&file, freed, T0 + S, 1);
	FILE_ADD(&file, faults, T0 + S, 0, 40, 2, 65536, 4096);
	FILE_ADD(&file, end, T0 + S, 0);
	save(&file, "fitting");
}

/* Managed memory of three places: the CPU left one alone, brought one back, and no GPU used the third. */
static void managed(void)
{
	struct trace_file file = file_new(HEAD);

	file_frame(&file, 1, T0);
	for (uint64_t i = 1; i < 4; i++)
		name(&file, TRACE_SITES, i, (const char *[]){"", "a.py:1", "a.py:2", "a.py:3"}[i]);
	for (uint64_t i = 1; i < 4; i++)
		FILE_ADD(&file, made, T0, i, AT + i * 64 * MIB, MIB, 2, 0, 1, 0, i, 0);
	FILE_ADD(&file, managed, T0 + S, 1, 0, 0);
	FILE_ADD(&file, managed, T0 + S, 2, 0, 0);
	FILE_ADD(&file, managed, T0 + S, 2, 1, 65536);
	FILE_ADD(&file, faults, T0 + S, 0, 40, 2, 65536, 65536, 1);
	FILE_ADD(&file, end, T0 + S, 0);
	save(&file, "managed");
}

/* Every text is somebody else's. */
static void hostile(void)
{
	static const char bad[] = "</script><script>alert(1)</script>\033[31m\"\xff,\n=1+1";
	struct trace_file file =
	    file_new("version=1\nstart=1\nclock=100000000000\npid=<b>1</b>\nhost=\033]0;x\a\n"
		     "command=</script><img src=x onerror=alert(1)>\ndevices=0:99999999999999999999999 x\n");

	file_frame(&file, 7, T0);
	name(&file, TRACE_RULES, 1, bad);
	name(&file, TRACE_RULES, 2, "=HYPERLINK(\"http://example.org\")");
	name(&file, TRACE_SITES, 1, bad);
	name(&file, TRACE_FUNCTIONS, 0, bad);
	name(&file, TRACE_THREADS, 7, bad);
	name(&file, TRACE_RANGES, 0, bad);
	FILE_ADD(&file, made, T0, 1, UINT64_MAX - 4096, UINT64_MAX, 99, 0, 77, 1, 1, UINT64_MAX);
	FILE_ADD(&file, made, T0, 2, 0, UINT64_MAX, 0, 1000, 0, 4000000000, 4000000000, 0);
	FILE_ADD(&file, made, T0, 3, AT, 1, 0, 63, 0, 2, 1, 5);
	FILE_ADD(&file, grown, T0 + 1, 3, UINT64_MAX);
	FILE_ADD(&file, refused, T0, UINT64_MAX, 0, UINT64_MAX, UINT64_MAX, UINT64_MAX, 0);
	FILE_ADD(&file, push, T0, 0);
	FILE_ADD(&file, move, T0, 5, UINT64_MAX, AT, UINT64_MAX, 1, UINT64_MAX);
	FILE_ADD(&file, moved, T0 + S, 5, 0);
	FILE_ADD(&file, move, T0, 6, 63, AT, UINT64_MAX, 0, 0, UINT64_MAX, UINT64_MAX);
	FILE_ADD(&file, moved, T0 + S, 6, 0);
	FILE_ADD(&file, moved, T0 + S, 6, 0);
	FILE_ADD(&file, moved, T0 + S, 12345, 0);
	FILE_ADD(&file, wait, T0 + S, 63, UINT64_MAX, UINT64_MAX);
	FILE_ADD(&file, gap, T0 + S, 63, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX);
	FILE_ADD(&file, bytes, T0 + S, 63, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX);
	FILE_ADD(&file, bytes, T0 + S, 62, 0, 1, 0, 0, 0, 0, UINT64_MAX, UINT64_MAX);
	FILE_ADD(&file, move, T0, 7, 62, AT, 1, 1, 0, 64, 65);
	FILE_ADD(&file, moved, T0 + S, 7, 0);
	FILE_ADD(&file, lent, T0 + S, 3, UINT64_MAX, UINT64_MAX);
	FILE_ADD(&file, faults, T0 + S, 63, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX);
	FILE_ADD(&file, faults, T0 + S, 63, 0, 0, 0, 0);
	FILE_ADD(&file, fault, T0 + S, 63, AT, 0, 0, 0, 0);
	FILE_ADD(&file, step, T0 + S, 63, UINT64_MAX);
	FILE_ADD(&file, state, T0 + S, 1);
	FILE_ADD(&file, kept, T0 + S, 0, UINT64_MAX - 5, UINT64_MAX);
	FILE_ADD(&file, kept, T0 + S, 0, AT, UINT64_C(1) << 44);
	FILE_ADD(&file, kept, T0 + S, 0, 0, 1);
	FILE_ADD(&file, kept, T0 + S, UINT64_MAX, AT, 4096);
	FILE_ADD(&file, born, T0 + S, 0, AT + 1, UINT64_MAX);
	FILE_ADD(&file, born, T0 + S, 0, AT + 1, 5);
	FILE_ADD(&file, born, T0 + S, 0, AT + 3, 7);
	FILE_ADD(&file, died, T0 + S, 0, AT + 2, 3);
	FILE_ADD(&file, doubted, T0 + S, 0, AT + 3, 3);
	FILE_ADD(&file, doubted, T0 + S, 0, UINT64_MAX, 0);
	submit(&file, T0 + S, UINT64_MAX, AT, UINT64_MAX - 1);
	FILE_ADD(&file, freed, T0 + S, 99);
	FILE_ADD(&file, lost, T0 + S, 12);
	/* A time before everything, and one far behind. */
	FILE_ADD(&file, made, 0, 4, AT, 4096, 0, 63, 0, 1, 1, 0);
	FILE_ADD(&file, wait, UINT64_MAX, 63, UINT64_MAX, 0);
	save(&file, "hostile");
}

/* For replay: n blocks, named in turn so many times, all at one moment. strange: and the end of what never was. */
static void turn(const char *as, unsigned n, const uint64_t *mib, unsigned times, bool strange)
{
	struct trace_file file = file_new("version=1\nclock=0\n");

	file_frame(&file, 0, T0);
	for (uint64_t i = 0; i < n; i++)
		FILE_ADD(&file, made, T0, i + 1, AT + i * 128 * MIB, mib[i] * MIB);
	if (strange)
		FILE_ADD(&file, freed, T0, 99);
	for (unsigned i = 0; i < times * n; i++)
		submit(&file, T0, 16 + i % n, AT + i % n * 128 * MIB, 0);
	save(&file, as);
}

static void empty(void)
{
	struct trace_file file = file_new(HEAD);

	save(&file, "empty");
}

/* Three ranks of a job of five, one of which moves nothing, and one of another job. */
static void ranks(void)
{
	spilling("rank0", HEAD "ranks=5\njob=4711\nrank=0\n", true);
	spilling("rank1", HEAD "ranks=5\njob=4711\nrank=1\n", true);
	spilling("rank2", HEAD "ranks=5\njob=4711\nrank=2\n", false);
	spilling("other", HEAD "ranks=5\njob=4712\nrank=3\n", true);
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	folder = argv[1];
	spilling("spilling", HEAD, true);
	spilling("static", "version=1\nstart=1795291697000000000\nclock=100000000000\nmode=static\n", false);
	peers();
	tensors();
	older();
	fitting();
	managed();
	hostile();
	empty();
	ranks();
	turn("turn", 12, (uint64_t[]){64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64, 64}, 40, false);
	turn("two", 2, (uint64_t[]){100, 50}, 0, false);
	turn("strange", 1, (uint64_t[]){4}, 1, true);
	return 0;
}
