/* Counting a call that has ended, and what it has changed that later calls depend on. */
#pragma once

static __always_inline u32 one_touch(u32 bits)
{
	return bits & INSIDE ? INSIDE : bits & UNRESOLVED ? UNRESOLVED : bits & OUTSIDE ? OUTSIDE : NOTHING;
}

/* Makes room in `recents`. */
__noinline int put_away(struct recent *recent)
{
	u64 *value;

	if (!recent || !recent->count)
		return 0;
	value = bpf_map_lookup_elem(&samples, &recent->sample);
	if (value)
		*value += recent->count;
	else if (bpf_map_update_elem(&samples, &recent->sample, &recent->count, BPF_ANY))
		count_many(LOST, recent->count);
	return 0;
}

static __always_inline void add(struct sample *sample)
{
	u64 *word = (u64 *)sample, *known, sum;
	struct recent *recent;
	u32 place;

	/* Products that do not wait for each other; the factors are odd numbers without pattern. */
	sum = word[0] * 0x9E3779B97F4A7C15ULL + word[1] * 0xC2B2AE3D27D4EB4FULL +
	      word[2] * 0x165667B19E3779F9ULL + word[3] * 0xD6E8FEB86659FD93ULL +
	      word[4] * 0xFF51AFD7ED558CCDULL + word[5] * 0xC4CEB9FE1A85EC53ULL;
	place = sum >> (64 - RECENT_BITS);
	recent = bpf_map_lookup_elem(&recents, &place);
	if (!recent)
		return;
	known = (u64 *)&recent->sample;
	if (known[0] == word[0] && known[1] == word[1] && known[2] == word[2] && known[3] == word[3] &&
	    known[4] == word[4] && known[5] == word[5]) {
		recent->count++;
		return;
	}
	put_away(recent);
	__builtin_memcpy(&recent->sample, sample, sizeof(recent->sample));
	recent->count = 1;
}

/* The result, and what the call concerned. In one piece: `add` looks at words, and a word that was written in
 * parts just before makes the processor wait. */
static __always_inline void set_result(struct sample *sample, u32 touch, s64 result, u32 amount)
{
	u64 first = sample->call | (u64)touch << 48;

	if (result < 0 && result >= -4095)
		first |= (u64)-result << 16;
	else if (amount)
		first |= (u64)encode_amount(result) << 32;
	*(u64 *)sample = first;
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
		if (w->missed || w->unknown || w->dentry != (u64)READ(found, mnt_root))
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
	if (!inode || READ(inode, i_link))
		return 0;
	key.sb = (u64)READ(inode, i_sb);
	key.ino = READ(inode, i_ino);
	key.generation = READ(inode, i_generation);
	if (bpf_probe_read_user_str(w->spare, LINK_BYTES, (void *)text) > 0)
		bpf_map_update_elem(&link_texts, &key, w->spare, BPF_ANY);
	return 0;
}
