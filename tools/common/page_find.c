/*
 * Finds the stats files. A process publishes its figures in the folder that its own environment named (user_dir.h),
 * which may differ from the tool's: the process may have been started by ssh, cron or a batch system. So every folder
 * that the library may use is searched: the tool's XDG_RUNTIME_DIR, /run/user/UID, /dev/shm/spillway-UID and
 * /tmp/spillway-UID. For root, the last three of every user are searched.
 *
 * A job in a container, or with a /tmp of its own as batch systems create them, is in another mount namespace. The
 * tool reaches its file system by /proc/PID/root; one process of each mount namespace is enough, and the list of
 * namespaces is rebuilt every few readings.
 */
#include "tools/common/page.h"
#include "tools/common/grow.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "policy/text.h"
#include "tools/common/view.h"

enum {
	MOST_FILES = 10000, /* in one folder; a limit beyond any real use */
};

struct search {
	struct pages *pages;
	uid_t owner;     /* of the folder being searched */
	uid_t only;      /* (uid_t)-1: all visible users */
	bool other_view; /* user ids in names may be of a user namespace: the folder's owner counts */
	bool out_of_memory;
};

/* ---- one folder ---- */

static bool is_known(const struct pages *pages, const struct page *page)
{
	for (size_t i = 0; i < pages->n; i++)
		if (page_is_same(pages->page[i], page))
			return true;
	return false;
}

static void page_find_take(const struct user_dir *folder, const char *name, void *argument)
{
	struct search *search = argument;
	struct pages *pages = search->pages;
	struct page *page = page_read(folder, name, search->owner);

	if (!page)
		return;
	if (is_known(pages, page))
		goto drop;
	if (!grow(&pages->page, pages->n, &pages->room, sizeof(struct page *))) {
		search->out_of_memory = true;
		goto drop;
	}
	pages->page[pages->n++] = page;
	return;
drop:
	page_free(page);
}

static void look_in(int fd, uid_t owner, struct search *search)
{
	const struct user_dir folder = {.fd = fd};

	search->owner = owner;
	user_dir_each_file(&folder, STATS_TAIL, MOST_FILES, page_find_take, search);
	close(fd);
}

/* Searches the folder `name` in parent (a path) if only its owner can write to it. */
static void look_at(const char *parent, const char *name, uid_t owner, struct search *search)
{
	struct stat status;
	char path[PATH_MAX];

	if (!search->other_view && search->only != (uid_t)-1 && owner != search->only)
		return;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", parent, name) >= sizeof(path))
		return;
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return;
	bool known = fstat(fd, &status) == 0;
	if (known && search->other_view) {
		owner = status.st_uid;
		if ((geteuid() != 0 && owner != geteuid()) || (search->only != (uid_t)-1 && owner != search->only)) {
			close(fd);
			return;
		}
	}
	if (known && status.st_uid == owner && (status.st_mode & 0077) == 0) {
		look_in(fd, owner, search);
		return;
	}
	search->pages->n_refused++;
	close(fd);
}

/* ---- folders of one mount namespace; root: the prefix of their paths ---- */

/* Reads a user id that takes the whole text; (uid_t)-1 if it is none. */
static uid_t read_user(const char *text)
{
	char *end;

	if (!policy_is_digit(*text))
		return (uid_t)-1;
	errno = 0;
	unsigned long user = strtoul(text, &end, 10);
	return errno || *end || user >= (uid_t)-1 ? (uid_t)-1 : (uid_t)user;
}

/*
 * Searches every folder in `parent` whose name is prefix and a user id. below: a folder in it to search instead; NULL
 * for itself.
 */
static void look_at_all_users(const char *parent, const char *prefix, const char *below, struct search *search)
{
	DIR *dir = opendir(parent);

	for (struct dirent *entry; dir && (entry = readdir(dir));) {
		char path[PATH_MAX];

		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		uid_t user = read_user(entry->d_name + strlen(prefix));
		if (user == (uid_t)-1)
			continue;
		if (!below)
			look_at(parent, entry->d_name, user, search);
		else if ((size_t)snprintf(path, sizeof(path), "%s/%s", parent, entry->d_name) < sizeof(path))
			look_at(path, below, user, search);
	}
	if (dir)
		closedir(dir);
}

/*
 * Searches spillway-UID in a folder like /tmp: the tool's own user, for root all users. In another mount namespace the
 * user may have any number.
 */
static void look_below(const char *root, const char *folder, struct search *search)
{
	char path[PATH_MAX], name[32];

	snprintf(path, sizeof(path), "%s%s", root, folder);
	if (geteuid() == 0 || search->other_view) {
		look_at_all_users(path, "spillway-", NULL, search);
		return;
	}
	snprintf(name, sizeof(name), "spillway-%u", (unsigned)geteuid());
	look_at(path, name, geteuid(), search);
}

static void look_everywhere(const char *root, struct search *search)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/run/user", root);
	if (geteuid() == 0 || search->other_view) {
		look_at_all_users(path, "", "spillway", search);
	} else {
		snprintf(path, sizeof(path), "%s/run/user/%u", root, (unsigned)geteuid());
		look_at(path, "spillway", geteuid(), search);
	}
	look_below(root, user_dir_memory, search);
	look_below(root, user_dir_fallback, search);
}

/* ---- other views ---- */

static void look_at_view(const char *root, pid_t pid, void *argument)
{
	(void)pid;
	look_everywhere(root, argument);
}

/* ---- all ---- */

static int by_pid(const void *a, const void *b)
{
	const struct page *left = *(struct page *const *)a, *right = *(struct page *const *)b;

	if (left->pid != right->pid)
		return left->pid < right->pid ? -1 : 1;
	if (left->started != right->started)
		return left->started < right->started ? -1 : 1;
	return (left->identity > right->identity) - (left->identity < right->identity);
}

static void locate_all(struct pages *pages)
{
	bool fresh = true;

	for (size_t i = 0; i < pages->n; i++) {
		page_locate(pages->page[i], fresh);
		fresh &= !page_is_strange(pages->page[i]);
	}
}

bool pages_read(struct pages *pages, uid_t only)
{
	struct search search = {.pages = pages, .only = only};
	const char *xdg = getenv("XDG_RUNTIME_DIR");

	pages_free(pages);
	if (xdg && xdg[0] == '/')
		look_at(xdg, "spillway", geteuid(), &search);
	look_everywhere("", &search);
	search.other_view = true;
	view_each(look_at_view, &search);
	locate_all(pages);
	if (pages->n)
		qsort(pages->page, pages->n, sizeof(*pages->page), by_pid);
	return !search.out_of_memory;
}

void pages_free(struct pages *pages)
{
	for (size_t i = 0; i < pages->n; i++)
		page_free(pages->page[i]);
	free(pages->page);
	*pages = (struct pages){0};
}
