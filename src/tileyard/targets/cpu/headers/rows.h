/* Rows: contiguous elements of a tile or an array. */
#ifndef TY_ROWS_H
#define TY_ROWS_H

#include "narrow.h"

#if defined(__AVX__)
#define TY_LANES 8
#else
#define TY_LANES 4
#endif
/* Whether passes have vectors of 512 bits: if the target wants them, and the compiler has our names of
   their instructions. */
#if TY_VECTOR == 64 && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) &&  \
    defined(__FMA__) && !defined(__clang__)
#define TY_WIDE 1
#else
#define TY_WIDE 0
#endif
typedef float ty_row __attribute__((vector_size(TY_LANES * 4), aligned(4), may_alias));
typedef float ty_row_aligned __attribute__((vector_size(TY_LANES * 4), may_alias));

TY_INLINE ty_row ty_larger(ty_row a, ty_row b) {
#if defined(__AVX__) && (!defined(__clang__) || TY_HAS(__builtin_ia32_maxps256))
  return __builtin_ia32_maxps256(a, b);
#elif defined(__SSE__) && !defined(__AVX__) && (!defined(__clang__) || TY_HAS(__builtin_ia32_maxps))
  return __builtin_ia32_maxps(a, b);
#else
  for (int i = 0; i < TY_LANES; ++i)
    a[i] = a[i] > b[i] ? a[i] : b[i];
  return a;
#endif
}
TY_INLINE ty_row ty_magnitudes(ty_row a) {
  for (int i = 0; i < TY_LANES; ++i)
    a[i] = __builtin_fabsf(a[i]);
  return a;
}

/* One vector's lanes onto its first one, by halves: no step waits for more than the logarithm of them. */
#if defined(__clang__) || TY_HAS(__builtin_shufflevector)
#if TY_LANES == 8
#define TY_TURNED(x, by)                                                                           \
  __builtin_shufflevector(x, x, (by), (by) ^ 1, (by) ^ 2, (by) ^ 3, (by) ^ 4, (by) ^ 5, (by) ^ 6, (by) ^ 7)
#else
#define TY_TURNED(x, by) __builtin_shufflevector(x, x, (by), (by) ^ 1, (by) ^ 2, (by) ^ 3)
#endif
#else
typedef int32_t ty_places __attribute__((vector_size(TY_LANES * 4)));
#if TY_LANES == 8
#define TY_TURNED(x, by)                                                                           \
  __builtin_shuffle(x, (ty_places){(by), (by) ^ 1, (by) ^ 2, (by) ^ 3, (by) ^ 4, (by) ^ 5, (by) ^ 6, (by) ^ 7})
#else
#define TY_TURNED(x, by) __builtin_shuffle(x, (ty_places){(by), (by) ^ 1, (by) ^ 2, (by) ^ 3})
#endif
#endif
#define TY_HALVED(t, step_row)                                                                     \
  do {                                                                                             \
    if (TY_LANES == 8)                                                                             \
      t = step_row(t, TY_TURNED(t, TY_LANES / 2));                                                 \
    t = step_row(t, TY_TURNED(t, 2));                                                              \
    t = step_row(t, TY_TURNED(t, 1));                                                              \
  } while (0)

/* Folds a row onto `total`, four vectors at a time; `step` is one lane's step, `idle` its identity. */
#define TY_REDUCE(name, idle, change, step_row, step)                                              \
  static __attribute__((unused)) float name(float total, const float *x, int64_t n) {              \
    int64_t i = 0;                                                                                 \
    if (n >= TY_LANES) {                                                                           \
      ty_row t0 = (ty_row){0} + (idle), t1 = t0, t2 = t0, t3 = t0;                                 \
      for (; i + 4 * TY_LANES <= n; i += 4 * TY_LANES) {                                           \
        t0 = step_row(t0, change(*(const ty_row *)(x + i)));                                       \
        t1 = step_row(t1, change(*(const ty_row *)(x + i + TY_LANES)));                            \
        t2 = step_row(t2, change(*(const ty_row *)(x + i + 2 * TY_LANES)));                        \
        t3 = step_row(t3, change(*(const ty_row *)(x + i + 3 * TY_LANES)));                        \
      }                                                                                            \
      t0 = step_row(step_row(t0, t1), step_row(t2, t3));                                           \
      for (; i + TY_LANES <= n; i += TY_LANES)                                                     \
        t0 = step_row(t0, change(*(const ty_row *)(x + i)));                                       \
      TY_HALVED(t0, step_row);                                                                     \
      total = step(total, t0[0]);                                                                  \
    }                                                                                              \
    for (; i < n; ++i) {                                                                           \
      ty_row part = (ty_row){0} + x[i];                                                            \
      total = step(total, change(part)[0]);                                                        \
    }                                                                                              \
    return total;                                                                                  \
  }
