// SPDX-License-Identifier: Apache-2.0
/*
 * managed_samples: programs in the manner of NVIDIA's samples, with managed memory: managed_samples NAME [GIB|US]. A name
 * with "-copied" gets its results by cudaMemcpy; without that the CPU reads managed memory which the GPU has used.
 *
 *   vector, refill, gradient, advise   (and -copied): one kernel, and the same with input that the CPU writes anew for each
 *           step; conjugate gradients whose scalars the CPU reads in each step; advice and prefetches
 *   tasks   half on the CPU, half on streams to which their memory is attached
 *   chains  a list and a tree that the CPU builds and a kernel walks
 *   graph   a captured graph
 *   variables   declared __managed__
 *   word    (and -copied): the CPU reads one word after each of 1,000 kernels of US microseconds: word US
 *   results     the driver writes its results into managed memory that the GPU has used
 *   reserve     GIB, or twice the memory of the card, of which 1 GiB is used: under Spillway alone
 *   reach       3 GiB, of which a kernel uses a part
 *
 * Prints "each STEP MILLISECONDS DIGEST" and "check NAME DIGEST". Built as a library it is the allocator for PyTorch of
 * managed_jobs.py.
 */
#include <cuda_runtime.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#define MUST(call)                                                                                                     \
	do {                                                                                                           \
		cudaError_t result = (call);                                                                           \
		if (result != cudaSuccess) {                                                                           \
			fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(result));                                \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

static const size_t MIB = 1 << 20;
static const int STEPS = 8, THREADS = 256;
static bool copied; /* results come by cudaMemcpy */
static size_t number; /* of the command line: GiB or us */

template <typename T> static T *managed(size_t n, unsigned flags = cudaMemAttachGlobal)
{
	T *at;

	MUST(cudaMallocManaged((void **)&at, n * sizeof(T), flags));
	return at;
}

static unsigned blocks(size_t n)
{
	return (unsigned)((n + THREADS - 1) / THREADS);
}

static uint64_t digest(const void *at, size_t bytes)
{
	std::vector<uint64_t> copy;
	const uint64_t *words = (const uint64_t *)at;
	uint64_t sum = 14695981039346656037u;

	if (copied) {
		copy.resize(bytes / 8);
		MUST(cudaMemcpy(copy.data(), at, bytes, cudaMemcpyDefault));
		words = copy.data();
	}
	for (size_t i = 0; i < bytes / 8; i++)
		sum = (sum ^ words[i]) * 1099511628211u;
	return sum;
}

static void check(const char *name, const void *at, size_t bytes)
{
	printf("check %s %016llx\n", name, (unsigned long long)digest(at, bytes));
	fflush(stdout);
}

static double now(void)
{
	return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void each(int step, double begin, double value)
{
	printf("each %d %.3f %.9g\n", step + 1, now() - begin, value);
}

static float input(size_t i)
{
	return (float)(i * 2654435761u % 1000003) / 1000003;
}

static void fill(float *at, size_t n, size_t seed)
{
	for (size_t i = 0; i < n; i++)
		at[i] = input(i + seed);
}

__global__ void add(float *sum, const float *a, const float *b, size_t n)
{
	size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	if (i < n)
		sum[i] += a[i] * b[i];
}

static void vector(bool refill)
{
	size_t n = 160 * MIB / 4;
	float *a = managed<float>(n), *b = managed<float>(n), *c = managed<float>(n);

	fill(a, n, 0);
	fill(b, n, 1);
	memset(c, 0, n * sizeof(float));
	for (int i = 0; i < STEPS; i++) {
		double begin = now();

		if (refill && i && copied) {
			std::vector<float> next(n);
			fill(next.data(), n, (size_t)i);
			MUST(cudaMemcpy(a, next.data(), n * sizeof(float), cudaMemcpyDefault));
		} else if (refill && i) {
			fill(a, n, (size_t)i);
		}
		add<<<blocks(n), THREADS>>>(c, a, b, n);
		MUST(cudaDeviceSynchronize());
		each(i, begin, 0);
	}
	check("sum", c, n * sizeof(float));
	MUST(cudaFree(a));
	MUST(cudaFree(b));
	MUST(cudaFree(c));
}

/* ---- conjugate gradients ---- */

__global__ void laplace(float *out, const float *in, size_t n)
{
	size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	if (i < n)
		out[i] = 2.1f * in[i] - (i ? in[i - 1] : 0) - (i + 1 < n ? in[i + 1] : 0);
}

__global__ void axpy(float *y, const float *x, float a, float b, size_t n) /* y = a * x + b * y */
{
	size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;

	if (i < n)
		y[i] = a * x[i] + b * y[i];
}

/* In an order that no run changes. */
__global__ void dot_parts(double *parts, const float *a, const float *b, size_t n)
{
	__shared__ double shared[THREADS];
	double sum = 0;

	for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
		sum += (double)a[i] * b[i];
	shared[threadIdx.x] = sum;
	__syncthreads();
	for (unsigned half = THREADS / 2; half; half /= 2) {
		if (threadIdx.x < half)
			shared[threadIdx.x] += shared[threadIdx.x + half];
		__syncthreads();
	}
	if (!threadIdx.x)
		parts[blockIdx.x] = shared[0];
}

__global__ void dot_sum(double *sum, const double *parts, unsigned n)
{
	*sum = 0;
	for (unsigned i = 0; i < n; i++)
		*sum += parts[i];
}

static double dot(double *scalar, double *parts, const float *a, const float *b, size_t n)
{
	double value;

	dot_parts<<<512, THREADS>>>(parts, a, b, n);
	dot_sum<<<1, 1>>>(scalar, parts, 512);
	if (copied) {
		MUST(cudaMemcpy(&value, scalar, sizeof(value), cudaMemcpyDefault));
		return value;
	}
	MUST(cudaDeviceSynchronize());
	return *scalar;
}

static void gradient(void)
{
	size_t n = 128 * MIB / 4;
	float *x = managed<float>(n), *r = managed<float>(n), *p = managed<float>(n), *q = managed<float>(n);
	double *scalar = managed<double>(1), *parts = managed<double>(512);

	memset(x, 0, n * sizeof(float));
	fill(r, n, 0);
	memcpy(p, r, n * sizeof(float));
	double rr = dot(scalar, parts, r, r, n);
	for (int i = 0; i < 2 * STEPS; i++) {
		double begin = now();

		laplace<<<blocks(n), THREADS>>>(q, p, n);
		double alpha = rr / dot(scalar, parts, p, q, n);
		axpy<<<blocks(n), THREADS>>>(x, p, (float)alpha, 1, n);
		axpy<<<blocks(n), THREADS>>>(r, q, (float)-alpha, 1, n);
		double next = dot(scalar, parts, r, r, n);
		axpy<<<blocks(n), THREADS>>>(p, r, 1, (float)(next / rr), n);
		rr = next;
		each(i, begin, rr);
	}
	check("x", x, n * sizeof(float));
	for (void *at : {(void *)x, (void *)r, (void *)p, (void *)q, (void *)scalar, (void *)parts})
		MUST(cudaFree(at));
}

/* ---- advice, tasks, graphs, variables ---- */

static void advise(void)
{
	size_t n = 160 * MIB / 4, bytes = n * sizeof(float);
	float *a = managed<float>(n), *b = managed<float>(n), *c = managed<float>(n);
	cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0}, cpu = {cudaMemLocationTypeHost, 0};
	int preferred = -9, last = -9;

	MUST(cudaMemAdvise(a, bytes, cudaMemAdviseSetReadMostly, gpu));
	MUST(cudaMemAdvise(b, bytes, cudaMemAdviseSetPreferredLocation, gpu));
	MUST(cudaMemAdvise(c, bytes, cudaMemAdviseSetAccessedBy, cpu));
	fill(a, n, 0);
	fill(b, n, 1);
	memset(c, 0, bytes);
	for (float *at : {a, b, c})
		MUST(cudaMemPrefetchAsync(at, bytes, gpu, 0, 0));
	for (int i = 0; i < STEPS; i++) {
		double begin = now();

		add<<<blocks(n), THREADS>>>(c, a, b, n);
		MUST(cudaDeviceSynchronize());
		each(i, begin, 0);
	}
	MUST(cudaMemPrefetchAsync(c, bytes, cpu, 0, 0));
	MUST(cudaDeviceSynchronize());
	MUST(cudaMemRangeGetAttribute(&preferred, sizeof(preferred), cudaMemRangeAttributePreferredLocation, b, bytes));
	MUST(cudaMemRangeGetAttribute(&last, sizeof(last), cudaMemRangeAttributeLastPrefetchLocation, c, bytes));
	printf("check preferred %d\ncheck prefetched %d\n", preferred, last);
	check("sum", c, bytes);
	for (float *at : {a, b, c})
		MUST(cudaFree(at));
}

static void tasks(void)
{
	const int n_tasks = 32, n_streams = 4;
	size_t n = 16 * MIB / 4;
	cudaStream_t stream[n_streams];
	float *a[n_tasks], *b[n_tasks];
	std::vector<float> result(n);

	for (cudaStream_t &one : stream)
		MUST(cudaStreamCreate(&one));
	for (int i = 0; i < n_tasks; i++) {
		a[i] = managed<float>(n, cudaMemAttachHost);
		b[i] = managed<float>(n, cudaMemAttachHost);
		fill(a[i], n, (size_t)i);
		memset(b[i], 0, n * sizeof(float));
	}
	for (int i = 0; i < n_tasks; i++) {
		cudaStream_t on = stream[i % n_streams];

		if (i % 4 == 0) {
			MUST(cudaStreamAttachMemAsync(on, a[i], 0, cudaMemAttachHost));
			MUST(cudaStreamAttachMemAsync(on, b[i], 0, cudaMemAttachHost));
			MUST(cudaStreamSynchronize(on));
			for (size_t k = 0; k < n; k++)
				b[i][k] += a[i][k] + a[i][k];
			continue;
		}
		MUST(cudaStreamAttachMemAsync(on, a[i], 0, cudaMemAttachSingle));
		MUST(cudaStreamAttachMemAsync(on, b[i], 0, cudaMemAttachSingle));
		add<<<blocks(n), THREADS, 0, on>>>(b[i], a[i], a[i], n);
	}
	MUST(cudaDeviceSynchronize());
	for (int i = 0; i < n_tasks; i++) {
		copied = i % 4 != 0;
		check(("task" + std::to_string(i)).c_str(), b[i], n * sizeof(float));
		MUST(cudaFree(a[i]));
		MUST(cudaFree(b[i]));
	}
}

static void graph(void)
{
	size_t n = 160 * MIB / 4;
	float *a = managed<float>(n), *b = managed<float>(n), *c = managed<float>(n);
	cudaStream_t stream;
	cudaGraph_t captured;
	cudaGraphExec_t ready;

	fill(a, n, 0);
	fill(b, n, 1);
	memset(c, 0, n * sizeof(float));
	MUST(cudaStreamCreate(&stream));
	MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
	add<<<blocks(n), THREADS, 0, stream>>>(c, a, b, n);
	add<<<blocks(n), THREADS, 0, stream>>>(b, a, c, n);
	MUST(cudaStreamEndCapture(stream, &captured));
	MUST(cudaGraphInstantiate(&ready, captured, 0));
	for (int i = 0; i < STEPS; i++) {
		double begin = now();

		MUST(cudaGraphLaunch(ready, stream));
		MUST(cudaStreamSynchronize(stream));
		each(i, begin, 0);
	}
	check("b", b, n * sizeof(float));
	check("c", c, n * sizeof(float));
	for (float *at : {a, b, c})
		MUST(cudaFree(at));
}

__managed__ int counter;
__managed__ float table[1 << 16];

__global__ void count(void)
{
	if (table[blockIdx.x * blockDim.x + threadIdx.x] > 0.5f)
		atomicAdd(&counter, 1);
}

static void variables(void)
{
	fill(table, 1 << 16, 0);
	for (int i = 0; i < STEPS; i++) {
		double begin = now();

		count<<<(1 << 16) / THREADS, THREADS>>>();
		MUST(cudaDeviceSynchronize());
		each(i, begin, counter);
	}
	printf("check counter %d\n", counter);
}

/* ---- what the CPU and the driver use in turn with the GPU ---- */

__global__ void spin(uint64_t *word, uint64_t ns)
{
	uint64_t begin, end;

	asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
	do
		asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end));
	while (end - begin < ns);
	++*word;
}

