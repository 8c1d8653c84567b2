/* Passes over rows take four vectors at a time, a quad, or one: loads and arithmetic of both. */
#ifndef TY_QUADS_H
#define TY_QUADS_H

#include "large.h"

typedef struct {
  ty_row a, b, c, d;
} ty_quad;
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
TY_INLINE ty_row ty_one_sqrt(ty_row x) { return __builtin_ia32_sqrtps256(x); }
#else
TY_INLINE ty_row ty_vector_fma(ty_row x, ty_row y, ty_row z) {
  for (int i = 0; i < TY_LANES; ++i)
    x[i] = TY_FMA(x[i], y[i], z[i]);
  return x;
}
TY_INLINE ty_row ty_one_sqrt(ty_row x) {
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
TY_INLINE int ty_has_nan(ty_quad x) {
  return TY_ANY(TY_EITHER_NAN(x.a, x.b) | TY_EITHER_NAN(x.c, x.d));
}

TY_INLINE ty_row ty_one_of(float x) { return x - (ty_row){0}; }
TY_INLINE ty_quad ty_quad_of(float x) {
  ty_row all = ty_one_of(x);
  return (ty_quad){all, all, all, all};
}

#define TY_LOAD(name, type)                                                                        \
  TY_INLINE ty_row ty_one_load_##name(const type *x) { return ty_load_##name(x); }
#define TY_QUAD_LOAD(name, type)                                                                   \
  TY_INLINE ty_quad ty_quad_load_##name(const type *x) {                                           \
    return (ty_quad){ty_load_##name(x), ty_load_##name(x + TY_LANES),                              \
                     ty_load_##name(x + 2 * TY_LANES), ty_load_##name(x + 3 * TY_LANES)};          \
  }
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
#if defined(__AVX2__) && !defined(__clang__)
/* Bytes of both halves of a vector, picked within each half: a third of what pmovzx costs. `a` to `d`
   are the first elements of the halves' fours, of which each is at the end of its 32 bits. */
typedef char ty_char32 __attribute__((vector_size(32)));
typedef char ty_char16_at __attribute__((vector_size(16), aligned(1), may_alias));
typedef short ty_short16 __attribute__((vector_size(32)));
typedef short ty_short16_at __attribute__((vector_size(32), aligned(2), may_alias));
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
TY_QUAD_LOAD(bf16, uint16_t)
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
  TY_INLINE ty_quad ty_quad_##name(ty_quad x) {                                                    \
    return (ty_quad){ty_one_##name(x.a), ty_one_##name(x.b), ty_one_##name(x.c),                   \
                     ty_one_##name(x.d)};                                                          \
  }
#define TY_LIFT_2(name, result)                                                                    \
  TY_INLINE ty_row ty_one_##name(ty_row x, ty_row y) { return result; }                            \
  TY_INLINE ty_quad ty_quad_##name(ty_quad x, ty_quad y) {                                         \
    return (ty_quad){ty_one_##name(x.a, y.a), ty_one_##name(x.b, y.b), ty_one_##name(x.c, y.c),    \
                     ty_one_##name(x.d, y.d)};                                                     \
  }
TY_LIFT_2(add, x + y)
TY_LIFT_2(sub, x - y)
TY_LIFT_2(mul, x *y)
TY_LIFT_2(div, x / y)
TY_LIFT_2(max, TY_CHOOSE(x != x, y, ty_larger(y, x)))
TY_LIFT_2(min, TY_CHOOSE(x != x, y, -ty_larger(-y, -x)))
TY_LIFT_1(neg, -x)
TY_LIFT_1(abs, (ty_row)((ty_words)x & 0x7fffffffu))
/* The exponent that stands in the last bits of `y` is added to x's. */
TY_LIFT_2(exponent, (ty_row)((ty_words)x + ((ty_words)y << 23)))
TY_LIFT_1(nearest, TY_NEAREST(x))
TY_LIFT_1(nearest_words, TY_NEAREST_WORDS(x))
TY_LIFT_1(rsqrt, 1 / ty_one_sqrt(x))
TY_LIFT_1(round_f16, ty_round_row_f16(x))
TY_INLINE ty_quad ty_quad_sqrt(ty_quad x) {
  return (ty_quad){ty_one_sqrt(x.a), ty_one_sqrt(x.b), ty_one_sqrt(x.c), ty_one_sqrt(x.d)};
}
TY_INLINE ty_row ty_one_round_bf16(ty_row x) { return ty_round_row_bf16(x); }
/* The bits of numbers, rounded to the first sixteen of them; what becomes of NaN is not stated. */
TY_INLINE ty_words ty_easy_bf16(ty_row x) {
  return (ty_words)x + (((ty_words)x >> 16) & 1u) + 0x7fffu;
}
TY_INLINE ty_quad ty_quad_round_bf16(ty_quad x) {
  if (__builtin_expect(ty_has_nan(x), 0))
    return (ty_quad){ty_round_row_bf16(x.a), ty_round_row_bf16(x.b), ty_round_row_bf16(x.c),
                     ty_round_row_bf16(x.d)};
  return (ty_quad){(ty_row)(ty_easy_bf16(x.a) & 0xffff0000u), (ty_row)(ty_easy_bf16(x.b) & 0xffff0000u),
                   (ty_row)(ty_easy_bf16(x.c) & 0xffff0000u), (ty_row)(ty_easy_bf16(x.d) & 0xffff0000u)};
}
TY_INLINE ty_row ty_one_fma(ty_row x, ty_row y, ty_row z) { return TY_VECTOR_FMA(x, y, z); }
TY_INLINE ty_quad ty_quad_fma(ty_quad x, ty_quad y, ty_quad z) {
  return (ty_quad){ty_one_fma(x.a, y.a, z.a), ty_one_fma(x.b, y.b, z.b), ty_one_fma(x.c, y.c, z.c),
                   ty_one_fma(x.d, y.d, z.d)};
}
TY_INLINE ty_row ty_one_plus(ty_row x, float y) { return ty_one_add(x, ty_one_of(y)); }
TY_INLINE ty_quad ty_quad_plus(ty_quad x, float y) { return ty_quad_add(x, ty_quad_of(y)); }
TY_INLINE ty_row ty_one_step(ty_row p, ty_row x, float y) { return ty_one_fma(p, x, ty_one_of(y)); }
TY_INLINE ty_quad ty_quad_step(ty_quad p, ty_quad x, float y) {
  return ty_quad_fma(p, x, ty_quad_of(y));
}
#undef TY_LIFT_1
#undef TY_LIFT_2

#endif
