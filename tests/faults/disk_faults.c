/* Preloaded into the processes of a run: lets chosen calls fail that write, open or rename below a folder.
 *
 * Calls of all processes are counted in one shared file, $DISK_FAULTS, whose layout is `struct control`. Only Python's
 * are: compilers and programs of a user's meet their own faults.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

struct control {
    int64_t count;   /* calls so far */
    int64_t hits;    /* of which so many failed */
    int64_t first;   /* the first one that fails, from 1 on */
    int64_t last;    /* the last one */
    int64_t error;   /* with this */
    int64_t reading; /* whether to open a file for reading counts, too */
    char root[PATH_MAX];
};

static struct control *shared;

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

static struct control *find_control(void) {
    if (shared) return shared;
    const char *path = getenv("DISK_FAULTS");
    if (!path || strncmp(program_invocation_short_name, "python", 6)) return NULL;
    REAL(open);
    int saved = errno, file = real(path, O_RDWR | O_CLOEXEC);
    if (file >= 0) {
        void *mapped = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED) shared = mapped;
        close(file);
    }
    errno = saved;
    return shared;
}

static int is_below(const struct control *control, const char *path) {
    size_t length = strlen(control->root);
    return length && !strncmp(path, control->root, length) && path[length] == '/';
}

static int counts(struct control *control) {
    int64_t number = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
    if (number < control->first || number > control->last) return 0;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_SEQ_CST);
    errno = (int)control->error;
    return 1;
}

static int name_of(int descriptor, char *name) {
    char link[64];
    int saved = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, name, PATH_MAX - 1);
    errno = saved;
    name[length < 0 ? 0 : length] = 0;
    return length > 0;
}

static int fails_at(int folder, const char *path) {
    struct control *control = find_control();
    if (!control || !path) return 0;
    if (path[0] == '/' || folder == AT_FDCWD) return is_below(control, path) && counts(control);
    char whole[PATH_MAX + 1];
    if (!name_of(folder, whole)) return 0;
    strcat(whole, "/");
    return is_below(control, whole) && counts(control);
}

static int fails_on(int descriptor) {
    struct control *control = find_control();
    char name[PATH_MAX];
    return control && name_of(descriptor, name) && is_below(control, name) && counts(control);
}

static int fails_to_open(int folder, const char *path, int flags) {
    struct control *control = find_control();
    if (!control || (flags & O_DIRECTORY) == O_DIRECTORY) return 0;
    if ((flags & (O_ACCMODE | O_CREAT)) == O_RDONLY && !control->reading) return 0;
    return fails_at(folder, path);
}

static mode_t mode_in(int flags, va_list rest) {
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = mode_in(flags, rest); \
        va_end(rest); \
        return fails_to_open(AT_FDCWD, path, flags) ? -1 : real(path, flags, mode); \
    }
#define OPENAT(name) \
    int name(int folder, const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = mode_in(flags, rest); \
        va_end(rest); \
        return fails_to_open(folder, path, flags) ? -1 : real(folder, path, flags, mode); \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

#define ON(kind, name, parameters, ...) \
    kind name parameters { \
        REAL(name); \
        return fails_on(descriptor) ? -1 : real(__VA_ARGS__); \
    }
ON(ssize_t, write, (int descriptor, const void *data, size_t size), descriptor, data, size)
ON(ssize_t, writev, (int descriptor, const struct iovec *parts, int count), descriptor, parts, count)
ON(ssize_t, pwrite, (int descriptor, const void *data, size_t size, off_t at), descriptor, data, size, at)
ON(ssize_t, pwrite64, (int descriptor, const void *data, size_t size, off64_t at), descriptor, data, size, at)
ON(int, fallocate, (int descriptor, int mode, off_t at, off_t size), descriptor, mode, at, size)
ON(int, fallocate64, (int descriptor, int mode, off64_t at, off64_t size), descriptor, mode, at, size)

ssize_t copy_file_range(int from, off64_t *from_at, int descriptor, off64_t *at, size_t size, unsigned flags) {
    REAL(copy_file_range);
    return fails_on(descriptor) ? -1 : real(from, from_at, descriptor, at, size, flags);
}

#define AT(name, parameters, folder, path, ...) \
    int name parameters { \
        REAL(name); \
        return fails_at(folder, path) ? -1 : real(__VA_ARGS__); \
    }
AT(mkdir, (const char *path, mode_t mode), AT_FDCWD, path, path, mode)
AT(mkdirat, (int folder, const char *path, mode_t mode), folder, path, folder, path, mode)
AT(rename, (const char *from, const char *to), AT_FDCWD, to, from, to)
AT(renameat, (int old, const char *from, int folder, const char *to), folder, to, old, from, folder, to)
AT(link, (const char *from, const char *to), AT_FDCWD, to, from, to)
AT(linkat, (int old, const char *from, int folder, const char *to, int flags), folder, to, old, from, folder, to, flags)
AT(symlink, (const char *from, const char *to), AT_FDCWD, to, from, to)
AT(symlinkat, (const char *from, int folder, const char *to), folder, to, from, folder, to)
