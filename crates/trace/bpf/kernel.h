/* The parts of the kernel's structures that are read. Offsets are filled in by the loader from the type
 * information of the running kernel (CO-RE), so only names and types matter here. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int s32;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16, __be16;
typedef u32 __u32, __be32, __wsum;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;

enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define KERNEL __attribute__((preserve_access_index))

/* Any structure that starts with a plain number of 64 bits would do. */
struct timespec64 {
	s64 tv_sec;
} KERNEL;

/* bpf_rdonly_cast(address, type): since Linux 6.2. Its number is the kernel's own, so the loader puts it in
 * the place of this one (src/bpf/object.rs). */
static void *(*const as_type)(u64 address, u64 type) = (void *)0x46415448;

/* Whether the kernel has it: the loader replaces the number. A constant, so that the verifier drops what is
 * never executed. */
static __always_inline u64 has_cast(void)
{
	u64 is;

	asm volatile("%0 = 0x46415449" : "=r"(is));
	return is;
}

/* The number at an address of the kernel; 0 where nothing is. A plain load where that is possible, which is
 * cheaper than the helper: the kernel catches the fault where nothing is. */
static __always_inline u64 peek(u64 address)
{
	u64 value = 0;

	if (has_cast())
		return ((struct timespec64 *)as_type(address, bpf_core_type_id_kernel(struct timespec64)))->tv_sec;
	bpf_probe_read_kernel(&value, 8, (void *)address);
	return value;
}

/* A field of at most eight bytes. */
#define READ(pointer, field)                                                                                \
	((typeof((pointer)->field))peek((u64)(pointer) + bpf_core_field_offset(typeof(*(pointer)), field)))

struct hlist_bl_node {
	struct hlist_bl_node *next, **pprev;
} KERNEL;

struct list_head {
	struct list_head *next, *prev;
} KERNEL;

struct super_block {
	unsigned long s_magic;
} KERNEL;

struct inode {
	struct super_block *i_sb;
	char *i_link;
	unsigned long i_ino;
	u32 i_generation;
} KERNEL;

struct qstr {
	u64 hash_len;
	const unsigned char *name;
} KERNEL;

struct dentry {
	unsigned d_flags;
	struct hlist_bl_node d_hash;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
} KERNEL;

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
} KERNEL;

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
	struct list_head mnt_mounts, mnt_child;
} KERNEL;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} KERNEL;

struct file {
	unsigned f_mode;
	struct path f_path;
	struct inode *f_inode;
} KERNEL;

struct fdtable {
	unsigned max_fds;
	struct file **fd;
} KERNEL;

struct files_struct {
	struct fdtable *fdt;
} KERNEL;

struct fs_struct {
	struct path root, pwd;
} KERNEL;

struct thread_info {
	u32 status;
} KERNEL;

struct mm_struct {
	struct file *exe_file;
} KERNEL;

struct task_struct {
	struct thread_info thread_info;
	struct mm_struct *mm;
	struct files_struct *files;
	struct fs_struct *fs;
	int pid, tgid;
} KERNEL;

struct pt_regs {
	unsigned long di, si, dx, r10, r8, r9, orig_ax;
} KERNEL;

struct vm_area_struct {
	struct file *vm_file;
} KERNEL;

struct io_uring_cqe {
	s32 res;
} KERNEL;

struct io_ring_ctx {
	unsigned flags;
	u32 *sq_array;
	void *sq_sqes;
	unsigned cached_sq_head, sq_entries;
} KERNEL;

struct io_kiocb {
	struct file *file;
	u8 opcode;
	struct io_ring_ctx *ctx;
} KERNEL;

/* Since 6.15 an enumeration, with other values than the macros before (include/linux/dcache.h). */
enum dentry_flags { DCACHE_MOUNTED = 0, DCACHE_ENTRY_TYPE = 0, DCACHE_SYMLINK_TYPE = 0 };
