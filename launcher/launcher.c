/*
 * The only program of ours in a launcher pod on Kubernetes.
 *
 *   launcher run DIR       wait for DIR/argv, then become the program it names
 *   launcher stop DIR      preStop hook: create DIR/stop, return once DIR/stopped exists
 *   launcher log FILE      copy FILE to stdout as it grows
 *   launcher hold [LINK]   do nothing until SIGTERM; LINK then leads to this file system
 *   launcher install DEST  copy this program to DEST
 *
 * The node agent prepares everything on the node and then renames the file argv into place: the
 * arguments of QEMU, each followed by NUL. The container's first process then is QEMU, and nothing
 * of ours stays in the pod's memory. The program is linked statically, so that it also runs in
 * images that have no C library: `hold` runs in images of disks, where the container runtime cannot
 * mount them. The containers of such a pod share a PID namespace, so QEMU finds the disk below
 * /proc/PID/root, and LINK lies in a volume that it shares with the disk's container.
 *
 * The exit status is 0 after SIGTERM, 1 for an error, 2 for wrong usage and 127 if the program of
 * argv cannot be run.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define CANNOT_RUN 127
#define LOOK_AGAIN_SECONDS 1 /* in case the kernel dropped a notification */
#define LARGEST_ARGV (8 << 20)

static volatile sig_atomic_t terminated;
static sigset_t unblocked; /* the signal mask the program was started with */

static void on_signal(int signal)
{
	(void)signal;
	terminated = 1;
}

static void complain(const char *format, ...)
{
	int error = errno;
	va_list arguments;

	fputs("launcher: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, ": %s\n", strerror(error));
}

/* Install handlers and block the signals, so that they arrive in wait_for_change() only.
 * The first process of a container does not get signals that it has no handler for. */
static void handle_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGINT);
	sigprocmask(SIG_BLOCK, &blocked, &unblocked);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
}

/* Return a descriptor that becomes readable when something in a directory changes. */
static int watch(const char *directory)
{
	int changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

	if (changes < 0 || inotify_add_watch(changes, directory,
					     IN_CREATE | IN_MOVED_TO | IN_MODIFY) < 0) {
		complain("cannot watch %s", directory);
		return -1;
	}
	return changes;
}

/* Wait for a change or a signal. */
static void wait_for_change(int changes)
{
	struct pollfd descriptor = { .fd = changes, .events = POLLIN };
	struct timespec timeout = { .tv_sec = LOOK_AGAIN_SECONDS };
	char events[4096];

	if (ppoll(&descriptor, 1, &timeout, &unblocked) > 0)
		while (read(changes, events, sizeof events) > 0)
			;
}

/* Write the path of a file in a directory; return whether it fits. */
static int path_in(char *path, const char *directory, const char *name)
{
	if (snprintf(path, PATH_MAX, "%s/%s", directory, name) < PATH_MAX)
		return 1;
	errno = ENAMETOOLONG;
	complain("%s", directory);
	return 0;
}

static int exists(const char *path)
{
	return access(path, F_OK) == 0;
}

/* Read a whole file; the result ends with NUL. */
static char *read_file(const char *path, size_t *length)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	char *content = NULL;
	ssize_t part = -1;

	*length = 0;
	if (file < 0 || fstat(file, &about) < 0)
		goto end;
	if (about.st_size > LARGEST_ARGV) {
		errno = E2BIG;
		goto end;
	}
	content = malloc((size_t)about.st_size + 1);
	if (content == NULL)
		goto end;
	while (*length < (size_t)about.st_size) {
		part = read(file, content + *length, (size_t)about.st_size - *length);
		if (part < 0 && errno == EINTR)
			continue;
		if (part <= 0)
			break;
		*length += (size_t)part;
	}
	content[*length] = '\0';
end:
	if (file >= 0)
		close(file);
	return content;
}

/* Become the program of an argv file; return only if that is not possible. */
static int become(const char *path)
{
	size_t length, count = 0, position;
	char *content = read_file(path, &length), **arguments;

	if (content == NULL) {
		complain("cannot read %s", path);
		return CANNOT_RUN;
	}
	arguments = calloc(length + 2, sizeof *arguments);
	if (arguments == NULL) {
		complain("cannot read %s", path);
		return CANNOT_RUN;
	}
	for (position = 0; position < length; position += strlen(content + position) + 1)
		arguments[count++] = content + position;
	if (count == 0) {
		errno = ENODATA;
		complain("cannot use %s", path);
		return CANNOT_RUN;
	}
	/* A signal that came meanwhile runs the handler here; the new program gets default ones. */
	sigprocmask(SIG_SETMASK, &unblocked, NULL);
	if (terminated)
		return 0;
	execvp(arguments[0], arguments);
	complain("cannot run %s", arguments[0]);
	return CANNOT_RUN;
}

