/* Makes a known multiset of system calls inside and outside of a mount, by every trick that could
 * mislead a tracer, and logs each call with what it knows about it.
 *
 *     ground_truth MOUNT OUTSIDE LOG ROUNDS
 *
 * The log is shared memory: an array of struct entry. What is inside is written at each call by hand:
 * IN on the mount, OUT elsewhere, NONE on no file system at all. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/close_range.h>
#include <linux/io_uring.h>
#include <linux/kcmp.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum where { OUT = 0, IN = 1, NONE = 2 };
enum { ENTRIES = 200000, LOG_FD = 200, HEAD = 32 };

struct entry {
	int32_t nr, where;
	int64_t result; /* or minus errno */
	uint64_t args[6];
	uint8_t open_fd[6]; /* the argument is an open descriptor */
	uint8_t readable[6]; /* it is the address of something */
	uint32_t length[6]; /* of a text there */
	uint8_t head[6][HEAD]; /* its first bytes */
};

static struct log {
	atomic_long len;
	long unused[7];
	struct entry entries[ENTRIES];
} *entries_log;

static char inside[256], outside[256];

/* Reads our own memory without a fault and without a call of the table. */
static long peek(uint64_t at, void *to, size_t len)
{
	struct iovec local = { to, len }, remote = { (void *)at, len };
	return syscall(SYS_process_vm_readv, getpid(), &local, 1, &remote, 1, 0);
}

static void describe(struct entry *e)
{
	for (int i = 0; i < 6; i++) {
		uint64_t a = e->args[i];
		char text[4200];
		int fd = (int)a;
		e->open_fd[i] = fd >= 0 && syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, fd, fd) == 0;
		e->readable[i] = a > 4096 && peek(a, e->head[i], 1) == 1;
		if (!e->readable[i])
			continue;
		long have = peek(a, text, sizeof text);
		if (have < 0)
			have = peek(a, text, 4096 - (a & 4095));
		memcpy(e->head[i], text, have < HEAD ? have : HEAD);
		e->length[i] = strnlen(text, have);
	}
}

static struct entry *start(enum where where, int nr, const uint64_t args[6])
{
	struct entry *e = &entries_log->entries[atomic_fetch_add(&entries_log->len, 1)];
	e->nr = nr;
	e->where = where;
	memcpy(e->args, args, sizeof e->args);
	describe(e);
	return e;
}

static long call(enum where where, int nr, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e,
		 uint64_t f)
{
	struct entry *entry = start(where, nr, (uint64_t[]){ a, b, c, d, e, f });
	long result = syscall(nr, a, b, c, d, e, f);
	entry->result = result < 0 && result >= -1 ? -errno : result;
	return result;
}

#define CALL6(w, nr, a, b, c, d, e, f, ...) \
	call(w, nr, (uint64_t)(a), (uint64_t)(b), (uint64_t)(c), (uint64_t)(d), (uint64_t)(e), (uint64_t)(f))
#define S(w, nr, ...) CALL6(w, nr, __VA_ARGS__, 0, 0, 0, 0, 0, 0)

static char *join(const char *dir, const char *name)
{
	static __thread char buffers[8][600];
	static __thread unsigned next;
	char *buffer = buffers[next++ % 8];
	snprintf(buffer, 600, "%s%s", dir, name);
	return buffer;
}

#define I(name) join(inside, name)
#define O(name) join(outside, name)
#define BASE(path) (strrchr(path, '/') + 1)

static void must(long result, const char *what)
{
	if (result < 0) {
		fprintf(stderr, "ground_truth: %s: %s\n", what, strerror(errno));
		exit(9);
	}
}

static void contents(void)
{
	char buffer[8192] = "";
	struct stat st;
	struct iovec v = { buffer, 4 };
	int a = S(IN, SYS_open, I("/f1"), O_RDWR | O_CREAT, 0644), p[2];
	int b = S(OUT, SYS_open, O("/f1"), O_RDWR | O_CREAT, 0644);
	must(a, "open inside");
	must(b, "open outside");
	for (int size = 1; size <= 8192; size = size * 2 + (size & 5))
		S(IN, SYS_write, a, buffer, size);
	S(OUT, SYS_write, b, "hello", 5);
	S(IN, SYS_pwrite64, a, "x", 1, 100);
	S(IN, SYS_pwrite64, a, "x", 1, -1);
	S(IN, SYS_pwrite64, a, "x", 0, 1L << 62);
	S(IN, SYS_lseek, a, 0, SEEK_SET);
	S(IN, SYS_lseek, a, 4097, SEEK_DATA);
	S(IN, SYS_lseek, a, -1, 77);
	S(IN, SYS_read, a, buffer, 5);
	S(IN, SYS_read, a, 16, 4096);
	S(OUT, SYS_pread64, b, buffer, 5, 0);
	S(IN, SYS_fsync, a);
	S(OUT, SYS_fdatasync, b);
	for (long length = 1; length < 1 << 30; length = length * 4 - 1)
		S(IN, SYS_ftruncate, a, length);
	S(IN, SYS_ftruncate, a, -5);
	S(IN, SYS_ftruncate, a, 100000);
	S(IN, SYS_fallocate, a, 0, 0, 4096);
	S(IN, SYS_fallocate, a, 3, 4096, 4095);
	S(IN, SYS_fstat, a, &st);
	S(OUT, SYS_fstat, b, &st);
	S(IN, SYS_writev, a, &v, 1);
	S(IN, SYS_pwritev, a, &v, 1, 0, 0);
	S(IN, SYS_preadv2, a, &v, 1, 0, 0, 0);
	S(IN, SYS_preadv2, a, &v, 1, -1, 0, 0x40000000);
	S(IN, SYS_fcntl, a, F_GETFL);
	S(IN, SYS_flock, a, 2);
	S(IN, SYS_fchmod, a, 0600);
	S(IN, SYS_fchown, a, 0, -1);
	S(IN, SYS_fadvise64, a, 0, 0, 0);
	int64_t from = 5, to = 4096;
	S(IN, SYS_sendfile, a, b, NULL, 10);
	S(IN, SYS_copy_file_range, a, NULL, b, NULL, 10, 0);
	S(IN, SYS_copy_file_range, b, &from, a, &to, 10, 0);
	S(OUT, SYS_sendfile, b, b, NULL, 1);
	must(pipe(p), "pipe");
	S(IN, SYS_splice, a, NULL, p[1], NULL, 4, 0);
	S(OUT, SYS_splice, p[0], NULL, b, NULL, 4, 0);
	S(IN, SYS_close, a);
	S(OUT, SYS_close, b);
	S(OUT, SYS_close, p[0]);
	S(OUT, SYS_close, p[1]);
}

