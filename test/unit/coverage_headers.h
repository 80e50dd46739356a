// SPDX-License-Identifier: Apache-2.0
/* coverage_headers.h: what coverage_test reads, preprocessed at build time with __CUDA_API_VERSION_INTERNAL. */
#include "../../shim/driver/newer.h"

#include <cuda.h>
#include <cudaProfiler.h>
