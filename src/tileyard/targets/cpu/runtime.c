/* Runs generated kernels: a pool of threads, one per core, that take blocks of the grid in turn.

   The caller is one of the threads. Between launches the others spin for a while, then sleep. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "tile.h"

typedef int32_t (*ty_kernel_fn)(void *const *buffers, const int64_t *scalars, int32_t grid,
                                int32_t threads, int64_t first, int64_t last, char *scratch, char *shared);

#define TY_SPIN_NS 100000
#define TY_HUGE_PAGE (2u << 20)

typedef struct {
  struct ty_pool *pool;
  int32_t number;
  pthread_t thread;
  _Atomic int32_t core; /* Where it was at the end of its last work; -1 before. */
  char *scratch;
  size_t scratch_bytes;
  char padding[64];
} ty_member;

typedef struct ty_pool {
  /* The launch that the threads are at; written before `turn` moves on. */
  ty_kernel_fn kernel;
  void *const *buffers;
  const int64_t *scalars;
  const int64_t *grids;
  int32_t grid;
  int32_t grid_count;
  int64_t blocks;
  size_t claims;
  size_t tags;
  char *shared;
  size_t shared_bytes;
  _Atomic int64_t next;
  _Atomic int32_t fault;

  _Atomic uint64_t turn;
  _Atomic int32_t busy;
  _Atomic int32_t sleeping;
  _Atomic int32_t is_closing;
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  pthread_cond_t done;
  pthread_mutex_t launching;

  int32_t threads;
  int32_t is_pinned;
  const int32_t *cores;
  pthread_t owner;
  int32_t has_owner;
  ty_member members[];
} ty_pool;

static int64_t ty_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static int ty_pin(int32_t core) {
  cpu_set_t set;
  if (core < 0 || core >= CPU_SETSIZE)
    return EINVAL;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/* Takes blocks until none is left: many at first, single ones towards the end. */
static void ty_take_blocks(ty_pool *pool, char *scratch) {
  const int32_t threads = pool->blocks > 1 ? pool->threads : 1;
  for (;;) {
    int64_t first = atomic_load_explicit(&pool->next, memory_order_relaxed), count;
    do {
      if (first >= pool->blocks || atomic_load_explicit(&pool->fault, memory_order_relaxed))
        return;
      count = (pool->blocks - first) / (pool->threads == 1 ? 1 : 4 * pool->threads);
      count = count < 1 ? 1 : count;
    } while (!atomic_compare_exchange_weak(&pool->next, &first, first + count));
    int32_t fault = pool->kernel(pool->buffers, pool->scalars, pool->grid, threads, first,
                                 first + count, scratch, pool->shared);
    if (fault)
      atomic_store(&pool->fault, fault);
  }
}

/* One thread's part of a grid, with numbers as IEEE has them whatever the caller has set: rounded to
   the nearest, and small ones not taken for 0, as libraries that are built for speed would have it. */
static void ty_work(ty_pool *pool, char *scratch) {
  if (pool->tags)
    memset(scratch, 0, pool->tags * sizeof(int64_t));
#if defined(__SSE2__)
  uint32_t modes = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(0x1f80);
  ty_take_blocks(pool, scratch);
  __builtin_ia32_ldmxcsr(modes);
#elif defined(__aarch64__)
  uint64_t modes;
  __asm__ volatile("mrs %0, fpcr" : "=r"(modes));
  __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)0));
  ty_take_blocks(pool, scratch);
  __asm__ volatile("msr fpcr, %0" ::"r"(modes));
#else
  ty_take_blocks(pool, scratch);
#endif
}

static int ty_wait_for_turn(ty_pool *pool, uint64_t seen) {
  int64_t started = ty_now_ns();
  while (ty_now_ns() - started < TY_SPIN_NS)
    for (int i = 0; i < 64; ++i) {
      if (atomic_load_explicit(&pool->turn, memory_order_acquire) != seen)
        return !atomic_load(&pool->is_closing);
      TY_PAUSE();
    }
  pthread_mutex_lock(&pool->mutex);
  atomic_fetch_add(&pool->sleeping, 1);
  while (atomic_load(&pool->turn) == seen)
    pthread_cond_wait(&pool->wake, &pool->mutex);
  atomic_fetch_sub(&pool->sleeping, 1);
  pthread_mutex_unlock(&pool->mutex);
  return !atomic_load(&pool->is_closing);
}