static int run(const char *directory)
{
	char argv[PATH_MAX], stop[PATH_MAX];
	int changes;

	if (!path_in(argv, directory, "argv") || !path_in(stop, directory, "stop"))
		return 1;
	changes = watch(directory);
	if (changes < 0)
		return 1;
	while (!terminated) {
		if (exists(stop)) /* before argv: the pod is being deleted */
			return 0;
		if (exists(argv))
			return become(argv);
		wait_for_change(changes);
	}
	return 0;
}

static int stop(const char *directory)
{
	char argv[PATH_MAX], asked[PATH_MAX], stopped[PATH_MAX];
	int changes, file;

	if (!path_in(argv, directory, "argv") || !path_in(asked, directory, "stop") ||
	    !path_in(stopped, directory, "stopped"))
		return 1;
	changes = watch(directory);
	if (changes < 0)
		return 1;
	file = open(asked, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (file < 0) {
		complain("cannot create %s", asked);
		return 1;
	}
	close(file);
	if (!exists(argv)) /* no guest was started */
		return 0;
	while (!terminated && !exists(stopped))
		wait_for_change(changes);
	return 0;
}

/* Write all of it to a descriptor. */
static int write_all(int to, const char *content, size_t length)
{
	while (length > 0) {
		ssize_t part = write(to, content, length);

		if (part < 0 && errno == EINTR)
			continue;
		if (part < 0)
			return -1;
		content += part;
		length -= (size_t)part;
	}
	return 0;
}

/* Copy what a file has beyond an offset to a descriptor; return the new offset, negative on errors.
 * A file that was truncated is read from its beginning. */
static off_t copy_from(const char *path, off_t offset, int to)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	struct stat about;
	char part[16384];
	ssize_t length = 0;

	if (file < 0)
		return errno == ENOENT ? 0 : -1;
	if (fstat(file, &about) == 0 && about.st_size < offset)
		offset = 0;
	while ((length = pread(file, part, sizeof part, offset)) > 0) {
		if (write_all(to, part, (size_t)length) < 0)
			break;
		offset += length;
	}
	close(file);
	return length == 0 ? offset : -1;
}

static int follow(const char *path)
{
	char *copy = strdup(path);
	off_t offset = 0;
	int changes = copy == NULL ? -1 : watch(dirname(copy)), last;

	if (changes < 0)
		return 1;
	do {
		last = terminated;
		offset = copy_from(path, offset, STDOUT_FILENO);
		if (offset < 0) {
			complain("cannot copy %s", path);
			return 1;
		}
		if (!last)
			wait_for_change(changes);
	} while (!last);
	return 0;
}

/* Make a symbolic link, in place of one that an earlier process left. */
static int link_own_root(const char *path)
{
	char target[64], unfinished[PATH_MAX];

	snprintf(target, sizeof target, "/proc/%d/root", (int)getpid());
	if (snprintf(unfinished, sizeof unfinished, "%s.part", path) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		complain("%s", path);
		return -1;
	}
	unlink(unfinished);
	if (symlink(target, unfinished) < 0 || rename(unfinished, path) < 0) {
		complain("cannot create %s", path);
		return -1;
	}
	return 0;
}

static int hold(const char *path)
{
	if (path != NULL && link_own_root(path) < 0)
		return 1;
	while (!terminated)
		sigsuspend(&unblocked);
	return 0;
}

static int install(const char *destination)
{
	char unfinished[PATH_MAX];
	int file;
	off_t length;

	if (snprintf(unfinished, sizeof unfinished, "%s.part", destination) >= PATH_MAX) {
		errno = ENAMETOOLONG;
		complain("%s", destination);
		return 1;
	}
	file = open(unfinished, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
	if (file < 0) {
		complain("cannot create %s", unfinished);
		return 1;
	}
	length = copy_from("/proc/self/exe", 0, file);
	if (length <= 0 || fchmod(file, 0755) < 0 || close(file) < 0 ||
	    rename(unfinished, destination) < 0) {
		complain("cannot write %s", destination);
		unlink(unfinished);
		return 1;
	}
	return 0;
}

int main(int count, char **arguments)
{
	const char *mode = count > 1 ? arguments[1] : "";

	handle_signals();
	if (count == 3 && strcmp(mode, "run") == 0)
		return run(arguments[2]);
	if (count == 3 && strcmp(mode, "stop") == 0)
		return stop(arguments[2]);
	if (count == 3 && strcmp(mode, "log") == 0)
		return follow(arguments[2]);
	if ((count == 2 || count == 3) && strcmp(mode, "hold") == 0)
		return hold(count == 3 ? arguments[2] : NULL);
	if (count == 3 && strcmp(mode, "install") == 0)
		return install(arguments[2]);
	fputs("usage: launcher run DIR | stop DIR | log FILE | hold [LINK] | install DEST\n", stderr);
	return 2;
}
