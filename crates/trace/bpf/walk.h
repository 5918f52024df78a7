/* Which file system a path leads to, found by walking the directory cache as the kernel does
 * (fs/namei.c, fs/dcache.c): component by component through the hash table of dentries, over mounts,
 * through symbolic links, from the root, the working directory or a descriptor of the task.
 *
 * Nothing is locked. A component that is not in the cache ends the walk: the path then belongs to the
 * file system where it ended (mount points are always in the cache, so only an uncached symbolic link
 * could lead elsewhere), and the walk is repeated when the call returns, with the cache warm. */
#pragma once

/* Functions that are not inlined are verified one by one; at most eight may be on the stack. */

#define PATH_BYTES 4096
#define NAME_BYTES 255
#define LINK_BYTES 512
#define LINKS_MAX 40
#define PROC_SUPER_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572
#define AT_FDCWD (-100)

#define RESOLVE_NO_SYMLINKS 0x04
/* RESOLVE_NO_XDEV, RESOLVE_BENEATH, RESOLVE_IN_ROOT: what they refuse belongs to the base. */
#define RESOLVE_CONFINED 0x19

/* The call in progress on this processor: tracepoint programs are not preempted. */
struct work {
	u64 args[6];
	u64 resolve;
	u32 slots[SLOTS_MAX];
	u32 nr;
	u32 touch;
	u32 again; /* paths to walk again when the call returns, one bit each */
	u32 unread; /* slots to read again then */
	u32 paths;
	s32 dirfd;
	u32 follow;
	u32 parent_from;
	u32 stream;
	u32 pending; /* paths that user space is to resolve, one bit each */
	u64 base_dentry[2], base_mount[2];
	u64 start_dentry, start_mount; /* the root of the task, for user space */
	/* the walk */
	u64 dentry, mount, root_dentry, root_mount;
	u64 last_link; /* inode of a last component that is a link and was not followed */
	u32 pos, links, missed, unknown;
	u32 follow_last, parent;
	/* a component */
	u64 hash_len, first;
	u32 len;
	u32 found_flags;
	u64 found_inode;
	/* the cache */
	u64 table;
	u32 shift, flag_mounted, type_mask, type_symlink;
	char path[PATH_BYTES + 256];
	char spare[PATH_BYTES + LINK_BYTES];
};

struct link_key {
	u64 sb, ino, generation;
};

struct link_text {
	char text[LINK_BYTES];
};

/* Targets of symbolic links that are not in the inode (long links of ext4, links of btrfs), learnt from
 * the calls that made them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct link_key);
	__type(value, struct link_text);
} link_texts SEC(".maps");

/* An index into `path`. The compiler would drop a plain mask where it knows the bounds, and the verifier
 * would miss it. */
static __always_inline u64 in_path(u64 pos)
{
	asm volatile("%0 &= 4095" : "+r"(pos));
	return pos;
}

static __always_inline char path_at(struct work *w, u32 pos)
{
	return w->path[in_path(pos)];
}

static __always_inline u64 rotated(u64 value, int by)
{
	return value << by | value >> (64 - by);
}

/* struct mount around a struct vfsmount, and back. */
static __always_inline struct mount *mount_of(u64 vfsmount)
{
	return (struct mount *)(vfsmount - bpf_core_field_offset(struct mount, mnt));
}

static __always_inline u64 vfsmount_of(struct mount *mount)
{
	return (u64)mount + bpf_core_field_offset(struct mount, mnt);
}

static __always_inline struct file *file_of(int fd)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct files_struct *files = task->files;
	struct fdtable *table;

	if (!files)
		return 0;
	table = files->fdt;
	if (!table || fd < 0 || (u32)fd >= table->max_fds)
		return 0;
	return (struct file *)peek((u64)table->fd + 8ULL * (u32)fd);
}

