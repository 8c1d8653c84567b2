/* Reductions of rows by the vector and by the quad. */
#ifndef TY_FOLDS_H
#define TY_FOLDS_H

#include "quads.h"

#if TY_WIDE
TY_INLINE ty_wide ty_wide_fold_sum(ty_wide t, ty_wide x) { return t + x; }
TY_INLINE ty_wide ty_wide_fold_abssum(ty_wide t, ty_wide x) { return t + ty_wide_abs(x); }
TY_INLINE ty_wide ty_wide_fold_max(ty_wide t, ty_wide x) { return ty_wide_larger(x, t); }
TY_INLINE ty_wide ty_wide_fold_min(ty_wide t, ty_wide x) { return -ty_wide_larger(-x, -t); }
TY_INLINE ty_wide ty_wide_fold_absmax(ty_wide t, ty_wide x) {
  return ty_wide_larger(ty_wide_abs(x), t);
}
#endif
/* Folds a row onto one number in the order of ty_row_sum and its like. */
#define TY_FOLD(kind, idle, change, step_row, step)                                                \
  TY_INLINE ty_quad ty_quad_begin_##kind(void) {                                                   \
    return ty_quad_of(idle);                                                                       \
  }                                                                                                \
  TY_INLINE ty_row ty_one_fold_##kind(ty_row t, ty_row x) { return step_row(t, change(x)); }       \
  TY_INLINE ty_quad ty_quad_fold_##kind(ty_quad t, ty_quad x) {                                    \
    return TY_EACH_2(fold_##kind, t, x);                                                           \
  }                                                                                                \
  TY_INLINE ty_row ty_quad_join_##kind(ty_quad t) {                                                \
    return step_row(step_row(TY_VECTOR(t, 0), TY_VECTOR(t, 1)),                                    \
                    step_row(TY_VECTOR(t, 2), TY_VECTOR(t, 3)));                                   \
  }                                                                                                \
  TY_INLINE float ty_one_join_##kind(float total, ty_row t) {                                      \
    TY_HALVED(t, step_row);                                                                        \
    return step(total, t[0]);                                                                      \
  }                                                                                                \
  TY_INLINE float ty_fold_##kind(float total, float x) {                                           \
    ty_row part = (ty_row){0} + x;                                                                 \
    return step(total, change(part)[0]);                                                           \
  }
TY_FOLD(sum, -0.0f, TY_SAME, TY_SUM, TY_SUM)
TY_FOLD(abssum, 0.0f, ty_magnitudes, TY_SUM, TY_SUM)
TY_FOLD(max, -TY_INF, TY_SAME, TY_LARGER, ty_max_f32)
TY_FOLD(min, TY_INF, TY_SAME, TY_SMALLER, ty_min_f32)
TY_FOLD(absmax, -TY_INF, ty_magnitudes, TY_LARGER, ty_max_f32)
#undef TY_FOLD

/* The largest of a row of narrow floats, found among their bits: of those without a sign the largest as
   signed numbers are, or else, of those with one, the smallest as unsigned ones are. `key` makes the
   smallest, or the largest magnitude, the largest. Rows with NaN are folded as others are. */
#if defined(__AVX2__) && !defined(__clang__)
TY_INLINE ty_short16 ty_most(ty_short16 x, ty_short16 y) { return __builtin_ia32_pmaxsw256(x, y); }
TY_INLINE ty_short16 ty_least(ty_short16 x, ty_short16 y) { return __builtin_ia32_pminuw256(x, y); }
TY_INLINE int32_t ty_top_of(ty_short16 most, ty_short16 least) {
  int16_t above[16], high = -0x8000;
  uint16_t below[16], low = 0xffff;
  memcpy(above, &most, sizeof above);
  memcpy(below, &least, sizeof below);
  for (int i = 0; i < 16; ++i) {
    high = above[i] > high ? above[i] : high;
    low = below[i] < low ? below[i] : low;
  }
  return high >= 0 ? high : low;
}
#if TY_WIDE
typedef struct {
  ty_short32 above, below;
} ty_tops;
TY_INLINE ty_tops ty_tops_fold(ty_tops t, ty_short32 x) {
  return (ty_tops){__builtin_ia32_pmaxsw512_mask(t.above, x, x, TY_ALL),
                   __builtin_ia32_pminuw512_mask(t.below, x, x, TY_ALL)};
}
TY_INLINE int32_t ty_tops_end(ty_tops t) {
  return ty_top_of(ty_most(ty_half_shorts(t.above, 0), ty_half_shorts(t.above, 1)),
                   ty_least(ty_half_shorts(t.below, 0), ty_half_shorts(t.below, 1)));
}
#define TY_TOPS_NEXT(t, x, key) ty_tops_fold(t, key(*(const ty_short32_at *)(x)))
#else
typedef struct {
  ty_short16 above, below;
} ty_tops;
TY_INLINE ty_tops ty_tops_fold(ty_tops t, ty_short16 x, ty_short16 y) {
  return (ty_tops){ty_most(t.above, ty_most(x, y)), ty_least(t.below, ty_least(x, y))};
}
TY_INLINE int32_t ty_tops_end(ty_tops t) { return ty_top_of(t.above, t.below); }
#define TY_TOPS_NEXT(t, x, key)                                                                    \
  ty_tops_fold(t, key(*(const ty_short16_at *)(x)), key(*(const ty_short16_at *)((x) + 16)))
