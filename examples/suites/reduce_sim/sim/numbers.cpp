#include "numbers.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sim {

Half::Half(float value) {
  const uint32_t sign = std::bit_cast<uint32_t>(value) >> 31 << 15;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) {
    bits = static_cast<uint16_t>(sign | 0x7e00);
  } else if (magnitude >= 65520.0f) {
    bits = static_cast<uint16_t>(sign | 0x7c00);  // rounds to more than the largest number
  } else {
    // The spacing of binary16 at this magnitude: ten bits below the leading one, 2^-24 at least.
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const int spacing = std::max(exponent - 11, -24);
    // Rounds half to even, as the processor's rounding mode is.
    const auto units = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, -spacing)));
    // A carry out of the ten bits moves on to the next exponent by itself.
    bits = static_cast<uint16_t>(sign | ((static_cast<uint32_t>(spacing + 24) << 10) + units));
  }
}

Half::operator float() const {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  float value = 0.0f;
  if (exponent == 31) {
    value = fraction ? NAN : INFINITY;
  } else {
    value = exponent ? std::ldexp(static_cast<float>(1024 + fraction), exponent - 25)
                     : std::ldexp(static_cast<float>(fraction), -24);
  }
  return bits >> 15 ? -value : value;
}

Bfloat16::Bfloat16(float value) {
  const auto whole = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) {
    bits = static_cast<uint16_t>(whole >> 16 | 64);
  } else {
    // Half of the last kept bit, less one where that bit is even: ties go to even.
    bits = static_cast<uint16_t>((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
  }
}

Bfloat16::operator float() const {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace sim
