/* The tracer in the kernel: counts the system calls of the watched tasks on the watched file systems, by
 * the classes of their arguments and results. No stream of events, so none can be lost.
 *
 * sys_enter reads the arguments and finds the file system; sys_exit adds the result and counts. The two
 * meet in the storage of the task. Operations of io_uring are read from their submission entries as the
 * system calls that they stand for, and counted when they complete. */
#include "kernel.h"
#include "encode.h"
#include "walk.h"

char LICENSE[] SEC("license") = "GPL";

/* Proves that this object was made from these sources (`cargo xtask bpf`). */
const char SOURCE_DIGEST[] SEC("source_digest") = FATHOM_SOURCE_DIGEST;

#define TARGETS_MAX 8
#define MOUNT_PATH_BYTES 1024
#define TS_COMPAT 0x0002

enum scope { SCOPE_TREE = 0, SCOPE_CGROUP = 1, SCOPE_ALL = 2 };

struct config {
	u64 targets[TARGETS_MAX]; /* superblocks */
	u64 table; /* hash table of dentries */
	u64 cgroup;
	u32 cgroup_level;
	u32 shift;
	u32 scope;
	u32 tracer;
	u32 record;
	u32 flag_mounted, type_mask, type_symlink;
	u32 targets_len;
	u32 unused;
};

enum call_flags {
	CALL_OPENS = 1, CALL_GLOBAL = 2, CALL_RANGE = 4, CALL_AMOUNT = 8, CALL_MOUNTS = 16,
	CALL_SYMLINK = 32, CALL_MMAP = 64, CALL_HOW = 128, CALL_OPEN_FLAGS = 256,
};

/* A system call, filled in from the table of calls. */
struct call {
	u16 index, flags;
	u8 slots, follow, toggle_reg, parent_from;
	u32 toggle_mask;
	u8 kind[SLOTS_MAX], reg[SLOTS_MAX], offset[SLOTS_MAX], bytes[SLOTS_MAX];
	u8 known, flags_reg, unused[2];
};

/* What must survive from the start of a call to its end. */
struct task_state {
	u32 traced, active, nr, touch, again, unread, follow, parent_from;
	u64 resolve;
	u64 args[6];
	u64 base_dentry[2], base_mount[2];
	u32 slots[SLOTS_MAX];
};

enum counter { LOST, RESTARTED, FOREIGN, GUESSED, RECORD_LOST, LOST_REQUESTS, COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct config);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 512);
	__type(key, u32);
	__type(value, struct call);
} calls SEC(".maps");

struct mount_path {
	char text[MOUNT_PATH_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TARGETS_MAX);
	__type(key, u32);
	__type(value, struct mount_path);
} mount_paths SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct work);
} works SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1 << 20);
	__type(key, struct sample);
	__type(value, u64);
} samples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, u32);
	__type(value, u64);
} counters SEC(".maps");

/* One event of the record. */
struct event {
	u64 time;
	u32 pid, tid;
	s64 result;
	u64 args[6];
	struct sample sample;
	char path[256];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 24);
} events SEC(".maps");

/* A dentry that the tracer has opened, to find the hash table. */
struct calibration {
	u64 pprev, hash_len;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128);
	__type(key, u32);
	__type(value, struct calibration);
} calibrations SEC(".maps");

/* An operation of io_uring that has not completed. */
struct request {
	struct sample sample;
	u32 opens;
	u32 amount;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, u64);
	__type(value, struct request);
} requests SEC(".maps");

/* Which system call an operation stands for, and where in the entry its arguments are. */
struct operation {
	u16 nr;
	u8 source[6];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 128);
	__type(key, u32);
	__type(value, struct operation);
} operations SEC(".maps");

static __always_inline void count(u32 counter)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		(*value)++;
}

static __always_inline struct config *the_config(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&config, &zero);
}

static __always_inline struct work *the_work(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&works, &zero);
}

__noinline u32 touch_of(u64 sb)
{
	struct config *c = the_config();

	if (!c || !sb)
		return OUTSIDE;
	for (u32 k = 0; k < TARGETS_MAX; k++)
		if (c->targets[k] == sb)
			return INSIDE;
	return OUTSIDE;
}

