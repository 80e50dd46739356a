/*
 * rundir.h: the user's private folder for what running processes show to the `spillway` command, one control socket
 * each (control.h), and to each other (ipc.h). Used by the library and by the tool, so it needs libc alone.
 *
 * The folder is $XDG_RUNTIME_DIR/spillway, else /tmp/spillway-UID (for figures: /dev/shm/spillway-UID). It is taken only if it is a real folder (no symbolic
 * link), ours, and closed to everybody else; then whatever lies in it was put there by us or by root, and a name in it
 * can be trusted. After that it is reached by its descriptor alone: a path that somebody exchanges is no matter, and the
 * 108 bytes of a socket's address hold any folder.
 */
#ifndef SPILLWAY_RUNDIR_H
#define SPILLWAY_RUNDIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RUNDIR_SOCKET ".ctl" /* how the names of control sockets end */
#define RUNDIR_IPC    ".ipc" /* and of those that hand out memory (ipc.h) */

struct rundir {
	int fd;        /* the open folder */
	char name[32]; /* its own name in the folder above */
};

/* Where the fall-back lies: "/tmp"; and what is certainly in memory: "/dev/shm". Tests put them elsewhere. */
extern const char *rundir_fallback, *rundir_memory;

/*
 * Open the folder that this process makes its files in, and make it where it is not there. 0 or a negative errno. Goes
 * on to the fall-back only where XDG_RUNTIME_DIR is not set, not fit or not writable; a folder of our name that is not
 * ours, open to others or a symbolic link is -EPERM and never worked round: somebody put it there.
 */
int rundir_make(struct rundir *ret_folder);

/*
 * The same for files that are mapped and written all the time: these should be in memory, for in a file on a disk a plain
 * store may wait for the disk. XDG_RUNTIME_DIR is, as a rule; without it the folder is /dev/shm/spillway-UID, and that in
 * /tmp only where there is none of the former.
 */
int rundir_make_mapped(struct rundir *ret_folder);

/*
 * Open what is there, for looking: below a value of XDG_RUNTIME_DIR, and below a folder like /tmp or /dev/shm. 0 or a negative
 * errno. Not made where it is not there.
 */
int rundir_open_xdg(const char *xdg, struct rundir *ret_folder);
int rundir_open_tmp(const char *tmp, struct rundir *ret_folder);

/*
 * Everywhere a file of this process, or one that it shares with others of the user, may lie: below XDG_RUNTIME_DIR, in
 * memory, in the fall-back. Opened as by rundir_open_xdg() and rundir_open_tmp().
 */
enum rundir_place { RUNDIR_XDG, RUNDIR_MEMORY, RUNDIR_FALLBACK, RUNDIR_PLACES };
int rundir_open_place(enum rundir_place place, struct rundir *ret_folder);
/* The path of that place as it is called, whether or not it is there. Returns false if it has none, or a longer one. */
bool rundir_name_place(enum rundir_place place, char *room, size_t bytes);

/* The path of the open folder. Returns false if it cannot be told, or is longer. */
bool rundir_path(const struct rundir *folder, char *room, size_t bytes);

/* The same, of a file in it. */
bool rundir_path_of(const struct rundir *folder, const char *name, char *room, size_t bytes);

/*
 * Does the name lead to that very file, or socket? folder: an open folder, or AT_FDCWD for a path. Symbolic links are not
 * followed. Returns false also if there is nothing of that name.
 */
bool rundir_leads_to(int folder, const char *name, dev_t device, ino_t inode);
/* Removes that very file wherever it lies (rundir_open_place()), and the folder if it was the last one in it. */
void rundir_remove_own(const char *name, dev_t device, ino_t inode);

/*
 * A file that this process made has been removed by somebody else, as all of the folder is at a log-out. Returns true the
 * first time: then the caller says so.
 */
bool rundir_is_first_loss(void);
#define RUNDIR_LOSS                                                                                                    \
	"the folder for what `spillway list`, `top` and `suspend` ask for was removed while this process runs, as at " \
	"a log-out: its files are made again, in XDG_RUNTIME_DIR, or where that is gone in /dev/shm and /tmp"

/* Close it; where it is empty, remove it first if asked. */
void rundir_close(struct rundir *folder, bool remove_if_empty);

/* A new socket that listens at name, mode 0600, non-blocking. A descriptor or a negative errno. */
int rundir_listen(const struct rundir *folder, const char *name, int backlog);

/*
 * Connect to the socket of that name. A descriptor or a negative errno: -ECONNREFUSED nobody listens any more, -EAGAIN
 * it has too many callers. wait_ms: how long to wait while it has; afterwards also how long a send may take.
 */
int rundir_connect(const struct rundir *folder, const char *name, unsigned wait_ms);

/* Call visit() with the name of each control socket, at most `most` of them. No memory is taken. */
typedef void rundir_visit(const struct rundir *folder, const char *name, void *argument);
void rundir_each(const struct rundir *folder, unsigned most, rundir_visit *visit, void *argument);

/* The same for any file whose name ends so. */
void rundir_each_file(const struct rundir *folder, const char *tail, unsigned most, rundir_visit *visit,
		      void *argument);

/* When a process was started, in the ticks of /proc/PID/stat: with the pid that names it for good. 0: there is none. */
uint64_t rundir_process_started(pid_t pid);
/* Has that process ended, so that nothing is left of it but, at most, a zombie? */
bool rundir_process_is_gone(pid_t pid, uint64_t started);
/*
 * A process of another PID namespace (a container that shares the folder) cannot be told by its number. So the file of a
 * live process carries a lock of its own, of the open file: it lasts as long as somebody has the file open or mapped, and
 * goes with a SIGKILL, too. Where there are no such locks nothing is held.
 */
void rundir_hold(int fd);
bool rundir_is_held(int fd);
/*
 * Files PID-START whose names end so, and whose process is gone since a day, and which nobody holds: removed. Until then somebody may want to
 * read what is left of it; where there are very many, only for some seconds. A bounded number of them.
 */
void rundir_sweep_files(const struct rundir *folder, const char *tail);
/* One of them, at once, where nobody holds it. */
void rundir_remove_left(const struct rundir *folder, const char *name);

/*
 * Remove a socket that nobody listens at (rundir_connect() said so). One that was made a moment ago stays: its owner may
 * stand between bind and listen.
 */
void rundir_remove_stale(const struct rundir *folder, const char *name);
/* The same for each whose name ends so; a bounded number of them. */
void rundir_sweep(const struct rundir *folder, const char *tail);

#endif