/* Length, hash and first eight bytes of the component at `pos`: hash_name() of fs/namei.c. */
static __always_inline int hash_component(struct work *w)
{
	const u64 low = 0x0101010101010101ULL, high = 0x8080808080808080ULL;
	u64 x = 0, y;
	u32 pos;

	if (!w)
		return 0;
	pos = w->pos;
	y = w->dentry;
	for (u32 k = 0; k <= NAME_BYTES / 8; k++) {
		u32 at = pos + 8 * k;
		u64 a, b, end;

		if (at >= PATH_BYTES)
			return 0;
		__builtin_memcpy(&a, &w->path[in_path(at)], 8);
		b = a ^ 0x2f2f2f2f2f2f2f2fULL;
		end = ((a - low) & ~a & high) | ((b - low) & ~b & high);
		if (end) {
			u64 mask = ((end - 1) & ~end) >> 7;
			u64 bytes = (mask * 0x0001020304050608ULL) >> 56;

			a &= mask;
			if (!k)
				w->first = a;
			x ^= a;
			y ^= x * 0x61C8864680B583EBULL;
			y *= 0x61C8864680B583EBULL;
			w->len = 8 * k + (bytes & 7);
			w->hash_len = (u64)w->len << 32 | y >> 32;
			return 1;
		}
		if (!k)
			w->first = a;
		x ^= a;
		y ^= x;
		x = rotated(x, 12) + y;
		y = rotated(y, 45) * 9;
	}
	return 0;
}

/* `..`: up, and over the roots of mounts, but not over the root of the task. */
__noinline int walk_up(struct work *w)
{
	if (!w)
		return 0;
	for (int k = 0; k < 16; k++) {
		struct vfsmount *vfsmount = (void *)w->mount;
		struct dentry *dentry = (void *)w->dentry;
		struct mount *mount, *parent;

		if (w->dentry == w->root_dentry && w->mount == w->root_mount)
			return 0;
		if (w->dentry != (u64)READ(vfsmount, mnt_root)) {
			w->dentry = (u64)READ(dentry, d_parent);
			return 0;
		}
		mount = mount_of(w->mount);
		parent = READ(mount, mnt_parent);
		if (parent == mount)
			return 0;
		w->dentry = (u64)READ(mount, mnt_mountpoint);
		w->mount = vfsmount_of(parent);
	}
	return 0;
}

/* Whether the component that ends at `pos` is the last: 0 no, 1 yes, 2 yes, with a slash behind. */
__noinline int is_last(struct work *w)
{
	u32 pos;

	if (!w)
		return 0;
	pos = w->pos;
	for (int k = 0; k < 16; k++) {
		char c;

		if (pos >= PATH_BYTES)
			return 1;
		c = path_at(w, pos);
		if (!c)
			return pos > w->pos ? 2 : 1;
		if (c != '/')
			return 0;
		pos++;
	}
	return 0;
}

/* The dentry of the component in the present directory, if it is in the cache. */
static __always_inline u64 find_child(struct work *w)
{
	u32 at_hash = bpf_core_field_offset(struct dentry, d_hash);
	struct dentry *dentry;
	u64 node;

	if (!w)
		return 0;
	/* The lowest bit of a bucket is its lock. */
	node = peek(w->table + 8ULL * ((u32)w->hash_len >> w->shift)) & ~1ULL;
	for (int k = 0; k < 64; k++) {
		if (!node)
			return 0;
		dentry = (void *)(node - at_hash);
		if (READ(dentry, d_name.hash_len) == w->hash_len && (u64)READ(dentry, d_parent) == w->dentry) {
			w->found_inode = (u64)READ(dentry, d_inode);
			w->found_flags = READ(dentry, d_flags);
			return (u64)dentry;
		}
		node = peek(node);
	}
	return 0;
}

#define MOUNTS_FOUND_BITS 8

/* Mounts that were found lately, each at a place that follows from where it is mounted. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << MOUNTS_FOUND_BITS);
	__type(key, u32);
	__type(value, u64);
} mounts_found SEC(".maps");

struct mount_search {
	u64 at, head, point, found;
};

static long next_mount(u32 index, struct mount_search *s)
{
	struct mount *child;

	if (s->at == s->head || !s->at)
		return 1;
	child = (void *)(s->at - bpf_core_field_offset(struct mount, mnt_child));
	if ((u64)READ(child, mnt_mountpoint) == s->point) {
		s->found = vfsmount_of(child);
		return 1;
	}
	s->at = peek(s->at);
	return 0;
}

/* The mount on a dentry of the present mount. One that was found before is still there if it says so itself:
 * an unmounted one is its own parent (fs/namespace.c). */