static void word(size_t us)
{
	uint64_t *at = managed<uint64_t>(16 * MIB / 8), value, sum = 0;

	memset(at, 0, 16 * MIB);
	for (int i = 0; i < 1000; i++) {
		double begin = now();

		spin<<<1, 1>>>(at, us * 1000);
		if (copied) {
			MUST(cudaMemcpy(&value, at, sizeof(value), cudaMemcpyDefault));
		} else {
			MUST(cudaDeviceSynchronize());
			value = *(volatile uint64_t *)at;
		}
		sum += value;
		each(i, begin, 0);
	}
	printf("check sum %llu\n", (unsigned long long)sum);
	MUST(cudaFree(at));
}

/* Each result alone in two pages of 4 KiB, which a kernel has used just before. */
template <typename T> static T *used_by_gpu(const char *what)
{
	uint64_t *at = managed<uint64_t>(8192 / 8);

	spin<<<1, 1>>>(at, 0);
	MUST(cudaDeviceSynchronize());
	fprintf(stderr, "result of %s\n", what); /* the last line, if that does not return */
	return (T *)at;
}

static void results(void)
{
	cudaEvent_t *event[2] = {used_by_gpu<cudaEvent_t>("cudaEventCreate"), NULL};
	MUST(cudaEventCreate(event[0]));
	cudaStream_t *stream = used_by_gpu<cudaStream_t>("cudaStreamCreate");
	MUST(cudaStreamCreate(stream));
	void **plain = used_by_gpu<void *>("cudaMalloc");
	MUST(cudaMalloc(plain, MIB));
	void **ordered = used_by_gpu<void *>("cudaMallocAsync");
	MUST(cudaMallocAsync(ordered, MIB, *stream));
	void **pinned = used_by_gpu<void *>("cudaMallocHost");
	MUST(cudaMallocHost(pinned, MIB));
	uint64_t **inner = used_by_gpu<uint64_t *>("cudaMallocManaged");
	MUST(cudaMallocManaged((void **)inner, MIB));
	size_t *room = used_by_gpu<size_t>("cudaMemGetInfo");
	MUST(cudaMemGetInfo(room, room + 1));
	cudaDeviceProp *properties = used_by_gpu<cudaDeviceProp>("cudaGetDeviceProperties");
	MUST(cudaGetDeviceProperties(properties, 0));
	cudaPointerAttributes *attributes = used_by_gpu<cudaPointerAttributes>("cudaPointerGetAttributes");
	MUST(cudaPointerGetAttributes(attributes, *plain));
	event[1] = used_by_gpu<cudaEvent_t>("cudaEventCreate");
	MUST(cudaEventCreate(event[1]));
	MUST(cudaMemset(*plain, 1, MIB));
	MUST(cudaMemsetAsync(*ordered, 2, MIB, *stream));
	MUST(cudaEventRecord(*event[0], *stream));
	memset(*inner, 3, MIB);
	spin<<<1, 1, 0, *stream>>>(*inner, 1000);
	MUST(cudaEventRecord(*event[1], *stream));
	MUST(cudaEventSynchronize(*event[1]));
	cudaEvent_t begin = *event[0], end = *event[1];
	float *ms = used_by_gpu<float>("cudaEventElapsedTime");
	MUST(cudaEventElapsedTime(ms, begin, end));
	MUST(cudaMemcpy(*pinned, *ordered, MIB, cudaMemcpyDefault));
	printf("check pinned %d\ncheck elapsed %d\ncheck room %d\ncheck name %s\ncheck kind %d\ncheck inner %llx\n",
	       *(char *)*pinned, *ms > 0, room[0] && room[0] < room[1], strchr(properties->name, ' ') ? "yes" : "no",
	       (int)attributes->type, (unsigned long long)**inner);
}

