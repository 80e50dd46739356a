// SPDX-License-Identifier: Apache-2.0
/*
 * user_dir.h: the user's private folder for control sockets (control.h), which the `spillway` command uses, and for
 * files and sockets that processes share (serve.h); and a number that identifies this process there. The library and
 * the tool both use it, so it needs only libc.
 *
 * The folder is $XDG_RUNTIME_DIR/spillway, else /tmp/spillway-UID (for figures: /dev/shm/spillway-UID). It is used
 * only if it is a real folder (no symbolic link), owned by this user and closed to all others; then only this user or
 * root can have put files into it, and a name in it can be trusted. Afterwards it is accessed only by its descriptor:
 * a path that is exchanged does no harm, and the 108 bytes of a socket address suffice for any folder.
 */
#ifndef SPILLWAY_USER_DIR_H
#define SPILLWAY_USER_DIR_H

#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define USER_DIR_SOCKET ".ctl" /* suffix of control sockets */
#define USER_DIR_IPC    ".ipc" /* suffix of sockets that export memory (serve.h) */

struct user_dir {
	int fd;        /* the open folder */
	char name[32]; /* its name in the parent folder */
};

/*
 * Parent of the fallback folder, "/tmp", of the one in memory, "/dev/shm", and of what XDG_RUNTIME_DIR usually is,
 * "/run/user". Tests change them.
 */
extern const char *user_dir_fallback, *user_dir_memory, *user_dir_run;

/*
 * Opens the folder in which this process creates files; creates it if it does not exist. Returns 0 or a negative
 * errno. Uses the fallback only if XDG_RUNTIME_DIR is not set, not suitable or not writable. If the folder belongs to
 * another user, is open to others or is a symbolic link, the result is -EPERM and no other place is tried: it was put
 * there deliberately.
 */
int user_dir_make(struct user_dir *ret_folder);

/*
 * Does the same for files that are mapped and written constantly. They should be in memory, since a store to a file on
 * disk may wait for the disk. XDG_RUNTIME_DIR usually is; without it the folder is /dev/shm/spillway-UID, and the one
 * in /tmp only if that cannot be used.
 */
int user_dir_make_mapped(struct user_dir *ret_folder);

/*
 * Open an existing folder for reading: below a value of XDG_RUNTIME_DIR, or below a folder like /tmp or /dev/shm.
 * Return 0 or a negative errno. They never create it.
 */
int user_dir_open_xdg(const char *xdg, struct user_dir *ret_folder);
int user_dir_open_tmp(const char *tmp, struct user_dir *ret_folder);

/*
 * All places where a file of this process, or one shared with other processes of the user, may be. The folder is
 * opened as by user_dir_open_xdg() and user_dir_open_tmp(). A process without XDG_RUNTIME_DIR (of cron, or a batch
 * system) looks for the files of others where it usually is, though it makes none there.
 */
enum user_dir_place { USER_DIR_XDG, USER_DIR_MEMORY, USER_DIR_FALLBACK, USER_DIR_PLACES };
int user_dir_open_place(enum user_dir_place place, struct user_dir *ret_folder);
/* Gives the path of a place, whether or not it exists. Returns false if it has none or if it does not fit. */
bool user_dir_name_place(enum user_dir_place place, char *room, size_t bytes);

/* Gives the path of a file in the open folder. Returns false if it is not known or does not fit. */
bool user_dir_path_of(const struct user_dir *folder, const char *name, char *room, size_t bytes);

/*
 * Returns true if the name is that of the file or socket with this device and inode. folder: an open folder, or
 * AT_FDCWD for a path. Does not follow symbolic links. Returns false also if the name does not exist.
 */
bool user_dir_leads_to(int folder, const char *name, dev_t device, ino_t inode);
/* Removes the file with this device and inode from any place, and its folder if that is empty then. */
void user_dir_remove_own(const char *name, dev_t device, ino_t inode);

/*
 * Called when a file of this process has been removed from outside, as the whole folder is at a log-out. Returns true
 * the first time; the caller must then log USER_DIR_LOSS.
 */
bool user_dir_is_first_loss(void);
#define USER_DIR_LOSS                                                                                                  \
	"the folder for what `spillway list`, `top` and `suspend` ask for was removed while this process runs, as at " \
	"a log-out: its files are made again, in XDG_RUNTIME_DIR, or where that is gone in /dev/shm and /tmp"

/* Closes the folder; with remove_if_empty removes it first if it is empty. */
void user_dir_close(struct user_dir *folder, bool remove_if_empty);

