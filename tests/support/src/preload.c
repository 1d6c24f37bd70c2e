/* What stands between a process and the C library in tests of bad disks and bad clocks.
 *
 * PEERBUS_TRACE=FILE, PEERBUS_TRACE_DIR=DIR: writes down, in order, what is done to files below DIR.
 * PEERBUS_FAULTS=FILE: five numbers of 8 bytes that may change while the process runs: seconds that
 * the wall clock is ahead, how many more writes of the database fail, how many more syncs,
 * microseconds that each sync takes longer, and seconds that the steady clock is ahead. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static const char *below;
static struct faults { volatile int64_t ahead_s, writes, syncs, slow_us, later_s; } none, *faults = &none;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("PEERBUS_TRACE");
    below = getenv("PEERBUS_TRACE_DIR");
    if (path && below)
        trace = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    path = getenv("PEERBUS_FAULTS");
    int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *at = mmap(0, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != MAP_FAILED) faults = at;
        syscall(SYS_close, fd);
    }
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

/* The file behind a descriptor; empty when it is none that counts. */
static const char *name_of(int fd, char *into) {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, link, into, 4095);
    into[n > 0 ? n : 0] = 0;
    return into;
}

static int traced(const char *path) { return trace >= 0 && !strncmp(path, below, strlen(below)); }

static int ours(int fd, char *path) { return trace >= 0 && traced(name_of(fd, path)); }

static uint64_t inode(int fd) {
    struct stat found;
    return fstat(fd, &found) ? 0 : found.st_ino;
}

/* One entry: a letter, four numbers, and what belongs to it. */
static void put(char what, uint64_t node, uint64_t at, const void *a, size_t a_len, const void *b, size_t b_len) {
    uint64_t head[5] = {what, node, at, a_len, b_len};
    char *all = malloc(sizeof head + a_len + b_len);
    memcpy(all, head, sizeof head);
    memcpy(all + sizeof head, a, a_len);
    if (b_len) memcpy(all + sizeof head + a_len, b, b_len);
    if (syscall(SYS_write, trace, all, sizeof head + a_len + b_len) < 0) abort();
    free(all);
}

#define LOCKED(...) do { int was_ = errno; pthread_mutex_lock(&order); errno = was_; __VA_ARGS__; \
    was_ = errno; pthread_mutex_unlock(&order); errno = was_; } while (0)

static int take(volatile int64_t *left) { return __atomic_load_n(left, __ATOMIC_RELAXED) > 0 && __atomic_fetch_sub(left, 1, __ATOMIC_RELAXED) > 0; }

static int of_database(int fd) {
    char path[4096];
    return faults != &none && strstr(name_of(fd, path), "peerbus.db") != 0;
}

static void wrote(int fd, const void *bytes, ssize_t n, off_t at) {
    char path[4096];
    if (n <= 0 || trace < 0) return;
    if (fd == 1) put('M', 0, 0, bytes, n, 0, 0);
    else if (ours(fd, path)) put('W', inode(fd), at < 0 ? lseek(fd, 0, SEEK_CUR) - n : at, bytes, n, 0, 0);
}

ssize_t write(int fd, const void *bytes, size_t n) {
    ssize_t done;
    if (faults->writes > 0 && of_database(fd) && take(&faults->writes)) return errno = EIO, -1;
    if (trace < 0) return syscall(SYS_write, fd, bytes, n);
    LOCKED(done = syscall(SYS_write, fd, bytes, n); wrote(fd, bytes, done, -1));
    return done;
}

ssize_t pwrite64(int fd, const void *bytes, size_t n, off_t at) {
    ssize_t done;
    if (faults->writes > 0 && of_database(fd) && take(&faults->writes)) return errno = ENOSPC, -1;
    if (trace < 0) return syscall(SYS_pwrite64, fd, bytes, n, at);
    LOCKED(done = syscall(SYS_pwrite64, fd, bytes, n, at); wrote(fd, bytes, done, at));
    return done;
}
ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at) { return pwrite64(fd, bytes, n, at); }

static int synced(int fd, long call) {
    int done;
    char path[4096];
    if (faults->slow_us > 0 && of_database(fd)) {
        struct timespec pause = {faults->slow_us / 1000000, faults->slow_us % 1000000 * 1000};
        syscall(SYS_nanosleep, &pause, 0);
    }
    if (faults->syncs > 0 && of_database(fd) && take(&faults->syncs)) return errno = EIO, -1;
    if (trace < 0) return syscall(call, fd);
    LOCKED(done = 0; if (ours(fd, path)) put('S', inode(fd), 0, path, strlen(path), 0, 0));
    return done;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

int ftruncate64(int fd, off_t to) {
    int done;
    char path[4096];
    if (trace < 0) return syscall(SYS_ftruncate, fd, to);
    LOCKED(done = syscall(SYS_ftruncate, fd, to); if (!done && ours(fd, path)) put('T', inode(fd), to, "", 0, 0, 0));
    return done;
}
int ftruncate(int fd, off_t to) { return ftruncate64(fd, to); }

int open64(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    int fd;
    if (trace < 0) return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    LOCKED(
        fd = syscall(SYS_openat, AT_FDCWD, path, flags, mode);
        if (fd >= 0 && traced(path) && flags & O_CREAT) put('C', inode(fd), 0, path, strlen(path), 0, 0);
        if (fd >= 0 && traced(path) && flags & O_TRUNC) put('T', inode(fd), 0, "", 0, 0, 0));
    return fd;
}
int open(const char *path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    return open64(path, flags, mode);
}

int rename(const char *from, const char *to) {
    int done;
    LOCKED(done = syscall(SYS_rename, from, to);
           if (!done && traced(to)) put('R', 0, 0, from, strlen(from), to, strlen(to)));
    return done;
}

int unlink(const char *path) {
    int done;
    LOCKED(done = syscall(SYS_unlink, path); if (!done && traced(path)) put('U', 0, 0, path, strlen(path), "", 0));
    return done;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static __typeof__(&clock_gettime) real;
    if (!real) real = REAL(clock_gettime);
    int done = real(clock, at);
    if (!done && clock == CLOCK_REALTIME) at->tv_sec += faults->ahead_s;
    if (!done && clock == CLOCK_MONOTONIC) at->tv_sec += faults->later_s;
    return done;
}

/* Rust's waits end at a time of the steady clock, which the kernel knows as it is. */
long syscall(long number, ...) {
    static __typeof__(&syscall) real;
    if (!real) real = REAL(syscall);
    va_list list;
    va_start(list, number);
    long with[6];
    for (int n = 0; n < 6; n++) with[n] = va_arg(list, long);
    va_end(list);
    const struct timespec *until = (void *)with[3];
    struct timespec earlier;
    if (number == SYS_futex && until && (with[1] & 127) == FUTEX_WAIT_BITSET && !(with[1] & FUTEX_CLOCK_REALTIME)) {
        earlier = *until;
        earlier.tv_sec -= faults->later_s;
        if (earlier.tv_sec < 0) earlier.tv_sec = earlier.tv_nsec = 0;
        with[3] = (long)&earlier;
    }
    return real(number, with[0], with[1], with[2], with[3], with[4], with[5]);
}
