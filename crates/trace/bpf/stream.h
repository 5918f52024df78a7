/* Streaming: where the walk through the directory cache is not proven on this kernel, calls with paths are
 * sent to user space, which resolves them (src/bpf/stream.rs); elsewhere only those through a link whose
 * text is not in memory. Descriptors and mappings need no walk and are attributed here as always. */
#pragma once

#define PLACE_BYTES 512
#define STREAM_PATH_BYTES 1024
#define PLACE_DEPTH_MAX 48
/* A value of `pending`: the call was sent when it started. */
#define SENT (1U << 31)

/* A call with paths, or the end of one that was sent when it started. */
struct streamed {
	u64 time, request;
	s64 result;
	u32 pid, tid;
	u32 pending; /* paths that are to be resolved, one bit each */
	u32 follow, parent_from;
	u32 completes; /* nothing but request and result */
	u64 resolve, flags;
	struct sample sample; /* its touch is what is known without the paths */
	/* Root and both bases: names from the inside out, each with NUL, then an empty one. */
	char places[3 * PLACE_BYTES];
	char paths[2][STREAM_PATH_BYTES]; /* of symlink(2): the path, and what it says */
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 25);
} stream SEC(".maps");

struct climb {
	struct work *w;
	u64 dentry, mount;
	u32 start, pos;
	u32 done; /* the top was reached */
};

/* One name, or over the root of a mount. */
static long climb_step(u32 index, struct climb *c)
{
	struct vfsmount *vfsmount = (void *)c->mount;
	struct dentry *dentry = (void *)c->dentry;
	struct work *w = c->w;
	struct mount *mount, *parent;
	const unsigned char *name;
	u64 at;
	long length;

	if (!w || !c->dentry || !c->mount)
		return 1;
	if (c->dentry == (u64)READ(vfsmount, mnt_root)) {
		mount = mount_of(c->mount);
		parent = READ(mount, mnt_parent);
		if (parent == mount) {
			c->done = 1;
			return 1;
		}
		c->dentry = (u64)READ(mount, mnt_mountpoint);
		c->mount = vfsmount_of(parent);
		return 0;
	}
	name = READ(dentry, d_name.name);
	at = c->start + c->pos;
	asm volatile("%0 &= 2047" : "+r"(at));
	length = bpf_probe_read_kernel_str(&w->spare[at], NAME_BYTES + 1, name);
	if (length <= 1 || c->pos + length >= PLACE_BYTES)
		return 1;
	c->pos += length;
	c->dentry = (u64)READ(dentry, d_parent);
	return 0;
}

/* The names of a place into `spare`. Where there is none, or too many: a name that no place has. */
__noinline int tell_place(struct work *w, u32 number, u64 dentry, u64 mount)
{
	struct climb climb = { .w = w, .dentry = dentry, .mount = mount };
	u64 at;

	if (!w || number > 2)
		return 0;
	climb.start = number * PLACE_BYTES;
	if (dentry)
		bpf_loop(PLACE_DEPTH_MAX, climb_step, &climb, 0);
	at = climb.start + climb.pos;
	asm volatile("%0 &= 2047" : "+r"(at));
	w->spare[at] = climb.done ? 0 : '/';
	w->spare[(at + 1) & 2047] = 0;
	return 0;
}

/* Sends the call in `w` to user space. */
__noinline int send(struct sample *sample, struct work *w, s64 result, u64 request)
{
	u64 id = bpf_get_current_pid_tgid();
	struct streamed *event;
	struct call *call;
	u32 nr, path = 0;

	if (!sample || !w)
		return 0;
	nr = w->nr;
	call = bpf_map_lookup_elem(&calls, &nr);
	if (!call)
		return 0;
	tell_place(w, 0, w->start_dentry, w->start_mount);
	tell_place(w, 1, w->base_dentry[0], w->base_mount[0]);
	tell_place(w, 2, w->base_dentry[1], w->base_mount[1]);
	event = bpf_ringbuf_reserve(&stream, sizeof(*event), 0);
	if (!event) {
		count(LOST);
		return 0;
	}
	event->time = bpf_ktime_get_ns();
	event->request = request;
	event->result = result;
	event->pid = id >> 32;
	event->tid = id;
	event->pending = w->pending;
	event->follow = w->follow;
	event->parent_from = w->parent_from;
	event->completes = 0;
	event->resolve = w->resolve;
	event->flags = call->flags & CALL_MOUNTS ? w->args[3] : w->args[4];
	__builtin_memcpy(&event->sample, sample, sizeof(event->sample));
	bpf_probe_read_kernel(event->places, sizeof(event->places), w->spare);
	event->paths[0][0] = event->paths[1][0] = 0;
	for (u32 i = 0; i < SLOTS_MAX; i++) {
		u32 kind = call->kind[i], reg = call->reg[i];

		if (i >= call->slots || path > 1)
			break;
		if ((kind != PATH && kind != PATH_OR_TEXT) || reg > 5)
			continue;
		bpf_probe_read_user_str(event->paths[path & 1], STREAM_PATH_BYTES, (void *)w->args[reg]);
		path++;
	}
	if (call->flags & CALL_SYMLINK)
		bpf_probe_read_user_str(event->paths[1], STREAM_PATH_BYTES, (void *)w->args[0]);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* A call that was sent when it started, or a request when it was submitted, has ended. */
__noinline int send_completion(u64 request, s64 result)
{
	struct streamed *event = bpf_ringbuf_reserve(&stream, sizeof(*event), 0);

	if (!event) {
		count(LOST);
		return 0;
	}
	event->request = request;
	event->result = result;
	event->completes = 1;
	bpf_ringbuf_submit(event, 0);
	return 0;
}