static __always_inline u32 touch_file(struct file *file)
{
	return touch_of((u64)BPF_CORE_READ(file, f_inode, i_sb));
}

/* ---- operands ---- */

/* Where a relative path starts: dentry and mount of the descriptor or the working directory. */
static __always_inline void find_base(struct work *w, u32 base)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fs_struct *fs = task->fs;
	struct file *file;

	w->base_dentry[base & 1] = w->base_mount[base & 1] = 0;
	if (w->dirfd == AT_FDCWD) {
		if (fs) {
			w->base_dentry[base & 1] = (u64)fs->pwd.dentry;
			w->base_mount[base & 1] = (u64)fs->pwd.mnt;
		}
		return;
	}
	file = file_of(w->dirfd);
	if (file) {
		w->base_dentry[base & 1] = (u64)BPF_CORE_READ(file, f_path.dentry);
		w->base_mount[base & 1] = (u64)BPF_CORE_READ(file, f_path.mnt);
	}
}

static __always_inline u32 touch_base(struct work *w, u32 base)
{
	struct vfsmount *mount = (void *)w->base_mount[base & 1];

	return touch_of((u64)BPF_CORE_READ(mount, mnt_sb));
}

/* The text of `path` is there: where does it lead? */
static __always_inline u32 resolve(struct work *w, u32 base)
{
	u64 sb;

	if (!w)
		return NOTHING;
	base &= 1;
	if (w->path[0] != '/' && !w->base_dentry[base])
		return NOTHING;
	if (w->resolve & RESOLVE_CONFINED)
		return w->base_mount[base] ? touch_base(w, base) : NOTHING;
	w->parent = base >= w->parent_from;
	w->follow_last = w->follow;
	sb = walk(w, base);
	if (w->unknown)
		return UNRESOLVED;
	if (w->missed)
		w->again |= 1 << base;
	return touch_of(sb);
}

/* A path at the start of a call. Returns its code. */
__noinline u32 path_operand(struct work *w, u64 address, u32 only_absolute)
{
	u32 base, code;
	long length;
	s32 dirfd;

	if (!w)
		return UNKNOWN;
	base = w->paths++ & 1;
	dirfd = w->dirfd;
	find_base(w, base);
	w->dirfd = AT_FDCWD;
	if (!address) {
		/* A null path means the descriptor where it is allowed (utimensat(2), statx(2)). */
		if (dirfd == AT_FDCWD || !w->base_mount[base])
			w->touch |= NOTHING;
		else
			w->touch |= touch_base(w, base);
		return TEXT_NULL;
	}
	length = bpf_probe_read_user_str(w->path, PATH_BYTES, (void *)address);
	if (length < 0) {
		w->again |= 1 << base;
		return UNKNOWN;
	}
	/* Without a NUL in so many bytes it is too long: one more than fits. */
	if (length == PATH_BYTES && w->path[PATH_BYTES - 1] == 0)
		length = PATH_BYTES + (w->path[PATH_BYTES - 2] != 0);
	code = encode_text(w->path[0], length);
	if (only_absolute && w->path[0] != '/')
		return code;
	if (length <= 1)
		w->touch |= w->base_mount[base] ? touch_base(w, base) : NOTHING;
	else
		w->touch |= resolve(w, base);
	return code;
}

static long mapped_file(struct task_struct *task, struct vm_area_struct *area, u64 *sb)
{
	struct file *file = BPF_CORE_READ(area, vm_file);

	if (file)
		*sb = (u64)BPF_CORE_READ(file, f_inode, i_sb);
	return 0;
}

__noinline u32 touch_mapping(u64 address)
{
	struct task_struct *task = bpf_get_current_task_btf();
	u64 sb = 0;

	bpf_find_vma(task, address, mapped_file, &sb, 0);
	return touch_of(sb);
}

struct range {
	u64 fds;
	u32 first, len, touch;
};

