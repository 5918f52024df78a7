/* Operations of io_submit(2): each control block as the system call that it stands for, counted when
 * io_getevents(2) fetches its completion. Blocks are known by their address in the process. */
#pragma once

/* One submission has at most so many blocks here; others are not followed (and counted as such). */
#define BLOCKS_MAX 4096
#define AIO_RING_MAGIC 0xa10a10a1
/* A bit of `unread` beyond the slots: blocks that could not be read at the start. */
#define UNREAD_BLOCKS (1U << 31)

/* struct iocb of the uapi header linux/aio_abi.h, on a little-endian machine. */
struct block {
	u64 data;
	u32 key, rw_flags;
	u16 opcode, priority;
	s32 fd;
	u64 buf, bytes;
	s64 offset;
	u64 reserved;
	u32 flags, result_fd;
};

/* struct io_event of the same. */
struct completion {
	u64 data, block;
	s64 result, result2;
};

struct block_key {
	u64 process, address;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct block_key);
	__type(value, struct request);
} blocks SEC(".maps");

/* Which system call an opcode stands for: 0 none. All take descriptor, address, amount, offset, nothing, flags.
 */
static __always_inline u32 call_of_block(u32 opcode)
{
	switch (opcode) {
	case 0:
		return 17; /* pread64 */
	case 1:
		return 18; /* pwrite64 */
	case 2:
		return 74; /* fsync */
	case 3:
		return 75; /* fdatasync */
	case 7:
		return 327; /* preadv2 */
	case 8:
		return 328; /* pwritev2 */
	}
	return 0;
}

/* The codes of a block's arguments, and which file system it concerns. The arguments are in `spare`. */
__noinline int read_block(struct work *w, struct request *request, u32 nr)
{
	struct call *call = bpf_map_lookup_elem(&calls, &nr);
	struct file *file;
	u64 *args;

	if (!w || !request || !call || !call->known)
		return 0;
	args = (u64 *)w->spare;
	request->sample.call = call->index;
	request->sample.touch = NOTHING;
	request->amount = call->flags & CALL_AMOUNT;
	for (u32 i = 0; i < SLOTS_MAX; i++) {
		if (i >= call->slots)
			break;
		if (call->kind[i] == FD) {
			file = file_of(args[0]);
			request->sample.slots[i] = file ? FD_VALID : FD_BAD;
			request->sample.touch = file ? touch_file(file) : NOTHING;
		} else if (call->kind[i] != SKIP) {
			request->sample.slots[i] = plain_operand(w, call->kind[i], args[call->reg[i] & 7]);
		}
	}
	return 1;
}

struct submission {
	struct work *w;
	u64 pointers;
	u32 len;
	/* At the end: how many were taken, or the error of the first. */
	s64 result;
};

static __always_inline int key_of(struct submission *s, u32 index, struct block_key *key)
{
	key->process = bpf_get_current_pid_tgid() >> 32;
	return bpf_probe_read_user(&key->address, 8, (void *)(s->pointers + 8ULL * index));
}

static long begin_block(u32 index, struct submission *s)
{
	struct request request = {};
	struct block_key key = {};
	struct block block;
	struct work *w = s->w;
	u64 *args;
	u32 nr;

	if (!w || index >= s->len)
		return 1;
	if (key_of(s, index, &key) || bpf_probe_read_user(&block, sizeof(block), (void *)key.address)) {
		w->unread |= UNREAD_BLOCKS;
		return 1;
	}
	nr = call_of_block(block.opcode);
	args = (u64 *)w->spare;
	args[0] = (u64)(s64)block.fd;
	args[1] = block.buf;
	args[2] = block.bytes;
	args[3] = block.offset;
	args[4] = 0;
	args[5] = block.rw_flags;
	if (bpf_map_lookup_elem(&blocks, &key)) {
		/* Used again: the completion before was fetched without a call. */
		count(UNFETCHED);
		bpf_map_delete_elem(&blocks, &key);
	}
	if (!nr || !read_block(w, &request, nr) || request.sample.touch == OUTSIDE)
		return 0;
	if (bpf_map_update_elem(&blocks, &key, &request, BPF_ANY))
		count(LOST_REQUESTS);
	return 0;
}

static __always_inline void end_block(struct block_key *key, s64 result)
{
	struct request *request = bpf_map_lookup_elem(&blocks, key);
	struct config *c = the_config();
	struct sample sample;

	if (!request)
		return;
	__builtin_memcpy(&sample, &request->sample, sizeof(sample));
	set_result(&sample, sample.touch, result, request->amount);
	bpf_map_delete_elem(&blocks, key);
	add(&sample);
	if (c && c->record)
		record(&sample, 0, result);
}

/* io_submit has returned: blocks that it did not take are forgotten; an error is that of the first. */
static long settle_block(u32 index, struct submission *s)
{
	struct block_key key = {};

	if (index >= s->len)
		return 1;
	if (s->result > (s64)index)
		return 0;
	if (key_of(s, index, &key))
		return 1;
	if (!index && s->result < 0)
		end_block(&key, s->result);
	else
		bpf_map_delete_elem(&blocks, &key);
	return 0;
}

/* io_submit(2): context, number of blocks, their addresses. */
__noinline int begin_blocks(struct work *w)
{
	struct submission s = { .w = w };

	if (!w)
		return 0;
	s.pointers = w->args[2];
	s.len = (s64)w->args[1] > BLOCKS_MAX ? BLOCKS_MAX : (s64)w->args[1] < 0 ? 0 : w->args[1];
	bpf_loop(BLOCKS_MAX, begin_block, &s, 0);
	return 0;
}

__noinline int settle_blocks(struct work *w, s64 result)
{
	struct submission s = { .w = w, .result = result };
	u32 magic = 0;

	if (!w)
		return 0;
	s.pointers = w->args[2];
	s.len = (s64)w->args[1] > BLOCKS_MAX ? BLOCKS_MAX : (s64)w->args[1] < 0 ? 0 : w->args[1];
	if (w->unread & UNREAD_BLOCKS)
		bpf_loop(BLOCKS_MAX, begin_block, &s, 0);
	/* A context that is none: the error is not that of a block. */
	bpf_probe_read_user(&magic, 4, (void *)(w->args[0] + 16));
	if (magic != AIO_RING_MAGIC)
		s.result = 0;
	bpf_loop(BLOCKS_MAX, settle_block, &s, 0);
	return 0;
}

static long fetch_one(u32 index, struct submission *s)
{
	struct completion completion;
	struct block_key key = {};

	if ((s64)index >= s->result)
		return 1;
	if (bpf_probe_read_user(&completion, sizeof(completion),
				(void *)(s->pointers + sizeof(completion) * index)))
		return 1;
	key.process = bpf_get_current_pid_tgid() >> 32;
	key.address = completion.block;
	end_block(&key, completion.result);
	return 0;
}

/* io_getevents(2), io_pgetevents(2): context, least, most, completions. */
__noinline int fetch_completions(struct work *w, s64 result)
{
	struct submission s = { .w = w, .result = result };

	if (!w)
		return 0;
	s.pointers = w->args[3];
	bpf_loop(65536, fetch_one, &s, 0);
	return 0;
}