static void *ty_member_main(void *argument) {
  ty_member *me = argument;
  ty_pool *pool = me->pool;
  if (pool->is_pinned)
    ty_pin(pool->cores[me->number]);
  /* Its stack begins somewhere in a page, as the system has it with that of the first thread: where the
     pool lies is random. */
  volatile char shift[1 + 64 * ((uintptr_t)pool / 4096 % 64)];
  shift[0] = 0;
  for (uint64_t turn = 0; ty_wait_for_turn(pool, turn); ++turn) {
    ty_work(pool, me->scratch);
    atomic_store_explicit(&me->core, sched_getcpu(), memory_order_relaxed);
    if (atomic_fetch_sub(&pool->busy, 1) == 1) {
      pthread_mutex_lock(&pool->mutex);
      pthread_cond_signal(&pool->done);
      pthread_mutex_unlock(&pool->mutex);
    }
  }
  return NULL;
}

static void ty_next_turn(ty_pool *pool) {
  atomic_fetch_add_explicit(&pool->turn, 1, memory_order_seq_cst);
  pthread_mutex_lock(&pool->mutex);
  if (atomic_load(&pool->sleeping))
    pthread_cond_broadcast(&pool->wake);
  pthread_mutex_unlock(&pool->mutex);
}

static void ty_wait_until_done(ty_pool *pool) {
  int64_t started = ty_now_ns();
  while (ty_now_ns() - started < TY_SPIN_NS)
    for (int i = 0; i < 64; ++i) {
      if (atomic_load_explicit(&pool->busy, memory_order_acquire) == 0)
        return;
      TY_PAUSE();
    }
  pthread_mutex_lock(&pool->mutex);
  while (atomic_load(&pool->busy))
    pthread_cond_wait(&pool->done, &pool->mutex);
  pthread_mutex_unlock(&pool->mutex);
}

/* Runs all blocks of one grid. */
static void ty_run_grid(ty_pool *pool, int32_t grid) {
  pool->grid = grid;
  pool->blocks = pool->grids[grid];
  atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
  if (pool->claims)
    memset(pool->shared, 0, pool->claims * sizeof(int32_t));
  if (pool->threads > 1 && pool->blocks > 1) {
    atomic_store(&pool->busy, pool->threads - 1);
    ty_next_turn(pool);
    ty_work(pool, pool->members[0].scratch);
    ty_wait_until_done(pool);
  } else
    ty_work(pool, pool->members[0].scratch);
}

static int32_t ty_launch_once(ty_pool *pool) {
  atomic_store_explicit(&pool->fault, 0, memory_order_relaxed);
  for (int32_t grid = 0; grid < pool->grid_count && !atomic_load(&pool->fault); ++grid)
    ty_run_grid(pool, grid);
  return atomic_load(&pool->fault);
}

/* One call of a kernel: how many blocks each of its grids has, which run one after the other, and how
   many numbers are 0 when a grid begins, of `claims` in shared memory and of `tags` in each thread's. */
typedef struct {
  ty_kernel_fn kernel;
  void *const *buffers;
  const int64_t *scalars;
  const int64_t *grids;
  int64_t grid_count, claims, tags;
} ty_call;

/* Moves threads off the core of the caller. Where it wakes on one of theirs, Linux may leave both there for
   many launches, and another core idle. */
static void ty_part(ty_pool *pool) {
  const int32_t here = sched_getcpu();
  for (int32_t i = 1; i < pool->threads; ++i) {
    if (atomic_load_explicit(&pool->members[i].core, memory_order_relaxed) != here)
      continue;
    cpu_set_t others;
    CPU_ZERO(&others);
    for (int32_t j = 0; j < pool->threads; ++j)
      if (pool->cores[j] != here && pool->cores[j] >= 0 && pool->cores[j] < CPU_SETSIZE)
        CPU_SET(pool->cores[j], &others);
    pthread_setaffinity_np(pool->members[i].thread, sizeof others, &others);
  }
}

static void ty_begin(ty_pool *pool, const ty_call *call) {
  pthread_mutex_lock(&pool->launching);
  if (!pool->is_pinned)
    ty_part(pool);
  if (pool->is_pinned && !(pool->has_owner && pthread_equal(pool->owner, pthread_self()))) {
    ty_pin(pool->cores[0]);
    pool->owner = pthread_self();
    pool->has_owner = 1;
  }
  pool->kernel = call->kernel;
  pool->buffers = call->buffers;
  pool->scalars = call->scalars;
  pool->grids = call->grids;
  pool->grid_count = (int32_t)call->grid_count;
  pool->claims = (size_t)call->claims;
  pool->tags = (size_t)call->tags;
}

