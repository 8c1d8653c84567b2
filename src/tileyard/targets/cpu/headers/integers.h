/* Bits of numbers, and integers: they wrap, divide towards minus infinity, refuse what has no meaning. */
#ifndef TY_INTEGERS_H
#define TY_INTEGERS_H

#include "report.h"

#define TY_BITS(name, to, from)                                                                    \
  TY_INLINE to name(from x) {                                                                      \
    to y;                                                                                          \
    memcpy(&y, &x, sizeof y);                                                                      \
    return y;                                                                                      \
  }
TY_BITS(ty_to_bits_f32, uint32_t, float)
TY_BITS(ty_from_bits_f32, float, uint32_t)
TY_BITS(ty_to_bits_f64, uint64_t, double)
TY_BITS(ty_from_bits_f64, double, uint64_t)
#undef TY_BITS

/* Reports that `value` is wrong at `site` unless it holds, and gives whether it holds. */
TY_INLINE int ty_require(int holds, ty_fault *fault, int32_t site, int64_t value) {
  if (!holds && !fault->site)
    *fault = (ty_fault){site, value};
  return holds;
}

#define TY_INTEGER(suffix, type, word)                                                             \
  TY_INLINE type ty_add_##suffix(type a, type b) { return (type)((word)a + (word)b); }             \
  TY_INLINE type ty_sub_##suffix(type a, type b) { return (type)((word)a - (word)b); }             \
  TY_INLINE type ty_mul_##suffix(type a, type b) { return (type)((word)a * (word)b); }             \
  TY_INLINE type ty_neg_##suffix(type a) { return (type)((word)0 - (word)a); }                     \
  TY_INLINE type ty_abs_##suffix(type a) { return a < 0 ? ty_neg_##suffix(a) : a; }                \
  TY_INLINE type ty_min_##suffix(type a, type b) { return b < a ? b : a; }                         \
  TY_INLINE type ty_max_##suffix(type a, type b) { return b > a ? b : a; }                         \
  TY_INLINE type ty_popcount_##suffix(type a) {                                                    \
    return (type)__builtin_popcountll((uint64_t)a & ((word)-1 >> (8 * (sizeof(word) - sizeof a))));  \
  }                                                                                                \
  TY_INLINE type ty_clz_##suffix(type a) {                                                         \
    uint64_t bits = (uint64_t)a & ((word)-1 >> (8 * (sizeof(word) - sizeof a)));                   \
    return (type)(bits ? __builtin_clzll(bits) - 64 + (int)(8 * sizeof a) : (int)(8 * sizeof a));  \
  }                                                                                                \
  TY_INLINE type ty_shl_##suffix(type a, type n) { return (type)((word)a << n); }                  \
  TY_INLINE type ty_truncdiv_##suffix(type a, type b) {                                            \
    return b == (type)-1 && (type)-1 < 0 ? ty_neg_##suffix(a) : (type)(a / b);                     \
  }                                                                                                \
  TY_INLINE type ty_truncmod_##suffix(type a, type b) {                                            \
    return b == (type)-1 && (type)-1 < 0 ? 0 : (type)(a % b);                                      \
  }                                                                                                \
  TY_INLINE type ty_floormod_##suffix(type a, type b) {                                            \
    type rest = ty_truncmod_##suffix(a, b);                                                        \
    return rest != 0 && (rest < 0) != (b < 0) ? (type)(rest + b) : rest;                           \
  }                                                                                                \
  TY_INLINE type ty_floordiv_##suffix(type a, type b) {                                            \
    type rest = ty_truncmod_##suffix(a, b), whole = ty_truncdiv_##suffix(a, b);                    \
    return rest != 0 && (rest < 0) != (b < 0) ? (type)(whole - 1) : whole;                         \
  }                                                                                                \
  TY_INLINE type ty_divisor_##suffix(type b, ty_fault *fault, int32_t site) {                      \
    return ty_require(b != 0, fault, site, 0) ? b : 1;                                             \
  }                                                                                                \
  TY_INLINE type ty_count_##suffix(type n, ty_fault *fault, int32_t site) {                        \
    return ty_require(n >= 0 && n < (type)(sizeof(type) * 8), fault, site, (int64_t)n) ? n : 0;    \
  }
TY_INTEGER(i8, int8_t, uint32_t)
TY_INTEGER(i16, int16_t, uint32_t)
TY_INTEGER(i32, int32_t, uint32_t)
TY_INTEGER(i64, int64_t, uint64_t)
TY_INTEGER(u8, uint8_t, uint32_t)
TY_INTEGER(u16, uint16_t, uint32_t)
TY_INTEGER(u32, uint32_t, uint32_t)
TY_INTEGER(u64, uint64_t, uint64_t)
#undef TY_INTEGER

TY_INLINE int ty_inside(int64_t index, int64_t extent) {
  return (uint64_t)index < (uint64_t)extent;
}
/* An index into a tile: outside is a fault, and the first element is taken instead. */
TY_INLINE int64_t ty_index(int64_t index, int64_t extent, ty_fault *fault, int32_t site) {
  return ty_require(ty_inside(index, extent), fault, site, index) ? index : 0;
}

#endif