static long next_fd(u32 index, struct range *range)
{
	struct file *file = 0;

	if (index >= range->len)
		return 1;
	bpf_probe_read_kernel(&file, 8, (void *)(range->fds + 8ULL * (range->first + index)));
	if (file)
		range->touch |= touch_file(file);
	return range->touch & INSIDE;
}

/* close_range(2): any file of the range. */
__noinline u32 touch_range(u32 first, u32 last)
{
	struct task_struct *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	u32 max = BPF_CORE_READ(table, max_fds);
	struct range range = { .first = first, .touch = OUTSIDE };

	if (last >= max)
		last = max - 1;
	if (first > last)
		return OUTSIDE;
	range.fds = (u64)BPF_CORE_READ(table, fd);
	range.len = last - first + 1;
	bpf_loop(1 << 20, next_fd, &range, 0);
	return range.touch & INSIDE ? INSIDE : OUTSIDE;
}

/* The code of an argument that names no file. UNKNOWN if memory could not be read. */
__noinline u32 plain_operand(struct work *w, u32 kind, u64 value)
{
	long length;
	u64 number;

	if (!w)
		return UNKNOWN;
	switch (kind) {
	case BITS:
		return value;
	case WIDE_BITS:
		return (u32)value | (value >> 32 ? BIT_WITHOUT_NAME : 0);
	case AMOUNT:
		return encode_amount(value);
	case SIGNED_AMOUNT:
		return encode_signed(value);
	case AMOUNT32:
		return encode_amount((u32)value);
	case SIGNED_AMOUNT32:
		return encode_signed((s32)value);
	case FD_NUMBER:
		return file_of(value) ? FD_VALID : FD_BAD;
	case ID:
		return (u32)value == 0xffffffff ? 0 : value ? 2 : 1;
	case POINTER:
		return value != 0;
	case OFFSET:
		if (!value)
			return 0;
		if (bpf_probe_read_user(&number, 8, (void *)value))
			return UNKNOWN;
		return OFFSET_PRESENT | encode_signed(number);
	case TEXT:
	case XATTR_NAME:
		if (!value)
			return TEXT_NULL;
		*(u64 *)w->spare = 0;
		length = bpf_probe_read_user_str(w->spare, PATH_BYTES, (void *)value);
		if (length < 0)
			return UNKNOWN;
		return kind == TEXT ? encode_text(w->spare[0], length) :
				      encode_name(w->spare, length);
	}
	return 0;
}

/* One argument: its code, and what it says about files. */
static __always_inline u32 operand(struct work *w, u32 kind, u64 value)
{
	struct file *file;

	if (!w)
		return UNKNOWN;
	if (kind == FD) {
		file = file_of(value);
		w->touch |= file ? touch_file(file) : NOTHING;
		return file ? FD_VALID : FD_BAD;
	}
	if (kind == DIRFD) {
		w->dirfd = value;
		return (s32)value == AT_FDCWD ? FD_HERE : file_of(value) ? FD_VALID : FD_BAD;
	}
	if (kind == PATH || kind == PATH_OR_TEXT)
		return path_operand(w, value, kind == PATH_OR_TEXT);
	if (kind == MAPPING) {
		w->touch |= touch_mapping(value);
		return value != 0;
	}
	return plain_operand(w, kind, value);
}

/* The contents of a register, or of a field behind it. */
static __always_inline int argument(struct work *w, struct call *call, u32 i, u64 *value)
{
	u32 reg = call->reg[i];
	u64 from;

	if (reg > 5)
		return -1;
	*value = w->args[reg];
	if (!call->bytes[i])
		return 0;
	from = *value + call->offset[i];
	*value = 0;
	if (call->bytes[i] == 8)
		return bpf_probe_read_user(value, 8, (void *)from);
	return bpf_probe_read_user(value, 4, (void *)from);
}

