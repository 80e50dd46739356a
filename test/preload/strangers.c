// SPDX-License-Identifier: Apache-2.0
/*
 * A library that is not the driver: names that begin like the driver's, one that is even called the same.
 */
int cudnnCreate(void);
int cublasCreate_v2(void);
int curl_easy_init(void);
int cudaMalloc(void);
int cuMemAlloc_v2(void);
int cuSomethingElse(void);

#define FUNCTION(name, value)                                                                                          \
	int name(void)                                                                                                 \
	{                                                                                                              \
		return value;                                                                                          \
	}
FUNCTION(cudnnCreate, 1)
FUNCTION(cublasCreate_v2, 2)
FUNCTION(curl_easy_init, 3)
FUNCTION(cudaMalloc, 4)
FUNCTION(cuMemAlloc_v2, 5)
FUNCTION(cuSomethingElse, 6)
