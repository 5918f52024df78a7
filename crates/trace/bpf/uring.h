/* Operations of io_uring: read from their submission entries as the system calls that they stand for, counted
 * when they complete. */
#pragma once

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
	struct io_ring_ctx *ring = READ(request, ctx);
	u32 flags = READ(ring, flags);
	u32 entries = READ(ring, sq_entries);
	u32 index = (READ(ring, cached_sq_head) - 1) & (entries - 1);
	u64 array = (u64)READ(ring, sq_array);

	if (!(flags & IORING_SETUP_NO_SQARRAY) &&
	    bpf_probe_read_kernel(&index, 4, (void *)(array + 4ULL * index)))
		return -1;
	if (flags & IORING_SETUP_SQE128)
		index <<= 1;
	return bpf_probe_read_kernel(e, sizeof(*e),
				     (void *)((u64)READ(ring, sq_sqes) + 64ULL * index));
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
	u64 key = (u64)req, id = 0;
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
	if (w->pending) {
		find_start(w);
		request.sample.touch = w->touch;
		/* As a number: it is a pointer to the verifier. */
		bpf_probe_read_kernel(&id, sizeof(id), &key);
		send(&request.sample, w, 0, id);
		request.sample.touch = STREAMED;
	}
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
	u64 key = (u64)req, id = 0;
	s64 result;

	request = bpf_map_lookup_elem(&requests, &key);
	if (!request)
		return 0;
	__builtin_memcpy(&sample, &request->sample, sizeof(sample));
	result = READ(completion, res);
	if (!sample.touch) {
		file = READ(req, file);
		sample.touch = file ? touch_file(file) : NOTHING;
	}
	set_result(&sample, sample.touch, result, request->amount);
	bpf_map_delete_elem(&requests, &key);
	if (sample.touch == STREAMED) {
		bpf_probe_read_kernel(&id, sizeof(id), &key);
		send_completion(id, result);
		return 0;
	}
	if (sample.touch == OUTSIDE)
		return 0;
	add(&sample);
	c = the_config();
	if (c && c->record)
		record(&sample, 0, result);
	return 0;
}