/* Whether a last symbolic link is followed. */
static __always_inline void how_paths_end(struct work *w, struct call *call)
{
	u32 reg = call->toggle_reg;
	u64 how[3] = {};
	u64 flags = 0;

	w->follow = call->follow;
	w->parent_from = call->parent_from;
	w->resolve = 0;
	if (reg < 6 && w->args[reg] & call->toggle_mask)
		w->follow = !call->follow;
	if (call->flags & CALL_OPEN_FLAGS) {
		reg = call->flags_reg;
		if (reg < 6)
			flags = w->args[reg];
	}
	if (call->flags & CALL_HOW && !bpf_probe_read_user(how, 24, (void *)w->args[2])) {
		flags = how[0];
		w->resolve = how[2];
	}
	/* O_NOFOLLOW; O_CREAT with O_EXCL */
	if (flags & 0400000 || (flags & 0300) == 0300)
		w->follow = 0;
}

/* Everything that the start of a call says: codes, and which file system. */
__noinline int read_operands(struct work *w)
{
	struct call *call;
	u32 nr;

	if (!w)
		return 0;
	nr = w->nr;
	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call)
		return 0;
	w->touch = w->again = w->unread = w->paths = 0;
	w->dirfd = AT_FDCWD;
	how_paths_end(w, call);
	for (u32 i = 0; i < SLOTS_MAX; i++) {
		u32 code = 0;
		u64 value;

		if (i < call->slots && call->kind[i] != SKIP) {
			code = argument(w, call, i, &value) ? UNKNOWN :
							      operand(w, call->kind[i], value);
			if (code == UNKNOWN)
				w->unread |= 1 << i;
		}
		w->slots[i] = code;
	}
	if (call->flags & CALL_RANGE)
		w->touch |= touch_range(w->args[0], w->args[1]);
	if (call->flags & CALL_GLOBAL)
		w->touch |= INSIDE;
	return 0;
}

/* At the end: what could not be read or walked at the start can be now. */
__noinline int read_again(struct work *w)
{
	struct call *call;
	u32 again, unread, nr, before;

	if (!w)
		return 0;
	nr = w->nr;
	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call)
		return 0;
	again = w->again;
	unread = w->unread;
	before = w->touch;
	w->touch = w->paths = w->again = 0;
	for (u32 i = 0; i < SLOTS_MAX; i++) {
		u32 kind = call->kind[i], code;
		u64 value;

		if (i >= call->slots)
			break;
		if (kind == PATH || kind == PATH_OR_TEXT) {
			u32 base = w->paths++ & 1;
			long length;

			if (!(again & 1 << base) || argument(w, call, i, &value))
				continue;
			length = bpf_probe_read_user_str(w->path, PATH_BYTES, (void *)value);
			if (length < 0) {
				w->slots[i] = TEXT_UNREADABLE;
				w->touch |= NOTHING;
				continue;
			}
			w->slots[i] = encode_text(w->path[0], length);
			if (length > 1)
				w->touch |= resolve(w, base);
			else
				w->touch |= w->base_mount[base] ? touch_base(w, base) : NOTHING;
			continue;
		}
		if (!(unread & 1 << i))
			continue;
		code = argument(w, call, i, &value) ? UNKNOWN : plain_operand(w, kind, value);
		if (code == UNKNOWN && kind == OFFSET)
			code = OFFSET_UNREADABLE;
		else if (code == UNKNOWN && (kind == TEXT || kind == XATTR_NAME))
			code = TEXT_UNREADABLE;
		w->slots[i] = code;
	}
	/* The first look at a path that has been walked again does not count. */
	if (w->paths > 1)
		w->touch |= before;
	if (!w->touch)
		w->touch = before;
	return 0;
}

/* ---- counting ---- */

static __always_inline u32 one_touch(u32 bits)
{
	return bits & INSIDE ? INSIDE : bits & UNRESOLVED ? UNRESOLVED : bits & OUTSIDE ? OUTSIDE : NOTHING;
}

static __always_inline void add(struct sample *sample)
{
	u64 *value = bpf_map_lookup_elem(&samples, sample);
	u64 one = 1;

	if (value)
		(*value)++;
	else if (bpf_map_update_elem(&samples, sample, &one, BPF_ANY))
		count(LOST);
}

