/*
 * accounts.h: what the processes of this user that share a GPU have of it (device.total).
 */
#ifndef TOOLS_ACCOUNTS_H
#define TOOLS_ACCOUNTS_H

/* Prints a table for each GPU that is shared by running processes; nothing where there is none. */
void accounts_print(void);

#endif
