/* What an instrumented checker tells fathom: the branches that it took and what it compared.
 *
 * clang -fsanitize-coverage=trace-pc-guard,trace-cmp calls the functions below. The record is a file in
 * memory that is inherited under descriptor 102; without it nothing is recorded. */
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define RECORD_FD 102
#define EDGES_MAX (1 << 17)
#define COMPARISONS_MAX (1 << 16)

struct comparison {
  uint64_t site, one, other;
};

/* The same layout as in crates/fsck/src/cover.rs. */
struct record {
  uint64_t path;        /* a hash of the sequence of branches */
  uint64_t branches;    /* how many were taken */
  uint64_t edges;       /* how many there are in the program */
  uint64_t comparisons; /* how many are recorded below */
  uint8_t edge[EDGES_MAX];
  struct comparison comparison[COMPARISONS_MAX];
};

static struct record *record;
static uint32_t edges;

__attribute__((constructor(0))) static void fathom_attach(void) {
  struct stat status;
  if (fstat(RECORD_FD, &status) != 0 || (uint64_t)status.st_size < sizeof(struct record)) return;
  void *place = mmap(0, sizeof(struct record), PROT_READ | PROT_WRITE, MAP_SHARED, RECORD_FD, 0);
  if (place != MAP_FAILED) record = place;
}

void __sanitizer_cov_trace_pc_guard_init(uint32_t *start, uint32_t *stop) {
  if (start == stop || *start) return;
  for (uint32_t *guard = start; guard < stop; guard++) *guard = ++edges;
  if (record) record->edges = edges;
}

void __sanitizer_cov_trace_pc_guard(uint32_t *guard) {
  if (!record || !*guard) return;
  record->edges = edges;
  if (*guard < EDGES_MAX) record->edge[*guard] = 1;
  record->branches++;
  record->path = (record->path ^ *guard) * 0x100000001b3ULL + (record->path >> 29);
}

static void compare(uint64_t one, uint64_t other, uint64_t site) {
  if (!record || one == other || record->comparisons >= COMPARISONS_MAX) return;
  /* The same comparison again says nothing new: loops would fill the record. */
  uint64_t count = record->comparisons;
  for (uint64_t back = 1; back <= 8 && back <= count; back++) {
    struct comparison *last = &record->comparison[count - back];
    if (last->site == site && last->one == one && last->other == other) return;
  }
  record->comparison[count].site = site;
  record->comparison[count].one = one;
  record->comparison[count].other = other;
  record->comparisons = count + 1;
}

#define SITE ((uint64_t)__builtin_return_address(0))
void __sanitizer_cov_trace_cmp1(uint8_t a, uint8_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_cmp2(uint16_t a, uint16_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_cmp4(uint32_t a, uint32_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_cmp8(uint64_t a, uint64_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_const_cmp1(uint8_t a, uint8_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_const_cmp2(uint16_t a, uint16_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_const_cmp4(uint32_t a, uint32_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_const_cmp8(uint64_t a, uint64_t b) { compare(a, b, SITE); }
void __sanitizer_cov_trace_switch(uint64_t value, uint64_t *cases) {
  uint64_t site = SITE;
  for (uint64_t index = 0; index < cases[0]; index++) compare(value, cases[2 + index], site + index);
}
