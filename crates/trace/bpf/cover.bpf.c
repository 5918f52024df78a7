/* The tracer in the kernel: counts the system calls of the watched tasks on the watched file systems, by
 * the classes of their arguments and results. No stream of events, so none can be lost.
 *
 * sys_enter reads the arguments and finds the file system; sys_exit adds the result and counts. The two
 * meet in the storage of the task. Operations of io_uring and of io_submit are read from their submission
 * entries as the system calls that they stand for, and counted when they complete. */
#include "kernel.h"
#include "encode.h"
#include "walk.h"
#include "state.h"
#include "operands.h"
#include "count.h"
#include "aio.h"
#include "stream.h"

char LICENSE[] SEC("license") = "GPL";

/* Proves that this object was made from these sources (`cargo xtask bpf`). */
const char SOURCE_DIGEST[] SEC("source_digest") = FATHOM_SOURCE_DIGEST;

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

/* Calls that leave something to do when they have ended. */
#define CALL_AFTERWARDS (CALL_MOUNTS | CALL_SYMLINK | CALL_SUBMITS | CALL_FETCHES)

static __always_inline void load_cache(struct work *w, struct config *c)
{
	w->table = c->table;
	w->shift = c->shift;
	w->flag_mounted = c->flag_mounted;
	w->type_mask = c->type_mask;
	w->type_symlink = c->type_symlink;
	w->stream = c->stream;
}

/* Where absolute paths of the task start. */
static __always_inline void find_start(struct work *w)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct fs_struct *fs = task->fs;

	w->start_dentry = w->start_mount = 0;
	if (fs) {
		w->start_dentry = (u64)fs->root.dentry;
		w->start_mount = (u64)fs->root.mnt;
	}
}

/* Sends a call before it is made; its end is sent too. */
static __always_inline void send_start(struct work *w, struct call *call)
{
	struct sample sample = { .call = call->index, .touch = w->touch };

	__builtin_memcpy(sample.slots, w->slots, sizeof(sample.slots));
	find_start(w);
	send(&sample, w, 0, bpf_get_current_pid_tgid());
	w->pending = SENT;
}

static __always_inline void save_state(struct task_state *state, struct work *w)
{
	state->again = w->again;
	state->unread = w->unread;
	state->follow = w->follow;
	state->parent_from = w->parent_from;
	state->pending = w->pending;
	state->resolve = w->resolve;
	__builtin_memcpy(state->args, w->args, sizeof(state->args));
	__builtin_memcpy(state->base_dentry, w->base_dentry, sizeof(state->base_dentry));
	__builtin_memcpy(state->base_mount, w->base_mount, sizeof(state->base_mount));
	find_start(w);
	state->start_dentry = w->start_dentry;
	state->start_mount = w->start_mount;
}

static __always_inline void set_sample(struct sample *sample, struct call *call, u32 touch)
{
	sample->call = call->index;
	sample->touch = touch;
}

/* One by one, as they were written: a wider load would wait until all of them have reached the cache. */
static __always_inline void copy_slots(u32 *to, u32 *from)
{
	for (u32 i = 0; i < SLOTS_MAX; i++)
		to[i] = from[i];
}

/* The start of a call on a descriptor whose other arguments are numbers: most calls of most programs, so
 * without the detour over `work`. */
static __always_inline void enter_plain(struct task_state *state, struct call *call, struct pt_regs *regs)
{
	struct file *file = file_of(regs->di);
	u32 touch = file ? touch_file(file) : NOTHING;
	u32 *slots = state->sample.slots;

	if (touch == OUTSIDE)
		return;
	set_sample(&state->sample, call, touch);
	__builtin_memset(slots, 0, sizeof(state->sample.slots));
	slots[0] = file ? FD_VALID : FD_BAD;
	if (call->slots > 1)
		slots[1] = number_code(call->kind[1], regs->si);
	if (call->slots > 2)
		slots[2] = number_code(call->kind[2], regs->dx);
	if (call->slots > 3)
		slots[3] = number_code(call->kind[3], regs->r10);
	if (call->slots > 4)
		slots[4] = number_code(call->kind[4], regs->r8);
	if (call->slots > 5)
		slots[5] = number_code(call->kind[5], regs->r9);
	state->slow = 0;
	state->active = 1;
}

SEC("tp_btf/sys_enter")
int on_enter(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)ctx[0];
	struct config *c = the_config();
	struct task_state *state;
	struct call *call;
	struct work *w;
	u32 nr = ctx[1];

	call = bpf_map_lookup_elem(&calls, &nr);
	if (!c || !call || !call->known)
		return 0;
	state = bpf_task_storage_get(&tasks, task, 0, 0);
	if (!state && c->scope == SCOPE_TREE)
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
	if (task->thread_info.status & TS_COMPAT) {
		count(FOREIGN);
		return 0;
	}
	state->nr = nr;
	if (call->flags & CALL_PLAIN && !c->record) {
		enter_plain(state, call, regs);
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
	if (w->touch == OUTSIDE && !w->again && !w->pending && !(call->flags & (CALL_OPENS | CALL_AFTERWARDS)))
		return 0;
	if (call->flags & CALL_SUBMITS)
		begin_blocks(w);
	set_sample(&state->sample, call, w->touch);
	copy_slots(state->sample.slots, w->slots);
	/* Afterwards the path is gone with the program. */
	if (w->pending && call->flags & CALL_EXECUTES)
		send_start(w, call);
	state->slow = w->again || w->unread || w->pending || c->record || call->flags & CALL_AFTERWARDS;
	if (state->slow)
		save_state(state, w);
	state->active = 1;
	return 0;
}

