// SPDX-License-Identifier: Apache-2.0
/*
 * commands.h: the commands of `spillway`.
 */
#ifndef TOOLS_COMMANDS_H
#define TOOLS_COMMANDS_H

/* Each function runs one command. argv[0] is the command's name. Returns the exit status. */
int tool_check(int argc, char **argv);
int tool_explain(int argc, char **argv);
int tool_doctor(int argc, char **argv);
int tool_run(int argc, char **argv);
int tool_suspend(int argc, char **argv);
int tool_set(int argc, char **argv);
int tool_resume(int argc, char **argv);
int tool_list(int argc, char **argv);
int tool_replay(int argc, char **argv);
int tool_report(int argc, char **argv);
int tool_top(int argc, char **argv);
int tool_prom(int argc, char **argv);
int tool_cdi(int argc, char **argv);

#endif