static __always_inline void set_result(struct sample *sample, s64 result, u32 amount)
{
	if (result < 0 && result >= -4095)
		sample->err = -result;
	else if (amount)
		sample->amount = encode_amount(result);
}

/* Without `w` (an operation of io_uring has completed) the arguments are those of the sample only. */
__noinline int record(struct sample *sample, struct work *w, s64 result)
{
	struct event *event;
	u64 id = bpf_get_current_pid_tgid();
	struct call *call = 0;
	u32 nr;

	if (!sample)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		count(RECORD_LOST);
		return 0;
	}
	event->time = bpf_ktime_get_ns();
	event->pid = id >> 32;
	event->tid = id;
	event->result = result;
	__builtin_memset(event->args, 0, sizeof(event->args));
	__builtin_memcpy(&event->sample, sample, sizeof(event->sample));
	event->path[0] = 0;
	if (w) {
		__builtin_memcpy(event->args, w->args, sizeof(event->args));
		nr = w->nr;
		call = bpf_map_lookup_elem(&calls, &nr);
	}
	if (w && call)
		for (u32 i = 0; i < 4; i++)
			if (call->kind[i] == PATH && call->reg[i] < 6) {
				bpf_probe_read_user_str(event->path, sizeof(event->path),
							(void *)w->args[call->reg[i]]);
				break;
			}
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A mount came or went: which superblock is at each watched mount point now? */
__noinline int find_targets(struct work *w)
{
	struct config *c = the_config();

	if (!w || !c)
		return 0;
	w->resolve = 0;
	w->parent = 0;
	w->follow_last = 1;
	for (u32 k = 0; k < TARGETS_MAX; k++) {
		struct mount_path *mount;
		struct vfsmount *found;
		u32 index = k;
		u64 sb;

		mount = bpf_map_lookup_elem(&mount_paths, &index);
		if (!mount || !mount->text[0])
			continue;
		bpf_probe_read_kernel_str(w->path, MOUNT_PATH_BYTES, mount->text);
		sb = walk(w, 0);
		found = (void *)w->mount;
		/* Between two mounts there is nothing to watch. */
		if (w->missed || w->unknown || w->dentry != (u64)BPF_CORE_READ(found, mnt_root))
			sb = 1;
		c->targets[k] = sb;
	}
	return 0;
}

/* symlink(2) has succeeded: remember what it says. */
__noinline int learn_link(struct work *w, u64 text, u64 path)
{
	struct link_key key = {};
	struct inode *inode;

	if (!w || bpf_probe_read_user_str(w->path, PATH_BYTES, (void *)path) <= 1)
		return 0;
	w->resolve = 0;
	w->parent = 0;
	w->follow_last = 0;
	walk(w, 0);
	inode = (void *)w->last_link;
	if (!inode || BPF_CORE_READ(inode, i_link))
		return 0;
	key.sb = (u64)BPF_CORE_READ(inode, i_sb);
	key.ino = BPF_CORE_READ(inode, i_ino);
	key.generation = BPF_CORE_READ(inode, i_generation);
	if (bpf_probe_read_user_str(w->spare, LINK_BYTES, (void *)text) > 0)
		bpf_map_update_elem(&link_texts, &key, w->spare, BPF_ANY);
	return 0;
}

/* ---- tasks ---- */

/* Whether a task without state is to be watched. */
static __always_inline int is_in_scope(struct config *c)
{
	if ((u32)(bpf_get_current_pid_tgid() >> 32) == c->tracer)
		return 0;
	if (c->scope == SCOPE_ALL)
		return 1;
	return c->scope == SCOPE_CGROUP &&
	       bpf_get_current_ancestor_cgroup_id(c->cgroup_level) == c->cgroup;
}