/* ---- pointers in managed memory ---- */

struct tree {
	tree *left, *right;
	uint64_t value;
};

struct link {
	link *next;
	uint64_t *payload;
	uint64_t n;
};

__global__ void walk_list(uint64_t *sum, const link *head)
{
	uint64_t own = 0;

	for (; head; head = head->next)
		for (uint64_t i = threadIdx.x; i < head->n; i += blockDim.x)
			own += head->payload[i] ^ i;
	atomicAdd((unsigned long long *)sum, own);
}

__global__ void walk_tree(uint64_t *sum, const tree *root)
{
	uint64_t way = (blockIdx.x * (uint64_t)blockDim.x + threadIdx.x) * 2654435761u, own = 0;

	for (; root; root = way & 1 ? root->left : root->right, way >>= 1)
		own += root->value;
	atomicAdd((unsigned long long *)sum, own);
}

static void chains(void)
{
	size_t n_nodes = 160 * MIB / sizeof(tree);
	tree *pool = managed<tree>(n_nodes);
	link *head = NULL;
	uint64_t *sums = managed<uint64_t>(2);

	for (size_t i = 0; i < n_nodes; i++)
		pool[i] = {2 * i + 1 < n_nodes ? &pool[2 * i + 1] : NULL, 2 * i + 2 < n_nodes ? &pool[2 * i + 2] : NULL,
			   i};
	for (uint64_t i = 0; i < 40; i++) {
		link *node = managed<link>(1);
		*node = {head, managed<uint64_t>(6 * MIB / 8), 6 * MIB / 8};
		for (uint64_t k = 0; k < node->n; k++)
			node->payload[k] = i * k;
		head = node;
	}
	sums[0] = sums[1] = 0;
	for (int i = 0; i < STEPS; i++) {
		double begin = now();

		walk_list<<<1, THREADS>>>(&sums[0], head);
		walk_tree<<<4096, THREADS>>>(&sums[1], pool);
		MUST(cudaDeviceSynchronize());
		each(i, begin, 0);
	}
	copied = true;
	check("sums", sums, 16);
}