static void names(void)
{
	struct stat st;
	char path[5000];
	/* A name that only starts like the mount. */
	S(OUT, SYS_open, join(inside, "X/f"), O_RDONLY, 0);
	S(OUT, SYS_stat, join(inside, "X/f"), &st);
	S(OUT, SYS_stat, O("/none"), &st);
	snprintf(path, sizeof path, "//.%s/.//f1", inside);
	S(IN, SYS_stat, path, &st);
	S(IN, SYS_mkdir, I("/d"), 0755);
	S(OUT, SYS_mkdir, inside, 0755);
	snprintf(path, sizeof path, "%s/d/../../%s/f1", inside, BASE(inside));
	S(IN, SYS_stat, path, &st);
	S(OUT, SYS_stat, I("/../"), &st);
	/* Failures */
	S(IN, SYS_open, I("/nope/x/y"), O_RDONLY, 0);
	S(IN, SYS_open, I("/f1/x"), O_RDONLY, 0);
	S(IN, SYS_mkdir, I("/d"), 0755);
	S(IN, SYS_unlink, I("/none"));
	memset(path, 0, sizeof path);
	snprintf(path, sizeof path, "%s/", inside);
	memset(path + strlen(path), 'n', 300);
	S(IN, SYS_open, path, O_RDONLY, 0);
	S(IN, SYS_open, I("/d"), O_WRONLY | O_DIRECT | O_APPEND, 0);
	S(IN, SYS_open, I("/f1"), O_RDWR | O_CREAT | O_EXCL, 04755);
	S(IN, SYS_rmdir, I("/f1"));
	S(IN, SYS_rmdir, I("/d"));
}

static void duplicates(void)
{
	int a = S(IN, SYS_openat, AT_FDCWD, I("/f2"), O_RDWR | O_CREAT, 0644), q[4];
	int b = S(OUT, SYS_openat, AT_FDCWD, O("/f2"), O_RDWR | O_CREAT, 0644);
	int d = S(IN, SYS_dup, a), e, g, r;
	S(IN, SYS_close, a);
	S(IN, SYS_write, d, "1", 1);
	e = S(IN, SYS_fcntl, d, F_DUPFD, 50);
	S(IN, SYS_write, e, "2", 1);
	g = S(IN, SYS_fcntl, e, F_DUPFD_CLOEXEC, 60);
	S(IN, SYS_write, g, "3", 1);
	S(IN, SYS_dup2, d, 70);
	S(IN, SYS_write, 70, "4", 1);
	S(OUT, SYS_dup2, b, 70);
	S(OUT, SYS_write, 70, "5", 1);
	S(IN, SYS_dup3, d, b, O_CLOEXEC);
	S(IN, SYS_write, b, "6", 1);
	/* The number of a closed file comes back for another. */
	S(IN, SYS_close, d);
	r = S(OUT, SYS_open, O("/f2"), O_RDWR, 0);
	S(OUT, SYS_write, r, "7", 1);
	S(OUT, SYS_close, r);
	S(IN, SYS_close, e);
	S(IN, SYS_close, g);
	S(IN, SYS_close, b);
	S(OUT, SYS_close, 70);
	for (int i = 0; i < 4; i++)
		q[i] = S(IN, SYS_open, I("/f2"), O_RDWR, 0);
	S(IN, SYS_close_range, q[0], q[3], 0);
	for (int i = 0; i < 4; i++)
		S(OUT, SYS_write, S(OUT, SYS_open, O("/f2"), O_RDWR, 0), "8", 1);
	S(OUT, SYS_close_range, q[0], q[3], 0);
	/* Descriptor 0. */
	int save = S(OUT, SYS_dup, 0), a2 = S(IN, SYS_open, I("/f2"), O_RDWR, 0);
	S(IN, SYS_dup2, a2, 0);
	S(IN, SYS_write, 0, "9", 1);
	S(OUT, SYS_dup2, save, 0);
	S(OUT, SYS_close, save);
	S(IN, SYS_close, a2);
}

