// SPDX-License-Identifier: Apache-2.0
/*
 * sim_launch.c: modules, libraries, functions, and kernel launches.
 *
 * A module image is a struct sim_module (sim.h). Parameters are copied at the call into one buffer laid out as the
 * driver would (natural alignment, at most 8). When the launch's turn comes, each aligned 8-byte word that is an
 * address of the window, or of managed memory, is replaced by its alias in a second buffer, and the body gets pointers
 * into that one. CUfunction: struct sim_function; CUkernel: the same with the lowest bit set; CUmodule, CUlibrary:
 * struct CUmod_st. None is ever freed.
 */
#include "sim_context.h"
#include "sim_managed.h"
#include "sim_memory.h"

static CUmodule libraries;

struct sim_function *sim_function(CUfunction function)
{
	struct sim_function *f = (struct sim_function *)((uintptr_t)function & ~(uintptr_t)1);

	return f && f->alive ? f : NULL;
}

static bool is_kernel(const void *handle)
{
	return (uintptr_t)handle & 1;
}

/* ---- modules ---- */

static void lay_out(struct sim_function *function, const struct sim_kernel *kernel)
{
	size_t at = 0;

	function->alive = true;
	function->kernel = kernel;
	function->offsets = calloc(kernel->n_params + 1, sizeof(*function->offsets));
	for (unsigned i = 0; i < kernel->n_params; i++) {
		size_t bytes = kernel->param_bytes[i], alignment = bytes & -bytes;

		alignment = alignment > 8 ? 8 : alignment ?: 1;
		at = (at + alignment - 1) & ~(alignment - 1);
		function->offsets[i] = at;
		at += bytes;
	}
	function->params_bytes = at;
}

static CUresult load(CUmodule *ret_module, const void *image, bool library)
{
	const struct sim_module *source = image;
	CUmodule module;

	if (!ret_module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	if (source->magic != SIM_MODULE_MAGIC)
		return sim_why(CUDA_ERROR_INVALID_IMAGE, "the image is not a struct sim_module");
	module = calloc(1, sizeof(*module));
	module->alive = true;
	module->library = library;
	module->n_functions = source->n_kernels;
	module->functions = calloc(source->n_kernels + 1, sizeof(*module->functions));
	for (unsigned i = 0; i < source->n_kernels; i++) {
		lay_out(&module->functions[i], &source->kernels[i]);
		module->functions[i].module = module;
	}
	if (library) {
		module->next = libraries;
		libraries = module;
	} else {
		module->context = sim_context();
		module->next = module->context->modules;
		module->context->modules = module;
	}
	*ret_module = module;
	return CUDA_SUCCESS;
}

static void end_module(CUmodule module)
{
	module->alive = false;
	for (unsigned i = 0; i < module->n_functions; i++)
		module->functions[i].alive = false;
}

static CUresult unload(CUmodule module)
{
	if (!module || !module->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	if (module->context)
		sim_wait_context(module->context);
	end_module(module);
	return CUDA_SUCCESS;
}

void sim_modules_forget_context(CUcontext context)
{
	for (CUmodule module = context->modules; module; module = module->next)
		end_module(module);
}

static void *handle_of(CUmodule module, unsigned i)
{
	return (char *)&module->functions[i] + module->library;
}

static CUresult find(void **ret_function, CUmodule module, const char *name)
{
	if (!module || !module->alive)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ret_function || !name)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < module->n_functions; i++) {
		if (strcmp(module->functions[i].kernel->name, name))
			continue;
		*ret_function = handle_of(module, i);
		return CUDA_SUCCESS;
	}
	return sim_why(CUDA_ERROR_NOT_FOUND, "the image has no kernel \"%s\"", name);
}

static CUresult count(unsigned *ret_n, CUmodule module)
{
	return module && module->alive ? SIM_ANSWER(ret_n, module->n_functions) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult enumerate(void **ret_functions, unsigned n, CUmodule module)
{
	if (!ret_functions || !module || !module->alive)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < n && i < module->n_functions; i++)
		ret_functions[i] = handle_of(module, i);
	return CUDA_SUCCESS;
}

SPELL(cuModuleLoadData, (CUmodule * module, const void *image), load(module, image, false))
SPELL(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned n, CUjit_option *options, void **values),
      ((void)n, (void)options, (void)values, load(module, image, false)))
