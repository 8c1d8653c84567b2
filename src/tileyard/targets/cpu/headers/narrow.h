/* Narrow floats: values are kept in float, each operation rounds its result. */
#ifndef TY_NARROW_H
#define TY_NARROW_H

#include "floats.h"

TY_INLINE float ty_with_sign(uint32_t magnitude, uint32_t sign) {
  return ty_from_bits_f32(magnitude | (sign & 0x80000000u));
}

/* Rounds |x| to `23 - shift` bits after the first, not below exponent `least`; half to even. */
TY_INLINE float ty_round_magnitude(float a, float least, float most, float shift) {
  float unit = ty_from_bits_f32(ty_to_bits_f32(a) & 0x7f800000u);
  unit = unit < least ? least : unit;
  unit = unit > most ? most : unit;
  float big = unit * shift;
  return (a + big) - big;
}

TY_INLINE float ty_round_f16(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  float r = ty_round_magnitude(ty_from_bits_f32(bits & 0x7fffffffu), 0x1p-14f, 0x1p16f, 0x1p13f);
  r = r > 65504.0f ? TY_INF : r;
  return ty_with_sign(ty_to_bits_f32(r) & 0x7fffffffu, bits);
}
TY_INLINE float ty_round_bf16(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;
  return ty_from_bits_f32(x == x ? rounded : 0x7fc00000u);
}
TY_INLINE float ty_round_f8e4m3(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  float r = ty_round_magnitude(ty_from_bits_f32(bits & 0x7fffffffu), 0x1p-6f, 0x1p9f, 0x1p20f);
  r = r > 448.0f ? TY_NAN : r;
  return ty_with_sign(ty_to_bits_f32(r) & 0x7fffffffu, bits);
}
TY_INLINE float ty_round_f8e5m2(float x) {
  uint32_t bits = ty_to_bits_f32(x);
  float r = ty_round_magnitude(ty_from_bits_f32(bits & 0x7fffffffu), 0x1p-14f, 0x1p16f, 0x1p21f);
  r = r > 57344.0f ? TY_INF : r;
  return ty_with_sign(ty_to_bits_f32(r) & 0x7fffffffu, bits);
}
/* To ten bits after the first, half away from zero. */
TY_INLINE float ty_round_tf32(float x) {
  uint32_t bits = ty_to_bits_f32(x), up = __builtin_fabsf(x) < TY_INF ? bits + 0x1000u : bits;
  return ty_from_bits_f32(x == x ? up & 0xffffe000u : 0x7fc00000u);
}
/* Conversions to eight bits hold the largest value instead of what is larger. */
TY_INLINE float ty_clip_f32(float x, float most) {
  float y = x > most ? most : x;
  return y < -most ? -most : y;
}
TY_INLINE float ty_saturate_f8e4m3(float x) { return ty_round_f8e4m3(ty_clip_f32(x, 448.0f)); }
TY_INLINE float ty_saturate_f8e5m2(float x) { return ty_round_f8e5m2(ty_clip_f32(x, 57344.0f)); }
/* A float that rounds to narrower types as the double does: its last bit says that it is inexact. */
TY_INLINE float ty_odd_f32(double x) {
  float r = (float)x;
  uint32_t bits = ty_to_bits_f32(r);
  int away = __builtin_fabs((double)r) > __builtin_fabs(x);
  return (double)r == x || x != x ? r : ty_from_bits_f32((bits - (uint32_t)away) | 1u);
}

/* a * b + c of narrow numbers, for one rounding to their type: the product is exact in a double, and
   an odd last bit of the sum says that it is not. */
TY_INLINE float ty_odd_fma_f32(float a, float b, float c) {
  double p = (double)a * b, s = p + c, back = s - p;
  double rest = (p - (s - back)) + (c - back);
  uint64_t bits = ty_to_bits_f64(s);
  if (rest != 0 && rest == rest && !(bits & 1))
    s = ty_from_bits_f64((rest > 0) == (s > 0) ? bits + 1 : bits - 1);
  return ty_odd_f32(s);
}