static void directories(void)
{
	char old[512], up[600];
	struct stat st;
	must((long)getcwd(old, sizeof old), "getcwd");
	S(OUT, SYS_chdir, outside);
	S(OUT, SYS_stat, "f1", &st);
	S(IN, SYS_chdir, inside);
	S(IN, SYS_stat, "f1", &st);
	S(IN, SYS_mkdir, "cd", 0755);
	S(IN, SYS_chdir, "cd");
	int a = S(IN, SYS_open, "x", O_RDWR | O_CREAT, 0644);
	S(IN, SYS_write, a, "x", 1);
	S(IN, SYS_close, a);
	S(IN, SYS_stat, "../f1", &st);
	snprintf(up, sizeof up, "../../%s/f1", BASE(outside));
	S(OUT, SYS_stat, up, &st);
	S(IN, SYS_open, "../none", O_RDONLY, 0);
	int pid = fork();
	if (!pid) {
		S(OUT, SYS_chdir, outside);
		S(OUT, SYS_stat, "f1", &st);
		_exit(0);
	}
	waitpid(pid, 0, 0);
	S(IN, SYS_stat, "x", &st);
	int out = S(OUT, SYS_open, outside, O_RDONLY | O_DIRECTORY, 0);
	S(OUT, SYS_fchdir, out);
	S(OUT, SYS_stat, "f1", &st);
	int in = S(IN, SYS_open, inside, O_PATH | O_DIRECTORY, 0);
	S(IN, SYS_fchdir, in);
	S(IN, SYS_stat, "f1", &st);
	S(IN, SYS_unlink, "cd/x");
	S(IN, SYS_rmdir, "cd");
	S(OUT, SYS_chdir, "..");
	snprintf(up, sizeof up, "%s/f1", BASE(inside));
	S(IN, SYS_stat, up, &st);
	S(OUT, SYS_chdir, old);
	S(OUT, SYS_close, out);
	S(IN, SYS_close, in);
}

static void at_calls(void)
{
	char up[600], buffer[4096], self[64];
	struct statx sx;
	struct stat st;
	int in = S(IN, SYS_open, inside, O_RDONLY | O_DIRECTORY, 0);
	int out = S(OUT, SYS_open, outside, O_RDONLY | O_DIRECTORY, 0);
	int a = S(IN, SYS_openat, in, "at1", O_RDWR | O_CREAT, 0644);
	S(IN, SYS_newfstatat, a, "", &st, AT_EMPTY_PATH);
	S(IN, SYS_statx, a, "", AT_EMPTY_PATH, 0x7ff, &sx);
	S(IN, SYS_statx, a, NULL, AT_EMPTY_PATH, 0xfff, &sx);
	S(IN, SYS_statx, in, "at1", 0, 0x7ff, &sx);
	S(OUT, SYS_statx, out, "f1", 0, 0x7ff, &sx);
	int b = S(OUT, SYS_openat, out, "at1", O_RDWR | O_CREAT, 0644);
	/* An absolute path ignores the descriptor. */
	int abs = S(IN, SYS_openat, out, I("/f1"), O_RDONLY, 0);
	S(IN, SYS_close, abs);
	S(OUT, SYS_newfstatat, in, O("/f1"), &st, 0);
	snprintf(up, sizeof up, "../%s/f1", BASE(outside));
	S(OUT, SYS_newfstatat, in, up, &st, 0);
	snprintf(up, sizeof up, "../%s/f1", BASE(inside));
	S(IN, SYS_newfstatat, out, up, &st, 0);
	S(IN, SYS_mkdirat, in, "dd", 0700);
	S(IN, SYS_mknodat, in, "dd/fifo", S_IFIFO | 0600, 0);
	S(IN, SYS_symlinkat, "../at1", in, "dd/sl");
	S(IN, SYS_readlinkat, in, "dd/sl", buffer, 100);
	S(IN, SYS_linkat, in, "at1", in, "dd/hl", 0);
	S(IN, SYS_linkat, a, "", in, "dd/hl2", AT_EMPTY_PATH);
	S(IN, SYS_renameat, in, "dd/hl", in, "dd/hl3");
	S(IN, SYS_renameat2, in, "dd/hl3", in, "dd/hl2", 2);
	S(IN, SYS_renameat2, in, "dd/hl2", out, "zz", 0);
	S(IN, SYS_rename, O("/f1"), I("/dd/nn"));
	S(OUT, SYS_renameat2, out, "at1", out, "at2", 0);
	S(IN, SYS_faccessat, in, "at1", 4);
	S(IN, SYS_faccessat2, in, "at1", 4, 0);
	S(IN, SYS_fchmodat, in, "at1", 0600);
	S(IN, 452, in, "at1", 0600, AT_SYMLINK_NOFOLLOW); /* fchmodat2 */
	S(IN, SYS_fchownat, in, "at1", 0, 0, 0);
	S(IN, SYS_utimensat, in, "at1", NULL, 0);
	S(IN, SYS_utimensat, a, NULL, NULL, 0);
	struct open_how how = { .flags = O_RDONLY, .resolve = RESOLVE_BENEATH };
	int c = S(IN, SYS_openat2, in, "at1", &how, sizeof how);
	S(IN, SYS_close, c);
	S(IN, SYS_openat2, in, "../x", &how, sizeof how);
	how.resolve = RESOLVE_NO_SYMLINKS;
	S(IN, SYS_openat2, in, "dd/sl", &how, sizeof how);
	S(OUT, SYS_openat2, out, "none", &how, sizeof how);
	how.flags = O_CREAT | O_WRONLY;
	how.mode = 01640;
	how.resolve = 0;
	c = S(IN, SYS_openat2, in, "at3", &how, sizeof how);
	S(IN, SYS_close, c);
	S(IN, SYS_unlinkat, in, "at3", 0);
	int t = S(IN, SYS_openat, in, ".", O_TMPFILE | O_RDWR, 0600);
	if (t >= 0)
		S(IN, SYS_close, t);
	S(IN, SYS_unlinkat, in, "dd/hl2", 0);
	S(IN, SYS_unlinkat, in, "dd/hl3", 0);
	S(IN, SYS_unlinkat, in, "dd/sl", 0);
	S(IN, SYS_unlinkat, in, "dd/fifo", 0);
	S(IN, SYS_unlinkat, in, "dd", AT_REMOVEDIR);
	S(OUT, SYS_unlinkat, out, "at2", 0);
	S(IN, SYS_getdents64, in, buffer, 4096);
	S(OUT, SYS_getdents64, out, buffer, 4096);
	/* Links of /proc that lead to places. */
	snprintf(self, sizeof self, "/proc/self/fd/%d", a);
	c = S(IN, SYS_open, self, O_RDONLY, 0);
	S(IN, SYS_close, c);
	S(IN, SYS_stat, self, &st);
	S(OUT, SYS_readlink, self, buffer, 100);
	snprintf(self, sizeof self, "/dev/fd/%d", b);
	S(OUT, SYS_stat, self, &st);
	S(IN, SYS_close, a);
	S(OUT, SYS_close, b);
	S(IN, SYS_close, in);
	S(OUT, SYS_close, out);
}