/* ---- more than is used ---- */

static void reserve(size_t bytes)
{
	const size_t parts = 64, part = 16 * MIB;
	cudaMemLocation gpu = {cudaMemLocationTypeDevice, 0};
	cudaDeviceProp prop;

	if (!getenv("LD_PRELOAD") || !strstr(getenv("LD_PRELOAD"), "libspillway")) {
		fprintf(stderr, "reserve: not without Spillway\n");
		exit(1);
	}
	MUST(cudaGetDeviceProperties(&prop, 0));
	if (!bytes)
		bytes = 2 * prop.totalGlobalMem;
	size_t apart = bytes / parts / part * part;
	char *at = managed<char>(bytes);
	for (size_t i = 0; i < parts; i += 2)
		memset(at + i * apart, (int)i + 1, part);
	MUST(cudaMemPrefetchAsync(at, part, gpu, 0, 0));
	for (size_t i = 0; i < parts; i++) {
		double begin = now();

		if (i % 4 == 1)
			MUST(cudaMemset(at + i * apart, (int)i, part));
		else if (i % 2)
			MUST(cudaMemcpy(at + i * apart, at + (i - 1) * apart, part, cudaMemcpyDefault));
		MUST(cudaDeviceSynchronize());
		each((int)i, begin, 0);
	}
	copied = true;
	for (size_t i = 0; i < parts; i++) {
		std::vector<char> wanted(part, (char)(i % 2 ? i : i + 1));
		uint64_t there = digest(at + i * apart, part);
		copied = false;
		if (there != digest(wanted.data(), part))
			printf("check part%zu DIFFERS\n", i);
		copied = true;
	}
	printf("check asked %zu\ncheck used %zu\n", bytes, parts * part);
	MUST(cudaFree(at));
}

