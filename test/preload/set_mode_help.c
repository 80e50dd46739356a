#include "test/preload/set_mode_help.h"

int says(const char *command, char text[SAYS_ROOM])
{
	FILE *output = popen(command, "r");

	CHECK(output);
	size_t n = fread(text, 1, SAYS_ROOM - 1, output);
	text[n] = 0;
	int ended = pclose(output);
	CHECK(WIFEXITED(ended));
	return WEXITSTATUS(ended);
}

bool set_says(const char *setting, int status, const char *words)
{
	static char text[SAYS_ROOM];
	char command[256];

	snprintf(command, sizeof(command), "env -u LD_PRELOAD '%s' set %d '%s' 2>&1", TOOL, (int)getpid(), setting);
	int got = says(command, text);
	/* Who does not ask within a second is not heard; the machine may have stalled. */
	for (unsigned tries = 0; tries < 30 && got && strstr(text, "before it answered"); tries++)
		got = says(command, text);
	if (got == status && strstr(text, words))
		return true;
	printf("set %s: status %d, not %d, and \"%s\" is not in: %s\n", setting, got, status, words, text);
	return false;
}

static const char *shown(void)
{
	static char text[SAYS_ROOM];
	char command[256];

	snprintf(command, sizeof(command), "env -u LD_PRELOAD '%s' top --once --json %d", TOOL, (int)getpid());
	CHECK(says(command, text) == 0);
	return text;
}

bool shows_mode(const char *mode)
{
	char word[32];

	snprintf(word, sizeof(word), "\"mode\": \"%s\"", mode);
	return strstr(shown(), word) != NULL;
}

unsigned long shown_number(const char *name)
{
	char word[64];

	snprintf(word, sizeof(word), "\"%s\": ", name);
	const char *at = strstr(shown(), word);
	CHECK(at);
	return strtoul(at + strlen(word), NULL, 10);
}
