// SPDX-License-Identifier: Apache-2.0
/*
 * json_check.h: is a text one JSON value (RFC 8259)?
 */
#ifndef TEST_JSON_CHECK_H
#define TEST_JSON_CHECK_H

/* Returns NULL if it is, or where it is not. */
const char *json_check(const char *text);

#endif
