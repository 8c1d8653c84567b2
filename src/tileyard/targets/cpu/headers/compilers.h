/* What compilers call the same thing by different names. */
#ifndef TY_COMPILERS_H
#define TY_COMPILERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TY_INLINE static inline __attribute__((always_inline, unused))

#ifdef __clang__
#define TY_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define TY_SHORT TY_INDEPENDENT
#define TY_MICRO static __attribute__((noinline))
#define TY_FUSED _Pragma("clang fp contract(fast)")
/* Between the steps of a micro-kernel: else loads are moved ahead, and accumulators to memory. */
#define TY_STEP __asm__ volatile("" ::: "memory")
#else
#define TY_INDEPENDENT _Pragma("GCC ivdep")
/* Before a loop of a few iterations: unrolled too early, it would not become vectors. */
#define TY_SHORT _Pragma("GCC unroll 1") _Pragma("GCC ivdep")
/* Products and sums are fused inside micro-kernels only: elsewhere each operation rounds once. */
#define TY_MICRO static __attribute__((noinline, optimize("fp-contract=fast")))
#define TY_FUSED
#define TY_STEP ((void)0)
#endif

#ifdef __has_builtin
#define TY_HAS(name) __has_builtin(name)
#else
#define TY_HAS(name) 0
#endif

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define TY_FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define TY_FMA(a, b, c) ((a) * (b) + (c))
#endif

#define TY_INF __builtin_inff()
#define TY_NAN __builtin_nanf("")

#endif
