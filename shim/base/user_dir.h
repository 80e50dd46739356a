/*
 * user_dir.h: the user's private folder for what running processes show to the `spillway` command, one control socket
 * each (control.h), and to each other (ipc.h). Used by the library and by the tool, so it needs libc alone.
 *
 * The folder is $XDG_RUNTIME_DIR/spillway, else /tmp/spillway-UID (for figures: /dev/shm/spillway-UID). It is taken only if it is a real folder (no symbolic
 * link), ours, and closed to everybody else; then whatever lies in it was put there by us or by root, and a name in it
 * can be trusted. After that it is reached by its descriptor alone: a path that somebody exchanges is no matter, and the
 * 108 bytes of a socket's address hold any folder.
 */
#ifndef SPILLWAY_USER_DIR_H
#define SPILLWAY_USER_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define USER_DIR_SOCKET ".ctl" /* how the names of control sockets end */
#define USER_DIR_IPC    ".ipc" /* and of those that hand out memory (ipc.h) */

struct user_dir {
	int fd;        /* the open folder */
	char name[32]; /* its own name in the folder above */
};

/* Where the fall-back lies: "/tmp"; and what is certainly in memory: "/dev/shm". Tests put them elsewhere. */
extern const char *user_dir_fallback, *user_dir_memory;

/*
 * Open the folder that this process makes its files in, and make it where it is not there. 0 or a negative errno. Goes
 * on to the fall-back only where XDG_RUNTIME_DIR is not set, not fit or not writable; a folder of our name that is not
 * ours, open to others or a symbolic link is -EPERM and never worked round: somebody put it there.
 */
int user_dir_make(struct user_dir *ret_folder);

/*
 * The same for files that are mapped and written all the time: these should be in memory, for in a file on a disk a plain
 * store may wait for the disk. XDG_RUNTIME_DIR is, as a rule; without it the folder is /dev/shm/spillway-UID, and that in
 * /tmp only where there is none of the former.
 */
int user_dir_make_mapped(struct user_dir *ret_folder);

/*
 * Open what is there, for looking: below a value of XDG_RUNTIME_DIR, and below a folder like /tmp or /dev/shm. 0 or a negative
 * errno. Not made where it is not there.
 */
int user_dir_open_xdg(const char *xdg, struct user_dir *ret_folder);
int user_dir_open_tmp(const char *tmp, struct user_dir *ret_folder);

/*
 * Everywhere a file of this process, or one that it shares with others of the user, may lie: below XDG_RUNTIME_DIR, in
 * memory, in the fall-back. Opened as by user_dir_open_xdg() and user_dir_open_tmp().
 */
enum user_dir_place { USER_DIR_XDG, USER_DIR_MEMORY, USER_DIR_FALLBACK, USER_DIR_PLACES };
int user_dir_open_place(enum user_dir_place place, struct user_dir *ret_folder);
/* The path of that place as it is called, whether or not it is there. Returns false if it has none, or a longer one. */
bool user_dir_name_place(enum user_dir_place place, char *room, size_t bytes);

/* The path of the open folder. Returns false if it cannot be told, or is longer. */
bool user_dir_path(const struct user_dir *folder, char *room, size_t bytes);

/* The same, of a file in it. */
bool user_dir_path_of(const struct user_dir *folder, const char *name, char *room, size_t bytes);

/*
 * Does the name lead to that very file, or socket? folder: an open folder, or AT_FDCWD for a path. Symbolic links are not
 * followed. Returns false also if there is nothing of that name.
 */
bool user_dir_leads_to(int folder, const char *name, dev_t device, ino_t inode);
/* Removes that very file wherever it lies (user_dir_open_place()), and the folder if it was the last one in it. */
void user_dir_remove_own(const char *name, dev_t device, ino_t inode);

/*
 * A file that this process made has been removed by somebody else, as all of the folder is at a log-out. Returns true the
 * first time: then the caller says so.
 */
bool user_dir_is_first_loss(void);
#define USER_DIR_LOSS                                                                                                  \
	"the folder for what `spillway list`, `top` and `suspend` ask for was removed while this process runs, as at " \
	"a log-out: its files are made again, in XDG_RUNTIME_DIR, or where that is gone in /dev/shm and /tmp"

/* Close it; where it is empty, remove it first if asked. */
void user_dir_close(struct user_dir *folder, bool remove_if_empty);

/* A new socket that listens at name, mode 0600, non-blocking. A descriptor or a negative errno. */
int user_dir_listen(const struct user_dir *folder, const char *name, int backlog);

/*
 * Connect to the socket of that name. A descriptor or a negative errno: -ECONNREFUSED nobody listens any more, -EAGAIN
 * it has too many callers. wait_ms: how long to wait while it has; afterwards also how long a send may take.
 */
int user_dir_connect(const struct user_dir *folder, const char *name, unsigned wait_ms);

/* Call visit() with the name of each control socket, at most `most` of them. No memory is taken. */
typedef void user_dir_visit(const struct user_dir *folder, const char *name, void *argument);
void user_dir_each(const struct user_dir *folder, unsigned most, user_dir_visit *visit, void *argument);

/* The same for any file whose name ends so. */
void user_dir_each_file(const struct user_dir *folder, const char *tail, unsigned most, user_dir_visit *visit,
			void *argument);

/* When a process was started, in the ticks of /proc/PID/stat: with the pid that names it for good. 0: there is none. */
uint64_t user_dir_process_started(pid_t pid);
/* Has that process ended, so that nothing is left of it but, at most, a zombie? */
bool user_dir_process_is_gone(pid_t pid, uint64_t started);
/*
 * A process of another PID namespace (a container that shares the folder) cannot be told by its number. So the file of a
 * live process carries a lock of its own, of the open file: it lasts as long as somebody has the file open or mapped, and
 * goes with a SIGKILL, too. Where there are no such locks nothing is held.
 */
void user_dir_hold(int fd);
bool user_dir_is_held(int fd);
/*
 * Files PID-START whose names end so, and whose process is gone since a day, and which nobody holds: removed. Until then somebody may want to
 * read what is left of it; where there are very many, only for some seconds. A bounded number of them.
 */
void user_dir_sweep_files(const struct user_dir *folder, const char *tail);
/* One of them, at once, where nobody holds it. */
void user_dir_remove_left(const struct user_dir *folder, const char *name);

/*
 * Remove a socket that nobody listens at (user_dir_connect() said so). One that was made a moment ago stays: its owner may
 * stand between bind and listen.
 */
void user_dir_remove_stale(const struct user_dir *folder, const char *name);
/* The same for each whose name ends so; a bounded number of them. */
void user_dir_sweep(const struct user_dir *folder, const char *tail);

#endif
