/* The link-type design in C, for link.pml: the same steps as crates/designs/src/mapping (naive
 * order, no symmetry), so the same number of states. FILES, BLOCKS, THREADS and CACHE are given on
 * the command line of the compiler. */

#include <string.h>

typedef unsigned char Byte;
typedef struct {
	Byte memory[64], cache[64], media[64];
	struct { Byte op, file; unsigned short pending; } thread[2];
	Byte expected[4];
	Byte faults;
} Volume;

#define NOTHING 0xff
#define CHAIN_END 0xfe
#define DEAD_BLOCK 1
#define LOST_BLOCK 2
#define DOUBLE_POINTER 4
#define CONTENT_ERROR 8
#define INODES ((FILES + 1) / 2)
#define FIRST (INODES + (BLOCKS + 3) / 4)
enum { CREATE = 1, APPEND, DELETE };

static int inode(int file) { return file / 2 * 4 + file % 2 * 2; }
static int link_at(int data) { return (INODES + data / 4) * 4 + data % 4; }
static Byte *data_at(Byte *disk, int data) { return disk + (FIRST + data) * 4; }

static int extent(Byte *disk, int file, Byte *blocks, int *circular)
{
	int count = 0, data = disk[inode(file) + 1];
	*circular = 0;
	if (disk[inode(file)] == NOTHING) return 0;
	while (data < BLOCKS && !*circular) {
		if (count < 11) blocks[count++] = data; else *circular = 1;
		data = disk[link_at(data)];
	}
	return count;
}

static int at(Byte *disk, int file, int place)
{
	Byte blocks[11];
	int circular, count = extent(disk, file, blocks, &circular);
	return place >= 0 && place < count ? blocks[place] : NOTHING;
}

static int mask_of(Byte *disk, int file)
{
	Byte blocks[11];
	int i, mask = 0, circular, count = extent(disk, file, blocks, &circular);
	for (i = 0; i < count; i++) mask |= 1 << blocks[i];
	return mask;
}

static int referenced(Byte *disk)
{
	int file, mask = 0;
	for (file = 0; file < FILES; file++) mask |= mask_of(disk, file);
	return mask;
}

static int allocated(Byte *disk)
{
	int data, mask = 0;
	for (data = 0; data < BLOCKS; data++)
		if (disk[link_at(data)] != NOTHING) mask |= 1 << data;
	return mask;
}

static int find_free(Byte *disk)
{
	int data;
	for (data = 0; data < BLOCKS; data++)
		if (disk[link_at(data)] == NOTHING) return data;
	return NOTHING;
}

static void forget(Volume *s)
{
	int data, kept = allocated(s->memory) | allocated(s->cache) | allocated(s->media)
		| referenced(s->cache) | referenced(s->media);
	for (data = 0; data < BLOCKS; data++)
		if (!(kept & 1 << data)) {
			memset(data_at(s->memory, data), NOTHING, 4);
			memset(data_at(s->cache, data), NOTHING, 4);
			memset(data_at(s->media, data), NOTHING, 4);
		}
}

static int worker(Volume *s, int file)
{
	int t;
	for (t = 0; t < THREADS; t++)
		if (s->thread[t].op && s->thread[t].file == file) return s->thread[t].op;
	return 0;
}

static int holds(Byte *tables, Byte *device, int file, int len)
{
	int place;
	for (place = 0; place < len; place++) {
		Byte *block;
		int data = at(tables, file, place);
		if (data == NOTHING) return 0;
		block = data_at(device, data);
		if (block[0] != 0x40 || block[1] != file || block[2] != place || block[3]) return 0;
	}
	return 1;
}

static void online(Volume *s)
{
	int file;
	for (file = 0; file < FILES; file++) {
		int expected = s->expected[file];
		if (expected == NOTHING || worker(s, file)) continue;
		if (s->memory[inode(file)] != expected || !holds(s->memory, s->cache, file, expected))
			s->faults |= CONTENT_ERROR;
		if (mask_of(s->memory, file) & ~allocated(s->memory)) s->faults |= LOST_BLOCK;
	}
}