static __always_inline void load_state(struct work *w, struct task_state *state)
{
	w->nr = state->nr;
	w->touch = state->sample.touch;
	w->again = state->again;
	w->unread = state->unread;
	w->follow = state->follow;
	w->parent_from = state->parent_from;
	w->pending = state->pending;
	w->resolve = state->resolve;
	__builtin_memcpy(w->args, state->args, sizeof(w->args));
	__builtin_memcpy(w->slots, state->sample.slots, sizeof(w->slots));
	__builtin_memcpy(w->base_dentry, state->base_dentry, sizeof(w->base_dentry));
	__builtin_memcpy(w->base_mount, state->base_mount, sizeof(w->base_mount));
	w->start_dentry = state->start_dentry;
	w->start_mount = state->start_mount;
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

/* What could not be known at the start, and what a success has changed. Afterwards the slots of `w` count.
 */
static __always_inline void finish(struct work *w, struct config *c, u32 flags, s64 result)
{
	load_cache(w, c);
	if (w->again || w->unread) {
		read_again(w);
		/* The call found what the walk did not: the directory before decides. An error came from
		 * where the walk ended. */
		if (w->again && result >= 0 && !(flags & CALL_OPENS))
			count(GUESSED);
	}
	/* In a stream user space keeps these. */
	if (flags & (CALL_MOUNTS | CALL_SYMLINK) && result >= 0 && !w->stream)
		after_success(w, flags);
	if (flags & CALL_SUBMITS)
		settle_blocks(w, result);
	if (flags & CALL_FETCHES && result > 0)
		fetch_completions(w, result);
}

SEC("tp_btf/sys_exit")
int on_exit(u64 *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *regs = (void *)ctx[0];
	struct task_state *state;
	s64 result = ctx[1];
	struct sample *sample;
	struct config *c;
	struct call *call;
	struct file *file;
	struct work *w = 0;
	u32 flags, touch, nr = regs->orig_ax;

	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call || !call->known)
		return 0;
	state = bpf_task_storage_get(&tasks, task, 0, 0);
	/* The start of another call: its end was not seen. */
	if (!state || !state->active || state->nr != nr)
		return 0;
	state->active = 0;
	/* The kernel will make the call again: ERESTARTSYS and its family. */
	if (result <= -512 && result >= -516 && result != -515) {
		count(RESTARTED);
		return 0;
	}
	flags = call->flags;
	sample = &state->sample;
	touch = sample->touch;
	if (state->slow) {
		c = the_config();
		w = the_work();
		if (!c || !w)
			return 0;
		load_state(w, state);
		finish(w, c, flags, result);
		touch = w->touch;
		__builtin_memcpy(sample->slots, w->slots, sizeof(w->slots));
	}
	if (flags & CALL_OPENS && result >= 0) {
		file = file_of(result);
		if (file) {
			touch = touch_file(file);
			if (w)
				w->pending = 0;
		}
	}
	if (w && w->pending == SENT) {
		send_completion(bpf_get_current_pid_tgid(), result);
		return 0;
	}
	if (w && w->pending) {
		set_result(sample, touch, result, flags & CALL_AMOUNT);
		send(sample, w, result, 0);
		if (c->record)
			count(RECORD_LOST);
		return 0;
	}
	touch = one_touch(touch);
	if (touch == OUTSIDE)
		return 0;
	set_result(sample, touch, result, flags & CALL_AMOUNT);
	add(sample);
	if (w && c->record)
		record(sample, w, result);
	return 0;
}

#include "uring.h"

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
			c->targets[index] = (u64)READ(READ(file, f_path.mnt), mnt_sb);
		return 0;
	}
	dentry = READ(file, f_path.dentry);
	calibration.pprev = (u64)READ(dentry, d_hash.pprev);
	calibration.hash_len = READ(dentry, d_name.hash_len);
	bpf_map_update_elem(&calibrations, &index, &calibration, BPF_ANY);
	if (bpf_core_enum_value_exists(enum dentry_flags, DCACHE_MOUNTED)) {
		c->flag_mounted = bpf_core_enum_value(enum dentry_flags, DCACHE_MOUNTED);
		c->type_mask = bpf_core_enum_value(enum dentry_flags, DCACHE_ENTRY_TYPE);
		c->type_symlink = bpf_core_enum_value(enum dentry_flags, DCACHE_SYMLINK_TYPE);
	}
	return 0;
}
