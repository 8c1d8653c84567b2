// Floating-point numbers of 16 bits, held as their bits and computed with as float.
#pragma once

#include <cstdint>

namespace sim {

// IEEE binary16.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(float value);
  explicit operator float() const;
};

// The upper half of an IEEE binary32.
struct Bfloat16 {
  uint16_t bits = 0;
  Bfloat16() = default;
  explicit Bfloat16(float value);
  explicit operator float() const;
};

}  // namespace sim