__noinline u64 find_mount(struct work *w, u64 dentry)
{
	struct mount_search s = { .point = dentry };
	struct mount *mount;
	u64 *known;
	u32 place;

	if (!w)
		return 0;
	place = ((dentry ^ w->mount) * 0x61C8864680B583EBULL) >> (64 - MOUNTS_FOUND_BITS);
	known = bpf_map_lookup_elem(&mounts_found, &place);
	if (known && *known) {
		mount = mount_of(*known);
		if ((u64)READ(mount, mnt_mountpoint) == dentry &&
		    READ(mount, mnt_parent) == mount_of(w->mount))
			return (u64)mount + bpf_core_field_offset(struct mount, mnt);
	}
	s.head = (u64)mount_of(w->mount) + bpf_core_field_offset(struct mount, mnt_mounts);
	s.at = peek(s.head);
	bpf_loop(8192, next_mount, &s, 0);
	if (known && s.found)
		*known = s.found;
	return s.found;
}

/* What became of a symbolic link. */
enum followed {
	UNREADABLE_LINK, /* its text is not in memory */
	FOLLOWED, /* the walk goes on */
	STAYS, /* the path ends in /proc */
};

/* /proc/self/fd/N with `pos` at the number. */
static __always_inline int jump_to_fd(struct work *w, u32 pos)
{
	struct file *file;
	u32 fd = 0, digits = 0;

	for (u32 k = 0; k < 9; k++) {
		char c = path_at(w, pos + k);

		if (c < '0' || c > '9')
			break;
		fd = 10 * fd + (c - '0');
		digits++;
	}
	if (!digits || (!path_at(w, pos + digits) && !w->follow_last))
		return STAYS;
	file = file_of(fd);
	if (!file)
		return STAYS;
	w->pos = pos + digits;
	w->dentry = (u64)READ(file, f_path.dentry);
	w->mount = (u64)READ(file, f_path.mnt);
	return FOLLOWED;
}

/* The links of /proc/self and /proc/thread-self that lead to places, not to names. What else is there
 * belongs to /proc. */
static __always_inline int jump_from_self(struct work *w)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fs_struct *fs = READ(task, fs);
	struct file *exe;
	char c[5];
	u32 pos;

	/* self, thread-self */
	if (!((w->len == 4 && w->first == 0x666c6573ULL) ||
	      (w->len == 11 && w->first == 0x732d646165726874ULL))) {
		char start = (char)w->first;

		/* cwd, root, exe and descriptors of other processes lead anywhere; mounts and net stay. */
		if ((w->len == 3 && (w->first == 0x647763ULL || w->first == 0x657865ULL)) ||
		    (w->len == 4 && w->first == 0x746f6f72ULL) || (start >= '0' && start <= '9'))
			return UNREADABLE_LINK;
		return STAYS;
	}
	pos = w->pos;
	if (pos >= PATH_BYTES - 32 || path_at(w, pos) != '/')
		return STAYS;
	pos++;
	for (u32 k = 0; k < 5; k++)
		c[k] = path_at(w, pos + k);
	if (c[0] == 'f' && c[1] == 'd' && c[2] == '/')
		return jump_to_fd(w, pos + 3);
	if (c[0] == 'c' && c[1] == 'w' && c[2] == 'd' && (c[3] == '/' || (!c[3] && w->follow_last))) {
		w->pos = pos + 3;
		w->dentry = (u64)READ(fs, pwd.dentry);
		w->mount = (u64)READ(fs, pwd.mnt);
		return FOLLOWED;
	}
	if (c[0] == 'r' && c[1] == 'o' && c[2] == 'o' && c[3] == 't' &&
	    (c[4] == '/' || (!c[4] && w->follow_last))) {
		w->pos = pos + 4;
		w->dentry = w->root_dentry;
		w->mount = w->root_mount;
		return FOLLOWED;
	}
	if (c[0] == 'e' && c[1] == 'x' && c[2] == 'e' && !c[3] && w->follow_last) {
		exe = READ(READ(task, mm), exe_file);
		w->pos = pos + 3;
		w->dentry = (u64)READ(exe, f_path.dentry);
		w->mount = (u64)READ(exe, f_path.mnt);
		return FOLLOWED;
	}
	return STAYS;
}

