// SPDX-License-Identifier: Apache-2.0
/*
 * fake_python.c: a libpython as far as the library knows it, that a program opens and closes. What it is asked, and
 * that it ends, it tells the program.
 */
void *PyGILState_GetThisThreadState(void);

unsigned long Py_Version = 0x030c01f0;
char _PyRuntime[8192], PyCode_Type[512], PyUnicode_Type[512], PyBytes_Type[512];
void (*fake_python_asked)(void), (*fake_python_ended)(void);
static void *volatile state;

void *PyGILState_GetThisThreadState(void)
{
	if (fake_python_asked)
		fake_python_asked();
	return state;
}

__attribute__((destructor)) static void end(void)
{
	if (fake_python_ended)
		fake_python_ended();
}