static void reach(void)
{
	size_t n = 128 * MIB / 4;
	float *at = managed<float>(3072 * MIB / 4);

	fill(at, n, 0);
	add<<<blocks(n), THREADS>>>(at + n, at, at, n);
	copied = true;
	check("sum", at + n, n * sizeof(float));
	MUST(cudaFree(at));
}

/* ---- the allocator ---- */

/*
 * MANAGED_PLUG: what it calls: managed (cudaMallocManaged), prefetched (with a prefetch to the GPU) or plain (cudaMalloc).
 * MANAGED_PLUG_KEEP: what is freed is kept, by size, for the next block: the work is on one stream. Without it each free
 * waits for the GPU.
 */
static std::mutex lock;
static std::multimap<size_t, void *> kept;
static size_t held, most;

static void *make(size_t bytes, int device)
{
	std::string kind = getenv("MANAGED_PLUG") ? getenv("MANAGED_PLUG") : "managed";
	cudaMemLocation gpu = {cudaMemLocationTypeDevice, device};
	void *at;

	if ((kind == "plain" ? cudaMalloc(&at, bytes) : cudaMallocManaged(&at, bytes)) != cudaSuccess)
		return NULL;
	held += bytes;
	if (held > most)
		most = held;
	if (kind == "prefetched") {
		MUST(cudaMemAdvise(at, bytes, cudaMemAdviseSetPreferredLocation, gpu));
		MUST(cudaMemPrefetchAsync(at, bytes, gpu, 0, 0));
	}
	return at;
}

