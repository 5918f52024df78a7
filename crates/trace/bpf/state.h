/* What the programs know and keep: configuration, the table of calls, tasks, counts. The structures are
 * those of src/bpf/object.rs. */
#pragma once

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
	u32 stream; /* paths are resolved in user space */
	u32 flag_backing, unused;
};

enum call_flags {
	CALL_OPENS = 1, CALL_GLOBAL = 2, CALL_RANGE = 4, CALL_AMOUNT = 8, CALL_MOUNTS = 16,
	CALL_SYMLINK = 32, CALL_MMAP = 64, CALL_HOW = 128, CALL_OPEN_FLAGS = 256,
	CALL_PATHS = 512, CALL_SUBMITS = 1024, CALL_FETCHES = 2048,
	CALL_EXECUTES = 4096,
	CALL_PLAIN = 8192, /* a descriptor, then numbers: nothing in memory */
	CALL_HERE = 16384, /* concerns the working directory (getcwd) */
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
	u32 traced, active, nr;
	u32 slow; /* what follows the sample is needed too */
	struct sample sample; /* its touch is bits of all operands */
	u32 again, unread, follow, parent_from, pending, unused;
	u64 resolve;
	u64 args[6];
	u64 base_dentry[2], base_mount[2];
	u64 start_dentry, start_mount;
};

/* An operation that was submitted and has not completed. */
struct request {
	struct sample sample;
	u32 opens;
	u32 amount;
};

enum counter { LOST, RESTARTED, FOREIGN, GUESSED, RECORD_LOST, LOST_REQUESTS, UNFETCHED, COUNTERS };

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

#define RECENT_BITS 8

/* A count on its way to `samples`. */
struct recent {
	struct sample sample;
	u64 count;
};

/* The last samples, each at a place that follows from what it is: a program makes few different calls at a
 * time, and finding them here is cheaper than in a hash table. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1 << RECENT_BITS);
	__type(key, u32);
	__type(value, struct recent);
} recents SEC(".maps");

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

static __always_inline void count_many(u32 counter, u64 many)
{
	u64 *value = bpf_map_lookup_elem(&counters, &counter);

	if (value)
		*value += many;
}

static __always_inline void count(u32 counter)
{
	count_many(counter, 1);
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

static __always_inline u32 touch_of(u64 sb)
{
	struct config *c = the_config();

	if (!c || !sb)
		return OUTSIDE;
	/* Usually there is one. */
	if (c->targets[0] == sb)
		return INSIDE;
	for (u32 k = 1; k < TARGETS_MAX; k++) {
		if (k >= c->targets_len)
			break;
		if (c->targets[k] == sb)
			return INSIDE;
	}
	return OUTSIDE;
}

static __always_inline u32 touch_file(struct file *file)
{
	return touch_of((u64)READ(READ(file, f_inode), i_sb));
}