static void links(void)
{
	struct stat st;
	char b[100];
	S(OUT, SYS_symlink, inside, O("/lm"));
	S(OUT, SYS_symlink, I("/f1"), O("/lf"));
	S(IN, SYS_symlink, O("/f1"), I("/lo"));
	S(IN, SYS_symlink, outside, I("/ldo"));
	S(OUT, SYS_symlink, I("/created"), O("/ldang"));
	S(OUT, SYS_symlink, "lm/f1", O("/lrel"));
	S(IN, SYS_stat, O("/lm/f1"), &st);
	S(IN, SYS_stat, O("/lf"), &st);
	S(OUT, SYS_lstat, O("/lf"), &st);
	S(OUT, SYS_readlink, O("/lf"), b, 100);
	S(IN, SYS_stat, O("/lrel"), &st);
	S(OUT, SYS_stat, I("/lo"), &st);
	S(IN, SYS_lstat, I("/lo"), &st);
	S(IN, SYS_readlink, I("/lo"), b, 100);
	S(OUT, SYS_stat, I("/ldo/f1"), &st);
	S(OUT, SYS_open, I("/ldo/none"), O_RDONLY, 0);
	int a = S(IN, SYS_open, O("/lm/viaopen"), O_RDWR | O_CREAT, 0600);
	S(IN, SYS_close, a);
	S(IN, SYS_open, O("/lm/none"), O_RDONLY, 0);
	S(IN, SYS_lstat, O("/lm/none"), &st);
	a = S(IN, SYS_open, O("/ldang"), O_RDWR | O_CREAT, 0600);
	S(IN, SYS_close, a);
	S(IN, SYS_unlink, I("/created"));
	S(IN, SYS_stat, O("/ldang"), &st);
	S(IN, SYS_stat, O("/lm/"), &st);
	S(OUT, SYS_open, O("/lf"), O_RDONLY | O_NOFOLLOW, 0);
	S(OUT, SYS_open, O("/lf"), O_RDONLY | O_CREAT | O_EXCL, 0600);
	/* Links that were there before, too long for an inode. */
	S(IN, SYS_stat, I("/made-before-in"), &st);
	S(OUT, SYS_stat, I("/made-before-out"), &st);
	S(IN, SYS_lstat, I("/made-before-out"), &st);
	S(IN, SYS_open, I("/made-before-in/x"), O_RDONLY, 0);
	S(OUT, SYS_open, I("/made-before-out/x"), O_RDONLY, 0);
	S(OUT, SYS_unlink, O("/lm"));
	S(OUT, SYS_stat, O("/lm/f1"), &st);
	S(OUT, SYS_symlink, outside, O("/lm"));
	S(OUT, SYS_stat, O("/lm/f1"), &st);
	for (int i = 0; i < 4; i++)
		S(OUT, SYS_unlink, O(((char *[]){ "/lm", "/lf", "/ldang", "/lrel" })[i]));
	for (int i = 0; i < 3; i++)
		S(IN, SYS_unlink, I(((char *[]){ "/lo", "/ldo", "/viaopen" })[i]));
}