SEC("tp_btf/task_newtask")
int on_fork(u64 *ctx)
{
	struct task_struct *parent = bpf_get_current_task_btf();
	struct task_struct *child = (void *)ctx[0];
	struct task_state *state = bpf_task_storage_get(&tasks, parent, 0, 0);

	if (!state || !state->traced)
		return 0;
	state = bpf_task_storage_get(&tasks, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (state)
		state->traced = 1;
	else
		count(LOST);
	return 0;
}

static __always_inline void load_cache(struct work *w, struct config *c)
{
	w->table = c->table;
	w->shift = c->shift;
	w->flag_mounted = c->flag_mounted;
	w->type_mask = c->type_mask;
	w->type_symlink = c->type_symlink;
}

SEC("tp_btf/sys_enter")
int on_enter(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, 0);
	struct pt_regs *regs = (void *)ctx[0];
	struct config *c = the_config();
	struct call *call;
	struct work *w;
	u32 nr = ctx[1];

	if (!c || (!state && c->scope == SCOPE_TREE))
		return 0;
	if (!state || !state->traced) {
		if (!is_in_scope(c))
			return 0;
		if (!state)
			state = bpf_task_storage_get(&tasks, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!state)
			return 0;
	}
	state->active = 0;
	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call || !call->known)
		return 0;
	if (task->thread_info.status & TS_COMPAT) {
		count(FOREIGN);
		return 0;
	}
	/* Memory without a file is no matter of file systems. */
	if (call->flags & CALL_MMAP && regs->r10 & 0x20)
		return 0;
	w = the_work();
	if (!w)
		return 0;
	w->nr = nr;
	w->args[0] = regs->di;
	w->args[1] = regs->si;
	w->args[2] = regs->dx;
	w->args[3] = regs->r10;
	w->args[4] = regs->r8;
	w->args[5] = regs->r9;
	load_cache(w, c);
	read_operands(w);
	/* Nothing that happens later can make it count. */
	if (w->touch == OUTSIDE && !w->again && !(call->flags & (CALL_OPENS | CALL_MOUNTS | CALL_SYMLINK)))
		return 0;
	state->nr = nr;
	state->touch = w->touch;
	state->again = w->again;
	state->unread = w->unread;
	state->follow = w->follow;
	state->parent_from = w->parent_from;
	state->resolve = w->resolve;
	__builtin_memcpy(state->args, w->args, sizeof(state->args));
	__builtin_memcpy(state->slots, w->slots, sizeof(state->slots));
	__builtin_memcpy(state->base_dentry, w->base_dentry, sizeof(state->base_dentry));
	__builtin_memcpy(state->base_mount, w->base_mount, sizeof(state->base_mount));
	state->active = 1;
	return 0;
}

static __always_inline void load_state(struct work *w, struct task_state *state)
{
	w->nr = state->nr;
	w->touch = state->touch;
	w->again = state->again;
	w->unread = state->unread;
	w->follow = state->follow;
	w->parent_from = state->parent_from;
	w->resolve = state->resolve;
	__builtin_memcpy(w->args, state->args, sizeof(w->args));
	__builtin_memcpy(w->slots, state->slots, sizeof(w->slots));
	__builtin_memcpy(w->base_dentry, state->base_dentry, sizeof(w->base_dentry));
	__builtin_memcpy(w->base_mount, state->base_mount, sizeof(w->base_mount));
}