SPELL(cuModuleLoadFatBinary, (CUmodule * module, const void *image), load(module, image, false))
SPELL(cuModuleUnload, (CUmodule module), unload(module))
SPELL(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name),
      find((void **)function, module, name))
SPELL(cuModuleGetFunctionCount, (unsigned *n, CUmodule module), count(n, module))
SPELL(cuModuleEnumerateFunctions, (CUfunction * functions, unsigned n, CUmodule module),
      enumerate((void **)functions, n, module))
SPELL_FREE(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), (*mode = CU_MODULE_EAGER_LOADING, CUDA_SUCCESS))
SPELL_FREE(cuLibraryLoadData,
	   (CUlibrary * library, const void *code, CUjit_option *jit, void **jit_values, unsigned n_jit,
	    CUlibraryOption *options, void **values, unsigned n),
	   ((void)jit, (void)jit_values, (void)n_jit, (void)options, (void)values, (void)n,
	    load((CUmodule *)library, code, true)))
SPELL_FREE(cuLibraryUnload, (CUlibrary library), unload((CUmodule)library))
SPELL_FREE(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name),
	   find((void **)kernel, (CUmodule)library, name))
SPELL_FREE(cuLibraryGetKernelCount, (unsigned *n, CUlibrary library), count(n, (CUmodule)library))
SPELL_FREE(cuLibraryEnumerateKernels, (CUkernel * kernels, unsigned n, CUlibrary library),
	   enumerate((void **)kernels, n, (CUmodule)library))
SPELL(cuLibraryGetModule, (CUmodule * module, CUlibrary library), (*module = (CUmodule)library, CUDA_SUCCESS))

/* ---- functions ---- */

static CUresult function_of(CUfunction *ret_function, CUkernel kernel)
{
	if (!ret_function || !is_kernel(kernel) || !sim_function((CUfunction)kernel))
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_function = (CUfunction)sim_function((CUfunction)kernel);
	return CUDA_SUCCESS;
}

static CUresult library_of(CUlibrary *ret_library, CUkernel kernel)
{
	struct sim_function *function = sim_function((CUfunction)kernel);

	if (!ret_library || !function)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_library = (CUlibrary)function->module;
	return CUDA_SUCCESS;
}

/* Each kind of handle has its own question, and driver 580 refuses the other kind as INVALID_HANDLE, a NULL not so. */
static CUresult param_info(CUfunction handle, bool kernel, size_t index, size_t *ret_offset, size_t *ret_bytes)
{
	struct sim_function *function = sim_function(handle);

	if (!handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (!function || is_kernel(handle) != kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!ret_offset || index >= function->kernel->n_params)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "%s has %u parameters", function->kernel->name,
			       function->kernel->n_params);
	*ret_offset = function->offsets[index];
	if (ret_bytes)
		*ret_bytes = function->kernel->param_bytes[index];
	return CUDA_SUCCESS;
}

static CUresult name_of(const char **ret_name, CUfunction handle)
{
	struct sim_function *function = sim_function(handle);

	if (!function || !ret_name)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_name = function->kernel->name;
	return CUDA_SUCCESS;
}