static void attributes(void)
{
	struct { uint64_t value; uint32_t size, flags; } xa = { (uint64_t)"v", 1, 0 };
	char b[128], long_name[300] = "user.";
	memset(long_name + 5, 'n', 270);
	S(IN, SYS_setxattr, I("/f1"), "user.a", "v", 1, 0);
	S(IN, SYS_setxattr, I("/f1"), "nonsense", "v", 1, 2);
	S(IN, SYS_setxattr, I("/f1"), long_name, "v", 70000, 1);
	S(IN, SYS_getxattr, I("/f1"), "user.a", b, 64);
	S(IN, SYS_getxattr, I("/f1"), "trusted.a", b, 0);
	S(IN, SYS_lgetxattr, I("/f1"), "security.none", b, 64);
	S(IN, SYS_listxattr, I("/f1"), b, 64);
	S(IN, SYS_removexattr, I("/f1"), "user.a");
	S(OUT, SYS_getxattr, O("/f1"), "user.a", b, 64);
	int a = S(IN, SYS_open, I("/f1"), O_RDWR, 0);
	S(IN, SYS_fsetxattr, a, "user.b", "v", 1, 0);
	S(IN, SYS_fgetxattr, a, "user.b", b, 64);
	S(IN, SYS_flistxattr, a, b, 64);
	S(IN, SYS_fremovexattr, a, "user.b");
	S(IN, 463, AT_FDCWD, I("/f1"), 0, "user.c", &xa, sizeof xa); /* setxattrat */
	xa.value = (uint64_t)b;
	xa.size = 64;
	S(IN, 464, AT_FDCWD, I("/f1"), 0, "user.c", &xa, sizeof xa); /* getxattrat */
	S(IN, 465, AT_FDCWD, I("/f1"), 0, b, 64); /* listxattrat */
	S(IN, 466, a, "", AT_EMPTY_PATH, "user.c"); /* removexattrat */
	S(IN, 468, AT_FDCWD, I("/f1"), b, 24, 0); /* file_getattr */
	S(OUT, 468, AT_FDCWD, O("/f1"), b, 24, 0);
	S(IN, SYS_close, a);
	S(IN, SYS_truncate, I("/f1"), 100);
	S(OUT, SYS_truncate, O("/f1"), 100);
	S(IN, SYS_chmod, I("/f1"), 0644);
	S(IN, SYS_chown, I("/f1"), 1000, 0);
	S(IN, SYS_lchown, I("/f1"), 0, 0);
	S(IN, SYS_access, I("/f1"), 0);
	S(IN, SYS_statfs, inside, b);
	S(IN, SYS_link, I("/f1"), I("/f1l"));
	S(IN, SYS_unlink, I("/f1l"));
	a = S(IN, SYS_creat, I("/cr"), 0600);
	S(IN, SYS_close, a);
	S(IN, SYS_unlink, I("/cr"));
	S(IN, SYS_mknod, I("/nd"), S_IFIFO | 0600, 0);
	S(IN, SYS_unlink, I("/nd"));
	struct file_handle *handle = calloc(1, 256);
	int mount_id;
	handle->handle_bytes = 128;
	S(IN, SYS_name_to_handle_at, AT_FDCWD, I("/f1"), handle, &mount_id, 0);
	int m = S(IN, SYS_open, inside, O_RDONLY | O_DIRECTORY, 0);
	int h = S(IN, SYS_open_by_handle_at, m, handle, O_RDWR);
	if (h >= 0)
		S(IN, SYS_close, h);
	S(IN, SYS_close, m);
	free(handle);
}

static void pass(int socket, int fd)
{
	char c = 'x', control[CMSG_SPACE(sizeof fd)] = "";
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	*h = (struct cmsghdr){ CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS };
	memcpy(CMSG_DATA(h), &fd, sizeof fd);
	must(sendmsg(socket, &m, 0), "sendmsg");
}

static int received(int socket)
{
	int fd;
	char c, control[CMSG_SPACE(sizeof fd)];
	struct iovec v = { &c, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	must(recvmsg(socket, &m, 0), "recvmsg");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	return fd;
}

static void processes(char *program)
{
	int a = S(IN, SYS_open, I("/f3"), O_RDWR | O_CREAT, 0644), sockets[2], pid;
	int b = S(OUT, SYS_open, O("/f3"), O_RDWR | O_CREAT, 0644);
	if (!(pid = fork())) {
		S(IN, SYS_write, a, "c", 1);
		S(IN, SYS_close, a);
		S(OUT, SYS_write, S(OUT, SYS_open, O("/f3"), O_RDWR, 0), "c", 1);
		_exit(0);
	}
	waitpid(pid, 0, 0);
	S(IN, SYS_write, a, "p", 1);
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), "socketpair");
	if (!(pid = fork())) {
		S(IN, SYS_close, a);
		int fd = received(sockets[1]);
		S(IN, SYS_write, fd, "s", 1);
		_exit(0);
	}
	pass(sockets[0], a);
	waitpid(pid, 0, 0);
	if (!(pid = fork())) {
		pause();
		_exit(0);
	}
	int pidfd = syscall(SYS_pidfd_open, pid, 0), got = syscall(SYS_pidfd_getfd, pidfd, a, 0);
	S(IN, SYS_write, got, "g", 1);
	S(IN, SYS_close, got);
	S(OUT, SYS_close, pidfd);
	kill(pid, SIGKILL);
	waitpid(pid, 0, 0);
	S(OUT, SYS_close, sockets[0]);
	S(OUT, SYS_close, sockets[1]);
	/* What survives exec, and what comes back under the number of what does not. */
	int gone = S(IN, SYS_open, I("/f3"), O_RDWR | O_CLOEXEC, 0);
	int kept = S(IN, SYS_open, I("/f3"), O_RDWR, 0);
	if (!(pid = fork())) {
		char n1[16], n2[16];
		sprintf(n1, "%d", gone);
		sprintf(n2, "%d", kept);
		execl("/proc/self/exe", program, "executed", inside, outside, n1, n2, NULL);
		_exit(9);
	}
	int status;
	waitpid(pid, &status, 0);
	must(-status, "the executed program");
	S(IN, SYS_close, gone);
	S(IN, SYS_close, kept);
	S(IN, SYS_close, a);
	S(OUT, SYS_close, b);
}