/* Puts the text of a link before the rest of the path. */
__noinline int follow_link(struct work *w)
{
	struct inode *inode;
	struct link_key key = {};
	const char *text;
	u64 at, magic;
	long length;
	int jumped;

	if (!w)
		return UNREADABLE_LINK;
	inode = (void *)w->found_inode;
	text = READ(inode, i_link);
	if (!text) {
		magic = READ(READ(inode, i_sb), s_magic);
		/* Links of sysfs lead to sysfs. */
		if (magic == SYSFS_MAGIC)
			return STAYS;
		if (magic == PROC_SUPER_MAGIC) {
			jumped = jump_from_self(w);
			if (jumped != UNREADABLE_LINK)
				return jumped;
		}
		key.sb = (u64)READ(inode, i_sb);
		key.ino = READ(inode, i_ino);
		key.generation = READ(inode, i_generation);
		text = bpf_map_lookup_elem(&link_texts, &key);
		if (!text)
			return UNREADABLE_LINK;
	}
	length = bpf_probe_read_kernel_str(w->spare, LINK_BYTES, text);
	if (length <= 1 || length >= LINK_BYTES)
		return UNREADABLE_LINK;
	at = length - 1;
	asm volatile("%0 &= 511" : "+r"(at));
	bpf_probe_read_kernel_str(&w->spare[at], PATH_BYTES, &w->path[in_path(w->pos)]);
	bpf_probe_read_kernel_str(w->path, PATH_BYTES, w->spare);
	w->pos = 0;
	if (w->path[0] == '/') {
		w->dentry = w->root_dentry;
		w->mount = w->root_mount;
	}
	return FOLLOWED;
}

/* One component with the slashes before it. Stops with 1. */
static long walk_step(u32 index, struct work **context)
{
	struct work *w = *context;
	u64 child, mounted;
	int followed;
	char c;

	if (!w || w->pos >= PATH_BYTES - 1)
		return 1;
	c = path_at(w, w->pos);
	if (c == '/') {
		c = path_at(w, ++w->pos);
		/* More than one is rare: the next step sees to it. */
		if (c == '/')
			return 0;
	}
	if (!c)
		return 1;
	if (!hash_component(w)) {
		w->missed = 1;
		return 1;
	}
	w->pos += w->len;
	if (w->parent && is_last(w))
		return 1;
	if (w->len == 1 && w->first == '.')
		return 0;
	if (w->len == 2 && w->first == 0x2e2e) {
		walk_up(w);
		return 0;
	}
	child = find_child(w);
	if (!child) {
		w->missed = 1;
		return 1;
	}
	/* A negative dentry: the name does not exist in this directory. */
	if (!w->found_inode)
		return 1;
	if ((w->found_flags & w->type_mask) == w->type_symlink) {
		if (!w->follow_last && is_last(w) == 1) {
			w->last_link = w->found_inode;
			return 1;
		}
		if (++w->links > LINKS_MAX || w->resolve & RESOLVE_NO_SYMLINKS)
			return 1;
		followed = follow_link(w);
		w->unknown = followed == UNREADABLE_LINK;
		return followed != FOLLOWED;
	}
	w->dentry = child;
	for (int k = 0; k < 4 && w->found_flags & w->flag_mounted; k++) {
		mounted = find_mount(w, w->dentry);
		if (!mounted)
			break;
		w->mount = mounted;
		w->dentry = (u64)READ((struct vfsmount *)mounted, mnt_root);
		w->found_flags = READ((struct dentry *)w->dentry, d_flags);
	}
	return 0;
}

/* The superblock where the text in `path` leads, from base 0 or 1. */
__noinline u64 walk(struct work *w, u32 base)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fs_struct *fs = task->fs;
	struct work *context = w;
	struct dentry *dentry;

	if (!w || !fs)
		return 0;
	base &= 1;
	w->root_dentry = (u64)fs->root.dentry;
	w->root_mount = (u64)fs->root.mnt;
	w->dentry = w->path[0] == '/' ? w->root_dentry : w->base_dentry[base];
	w->mount = w->path[0] == '/' ? w->root_mount : w->base_mount[base];
	w->pos = w->links = w->missed = w->unknown = 0;
	w->last_link = 0;
	bpf_loop(2 * PATH_BYTES, walk_step, &context, 0);
	dentry = (void *)w->dentry;
	return (u64)READ(dentry, d_sb);
}