static CUresult function_attribute(int *ret_value, CUfunction_attribute which, CUfunction handle)
{
	static const int values[CU_FUNC_ATTRIBUTE_MAX] = {[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 1024,
							  [CU_FUNC_ATTRIBUTE_NUM_REGS] = 32,
							  [CU_FUNC_ATTRIBUTE_PTX_VERSION] = 90,
							  [CU_FUNC_ATTRIBUTE_BINARY_VERSION] = 90};

	if (!sim_function(handle))
		return CUDA_ERROR_INVALID_VALUE;
	return SIM_ANSWER(ret_value, (unsigned)which < CU_FUNC_ATTRIBUTE_MAX ? values[which] : 0);
}

static CUresult module_of(CUmodule *ret_module, CUfunction handle)
{
	struct sim_function *function = sim_function(handle);

	if (!function || !ret_module)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_module = function->module;
	return CUDA_SUCCESS;
}

SPELL(cuKernelGetFunction, (CUfunction * function, CUkernel kernel), function_of(function, kernel))
SPELL_FREE(cuKernelGetLibrary, (CUlibrary * library, CUkernel kernel), library_of(library, kernel))
SPELL_FREE(cuKernelGetName, (const char **name, CUkernel kernel), name_of(name, (CUfunction)kernel))
SPELL_FREE(cuKernelGetParamInfo, (CUkernel kernel, size_t index, size_t *offset, size_t *bytes),
	   param_info((CUfunction)kernel, true, index, offset, bytes))
SPELL_FREE(cuKernelGetAttribute, (int *value, CUfunction_attribute which, CUkernel kernel, CUdevice device),
	   ((void)device, function_attribute(value, which, (CUfunction)kernel)))
SPELL_FREE(cuKernelSetAttribute, (CUfunction_attribute which, int value, CUkernel kernel, CUdevice device),
	   ((void)which, (void)value, (void)device,
	    sim_function((CUfunction)kernel) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE))
SPELL_FREE(cuFuncGetParamInfo, (CUfunction function, size_t index, size_t *offset, size_t *bytes),
	   param_info(function, false, index, offset, bytes))
SPELL_FREE(cuFuncGetName, (const char **name, CUfunction function), name_of(name, function))
SPELL_FREE(cuFuncGetModule, (CUmodule * module, CUfunction function), module_of(module, function))
SPELL_FREE(cuFuncGetAttribute, (int *value, CUfunction_attribute which, CUfunction function),
	   function_attribute(value, which, function))
SPELL_FREE(cuFuncSetAttribute, (CUfunction function, CUfunction_attribute which, int value),
	   ((void)which, (void)value, sim_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE))
SPELL_FREE(cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config),
	   ((void)config, sim_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE))
SPELL_FREE(cuFuncIsLoaded, (CUfunctionLoadingState * state, CUfunction function),
	   ((void)function, *state = CU_FUNCTION_LOADING_STATE_LOADED, CUDA_SUCCESS))
SPELL_FREE(cuFuncLoad, (CUfunction function), sim_function(function) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE)
SPELL_FREE(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *n, CUfunction function, int block, size_t shared),
	   ((void)function, (void)shared, SIM_ANSWER(n, block > 0 ? 2048 / block : 0)))
SPELL_FREE(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
	   (int *n, CUfunction function, int block, size_t shared, unsigned flags),
	   ((void)function, (void)shared, (void)flags, SIM_ANSWER(n, block > 0 ? 2048 / block : 0)))
SPELL_FREE(cuOccupancyMaxPotentialBlockSize,
	   (int *grid, int *block, CUfunction function, CUoccupancyB2DSize size, size_t shared, int limit),
	   ((void)function, (void)size, (void)shared, (void)limit, SIM_ANSWER(grid, 264) ?: SIM_ANSWER(block, 1024)))

/* ---- launches ---- */

static size_t params_room(const struct sim_function *function)
{
	return (function->params_bytes + 15) & ~(size_t)15;
}

/* work->owned: the parameters as given, room for the translated ones, room for the pointers to them. */
static void run_kernel(struct sim_work *work)
{
	struct sim_function *function = (struct sim_function *)work->kernel.function;
	size_t room = params_room(function);
	unsigned char *given = work->owned, *translated = given + room;
	void **args = (void **)(translated + room);

	memcpy(translated, given, function->params_bytes);
	for (unsigned i = 0; i < function->kernel->n_params; i++) {
		size_t at = function->offsets[i], end = at + function->kernel->param_bytes[i];

		args[i] = translated + at;
		for (at = (at + 7) & ~(size_t)7; at + 8 <= end; at += 8) {
			uintptr_t word;

			memcpy(&word, translated + at, 8);
			if (!sim_in_window(word) && !sim_in_managed(word))
				continue;
			word = (uintptr_t)sim_pointer(word);
			memcpy(translated + at, &word, 8);
		}
	}
	args[function->kernel->n_params] = NULL;
	function->kernel->body(&work->kernel.launch, args);
}

bool sim_kernel_names(const struct sim_work *work, uintptr_t start, size_t bytes)
{
	const struct sim_function *function = (const struct sim_function *)work->kernel.function;
	const unsigned char *given = work->owned;

	for (unsigned i = 0; i < function->kernel->n_params; i++) {
		size_t at = function->offsets[i], end = at + function->kernel->param_bytes[i];

		for (at = (at + 7) & ~(size_t)7; at + 8 <= end; at += 8) {
			uintptr_t word;

			memcpy(&word, given + at, 8);
			if (word - start < bytes)
				return true;
		}
	}
	return false;
}

/* CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE; NULL when `extra` is not well formed. */
static const void *extra_buffer(void **extra, size_t *ret_bytes)
{
	const void *buffer = NULL;

	*ret_bytes = 0;
	for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
		if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
			buffer = extra[1];
		else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE)
			*ret_bytes = *(const size_t *)extra[1];
		else
			return NULL;
	}
	return buffer;
}

CUresult sim_kernel_work(struct sim_work **ret_work, CUfunction handle, const struct sim_launch *launch, void **params,
			 void **extra)
{
	struct sim_function *function = sim_function(handle);
	size_t bytes;

	if (!function)
		return sim_why(CUDA_ERROR_INVALID_HANDLE, "%p is not a function", (void *)handle);
	for (int i = 0; i < 3; i++)
		if (!launch->grid[i] || !launch->block[i])
			return sim_why(CUDA_ERROR_INVALID_VALUE, "a grid or block dimension is 0");
	if ((size_t)launch->block[0] * launch->block[1] * launch->block[2] > 1024)
		return sim_why(CUDA_ERROR_INVALID_VALUE, "more than 1024 threads in a block");
	const void *buffer = extra_buffer(extra, &bytes);
	if ((params && extra) || (!params && !extra && function->kernel->n_params) ||
	    (extra && (!buffer || bytes < function->params_bytes)))
		return sim_why(CUDA_ERROR_INVALID_VALUE, "parameters are missing or given twice");
	struct sim_work *work = sim_work_new(function->kernel->name, CU_GRAPH_NODE_TYPE_KERNEL, run_kernel);
	work->kernel.function = (CUfunction)function;
	work->kernel.launch = *launch;
	work->owned_bytes = 2 * params_room(function) + (function->kernel->n_params + 1) * sizeof(void *);
	work->owned = calloc(1, work->owned_bytes);
	if (buffer)
		memcpy(work->owned, buffer, function->params_bytes);
	for (unsigned i = 0; params && i < function->kernel->n_params; i++)
		memcpy((char *)work->owned + function->offsets[i], params[i], function->kernel->param_bytes[i]);
	*ret_work = work;
	return CUDA_SUCCESS;
}

static CUresult submit_kernel(CUfunction function, const struct sim_launch *launch, CUstream stream, void **params,
			      void **extra, bool overlaps)
{
	struct sim_work *work;

	if (!sim.set.run)
		return CUDA_SUCCESS;
	CUresult result = sim_kernel_work(&work, function, launch, params, extra);

	if (result)
		return result;
	work->overlaps = overlaps;
	return sim_submit(stream, work);
}

static CUresult launch_kernel(CUfunction function, const struct sim_launch *launch, CUstream stream, void **params,
			      void **extra)
{
	return submit_kernel(function, launch, stream, params, extra, false);
}

static CUresult launch_config(const CUlaunchConfig *config, CUfunction function, void **params, void **extra, bool own)
{
	bool overlaps = false;

	if (!config || (config->numAttrs && !config->attrs))
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < config->numAttrs; i++)
		if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			overlaps = config->attrs[i].value.programmaticStreamSerializationAllowed;
	struct sim_launch launch = (struct sim_launch){{config->gridDimX, config->gridDimY, config->gridDimZ},
						       {config->blockDimX, config->blockDimY, config->blockDimZ},
						       config->sharedMemBytes};
	return submit_kernel(function, &launch, own ? sim_own_stream(config->hStream) : config->hStream, params, extra,
			     overlaps);
}

#define DIMS     unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared
#define DIM_ARGS (&(struct sim_launch){{gx, gy, gz}, {bx, by, bz}, shared})
SPELL_STREAM(cuLaunchKernel, (CUfunction function, DIMS, CUstream stream, void **params, void **extra), stream,
	     launch_kernel(function, DIM_ARGS, stream, params, extra))
SPELL_STREAM(cuLaunchCooperativeKernel, (CUfunction function, DIMS, CUstream stream, void **params), stream,
	     launch_kernel(function, DIM_ARGS, stream, params, NULL))
SPELL(cuLaunchKernelEx, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
      launch_config(config, function, params, extra, false))
SPELL(cuLaunchKernelEx_ptsz, (const CUlaunchConfig *config, CUfunction function, void **params, void **extra),
      launch_config(config, function, params, extra, true))