static size_t rounded(ssize_t bytes)
{
	return ((size_t)bytes + 511) & ~(size_t)511;
}

extern "C" void *managed_plug_alloc(ssize_t bytes, int device, cudaStream_t)
{
	std::lock_guard<std::mutex> guard(lock);

	if (bytes <= 0)
		return NULL;
	auto found = kept.find(rounded(bytes));
	if (found == kept.end())
		return make(rounded(bytes), device);
	void *at = found->second;
	kept.erase(found);
	return at;
}

extern "C" void managed_plug_free(void *at, ssize_t bytes, int, cudaStream_t)
{
	std::lock_guard<std::mutex> guard(lock);

	if (getenv("MANAGED_PLUG_KEEP")) {
		kept.insert({rounded(bytes), at});
		return;
	}
	held -= rounded(bytes);
	cudaFree(at);
}

extern "C" size_t managed_plug_most(void)
{
	return most;
}

int main(int argc, char **argv)
{
	std::string name = argc > 1 ? argv[1] : "";
	size_t end = name.find("-copied");

	setvbuf(stdout, NULL, _IOLBF, 0); /* what the library says at the exit must not come within a line */
	copied = end != std::string::npos;
	name = name.substr(0, end);
	number = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	if (name == "reserve") {
		reserve(number * 1024 * MIB);
		return 0;
	}
	const std::map<std::string, void (*)(void)> samples = {{"vector", [] { vector(false); }},
							       {"refill", [] { vector(true); }},
							       {"gradient", gradient},
							       {"advise", advise},
							       {"tasks", tasks},
							       {"graph", graph},
							       {"variables", variables},
							       {"chains", chains},
							       {"results", results},
							       {"word", [] { word(number); }},
							       {"reach", reach}};
	auto found = samples.find(name);
	if (found == samples.end()) {
		fprintf(stderr, "usage: managed_samples NAME[-copied] [GIB|US]\n");
		return 2;
	}
	found->second();
	MUST(cudaDeviceSynchronize());
	return 0;
}
