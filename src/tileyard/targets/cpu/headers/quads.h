/* Passes over rows take four vectors at a time, a quad, or one: loads and arithmetic of both. */
#ifndef TY_QUADS_H
#define TY_QUADS_H

#include "wide.h"

#if TY_WIDE
typedef struct {
  ty_wide a, b;
} ty_quad;
#define TY_VECTOR(x, i) ty_floats((i) < 2 ? x.a : x.b, (i) % 2)
#define TY_EACH(name, x)                                                                           \
  (ty_quad) { ty_wide_##name(x), ty_wide_##name((x) + 16) }
#define TY_EACH_1(name, x)                                                                         \
  (ty_quad) { ty_wide_##name(x.a), ty_wide_##name(x.b) }
#define TY_EACH_2(name, x, y)                                                                      \
  (ty_quad) { ty_wide_##name(x.a, y.a), ty_wide_##name(x.b, y.b) }
#define TY_EACH_3(name, x, y, z)                                                                   \
  (ty_quad) { ty_wide_##name(x.a, y.a, z.a), ty_wide_##name(x.b, y.b, z.b) }
#else
typedef struct {
  ty_row a, b, c, d;
} ty_quad;
#define TY_VECTOR(x, i) ((i) == 0 ? x.a : (i) == 1 ? x.b : (i) == 2 ? x.c : x.d)
#define TY_EACH(name, x)                                                                           \
  (ty_quad) { ty_one_##name(x), ty_one_##name((x) + TY_LANES), ty_one_##name((x) + 2 * TY_LANES), \
              ty_one_##name((x) + 3 * TY_LANES) }
#define TY_EACH_1(name, x)                                                                         \
  (ty_quad) { ty_one_##name(x.a), ty_one_##name(x.b), ty_one_##name(x.c), ty_one_##name(x.d) }
#define TY_EACH_2(name, x, y)                                                                      \
  (ty_quad) { ty_one_##name(x.a, y.a), ty_one_##name(x.b, y.b), ty_one_##name(x.c, y.c),           \
              ty_one_##name(x.d, y.d) }
#define TY_EACH_3(name, x, y, z)                                                                   \
  (ty_quad) { ty_one_##name(x.a, y.a, z.a), ty_one_##name(x.b, y.b, z.b),                          \
              ty_one_##name(x.c, y.c, z.c), ty_one_##name(x.d, y.d, z.d) }
#endif
typedef int32_t ty_signs __attribute__((vector_size(TY_LANES * 4)));
#define TY_QUAD (4 * TY_LANES)

/* Instructions that compilers do not find by themselves, under names of our own. */
#if defined(__AVX2__) && defined(__FMA__) && !defined(__clang__)
#define TY_VECTOR_FMA(x, y, z) ((ty_row)__builtin_ia32_vfmaddps256(x, y, z))
#define TY_CHOOSE(mask, x, y) ((ty_row)__builtin_ia32_blendvps256(y, x, (ty_row)(mask)))
#define TY_GREATER_WORDS(x, y)                                                                     \
  ((ty_words)__builtin_ia32_pmaxud256((ty_int8)(x), (ty_int8)(y)))
#define TY_ANY(mask) __builtin_ia32_movmskps256((ty_row)(mask))
#define TY_EITHER_NAN(x, y) ((ty_signs)__builtin_ia32_cmpps256(x, y, 3))
#define TY_NEAREST(x) ((ty_row)__builtin_ia32_roundps256(x, 8))
#define TY_NEAREST_WORDS(x) ((ty_row)__builtin_ia32_cvtps2dq256(x))
TY_INLINE ty_row ty_one_root(ty_row x) { return __builtin_ia32_sqrtps256(x); }
#else
TY_INLINE ty_row ty_vector_fma(ty_row x, ty_row y, ty_row z) {
  for (int i = 0; i < TY_LANES; ++i)
    x[i] = TY_FMA(x[i], y[i], z[i]);
  return x;
}
TY_INLINE ty_row ty_one_root(ty_row x) {
  for (int i = 0; i < TY_LANES; ++i)
    x[i] = __builtin_sqrtf(x[i]);
  return x;
}
TY_INLINE int ty_any(ty_signs mask) {
  int found = 0;
  for (int i = 0; i < TY_LANES; ++i)
    found |= mask[i];
  return found;
}
#define TY_VECTOR_FMA(x, y, z) ty_vector_fma(x, y, z)
#define TY_CHOOSE(mask, x, y) ((ty_row)(((mask) & (ty_signs)(x)) | (~(mask) & (ty_signs)(y))))
#define TY_GREATER_WORDS(x, y)                                                                     \
  (((x) & (ty_words)((x) > (y))) | ((y) & ~(ty_words)((x) > (y))))
#define TY_ANY(mask) ty_any(mask)
#define TY_EITHER_NAN(x, y) (((x) != (x)) | ((y) != (y)))
#define TY_NEAREST(x) ((x) + TY_ROUNDER - TY_ROUNDER) /* for |x| < 2^22 */
#define TY_NEAREST_WORDS(x) ((x) + TY_ROUNDER)        /* in the last bits */
#endif
/* Whole numbers and x * 2^n: of floats, right for all, or of bits, for easy ones. */
#if TY_WIDE
#define TY_WHOLE(x) TY_NEAREST(x)
#define TY_RAISED(x, n) ty_one_scaled(x, n)
TY_INLINE ty_row ty_one_scaled(ty_row x, ty_row n) {
  return __builtin_ia32_scalefps256_mask(x, n, (ty_row){0}, TY_ALL);
}
#else
#define TY_WHOLE(x) TY_NEAREST_WORDS(x)
#define TY_RAISED(x, n) ((ty_row)((ty_words)x + ((ty_words)n << 23)))
#endif
TY_INLINE int ty_has_nan(ty_quad x) {
#if TY_WIDE
  return TY_WIDE_TEST(x.a, x.b, 3);
#else
  return TY_ANY(TY_EITHER_NAN(x.a, x.b) | TY_EITHER_NAN(x.c, x.d));
#endif
}

TY_INLINE ty_row ty_one_of(float x) { return x - (ty_row){0}; }
TY_INLINE ty_quad ty_quad_of(float x) {
#if TY_WIDE
  return (ty_quad){ty_wide_of(x), ty_wide_of(x)};
#else
  ty_row all = ty_one_of(x);
  return (ty_quad){all, all, all, all};
#endif
}

#define TY_LOAD(name, type)                                                                        \
  TY_INLINE ty_row ty_one_load_##name(const type *x) { return ty_load_##name(x); }
#define TY_QUAD_LOAD(name, type)                                                                   \
  TY_INLINE ty_quad ty_quad_load_##name(const type *x) { return TY_EACH(load_##name, x); }
/* The same elements in an order that costs less where vectors are narrowed: of each sixteen, the first
   vector has 0 to 3 and 8 to 11. */
#define TY_LACED_LOAD(name, type)                                                                  \
  TY_INLINE ty_quad ty_laced_load_##name(const type *x) { return ty_quad_load_##name(x); }
TY_LOAD(f32, float)
TY_LOAD(f16, uint16_t)
TY_LOAD(bf16, uint16_t)
TY_LOAD(u8, uint8_t)
TY_LOAD(i8, int8_t)
TY_QUAD_LOAD(f32, float)
TY_QUAD_LOAD(f16, uint16_t)
#if defined(__AVX2__) && !defined(__clang__) && !TY_WIDE
/* Bytes of both halves of a vector, picked within each half: a third of what pmovzx costs. `a` to `d`
   are the first elements of the halves' fours, of which each is at the end of its 32 bits. */
TY_INLINE ty_char32 ty_twice(const void *x) {
  return (ty_char32)__builtin_ia32_vbroadcastsi256((ty_long2) * (const ty_char16_at *)x);
}
#define TY_SHORT_AT(i) -1, -1, 2 * (i), 2 * (i) + 1
#define TY_BYTE_AT(i) i, -1, -1, -1
#define TY_TOP_AT(i) -1, -1, -1, i
#define TY_FOUR(at, i) at(i), at(i + 1), at(i + 2), at(i + 3)
#define TY_SPREAD(x, at, low, high)                                                                \
  __builtin_ia32_pshufb256(x, (ty_char32){TY_FOUR(at, low), TY_FOUR(at, high)})
#define TY_FROM_SHORTS(x) ((ty_row)TY_SPREAD(ty_twice(x), TY_SHORT_AT, 0, 4))
#define TY_FROM_BYTES(x, low, high)                                                                \
  ((ty_row)__builtin_ia32_cvtdq2ps256((ty_int8)TY_SPREAD(x, TY_BYTE_AT, low, high)))
#define TY_FROM_SIGNED(x, low, high)                                                               \
  ((ty_row)__builtin_ia32_cvtdq2ps256((ty_int8)TY_SPREAD(x, TY_TOP_AT, low, high) >> 24))
TY_INLINE ty_quad ty_quad_load_bf16(const uint16_t *x) {
  return (ty_quad){TY_FROM_SHORTS(x), TY_FROM_SHORTS(x + 8), TY_FROM_SHORTS(x + 16),
                   TY_FROM_SHORTS(x + 24)};
}
TY_INLINE ty_quad ty_laced_load_bf16(const uint16_t *x) {
  ty_short16 low = *(const ty_short16_at *)x, high = *(const ty_short16_at *)(x + 16), zero = {0};
  return (ty_quad){(ty_row)__builtin_ia32_punpcklwd256(zero, low),
                   (ty_row)__builtin_ia32_punpckhwd256(zero, low),
                   (ty_row)__builtin_ia32_punpcklwd256(zero, high),
                   (ty_row)__builtin_ia32_punpckhwd256(zero, high)};
}
#define TY_BYTE_LOADS(name, type, from)                                                            \
  TY_INLINE ty_quad ty_quad_load_##name(const type *x) {                                           \
    ty_char32 low = ty_twice(x), high = ty_twice(x + 16);                                          \
    return (ty_quad){from(low, 0, 4), from(low, 8, 12), from(high, 0, 4), from(high, 8, 12)};      \
  }                                                                                                \
  TY_INLINE ty_quad ty_laced_load_##name(const type *x) {                                          \
    ty_char32 low = ty_twice(x), high = ty_twice(x + 16);                                          \
    return (ty_quad){from(low, 0, 8), from(low, 4, 12), from(high, 0, 8), from(high, 4, 12)};      \
  }
TY_BYTE_LOADS(u8, uint8_t, TY_FROM_BYTES)
TY_BYTE_LOADS(i8, int8_t, TY_FROM_SIGNED)
typedef float ty_float4 __attribute__((vector_size(16)));
typedef float ty_float4_at __attribute__((vector_size(16), aligned(4), may_alias));
TY_INLINE ty_row ty_laced_fours(const float *x) {
  ty_float4 low = *(const ty_float4_at *)x, high = *(const ty_float4_at *)(x + 8);
  return __builtin_ia32_vinsertf128_ps256(__builtin_ia32_ps256_ps(low), high, 1);
}
TY_INLINE ty_quad ty_laced_load_f32(const float *x) {
  return (ty_quad){ty_laced_fours(x), ty_laced_fours(x + 4), ty_laced_fours(x + 16),
                   ty_laced_fours(x + 20)};
}
/* A laced quad in the usual order. */
TY_INLINE ty_quad ty_unlaced(ty_quad x) {
  return (ty_quad){__builtin_ia32_vperm2f128_ps256(x.a, x.b, 0x20),
                   __builtin_ia32_vperm2f128_ps256(x.a, x.b, 0x31),
                   __builtin_ia32_vperm2f128_ps256(x.c, x.d, 0x20),
                   __builtin_ia32_vperm2f128_ps256(x.c, x.d, 0x31)};
}
#else
TY_QUAD_LOAD(u8, uint8_t)
TY_QUAD_LOAD(i8, int8_t)
#if TY_WIDE
TY_INLINE ty_quad ty_quad_load_bf16(const uint16_t *x) {
  ty_long8 pieces = ty_wide_moved(*(const ty_long8_at *)x, (ty_long8){0, 4, 1, 5, 2, 6, 3, 7});
  ty_short32 both = (ty_short32)pieces, zero = {0};
  return (ty_quad){(ty_wide)__builtin_ia32_punpcklwd512_mask(zero, both, zero, TY_ALL),
                   (ty_wide)__builtin_ia32_punpckhwd512_mask(zero, both, zero, TY_ALL)};
}
#else
TY_QUAD_LOAD(bf16, uint16_t)
#endif
TY_LACED_LOAD(u8, uint8_t)
TY_LACED_LOAD(i8, int8_t)
TY_LACED_LOAD(bf16, uint16_t)
TY_LACED_LOAD(f32, float)
TY_INLINE ty_quad ty_unlaced(ty_quad x) { return x; }
#endif
#undef TY_LOAD
#undef TY_QUAD_LOAD
#undef TY_LACED_LOAD

#define TY_LIFT_1(name, result)                                                                    \
  TY_INLINE ty_row ty_one_##name(ty_row x) { return result; }                                      \
  TY_INLINE ty_quad ty_quad_##name(ty_quad x) { return TY_EACH_1(name, x); }
#define TY_LIFT_2(name, result)                                                                    \
  TY_INLINE ty_row ty_one_##name(ty_row x, ty_row y) { return result; }                            \
  TY_INLINE ty_quad ty_quad_##name(ty_quad x, ty_quad y) { return TY_EACH_2(name, x, y); }
TY_LIFT_2(add, x + y)
TY_LIFT_2(sub, x - y)
TY_LIFT_2(mul, x *y)
TY_LIFT_2(div, x / y)
TY_LIFT_2(max, TY_CHOOSE(x != x, y, ty_larger(y, x)))
TY_LIFT_2(min, TY_CHOOSE(x != x, y, -ty_larger(-y, -x)))
TY_LIFT_1(neg, -x)
TY_LIFT_1(abs, (ty_row)((ty_words)x & 0x7fffffffu))
/* What is next to x as `raised` takes it, what is left of x, and x * 2^n. */
TY_LIFT_1(whole, TY_WHOLE(x))
TY_LIFT_1(rest, x - TY_NEAREST(x))
TY_LIFT_2(raised, TY_RAISED(x, y))
TY_LIFT_1(sqrt, ty_one_root(x))
TY_LIFT_1(rsqrt, 1 / ty_one_root(x))
TY_LIFT_1(round_f16, ty_round_row_f16(x))
TY_INLINE ty_row ty_one_round_bf16(ty_row x) { return ty_round_row_bf16(x); }
/* The bits of numbers, rounded to the first sixteen of them; what becomes of NaN is not stated. */
TY_INLINE ty_words ty_easy_bf16(ty_row x) {
  return (ty_words)x + (((ty_words)x >> 16) & 1u) + 0x7fffu;
}
TY_INLINE ty_row ty_one_easily_round_bf16(ty_row x) {
  return (ty_row)(ty_easy_bf16(x) & 0xffff0000u);
}
TY_INLINE ty_quad ty_quad_round_bf16(ty_quad x) {
  return __builtin_expect(ty_has_nan(x), 0) ? TY_EACH_1(round_bf16, x)
                                            : TY_EACH_1(easily_round_bf16, x);
}
TY_INLINE ty_row ty_one_fma(ty_row x, ty_row y, ty_row z) { return TY_VECTOR_FMA(x, y, z); }
TY_INLINE ty_quad ty_quad_fma(ty_quad x, ty_quad y, ty_quad z) { return TY_EACH_3(fma, x, y, z); }
TY_INLINE ty_row ty_one_plus(ty_row x, float y) { return ty_one_add(x, ty_one_of(y)); }
TY_INLINE ty_quad ty_quad_plus(ty_quad x, float y) { return ty_quad_add(x, ty_quad_of(y)); }
TY_INLINE ty_row ty_one_step(ty_row p, ty_row x, float y) { return ty_one_fma(p, x, ty_one_of(y)); }
TY_INLINE ty_quad ty_quad_step(ty_quad p, ty_quad x, float y) {
  return ty_quad_fma(p, x, ty_quad_of(y));
}
#if TY_WIDE
/* x, but not below `low` nor above `high`; NaN as it is. */
TY_INLINE ty_row ty_one_within(ty_row x, float low, float high) {
  return __builtin_ia32_minps256(ty_one_of(high), __builtin_ia32_maxps256(ty_one_of(low), x));
}
TY_INLINE ty_wide ty_wide_within(ty_wide x, float low, float high) {
  return ty_wide_smaller(ty_wide_of(high), ty_wide_larger(ty_wide_of(low), x));
}
TY_INLINE ty_quad ty_quad_within(ty_quad x, float low, float high) {
  return (ty_quad){ty_wide_within(x.a, low, high), ty_wide_within(x.b, low, high)};
}
#endif
#undef TY_LIFT_1
#undef TY_LIFT_2

#endif