static int executed(int gone, int kept)
{
	int z;
	S(IN, SYS_write, kept, "e", 1);
	do {
		z = S(OUT, SYS_open, O("/f1"), O_RDWR, 0);
		S(OUT, SYS_write, z, "e", 1);
	} while (z < gone);
	S(OUT, SYS_write, gone, "e", 1);
	return 0;
}

static int shared_fd;

static void *opens(void *unused)
{
	shared_fd = S(IN, SYS_open, I("/f4"), O_RDWR | O_CREAT, 0644);
	S(IN, SYS_chdir, inside);
	return unused;
}

static void *noise(void *unused)
{
	for (int i = 0; i < 100; i++) {
		int z = S(OUT, SYS_open, O("/noise"), O_RDWR | O_CREAT, 0600);
		S(OUT, SYS_write, z, "n", 1);
		S(OUT, SYS_close, z);
	}
	return unused;
}

static void threads(void)
{
	char old[512];
	struct stat st;
	pthread_t t;
	must((long)getcwd(old, sizeof old), "getcwd");
	pthread_create(&t, 0, opens, 0);
	pthread_join(t, 0);
	S(IN, SYS_write, shared_fd, "m", 1);
	S(IN, SYS_close, shared_fd);
	S(IN, SYS_stat, "f1", &st);
	S(OUT, SYS_chdir, old);
	int a = S(IN, SYS_open, I("/f4"), O_RDWR, 0), pid = fork();
	if (!pid) {
		S(IN, SYS_close_range, a, a, CLOSE_RANGE_UNSHARE);
		S(OUT, SYS_write, S(OUT, SYS_open, O("/f1"), O_RDWR, 0), "q", 1);
		_exit(0);
	}
	waitpid(pid, 0, 0);
	S(IN, SYS_close, a);
	pthread_create(&t, 0, noise, 0);
	for (int i = 0; i < 100; i++) {
		int z = S(IN, SYS_openat, AT_FDCWD, I("/noise"), O_RDWR | O_CREAT, 0600);
		S(IN, SYS_write, z, "m", 1);
		S(IN, SYS_close, z);
	}
	pthread_join(t, 0);
}

static void memory(void)
{
	struct stat st;
	char page[3 * 4096] = "";
	/* Paths on pages that are not in memory yet: the log must not touch them either. */
	int z = open(O("/texts"), O_RDWR | O_CREAT | O_TRUNC, 0600);
	strcpy(page, I("/f1"));
	strcpy(page + 8192, I("/none"));
	must(write(z, page, sizeof page), "write");
	char *m = mmap(0, sizeof page, PROT_READ, MAP_PRIVATE, z, 0);
	for (int i = 0; i < 2; i++) {
		struct entry *e = &entries_log->entries[atomic_fetch_add(&entries_log->len, 1)];
		*e = (struct entry){ .nr = SYS_stat, .where = IN, .args = { (uint64_t)m + 8192 * i, (uint64_t)&st } };
		e->readable[0] = 1;
		e->length[0] = strlen(page + 8192 * i);
		memcpy(e->head[0], page + 8192 * i, HEAD);
		long result = syscall(SYS_stat, m + 8192 * i, &st);
		e->result = result < 0 ? -errno : result;
	}
	munmap(m, sizeof page);
	close(z);
	unlink(O("/texts"));
	int a = S(IN, SYS_open, I("/mm"), O_RDWR | O_CREAT, 0644);
	S(IN, SYS_ftruncate, a, 8192);
	m = (char *)S(IN, SYS_mmap, 0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, a, 0);
	S(IN, SYS_close, a);
	m[0] = 1;
	S(IN, SYS_msync, m, 8192, MS_SYNC);
	S(IN, SYS_munmap, m, 8192);
	S(IN, SYS_unlink, I("/mm"));
}

static void strays(void)
{
	struct stat st;
	S(NONE, SYS_write, -1, "x", 1);
	S(NONE, SYS_close, 999);
	S(NONE, SYS_stat, NULL, &st);
	S(NONE, SYS_stat, 16, &st);
	S(NONE, SYS_openat, 999, "relative", O_RDONLY, 0);
}

static void roots(void)
{
	struct stat st;
	int pid = fork();
	if (!pid) {
		S(IN, SYS_chroot, inside);
		S(IN, SYS_chdir, "/");
		S(IN, SYS_stat, "/f1", &st);
		S(IN, SYS_stat, "/../../f1", &st);
		S(IN, SYS_close, S(IN, SYS_open, "/f5", O_RDWR | O_CREAT, 0600));
		S(IN, SYS_unlink, "/f5");
		S(IN, SYS_stat, "/none", &st);
		_exit(0);
	}
	waitpid(pid, 0, 0);
	S(OUT, SYS_mkdir, O("/bind"), 0700);
	S(IN, SYS_mount, inside, O("/bind"), NULL, MS_BIND, NULL);
	S(IN, SYS_stat, O("/bind/f1"), &st);
	S(IN, SYS_close, S(IN, SYS_open, O("/bind/f6"), O_RDWR | O_CREAT, 0600));
	S(IN, SYS_unlink, O("/bind/f6"));
	S(IN, SYS_open, O("/bind/none"), O_RDONLY, 0);
	S(IN, SYS_umount2, O("/bind"), 0);
	S(OUT, SYS_rmdir, O("/bind"));
}