/* Creates a socket that listens at name, mode 0600, non-blocking. Returns a descriptor or a negative errno. */
int user_dir_listen(const struct user_dir *folder, const char *name, int backlog);

/*
 * Connects to the socket of that name. Returns a descriptor or a negative errno: -ECONNREFUSED if no process listens
 * any more, -EAGAIN if too many callers wait. wait_ms: limit of that wait, and later of each send.
 */
int user_dir_connect(const struct user_dir *folder, const char *name, unsigned wait_ms);

/*
 * Calls visit() with each name that ends in tail (NULL: that begins with a digit, as in /proc), at most `most` of them.
 * Allocates no memory.
 */
typedef void user_dir_visit(const struct user_dir *folder, const char *name, void *argument);
void user_dir_each_file(const struct user_dir *folder, const char *tail, unsigned most, user_dir_visit *visit,
			void *argument);

/*
 * Returns the start time of a process in ticks (/proc/PID/stat), unique together with the pid; 0 if it does not
 * exist.
 */
uint64_t user_dir_process_started(pid_t pid);
/* Returns true if that process has ended or is a zombie. */
bool user_dir_process_is_gone(pid_t pid, uint64_t started);
/*
 * A pid does not identify a process of another PID namespace (a container that shares the folder). So user_dir_hold()
 * locks the file of a live process with an open file description lock, which lasts while the file is open or mapped
 * and ends with a SIGKILL, too. user_dir_is_held() tests it. Where such locks are not supported, no file is held.
 */
void user_dir_hold(int fd);
bool user_dir_is_held(int fd);
/*
 * Removes files PID-START with this suffix that are not held, whose process has ended, and that were last written a
 * day ago; until then their figures may be of use. If there are more than 64, ten seconds suffice. Looks at a limited
 * number of files.
 */
void user_dir_sweep_files(const struct user_dir *folder, const char *tail);
/* Removes one such file at once if it is not held. */
void user_dir_remove_left(const struct user_dir *folder, const char *name);

/*
 * Removes a socket without a listener (-ECONNREFUSED of user_dir_connect()). A socket younger than 10 s stays: its
 * owner may be between bind and listen.
 */
void user_dir_remove_stale(const struct user_dir *folder, const char *name);
/* Does the same for each socket with this suffix. Looks at a limited number of them. */
void user_dir_sweep(const struct user_dir *folder, const char *tail);

/* ---- a number of the process ---- */

/*
 * A process id is unique only in its PID namespace: in every pod the program is process 1, and two of them may have
 * started in the same tick. So each process draws a random number when it is first needed; after exec and in the child
 * of a fork a new one is drawn. The number is neither secret nor a credential.
 *
 * Locking: takes no lock; any thread may call these. identity_get() preserves errno.
 */

/* Never 0. */
uint64_t identity_get(void);
/*
 * Returns the number of the space in which this process's id and times are counted; 0 if /proc is not mounted or
 * belongs to another PID namespace. Processes with the same number mean the same by an id and by a time of
 * CLOCK_MONOTONIC.
 */
uint64_t identity_space(void);
/*
 * The parts of such a number: the inode of the PID namespace; and of the time namespace, 0: the first one of the
 * machine.
 */
static inline uint64_t identity_space_pids(uint64_t space)
{
	return (uint32_t)space;
}
static inline uint64_t identity_space_clock(uint64_t space)
{
	return space >> 32;
}

/* Writes the number as 16 hexadecimal digits to room. Returns room. */
#define IDENTITY_DIGITS 16
#define IDENTITY_TEXT   (IDENTITY_DIGITS + 1)
static inline const char *identity_text(uint64_t identity, char room[IDENTITY_TEXT])
{
	snprintf(room, IDENTITY_TEXT, "%016" PRIx64, identity);
	return room;
}

/* Parses the output of identity_text(), which must end at `end`. Returns false if it is anything else. */
static inline bool identity_read(const char *text, const char *end, uint64_t *ret_identity)
{
	uint64_t value = 0;

	if (end - text != IDENTITY_DIGITS)
		return false;
	for (; text < end; text++) {
		bool digit = *text >= '0' && *text <= '9';

		if (!digit && (*text < 'a' || *text > 'f'))
			return false;
		value = value << 4 | (uint64_t)(digit ? *text - '0' : *text - 'a' + 10);
	}
	*ret_identity = value;
	return true;
}

#endif
