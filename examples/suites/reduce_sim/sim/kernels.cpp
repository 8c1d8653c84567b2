#include "kernels.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "numbers.h"

namespace sim {
namespace {

// What the vector unit computes with: floats of 16 bits are widened.
template <typename T>
using Wide = std::conditional_t<std::is_integral_v<T>, int32_t, float>;

template <typename T>
Wide<T> widen(T value) {
  return static_cast<Wide<T>>(value);
}

// A line to be reduced: `count` elements from `first` on, `step` apart.
struct Line {
  size_t first;
  size_t step;
  int count;
};

Line line_of(const Case& what, size_t number) {
  const auto columns = static_cast<size_t>(what.columns);
  if (what.axis == 1) return {number * columns, 1, what.valid_columns};
  return {number, columns, what.valid_rows};
}

template <typename T>
std::vector<T> load_input(Machine& machine, const Case& what) {
  return machine.load<T>("input.bin", static_cast<size_t>(what.rows) * what.columns);
}

// Calls `find(line)` for each line that counts, and stores what it finds.
template <typename Out, typename Find>
void for_lines(Machine& machine, const Case& what, Find find) {
  const bool is_row = what.axis == 1;
  std::vector<Out> result(is_row ? what.rows : what.columns);
  const size_t count = is_row ? what.valid_rows : what.valid_columns;
  for (size_t number = 0; number < count; ++number) {
    const Line line = line_of(what, number);
    machine.spend((line.count + kLanes - 1) / kLanes + 3);
    result[number] = static_cast<Out>(find(line));
  }
  machine.store("output.bin", result);
}

// Each lane folds every eighth element; then the lanes are folded in three steps.
template <typename T, typename Fold>
void reduce(Machine& machine, const Case& what, Wide<T> neutral, Fold fold) {
  const auto data = load_input<T>(machine, what);
  for_lines<T>(machine, what, [&](const Line& line) {
    Wide<T> lanes[kLanes];
    std::fill(lanes, lanes + kLanes, neutral);
    for (int i = 0; i < line.count; ++i) {
      lanes[i % kLanes] = fold(lanes[i % kLanes], widen(data[line.first + i * line.step]));
    }
    for (int width = kLanes / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) lanes[i] = fold(lanes[i], lanes[i + width]);
    }
    return lanes[0];
  });
}

// Each lane remembers where it found its best; of equal ones the first counts.
template <typename T, typename Better>
void find_best(Machine& machine, const Case& what, Better better) {
  const auto data = load_input<T>(machine, what);
  for_lines<int32_t>(machine, what, [&](const Line& line) {
    auto at = [&](int i) { return widen(data[line.first + i * line.step]); };
    auto pick = [&](int a, int b) {
      return better(at(b), at(a)) || (at(a) == at(b) && b < a) ? b : a;
    };
    int lanes[kLanes] = {};
    for (int i = 0; i < line.count; ++i) lanes[i % kLanes] = pick(lanes[i % kLanes], i);
    for (int i = 1; i < kLanes; ++i) lanes[0] = pick(lanes[0], lanes[i]);
    return lanes[0];
  });
}

template <typename In, typename Out>
void cast(Machine& machine, const Case& what) {
  const auto data = load_input<In>(machine, what);
  std::vector<Out> result(data.size());
  for (size_t i = 0; i < data.size(); ++i) result[i] = static_cast<Out>(widen(data[i]));
  machine.spend(data.size() / kLanes);
  machine.store("output.bin", result);
}

template <typename T>
void cast_from(Machine& machine, const Case& what) {
  switch (what.out) {
    case Type::f32: return cast<T, float>(machine, what);
    case Type::f16: return cast<T, Half>(machine, what);
    case Type::bf16: return cast<T, Bfloat16>(machine, what);
    case Type::i32: return cast<T, int32_t>(machine, what);
    case Type::i8: return cast<T, int8_t>(machine, what);
  }
}

template <typename T>
void run_on(Machine& machine, const Case& what) {
  using W = Wide<T>;
  switch (what.op) {
    case Op::sum: return reduce<T>(machine, what, 0, [](W a, W b) { return a + b; });
    case Op::prod: return reduce<T>(machine, what, 1, [](W a, W b) { return a * b; });
    case Op::min:
      return reduce<T>(machine, what, std::numeric_limits<W>::max(),
                       [](W a, W b) { return std::min(a, b); });
    case Op::max:
      return reduce<T>(machine, what, std::numeric_limits<W>::lowest(),
                       [](W a, W b) { return std::max(a, b); });
    case Op::argmax: return find_best<T>(machine, what, [](W a, W b) { return a > b; });
    case Op::argmin: return find_best<T>(machine, what, [](W a, W b) { return a < b; });
    case Op::cast: return cast_from<T>(machine, what);
  }
}

}  // namespace

void run_kernel(Machine& machine, const Case& what) {
  switch (what.in) {
    case Type::f32: return run_on<float>(machine, what);
    case Type::f16: return run_on<Half>(machine, what);
    case Type::bf16: return run_on<Bfloat16>(machine, what);
    case Type::i32: return run_on<int32_t>(machine, what);
    case Type::i8: return run_on<int8_t>(machine, what);
  }
}

}  // namespace sim