/* What a successful call has changed that the tracer must know. */
static __always_inline int after_success(struct work *w, u32 flags)
{
	struct config *c = the_config();
	u32 touch;

	if (!w || !c)
		return 0;
	load_cache(w, c);
	if (flags & CALL_SYMLINK)
		/* symlink: text, path; symlinkat: text, descriptor, path */
		learn_link(w, w->args[0], w->nr == 88 ? w->args[1] : w->args[2]);
	if (flags & CALL_MOUNTS) {
		find_targets(w);
		/* A new mount is a call on the file system that is there now. */
		touch = w->touch;
		read_operands(w);
		w->touch |= touch;
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int on_exit(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, 0);
	struct sample sample = {};
	s64 result = ctx[1];
	struct config *c;
	struct call *call;
	struct file *file;
	struct work *w;
	u32 nr, flags;

	if (!state || !state->active)
		return 0;
	state->active = 0;
	/* The kernel will make the call again: ERESTARTSYS and its family. */
	if (result <= -512 && result >= -516 && result != -515) {
		count(RESTARTED);
		return 0;
	}
	nr = state->nr;
	call = bpf_map_lookup_elem(&calls, &nr);
	c = the_config();
	w = the_work();
	if (!call || !c || !w)
		return 0;
	flags = call->flags;
	load_state(w, state);
	load_cache(w, c);
	if (w->again || w->unread) {
		read_again(w);
		/* The call found what the walk did not: the directory before decides. An error came from
		 * where the walk ended. */
		if (w->again && result >= 0 && !(flags & CALL_OPENS))
			count(GUESSED);
	}
	if (flags & CALL_OPENS && result >= 0) {
		file = file_of(result);
		if (file)
			w->touch = touch_file(file);
	}
	if (flags & (CALL_MOUNTS | CALL_SYMLINK) && result >= 0)
		after_success(w, flags);
	sample.call = call->index;
	sample.touch = one_touch(w->touch);
	if (sample.touch == OUTSIDE)
		return 0;
	__builtin_memcpy(sample.slots, w->slots, sizeof(sample.slots));
	set_result(&sample, result, flags & CALL_AMOUNT);
	add(&sample);
	if (c->record)
		record(&sample, w, result);
	return 0;
}

/* ---- io_uring ---- */

#define IORING_SETUP_SQE128 (1U << 10)
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#define IOSQE_FIXED_FILE 1

/* struct io_uring_sqe of the uapi header, in words. */
struct entry {
	u8 opcode, flags;
	u16 ioprio;
	s32 fd;
	u64 off, addr;
	u32 len, op_flags;
	u64 user_data;
	u16 buf_index, personality;
	s32 splice_fd;
	u64 addr3, pad;
};

/* Where an argument is in the entry; the numbers are those of src/bpf/uring.rs. */
enum source { FROM_NOTHING, FROM_FD, FROM_OFF, FROM_ADDR, FROM_LEN, FROM_FLAGS, FROM_ADDR3, FROM_SPLICE_FD };

static __always_inline u64 taken(struct entry *e, u32 source)
{
	switch (source) {
	case FROM_FD:
		return (u64)(s64)e->fd;
	case FROM_OFF:
		return e->off;
	case FROM_ADDR:
		return e->addr;
	case FROM_LEN:
		return e->len;
	case FROM_FLAGS:
		return e->op_flags;
	case FROM_ADDR3:
		return e->addr3;
	case FROM_SPLICE_FD:
		return (u64)(s64)e->splice_fd;
	}
	return 0;
}

/* The entry that was just taken from the ring: io_get_sqe() of io_uring/io_uring.c. */
static __always_inline int submitted(struct io_kiocb *request, struct entry *e)
{
	struct io_ring_ctx *ring = BPF_CORE_READ(request, ctx);
	u32 flags = BPF_CORE_READ(ring, flags);
	u32 entries = BPF_CORE_READ(ring, sq_entries);
	u32 index = (BPF_CORE_READ(ring, cached_sq_head) - 1) & (entries - 1);
	u64 array = (u64)BPF_CORE_READ(ring, sq_array);

	if (!(flags & IORING_SETUP_NO_SQARRAY) &&
	    bpf_probe_read_kernel(&index, 4, (void *)(array + 4ULL * index)))
		return -1;
	if (flags & IORING_SETUP_SQE128)
		index <<= 1;
	return bpf_probe_read_kernel(e, sizeof(*e),
				     (void *)((u64)BPF_CORE_READ(ring, sq_sqes) + 64ULL * index));
}

SEC("tp_btf/io_uring_submit_req")
int on_submit(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct task_state *state = bpf_task_storage_get(&tasks, task, 0, 0);
	struct io_kiocb *req = (void *)ctx[0];
	struct request request = {};
	struct operation *operation;
	struct config *c = the_config();
	struct call *call;
	struct entry entry;
	struct work *w = the_work();
	u64 key = (u64)req;
	u32 opcode, nr;

	if (!c || !w || ((!state || !state->traced) && !is_in_scope(c)))
		return 0;
	if (submitted(req, &entry))
		return 0;
	opcode = entry.opcode;
	operation = bpf_map_lookup_elem(&operations, &opcode);
	if (!operation || !operation->nr)
		return 0;
	nr = operation->nr - 1;
	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call || !call->known)
		return 0;
	w->nr = nr;
	for (u32 i = 0; i < 6; i++)
		w->args[i] = taken(&entry, operation->source[i]);
	load_cache(w, c);
	read_operands(w);
	request.sample.call = call->index;
	/* A registered file is known when the operation completes. */
	request.sample.touch = entry.flags & IOSQE_FIXED_FILE ? 0 : one_touch(w->touch);
	__builtin_memcpy(request.sample.slots, w->slots, sizeof(request.sample.slots));
	if (entry.flags & IOSQE_FIXED_FILE && call->kind[0] == FD)
		request.sample.slots[0] = FD_VALID;
	request.opens = call->flags & CALL_OPENS;
	request.amount = call->flags & CALL_AMOUNT;
	if (bpf_map_update_elem(&requests, &key, &request, BPF_ANY))
		count(LOST_REQUESTS);
	return 0;
}