#define TY_SAME(v) (v)
#define TY_SUM(t, p) ((t) + (p))
#define TY_LARGER(t, p) ty_larger(p, t)
#define TY_SMALLER(t, p) (-ty_larger(-(p), -(t)))
TY_REDUCE(ty_row_sum, -0.0f, TY_SAME, TY_SUM, TY_SUM)
TY_REDUCE(ty_row_abssum, 0.0f, ty_magnitudes, TY_SUM, TY_SUM)
TY_REDUCE(ty_row_max, -TY_INF, TY_SAME, TY_LARGER, ty_max_f32)
TY_REDUCE(ty_row_min, TY_INF, TY_SAME, TY_SMALLER, ty_min_f32)
TY_REDUCE(ty_row_absmax, -TY_INF, ty_magnitudes, TY_LARGER, ty_max_f32)
#undef TY_REDUCE

#if defined(__F16C__) && (!defined(__clang__) || TY_HAS(__builtin_ia32_vcvtps2ph256))
#define TY_HALVES 1
typedef short ty_halves __attribute__((vector_size(16), aligned(2), may_alias));
typedef short ty_halves_aligned __attribute__((vector_size(16)));
TY_INLINE ty_halves_aligned ty_narrow_halves(ty_row x) {
  return (ty_halves_aligned)__builtin_ia32_vcvtps2ph256(x, 0);
}
TY_INLINE ty_row ty_widen_halves(ty_halves_aligned x) {
#if !defined(__clang__) || TY_HAS(__builtin_ia32_vcvtph2ps256)
  return __builtin_ia32_vcvtph2ps256(x);
#else
  typedef _Float16 halves __attribute__((vector_size(16)));
  typedef float floats __attribute__((vector_size(32)));
  return (ty_row)__builtin_convertvector((halves)x, floats);
#endif
}
#else
#define TY_HALVES 0
#endif

/* Narrow rows are read (`from`), converted to (`to`), written as they are (`pack`), or rounded as a
   conversion does, which may be in place. Every element ends as single ones do: conversions to eight
   bits saturate. Halves have instructions of their own. */
#define TY_ROW static __attribute__((unused)) void
#define TY_ROWS(mark, word, convert)                                                               \
  TY_ROW ty_row_from_##mark(float *restrict to, const word *restrict from, int64_t n) {            \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = ty_from_##mark(from[i]);                                                             \
  }                                                                                                \
  TY_ROW ty_row_to_##mark(word *restrict to, const float *restrict from, int64_t n) {              \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = ty_pack_##mark(convert(from[i]));                                                    \
  }                                                                                                \
  TY_ROW ty_row_pack_##mark(word *restrict to, const float *restrict from, int64_t n) {            \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = ty_pack_##mark(from[i]);                                                             \
  }                                                                                                \
  TY_ROW ty_row_round_##mark(float *to, const float *from, int64_t n) {                            \
    TY_INDEPENDENT                                                                                 \
    for (int64_t i = 0; i < n; ++i)                                                                \
      to[i] = convert(from[i]);                                                                    \
  }
TY_ROWS(bf16, uint16_t, ty_round_bf16)
TY_ROWS(tf32, float, ty_round_tf32)
TY_ROWS(f8e4m3, uint8_t, ty_saturate_f8e4m3)
TY_ROWS(f8e5m2, uint8_t, ty_saturate_f8e5m2)
#undef TY_ROWS

TY_ROW ty_row_from_f16(float *restrict to, const uint16_t *restrict from, int64_t n) {
  int64_t i = 0;
#if TY_HALVES
  for (; i + 8 <= n; i += 8)
    *(ty_row *)(to + i) = ty_widen_halves((ty_halves_aligned) * (const ty_halves *)(from + i));
#endif
  for (; i < n; ++i)
    to[i] = ty_from_f16(from[i]);
}
TY_ROW ty_row_to_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
  int64_t i = 0;
#if TY_HALVES
  for (; i + 8 <= n; i += 8)
    *(ty_halves *)(to + i) = (ty_halves)ty_narrow_halves(*(const ty_row *)(from + i));
#endif
  for (; i < n; ++i)
    to[i] = ty_to_f16(from[i]);
}
TY_ROW ty_row_pack_f16(uint16_t *restrict to, const float *restrict from, int64_t n) {
  ty_row_to_f16(to, from, n);
}
TY_ROW ty_row_round_f16(float *to, const float *from, int64_t n) {
  int64_t i = 0;
#if TY_HALVES
  for (; i + 8 <= n; i += 8)
    *(ty_row *)(to + i) = ty_widen_halves(ty_narrow_halves(*(const ty_row *)(from + i)));
#endif
  for (; i < n; ++i)
    to[i] = ty_round_f16(from[i]);
}

#endif
