/* Slots of memory that all threads share: whoever claims one fills it. */
#ifndef TY_SHARING_H
#define TY_SHARING_H

#include "compilers.h"

#if defined(__x86_64__) || defined(__i386__)
#define TY_PAUSE() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define TY_PAUSE() __asm__ volatile("yield")
#else
#define TY_PAUSE() ((void)0)
#endif
extern int sched_yield(void);
enum { TY_FREE, TY_CLAIMED, TY_FILLED };

static __attribute__((noinline, unused)) void ty_wait_until_filled(const int32_t *slot) {
  for (int i = 1; __atomic_load_n(slot, __ATOMIC_ACQUIRE) != TY_FILLED; ++i) {
    TY_PAUSE();
    if (i % 1024 == 0)
      sched_yield(); /* whoever fills it may have lost its core */
  }
}
/* Whether the caller is to fill the slot; if not, it is filled. */
TY_INLINE int ty_claim(int32_t *slot) {
  int32_t seen = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
  if (seen == TY_FILLED)
    return 0;
  if (seen == TY_FREE && __atomic_compare_exchange_n(slot, &seen, TY_CLAIMED, 0, __ATOMIC_ACQUIRE,
                                                     __ATOMIC_ACQUIRE))
    return 1;
  ty_wait_until_filled(slot);
  return 0;
}
TY_INLINE void ty_publish(int32_t *slot) { __atomic_store_n(slot, TY_FILLED, __ATOMIC_RELEASE); }

#endif