/* Values that a narrow type holds, in memory and back. */
TY_INLINE uint16_t ty_pack_f16(float r) {
  uint32_t bits = ty_to_bits_f32(r), low = ty_to_bits_f32(__builtin_fabsf(r) * 0x1p-112f) >> 13;
  low = low > 0x7c00u ? 0x7c00u : low;
  low = r == r ? low : 0x7e00u;
  return (uint16_t)(low | ((bits >> 16) & 0x8000u));
}
TY_INLINE uint16_t ty_to_f16(float x) { return ty_pack_f16(ty_round_f16(x)); }
TY_INLINE float ty_from_f16(uint16_t h) {
  uint32_t low = ((uint32_t)h & 0x7fffu) << 13;
  uint32_t bits = ty_to_bits_f32(ty_from_bits_f32(low) * 0x1p112f);
  bits = low >= 0x0f800000u ? bits | 0x7f800000u : bits;
  return ty_with_sign(bits, (uint32_t)h << 16);
}
TY_INLINE uint16_t ty_pack_bf16(float r) { return (uint16_t)(ty_to_bits_f32(r) >> 16); }
TY_INLINE uint16_t ty_to_bf16(float x) { return ty_pack_bf16(ty_round_bf16(x)); }
TY_INLINE float ty_from_bf16(uint16_t h) { return ty_from_bits_f32((uint32_t)h << 16); }
TY_INLINE uint8_t ty_pack_f8e4m3(float r) {
  uint32_t low = ty_to_bits_f32(__builtin_fabsf(r) * 0x1p-120f) >> 20;
  low = r == r ? low : 0x7fu;
  return (uint8_t)(low | ((ty_to_bits_f32(r) >> 24) & 0x80u));
}
TY_INLINE uint8_t ty_to_f8e4m3(float x) { return ty_pack_f8e4m3(ty_round_f8e4m3(x)); }
TY_INLINE float ty_from_f8e4m3(uint8_t h) {
  float x = ty_from_bits_f32(((uint32_t)h & 0x7fu) << 20) * 0x1p120f;
  x = (h & 0x7fu) == 0x7fu ? TY_NAN : x;
  return ty_with_sign(ty_to_bits_f32(x), (uint32_t)h << 24);
}
TY_INLINE uint8_t ty_pack_f8e5m2(float r) { return (uint8_t)(ty_pack_f16(r) >> 8); }
TY_INLINE uint8_t ty_to_f8e5m2(float x) { return ty_pack_f8e5m2(ty_round_f8e5m2(x)); }
TY_INLINE float ty_from_f8e5m2(uint8_t h) { return ty_from_f16((uint16_t)((uint32_t)h << 8)); }

TY_INLINE float ty_pack_tf32(float r) { return r; }
TY_INLINE float ty_from_tf32(float x) {
  return ty_from_bits_f32(ty_to_bits_f32(x) & 0xffffe000u);
}

/* Floats to integers: towards zero, to the nearest end where out of range, NaN to 0. */
#define TY_TRUNCATE(suffix, type, low, high)                                                       \
  TY_INLINE type ty_truncate_f32_##suffix(float x) {                                               \
    float inside = x > (float)(low) && x < (float)(high) ? x : 0.0f;                               \
    type ends = x >= (float)(high) ? (high) : (low);                                               \
    int in = (x > (float)(low) && x < (float)(high)) || x != x;                                    \
    return in ? (type)inside : ends;                                                               \
  }                                                                                                \
  TY_INLINE type ty_truncate_f64_##suffix(double x) {                                              \
    double inside = x > (double)(low) && x < (double)(high) ? x : 0.0;                             \
    type ends = x >= (double)(high) ? (high) : (low);                                              \
    int in = (x > (double)(low) && x < (double)(high)) || x != x;                                  \
    return in ? (type)inside : ends;                                                               \
  }
TY_TRUNCATE(i8, int8_t, INT8_MIN, INT8_MAX)
TY_TRUNCATE(i16, int16_t, INT16_MIN, INT16_MAX)
TY_TRUNCATE(i32, int32_t, INT32_MIN, INT32_MAX)
TY_TRUNCATE(i64, int64_t, INT64_MIN, INT64_MAX)
TY_TRUNCATE(u8, uint8_t, 0, UINT8_MAX)
TY_TRUNCATE(u16, uint16_t, 0, UINT16_MAX)
TY_TRUNCATE(u32, uint32_t, 0, UINT32_MAX)
TY_TRUNCATE(u64, uint64_t, 0, UINT64_MAX)
#undef TY_TRUNCATE

#endif