void ty_pool_close(ty_pool *pool) {
  atomic_store(&pool->is_closing, 1);
  ty_next_turn(pool);
  for (int32_t i = 1; i < pool->threads; ++i)
    pthread_join(pool->members[i].thread, NULL);
  for (int32_t i = 0; i < pool->threads; ++i)
    if (pool->members[i].scratch)
      munmap(pool->members[i].scratch, pool->members[i].scratch_bytes);
  if (pool->shared)
    munmap(pool->shared, pool->shared_bytes);
  free((void *)pool->cores);
  free(pool);
}

/* A pool of `threads` threads, the caller among them; with `is_pinned` number i runs on cores[i],
   and whoever launches is moved to cores[0]. NULL for want of memory or threads. */
ty_pool *ty_pool_open(int32_t threads, const int32_t *cores, int32_t is_pinned) {
  ty_pool *pool = calloc(1, sizeof *pool + (size_t)threads * sizeof(ty_member));
  int32_t *copied = malloc((size_t)threads * sizeof *copied);
  if (!pool || !copied) {
    free(pool);
    free(copied);
    return NULL;
  }
  memcpy(copied, cores, (size_t)threads * sizeof *copied);
  pool->cores = copied;
  pool->is_pinned = is_pinned;
  pthread_mutex_init(&pool->mutex, NULL);
  pthread_mutex_init(&pool->launching, NULL);
  pthread_cond_init(&pool->wake, NULL);
  pthread_cond_init(&pool->done, NULL);
  pool->threads = 1;
  for (int32_t i = 0; i < threads; ++i)
    pool->members[i] = (ty_member){.pool = pool, .number = i, .core = -1};
  for (int32_t i = 1; i < threads; ++i, ++pool->threads)
    if (pthread_create(&pool->members[i].thread, NULL, ty_member_main, &pool->members[i])) {
      ty_pool_close(pool);
      return NULL;
    }
  return pool;
}

/* Makes `*memory`, of `*have` bytes, at least `bytes` large; its content is lost. */
static int ty_reserve(char **memory, size_t *have, size_t bytes) {
  if (*have >= bytes)
    return 0;
  size_t size = (bytes + TY_HUGE_PAGE - 1) / TY_HUGE_PAGE * TY_HUGE_PAGE;
  char *fresh = mmap(NULL, size + TY_HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
  if (fresh == MAP_FAILED)
    return 1;
  size_t before = (TY_HUGE_PAGE - (uintptr_t)fresh % TY_HUGE_PAGE) % TY_HUGE_PAGE;
  if (before)
    munmap(fresh, before);
  if (before < TY_HUGE_PAGE)
    munmap(fresh + before + size, TY_HUGE_PAGE - before);
  madvise(fresh + before, size, MADV_HUGEPAGE);
  if (*memory)
    munmap(*memory, *have);
  *memory = fresh + before;
  *have = size;
  return 0;
}

/* Gives every thread at least `scratch` bytes of its own and all of them `shared` bytes together,
   in huge pages where they are to be had. 0, or 1 for want of memory. */
int32_t ty_pool_reserve(ty_pool *pool, int64_t scratch, int64_t shared) {
  pthread_mutex_lock(&pool->launching);
  int failed = ty_reserve(&pool->shared, &pool->shared_bytes, (size_t)shared);
  for (int32_t i = 0; i < pool->threads && !failed; ++i)
    failed = ty_reserve(&pool->members[i].scratch, &pool->members[i].scratch_bytes, (size_t)scratch);
  pthread_mutex_unlock(&pool->launching);
  return failed;
}

/* Runs all blocks once. 0, or the number of the kernel's own fault. */
int32_t ty_launch(ty_pool *pool, const ty_call *call) {
  ty_begin(pool, call);
  int32_t fault = ty_launch_once(pool);
  pthread_mutex_unlock(&pool->launching);
  return fault;
}

/* Times `samples` x `launches` launches; `ns` gets nanoseconds per launch. */
int32_t ty_sample(ty_pool *pool, const ty_call *call, int64_t samples, int64_t launches, double *ns) {
  int32_t fault = 0;
  ty_begin(pool, call);
  for (int64_t i = 0; i < samples && !fault; ++i) {
    int64_t started = ty_now_ns();
    for (int64_t j = 0; j < launches && !fault; ++j)
      fault = ty_launch_once(pool);
    ns[i] = (double)(ty_now_ns() - started) / (double)launches;
  }
  pthread_mutex_unlock(&pool->launching);
  return fault;
}