/* io_uring without a library: one operation at a time. */
static struct ring {
	int fd;
	unsigned *sq_tail, *sq_mask, *sq_array, *cq_head, *cq_tail, *cq_mask;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;

static int ring_setup(unsigned flags)
{
	struct io_uring_params p = { .flags = flags, .sq_thread_idle = 50 };
	ring.fd = syscall(SYS_io_uring_setup, 8, &p);
	if (ring.fd < 0)
		return -1;
	char *sq = mmap(0, 4096 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	char *cq = mmap(0, 4096 * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.sqes = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	ring.sq_tail = (unsigned *)(sq + p.sq_off.tail);
	ring.sq_mask = (unsigned *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (unsigned *)(sq + p.sq_off.array);
	ring.cq_head = (unsigned *)(cq + p.cq_off.head);
	ring.cq_tail = (unsigned *)(cq + p.cq_off.tail);
	ring.cq_mask = (unsigned *)(cq + p.cq_off.ring_mask);
	ring.cqes = (struct io_uring_cqe *)(cq + p.cq_off.cqes);
	return 0;
}

/* Submits `sqe`, logged as the call `nr` with these arguments, and waits. */
static long submit(enum where where, unsigned sqpoll, struct io_uring_sqe sqe, int nr, const uint64_t args[6])
{
	struct entry *e = start(where, nr, args);
	unsigned tail = *ring.sq_tail, index = tail & *ring.sq_mask;
	ring.sqes[index] = sqe;
	ring.sq_array[index] = index;
	__atomic_store_n(ring.sq_tail, tail + 1, __ATOMIC_RELEASE);
	unsigned flags = IORING_ENTER_GETEVENTS | (sqpoll ? IORING_ENTER_SQ_WAKEUP : 0);
	while (__atomic_load_n(ring.cq_tail, __ATOMIC_ACQUIRE) == *ring.cq_head)
		syscall(SYS_io_uring_enter, ring.fd, sqpoll ? 0 : 1, 1, flags, NULL, 0);
	e->result = ring.cqes[*ring.cq_head & *ring.cq_mask].res;
	__atomic_store_n(ring.cq_head, *ring.cq_head + 1, __ATOMIC_RELEASE);
	return e->result;
}

#define SQE(op, ...) (struct io_uring_sqe){ .opcode = op, __VA_ARGS__ }
#define ARGS(...) (uint64_t[6]){ __VA_ARGS__ }
#define U(p) ((uint64_t)(p))

static void uring(unsigned flags)
{
	unsigned poll = flags & IORING_SETUP_SQPOLL;
	char b[64];
	struct statx sx;
	if (ring_setup(flags))
		return;
	char *in = I("/iou"), *out = O("/iou"), *dir = I("/ioud"), *none = I("/nonexistent");
	int open_flags = O_RDWR | O_CREAT, here = AT_FDCWD;
	int a = submit(IN, poll, SQE(IORING_OP_OPENAT, .fd = here, .addr = U(in), .len = 0600, .open_flags = open_flags), SYS_openat, ARGS(here, U(in), open_flags, 0600));
	int o = submit(OUT, poll, SQE(IORING_OP_OPENAT, .fd = here, .addr = U(out), .len = 0600, .open_flags = open_flags), SYS_openat, ARGS(here, U(out), open_flags, 0600));
	submit(IN, poll, SQE(IORING_OP_WRITE, .fd = a, .addr = U("hello"), .len = 5, .off = 4096), SYS_pwrite64, ARGS(a, U("hello"), 5, 4096));
	submit(OUT, poll, SQE(IORING_OP_WRITE, .fd = o, .addr = U("hello"), .len = 5), SYS_pwrite64, ARGS(o, U("hello"), 5, 0));
	submit(IN, poll, SQE(IORING_OP_FSYNC, .fd = a), SYS_fsync, ARGS(a));
	submit(IN, poll, SQE(IORING_OP_READ, .fd = a, .addr = U(b), .len = 64), SYS_pread64, ARGS(a, U(b), 64, 0));
	submit(IN, poll, SQE(IORING_OP_FALLOCATE, .fd = a, .len = 0, .off = 0, .addr = 8193), SYS_fallocate, ARGS(a, 0, 0, 8193));
	submit(IN, poll, SQE(IORING_OP_STATX, .fd = here, .addr = U(in), .len = 0x7ff, .off = U(&sx)), SYS_statx, ARGS(here, U(in), 0, 0x7ff, U(&sx)));
	submit(IN, poll, SQE(IORING_OP_MKDIRAT, .fd = here, .addr = U(dir), .len = 0700), SYS_mkdirat, ARGS(here, U(dir), 0700));
	submit(IN, poll, SQE(IORING_OP_UNLINKAT, .fd = here, .addr = U(dir), .unlink_flags = AT_REMOVEDIR), SYS_unlinkat, ARGS(here, U(dir), AT_REMOVEDIR));
	if (!poll) {
		syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &a, 1);
		/* The argument is an index; what counts is that there is a file. */
		struct entry *e = &entries_log->entries[atomic_load(&entries_log->len)];
		submit(IN, poll, SQE(IORING_OP_WRITE, .flags = IOSQE_FIXED_FILE, .fd = 0, .addr = U("fixed"), .len = 5), SYS_pwrite64, ARGS(0, U("fixed"), 5, 0));
		e->open_fd[0] = 1;
		syscall(SYS_io_uring_register, ring.fd, IORING_UNREGISTER_FILES, NULL, 0);
	}
	submit(IN, poll, SQE(IORING_OP_CLOSE, .fd = a), SYS_close, ARGS(a));
	submit(OUT, poll, SQE(IORING_OP_CLOSE, .fd = o), SYS_close, ARGS(o));
	submit(IN, poll, SQE(IORING_OP_OPENAT, .fd = here, .addr = U(none)), SYS_openat, ARGS(here, U(none), 0, 0));
	submit(IN, poll, SQE(IORING_OP_UNLINKAT, .fd = here, .addr = U(in)), SYS_unlinkat, ARGS(here, U(in), 0));
	close(ring.fd);
}

/* Asynchronous I/O of the kernel (io_submit), several operations at a time. */
struct aio {
	struct entry *entry;
	struct iocb block;
};

static void prepare(struct aio *aio, enum where where, int opcode, int fd, void *buffer, uint64_t bytes, int64_t at)
{
	static const int stands_for[] = { SYS_pread64, SYS_pwrite64, SYS_fsync, SYS_fdatasync, 0, 0, 0, SYS_preadv2, SYS_pwritev2 };
	aio->block = (struct iocb){ .aio_lio_opcode = opcode, .aio_fildes = fd, .aio_buf = U(buffer), .aio_nbytes = bytes, .aio_offset = at };
	aio->entry = start(where, stands_for[opcode], ARGS(fd, U(buffer), bytes, at, 0, 0));
}

static void fetch(aio_context_t context, struct aio *all, int number)
{
	struct io_event events[8];
	for (int got = 0; got < number;) {
		int n = syscall(SYS_io_getevents, context, 1, 8, events, NULL);
		must(n, "io_getevents");
		for (int i = 0; i < n; i++) {
			struct aio *aio = all;
			while (U(&aio->block) != events[i].obj)
				aio++;
			aio->entry->result = events[i].res;
		}
		got += n;
	}
}

static void async(void)
{
	aio_context_t context = 0;
	char b[8192] = "";
	struct iovec v = { b, 100 };
	struct aio all[8];
	struct iocb *blocks[8];
	if (syscall(SYS_io_setup, 16, &context))
		return;
	for (int i = 0; i < 8; i++)
		blocks[i] = &all[i].block;
	int a = S(IN, SYS_open, I("/aio"), O_RDWR | O_CREAT, 0600);
	int o = S(OUT, SYS_open, O("/aio"), O_RDWR | O_CREAT, 0600);
	prepare(&all[0], IN, IOCB_CMD_PWRITE, a, b, 8192, 0);
	prepare(&all[1], OUT, IOCB_CMD_PWRITE, o, b, 100, 7);
	prepare(&all[2], IN, IOCB_CMD_PWRITE, a, b, 5, 4096);
	prepare(&all[3], IN, IOCB_CMD_PWRITEV, a, &v, 1, 100000);
	must(syscall(SYS_io_submit, context, 4, blocks) - 4, "io_submit");
	fetch(context, all, 4);
	prepare(&all[0], IN, IOCB_CMD_PREAD, a, b, 4097, 1);
	prepare(&all[1], IN, IOCB_CMD_PREADV, a, &v, 1, 0);
	prepare(&all[2], IN, IOCB_CMD_FSYNC, a, NULL, 0, 0);
	prepare(&all[3], IN, IOCB_CMD_FDSYNC, a, NULL, 0, 0);
	prepare(&all[4], IN, IOCB_CMD_PREAD, a, (void *)16, 100, 0);
	must(syscall(SYS_io_submit, context, 5, blocks) - 5, "io_submit");
	fetch(context, all, 5);
	/* The first is refused: an error of the call, and of the operation. */
	prepare(&all[0], NONE, IOCB_CMD_PREAD, 999, b, 10, 0);
	all[0].entry->result = syscall(SYS_io_submit, context, 1, blocks) < 0 ? -errno : 0;
	/* The second is refused: nobody says with which error, and it was never tried. */
	prepare(&all[0], IN, IOCB_CMD_PWRITE, a, b, 33, 10);
	all[1].block = (struct iocb){ .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = 999 };
	must(syscall(SYS_io_submit, context, 2, blocks) - 1, "io_submit");
	fetch(context, all, 1);
	/* No context: no operation. */
	all[0].block = (struct iocb){ .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = a };
	syscall(SYS_io_submit, 0, 1, blocks);
	syscall(SYS_io_destroy, context);
	S(IN, SYS_close, a);
	S(OUT, SYS_close, o);
	S(IN, SYS_unlink, I("/aio"));
}

int main(int argc, char **argv)
{
	int again = argc > 1 && !strcmp(argv[1], "executed");
	strcpy(inside, argv[1 + again]);
	strcpy(outside, argv[2 + again]);
	if (!again) {
		int log = open(argv[3], O_RDWR | O_CREAT, 0600);
		must(log, "log");
		must(ftruncate(log, sizeof(struct log)), "log");
		dup2(log, LOG_FD);
		close(log);
	}
	entries_log = mmap(0, sizeof(struct log), PROT_READ | PROT_WRITE, MAP_SHARED, LOG_FD, 0);
	if (again)
		return executed(atoi(argv[4]), atoi(argv[5]));
	for (int round = 0; round < atoi(argv[4]); round++) {
		contents();
		names();
		duplicates();
		directories();
		at_calls();
		links();
		attributes();
		processes(argv[0]);
		threads();
		memory();
		strays();
		roots();
		async();
		uring(0);
		uring(IORING_SETUP_SQPOLL);
	}
	return 0;
}