SEC("tp_btf/io_uring_complete")
int on_complete(u64 *ctx)
{
	struct io_kiocb *req = (void *)ctx[1];
	struct io_uring_cqe *completion = (void *)ctx[2];
	struct request *request;
	struct sample sample;
	struct config *c;
	struct file *file;
	u64 key = (u64)req;
	s64 result;

	request = bpf_map_lookup_elem(&requests, &key);
	if (!request)
		return 0;
	__builtin_memcpy(&sample, &request->sample, sizeof(sample));
	result = BPF_CORE_READ(completion, res);
	if (!sample.touch) {
		file = BPF_CORE_READ(req, file);
		sample.touch = file ? touch_file(file) : NOTHING;
	}
	set_result(&sample, result, request->amount);
	bpf_map_delete_elem(&requests, &key);
	if (sample.touch == OUTSIDE)
		return 0;
	add(&sample);
	c = the_config();
	if (c && c->record)
		record(&sample, 0, result);
	return 0;
}

/* ---- calibration ---- */

#define CALIBRATE 0x7700
#define CALIBRATE_TARGET 0x80

/* faccessat(fd, "", CALIBRATE + n) by the tracer itself: notes where the dentry of fd is in the hash
 * table, or which superblock is watched. The call fails, and nobody else makes such a call. */
SEC("tp_btf/sys_enter")
int on_calibrate(u64 *ctx)
{
	struct pt_regs *regs = (void *)ctx[0];
	struct calibration calibration = {};
	struct config *c = the_config();
	struct dentry *dentry;
	struct file *file;
	u32 index;

	if (!c || ctx[1] != 269 || (u32)(bpf_get_current_pid_tgid() >> 32) != c->tracer)
		return 0;
	index = regs->dx;
	if ((index & ~0xffU) != CALIBRATE)
		return 0;
	index &= 0xff;
	file = file_of(regs->di);
	if (!file)
		return 0;
	if (index >= CALIBRATE_TARGET) {
		index -= CALIBRATE_TARGET;
		if (index < TARGETS_MAX)
			c->targets[index] = (u64)BPF_CORE_READ(file, f_path.mnt, mnt_sb);
		return 0;
	}
	dentry = BPF_CORE_READ(file, f_path.dentry);
	calibration.pprev = (u64)BPF_CORE_READ(dentry, d_hash.pprev);
	calibration.hash_len = BPF_CORE_READ(dentry, d_name.hash_len);
	bpf_map_update_elem(&calibrations, &index, &calibration, BPF_ANY);
	if (bpf_core_enum_value_exists(enum dentry_flags, DCACHE_MOUNTED)) {
		c->flag_mounted = bpf_core_enum_value(enum dentry_flags, DCACHE_MOUNTED);
		c->type_mask = bpf_core_enum_value(enum dentry_flags, DCACHE_ENTRY_TYPE);
		c->type_symlink = bpf_core_enum_value(enum dentry_flags, DCACHE_SYMLINK_TYPE);
	}
	return 0;
}