#endif
#define TY_TOPS_BEGIN(kind)                                                                        \
  TY_INLINE ty_tops ty_tops_begin_##kind(void) {                                                   \
    ty_tops t = {{0}, {0}};                                                                        \
    return (ty_tops){t.above + (short)0x8000, t.below - 1};                                        \
  }
#define TY_TOPS(kind, mark, infinity, key)                                                         \
  TY_INLINE ty_tops ty_tops_fold_##kind##_##mark(ty_tops t, const uint16_t *x) {                   \
    return TY_TOPS_NEXT(t, x, key);                                                                \
  }                                                                                                \
  static __attribute__((noinline, cold, unused)) float ty_tops_plain_##kind##_##mark(              \
      float total, const uint16_t *row, int64_t n) {                                               \
    ty_quad t = ty_quad_begin_##kind();                                                            \
    for (int64_t i = 0; i < n; i += TY_QUAD)                                                       \
      t = ty_quad_fold_##kind(t, ty_quad_load_##mark(row + i));                                    \
    return ty_one_join_##kind(total, ty_quad_join_##kind(t));                                      \
  }                                                                                                \
  TY_INLINE float ty_tops_end_##kind##_##mark(float total, ty_tops t, const uint16_t *row,         \
                                              int64_t n) {                                         \
    int32_t found = ty_tops_end(t);                                                                \
    if (__builtin_expect((found & 0x7fff) > (infinity), 0))                                        \
      return ty_tops_plain_##kind##_##mark(total, row, n);                                         \
    return ty_fold_##kind(total, ty_from_##mark((uint16_t)key(found)));                            \
  }
#else
typedef ty_quad ty_tops;
#define TY_TOPS_BEGIN(kind)                                                                        \
  TY_INLINE ty_tops ty_tops_begin_##kind(void) { return ty_quad_begin_##kind(); }
#define TY_TOPS(kind, mark, infinity, key)                                                         \
  TY_INLINE ty_tops ty_tops_fold_##kind##_##mark(ty_tops t, const uint16_t *x) {                   \
    return ty_quad_fold_##kind(t, ty_quad_load_##mark(x));                                         \
  }                                                                                                \
  TY_INLINE float ty_tops_end_##kind##_##mark(float total, ty_tops t, const uint16_t *row,         \
                                              int64_t n) {                                         \
    return ty_one_join_##kind(total, ty_quad_join_##kind(t));                                      \
  }
#endif
#define TY_OPPOSITE(bits) ((bits) ^ (short)0x8000)
#define TY_UNSIGNED(bits) ((bits) & 0x7fff)
#define TY_TOPS_OF(kind, key)                                                                      \
  TY_TOPS_BEGIN(kind)                                                                              \
  TY_TOPS(kind, f16, 0x7c00, key)                                                                  \
  TY_TOPS(kind, bf16, 0x7f80, key)
TY_TOPS_OF(max, TY_SAME)
TY_TOPS_OF(min, TY_OPPOSITE)
TY_TOPS_OF(absmax, TY_UNSIGNED)
#undef TY_TOPS_OF
#undef TY_TOPS_BEGIN
#undef TY_TOPS

#endif