static void change(Volume *s, int op, int file)
{
	Byte *m = s->memory;
	int data, last, place = s->expected[file];
	if (op == CREATE) {
		data = find_free(m);
		m[link_at(data)] = CHAIN_END;
		m[inode(file)] = 0;
		m[inode(file) + 1] = data;
	} else if (op == APPEND) {
		int there = at(m, file, place);
		data = there == NOTHING ? find_free(m) : there;
		last = at(m, file, place - 1);
		if (there == NOTHING) m[link_at(data)] = CHAIN_END;
		data_at(m, data)[0] = 0x40;
		data_at(m, data)[1] = file;
		data_at(m, data)[2] = place;
		data_at(m, data)[3] = 0;
		if (there == NOTHING && last != NOTHING) m[link_at(last)] = data;
		m[inode(file)] = place + 1;
	} else {
		int mask = mask_of(m, file);
		for (data = 0; data < BLOCKS; data++)
			if (mask & 1 << data) m[link_at(data)] = NOTHING;
		m[inode(file)] = m[inode(file) + 1] = NOTHING;
	}
}

static int can_begin(Volume *s, int t, int op, int file)
{
	int expected = s->expected[file];
	if (t >= THREADS || file >= FILES || s->thread[t].op || worker(s, file)) return 0;
	if (s->faults & (DOUBLE_POINTER | CONTENT_ERROR)) return 0;
	if (op == CREATE) return expected == NOTHING && find_free(s->memory) != NOTHING;
	if (expected == NOTHING) return 0;
	return op == DELETE || (expected < BLOCKS
		&& (at(s->memory, file, expected) != NOTHING || find_free(s->memory) != NOTHING));
}

static void begin(Volume *s, int t, int op, int file)
{
	Byte before[64];
	int block;
	memcpy(before, s->memory, 64);
	s->faults = 0;
	s->thread[t].op = op;
	s->thread[t].file = file;
	change(s, op, file);
	s->thread[t].pending = 0;
	for (block = 0; block < FIRST + BLOCKS; block++)
		if (memcmp(before + block * 4, s->memory + block * 4, 4))
			s->thread[t].pending |= 1 << block;
	online(s);
}

static int can_go_on(Volume *s, int t)
{
	return t < THREADS && s->thread[t].op && !(s->faults & (DOUBLE_POINTER | CONTENT_ERROR));
}

static void go_on(Volume *s, int t)
{
	int op = s->thread[t].op, file = s->thread[t].file, block;
	s->faults = 0;
	if (s->thread[t].pending) {
		if (op == DELETE) for (block = 15; !(s->thread[t].pending & 1 << block); block--);
		else for (block = 0; !(s->thread[t].pending & 1 << block); block++);
		s->thread[t].pending &= ~(1 << block);
		memcpy(s->cache + block * 4, s->memory + block * 4, 4);
		if (!CACHE) memcpy(s->media + block * 4, s->memory + block * 4, 4);
	} else {
		memcpy(s->media, s->cache, 64);
		s->thread[t].op = s->thread[t].file = 0;
		if (op == CREATE) s->expected[file] = 0;
		else if (op == APPEND) s->expected[file]++;
		else { s->expected[file] = NOTHING; forget(s); }
	}
	online(s);
}

static void crash(Volume *s)
{
	Byte *d = s->media;
	int file, data, i, seen = 0, faults = 0, used;
	for (file = 0; file < FILES; file++) {
		Byte blocks[11];
		int circular, count = extent(d, file, blocks, &circular);
		int now = d[inode(file)], before = s->expected[file], after = before;
		for (i = 0; i < count; i++) {
			if (seen & 1 << blocks[i]) faults |= DOUBLE_POINTER;
			seen |= 1 << blocks[i];
		}
		if (circular) faults |= DOUBLE_POINTER;
		switch (worker(s, file)) {
		case CREATE: after = 0; break;
		case APPEND: after = before + 1; break;
		case DELETE: after = NOTHING; break;
		}
		if ((now != before && now != after) || (now != NOTHING && !holds(d, d, file, now)))
			faults |= CONTENT_ERROR;
	}
	used = allocated(d);
	if (used & ~seen) faults |= DEAD_BLOCK;
	if (seen & ~used) faults |= LOST_BLOCK;
	for (data = 0; data < BLOCKS; data++)
		if (used & ~referenced(d) & 1 << data) d[link_at(data)] = NOTHING;
	memcpy(s->memory, d, 64);
	memcpy(s->cache, d, 64);
	for (file = 0; file < FILES; file++) s->expected[file] = d[inode(file)];
	memset(s->thread, 0, sizeof s->thread);
	forget(s);
	s->faults = faults;
	online(s);
}

static void make(Volume *s)
{
	memset(s, 0, sizeof *s);
	memset(s->memory, NOTHING, 64);
	memset(s->cache, NOTHING, 64);
	memset(s->media, NOTHING, 64);
	memset(s->expected, NOTHING, 4);
}
